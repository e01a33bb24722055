//! Structures into buffers.

use zerocopy::{Immutable, IntoBytes};

/// Puts a structure at a byte offset. Every caller's buffer follows from the same plan as its offsets; where they did
/// not agree, the checksum of the structure would tell.
pub fn put<T: IntoBytes + Immutable + ?Sized>(buffer: &mut [u8], at: usize, value: &T) {
    let fits = buffer.get_mut(at..).is_some_and(|rest| value.write_to_prefix(rest).is_ok());
    debug_assert!(fits, "a structure outside of its buffer, at {at}");
}

/// Stores the checksum of `buffer[from..from + length]`, whose field lies at `crc` within.
pub fn seal(buffer: &mut [u8], from: usize, length: usize, crc: usize) {
    let sealed = buffer.get_mut(from..from + length).is_some_and(|part| format::checksum::store(part, crc));
    debug_assert!(sealed, "a checksum outside of its buffer, at {from}");
}
