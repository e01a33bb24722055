//! Writes the identity and checksum that a verifier expects, so that it checks the rest of a block.

use format::checksum;

/// Writes bytes at an offset if they fit.
pub fn put(block: &mut [u8], offset: usize, bytes: &[u8]) {
    if let Some(field) = offset.checked_add(bytes.len()).and_then(|end| block.get_mut(offset..end)) {
        field.copy_from_slice(bytes);
    }
}

/// Writes several fields, then the checksum of the whole block at `crc`.
pub fn fields(block: &mut [u8], fields: &[(usize, &[u8])], crc: usize) {
    for (offset, bytes) in fields {
        put(block, *offset, bytes);
    }
    checksum::store(block, crc);
}
