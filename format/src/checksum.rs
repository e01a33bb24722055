//! CRC32C over a whole structure, with the four bytes of the checksum field taken as zero; stored little-endian.
//! (Format document, "Metadata Integrity".)

use crc_fast::{CrcAlgorithm, Digest};

use crate::damage::Damage;

/// Computes the checksum of `bytes` whose field is at `offset`; `None` if the field lies outside.
pub fn compute(bytes: &[u8], offset: usize) -> Option<u32> {
    let head = bytes.get(..offset)?;
    let tail = bytes.get(offset.checked_add(4)?..)?;
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(head);
    digest.update(&[0; 4]);
    digest.update(tail);
    Some(digest.finalize() as u32)
}

/// The checksum stored in `bytes` at `offset`.
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

/// Computes and stores the checksum in `bytes` at `offset`. Returns `false`, and writes nothing, if the field lies
/// outside.
pub fn store(bytes: &mut [u8], offset: usize) -> bool {
    let set = |bytes: &mut [u8], field: [u8; 4]| {
        let place = bytes.get_mut(offset..).and_then(|rest| rest.first_chunk_mut());
        place.map(|place| *place = field).is_some()
    };
    if !set(bytes, [0; 4]) {
        return false;
    }
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(bytes);
    set(bytes, (digest.finalize() as u32).to_le_bytes())
}

/// Like [`store`], for a structure that consists of `head` followed by zeros, which are not read.
pub fn store_before(head: &mut [u8], offset: usize, rest: &ZeroRun) -> bool {
    if !store(head, offset) {
        return false;
    }
    let place = head.get_mut(offset..).and_then(|rest| rest.first_chunk_mut());
    let set = place.map(|place| *place = (!rest.behind(!u32::from_le_bytes(*place))).to_le_bytes());
    set.is_some()
}

/// CRC32C of bytes without a checksum field, continuing from `seed` and without the usual inversions. The checksum of
/// log records is computed in steps with it.
pub fn raw(seed: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(seed));
    digest.update(bytes);
    // `finalize` inverts; undo it so that steps can be chained.
    !(digest.finalize() as u32)
}

/// The effect of a run of zeros of fixed length on the CRC of the bytes before it. The CRC is linear, so each bit of
/// the state contributes independently, and tables for four bits at a time describe the effect.
#[derive(Clone, Debug)]
pub struct ZeroRun {
    nibbles: [[u32; 16]; 8],
}

impl ZeroRun {
    /// Builds the tables for `length` zeros.
    pub fn new(length: usize) -> Self {
        let zeros = vec![0; length];
        let mut nibbles = [[0; 16]; 8];
        for (place, table) in nibbles.iter_mut().enumerate() {
            for (value, entry) in (0u32..).zip(table) {
                *entry = raw(value << (4 * place), &zeros);
            }
        }
        Self { nibbles }
    }

    /// The CRC state after the zeros, from the state before them.
    #[inline]
    fn behind(&self, before: u32) -> u32 {
        let part = |(place, table): (usize, &[u32; 16])| {
            table.get((before >> (4 * place) & 15) as usize).copied().unwrap_or(0) // four bits of sixteen entries
        };
        self.nibbles.iter().enumerate().map(part).fold(0, |sum, part| sum ^ part)
    }
}

/// A field of four bytes in structures of fixed length, with its effect on their checksum. The CRC is linear: each bit
/// of the field changes the checksum by a fixed mask, independent of the other bytes.
#[derive(Clone, Debug)]
pub struct ChecksummedField {
    /// Offset of the field.
    at: usize,
    /// Offset of the checksum.
    checksum_at: usize,
    /// The mask of each bit, the lowest bit of the field's big-endian number first.
    bits: [u32; 32],
}

