//! Gives a block the identity that its place demands, so that a verifier looks further.

use format::checksum;

/// Writes bytes at an offset, as far as they fit.
pub fn put(block: &mut [u8], offset: usize, bytes: &[u8]) {
    if let Some(place) = offset.checked_add(bytes.len()).and_then(|end| block.get_mut(offset..end)) {
        place.copy_from_slice(bytes);
    }
}

/// Writes several fields, then the checksum of the whole block at `crc`.
pub fn fields(block: &mut [u8], fields: &[(usize, &[u8])], crc: usize) {
    for (offset, bytes) in fields {
        put(block, *offset, bytes);
    }
    checksum::store(block, crc);
}
