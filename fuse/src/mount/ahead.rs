//! How far ahead of a reader the kernel asks, which is its administrator's to say: without a word, 128 KiB, and each
//! such piece is a request.

use std::io;

use super::Mounted;

/// Bytes. A program that maps a file meets as much around a page that it misses: more would cost those that jump.
const AHEAD: u32 = 512 << 10;

impl Mounted {
    /// Has the kernel ask further ahead, for a mount of root's that requests can come from by now.
    ///
    /// # Errors
    /// `EACCES` for an ordinary user; `ENOENT` where the mount is gone, or the kernel has no such place. Nothing is
    /// wrong with the mount then.
    pub fn read_ahead(&self) -> io::Result<()> {
        let device = self.device().ok_or(io::ErrorKind::NotFound)?;
        std::fs::write(format!("/sys/class/bdi/{device}/read_ahead_kb"), (AHEAD >> 10).to_string())
    }
}
