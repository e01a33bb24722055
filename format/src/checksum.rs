//! CRC32C over a whole structure, with the four bytes of the checksum field itself taken as zero, stored little-endian.
//! (Format document, "Metadata Integrity".)

use crc_fast::{CrcAlgorithm, Digest};

use crate::damage::Damage;

/// The checksum that `bytes` should carry at `offset`; `None` where the field lies outside of them.
pub fn compute(bytes: &[u8], offset: usize) -> Option<u32> {
    let head = bytes.get(..offset)?;
    let tail = bytes.get(offset.checked_add(4)?..)?;
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(head);
    digest.update(&[0; 4]);
    digest.update(tail);
    Some(digest.finalize() as u32)
}

/// The checksum that `bytes` do carry at `offset`.
pub fn stored(bytes: &[u8], offset: usize) -> Option<u32> {
    let field = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_le_bytes(field.try_into().ok()?))
}

/// Compares the stored with the computed checksum.
pub fn verify(structure: &'static str, bytes: &[u8], offset: usize) -> Result<(), Damage> {
    match (compute(bytes, offset), stored(bytes, offset)) {
        (Some(expected), Some(found)) if expected == found => Ok(()),
        (Some(expected), Some(found)) => Err(Damage::new(
            structure,
            "crc",
            format_args!("{expected:#010x}"),
            format_args!("{found:#010x}"),
        )),
        _ => Err(Damage::short(structure, offset.saturating_add(4), bytes.len())),
    }
}

/// Writes the checksum into `bytes` at `offset`. Returns `false`, with nothing written, where the field lies outside.
pub fn store(bytes: &mut [u8], offset: usize) -> bool {
    let Some(crc) = compute(bytes, offset) else { return false };
    match bytes.get_mut(offset..offset.saturating_add(4)) {
        Some(field) => {
            field.copy_from_slice(&crc.to_le_bytes());
            true
        }
        None => false,
    }
}

/// CRC32C of bytes that carry no checksum field of their own, continuing from `seed` without the usual inversions.
///
/// The journal's record checksum is built in steps like this.
pub fn raw(seed: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(seed));
    digest.update(bytes);
    // `finalize` inverts; undo it, so that steps can be chained.
    !(digest.finalize() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_checksum_verifies_and_any_flipped_bit_does_not() {
        let mut bytes: Vec<u8> = (0..512u32).map(|n| (n * 7) as u8).collect();
        assert!(store(&mut bytes, 100));
        assert_eq!(verify("test", &bytes, 100), Ok(()));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(verify("test", &bytes, 100).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_field_outside_of_the_bytes_is_an_error_not_a_panic() {
        assert!(verify("test", &[0; 8], 5).is_err());
        assert!(verify("test", &[0; 8], usize::MAX).is_err());
        assert!(!store(&mut [0; 8], 6));
    }

    #[test]
    fn steps_chain_to_the_standard_value() {
        let whole = !raw(raw(!0, b"1234"), b"56789");
        assert_eq!(whole, 0xe306_9283);
    }
}