impl ChecksummedField {
    /// A field at offset `at` in structures of `length` bytes whose checksum is at `checksum_at`.
    pub fn new(length: usize, at: usize, checksum_at: usize) -> Self {
        let mut bytes = vec![0; length];
        let bits = std::array::from_fn(|bit| {
            let field = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>());
            if let Some(field) = field {
                *field = (1u32 << bit).to_be_bytes();
            }
            raw(0, &bytes)
        });
        Self { at, checksum_at, bits }
    }

    /// Stores a number and updates the checksum. A checksum that was wrong before stays wrong. Nothing is written if
    /// `bytes` are too few.
    pub fn store(&self, bytes: &mut [u8], number: u32) {
        let fields = bytes.get_disjoint_mut([self.at..self.at + 4, self.checksum_at..self.checksum_at + 4]);
        let Ok([field, checksum]) = fields else { return };
        let (Some(field), Some(checksum)) = (field.first_chunk_mut(), checksum.first_chunk_mut()) else {
            return;
        };
        let differs = u32::from_be_bytes(*field) ^ number;
        let mut crc = u32::from_le_bytes(*checksum);
        for (bit, moves) in self.bits.iter().enumerate() {
            // A mask instead of an unpredictable branch.
            crc ^= moves & (differs >> bit & 1).wrapping_neg();
        }
        *field = number.to_be_bytes();
        *checksum = crc.to_le_bytes();
    }

    /// Prepares to number copies of the structure `model`, whose checksum is valid, with consecutive numbers: two of
    /// them mostly differ in one bit.
    pub fn counting(&self, model: &[u8]) -> CopyNumbering<'_> {
        let word = |at: usize| model.get(at..).and_then(|rest| rest.first_chunk::<4>()).copied();
        CopyNumbering {
            field: self,
            number: word(self.at).map_or(0, u32::from_be_bytes),
            checksum: word(self.checksum_at).map_or(0, u32::from_le_bytes),
        }
    }
}

/// Numbers copies of one structure: see [`ChecksummedField::counting`].
#[derive(Clone, Debug)]
pub struct CopyNumbering<'f> {
    field: &'f ChecksummedField,
    /// Number of the last copy.
    number: u32,
    checksum: u32,
}

impl CopyNumbering<'_> {
    /// Stores a number and the matching checksum in a copy. Nothing is written if `bytes` are too few.
    pub fn store(&mut self, bytes: &mut [u8], number: u32) {
        let mut differs = self.number ^ number;
        while differs != 0 {
            let bit = differs.trailing_zeros() as usize;
            self.checksum ^= self.field.bits.get(bit).copied().unwrap_or(0); // one of 32
            differs &= differs - 1;
        }
        self.number = number;
        let (at, checksum_at) = (self.field.at, self.field.checksum_at);
        let Ok([field, checksum]) = bytes.get_disjoint_mut([at..at + 4, checksum_at..checksum_at + 4]) else {
            return;
        };
        field.copy_from_slice(&number.to_be_bytes());
        checksum.copy_from_slice(&self.checksum.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storing_a_field_updates_the_checksum() {
        let mut bytes: Vec<u8> = (0..512u32).map(|n| (n * 7) as u8).collect();
        let field = ChecksummedField::new(bytes.len(), 96, 200);
        assert!(store(&mut bytes, 200));
        for number in [0, 1, u32::MAX, 0x8000_0000, 0x1234_5678] {
            field.store(&mut bytes, number);
            assert_eq!(bytes[96..100], number.to_be_bytes());
            assert_eq!(verify("test", &bytes, 200), Ok(()));
        }
        bytes[7] ^= 1;
        field.store(&mut bytes, 5);
        assert!(verify("test", &bytes, 200).is_err(), "damage elsewhere is not covered up");
        field.store(&mut [0; 8], 6);
    }

    #[test]
    fn numbered_copies_have_valid_checksums() {
        let mut bytes: Vec<u8> = (0..512u32).map(|n| (n * 7) as u8).collect();
        let field = ChecksummedField::new(bytes.len(), 96, 200);
        assert!(store(&mut bytes, 200));
        let mut counting = field.counting(&bytes);
        for number in [0, 1, 2, 3, u32::MAX, 0x8000_0000, 0x1234_5678] {
            counting.store(&mut bytes, number);
            assert_eq!(bytes[96..100], number.to_be_bytes());
            assert_eq!(verify("test", &bytes, 200), Ok(()));
        }
        counting.store(&mut [0; 8], 6);
    }

    #[test]
    fn zeros_after_a_head_need_not_be_read() {
        for (head, length) in [(176, 336), (176, 80), (8, 0), (100, 1), (176, 2048 - 176)] {
            let mut bytes: Vec<u8> = (0..head).map(|n| (n * 7) as u8).collect();
            assert!(store_before(&mut bytes, 4, &ZeroRun::new(length)));
            bytes.resize(head + length, 0);
            assert_eq!(verify("test", &bytes, 4), Ok(()), "{head} and {length}");
        }
        assert!(!store_before(&mut [0; 8], 6, &ZeroRun::new(8)));
    }

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
