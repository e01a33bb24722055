//! Telling a block device that a range is not wanted any more (`BLKDISCARD`).
//!
//! It lives here because an `ioctl` needs `unsafe`, and this layer is where that is at home.

use std::os::fd::AsFd;

/// Asks for it; whether the device does anything is its own affair, and its refusal is nobody's problem.
#[cfg(target_os = "linux")]
pub fn block_device(file: impl AsFd, offset: u64, length: u64) {
    use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

    /// `_IO(0x12, 119)` of `linux/fs.h`, which takes a pointer to offset and length all the same.
    const DISCARD: Opcode = opcode::none(0x12, 119);
    // SAFETY: the call reads two 64-bit numbers through its argument, which is what the array is.
    let _ = unsafe { ioctl(file, Setter::<DISCARD, [u64; 2]>::new([offset, length])) };
}

/// Other systems have other calls.
#[cfg(not(target_os = "linux"))]
pub fn block_device(_file: impl AsFd, _offset: u64, _length: u64) {}
