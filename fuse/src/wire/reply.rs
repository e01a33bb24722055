//! A reply, put together where it is sent from.

use base::errno::EIO;
use fuse_abi::linux::fuse_out_header;
use zerocopy::{Immutable, IntoBytes};

use crate::operations::Errno;

const HEADER: usize = size_of::<fuse_out_header>();

/// Bytes around a reply's contents.
pub const OVERHEAD: usize = 4096;

/// Memory of a thread's replies, one after the other: that of the header, and of the longest that can follow.
#[derive(Debug)]
pub struct Reply {
    bytes: Box<[u8]>,
    /// What follows the header so far.
    length: usize,
}

impl Reply {
    /// With room for so many bytes of contents.
    pub fn new(most: usize) -> Self {
        Self { bytes: vec![0; HEADER + OVERHEAD + most].into(), length: 0 }
    }

    /// Begins another.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Appends a structure.
    pub fn push<T: IntoBytes + Immutable>(&mut self, what: &T) {
        self.push_bytes(what.as_bytes());
    }

    /// Appends bytes. Where there is no room, which no caller makes happen, the reply is cut off and the kernel refuses
    /// it.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        if let Some(room) = self.room(bytes.len()) {
            room.copy_from_slice(bytes);
            self.length += bytes.len();
        }
    }

    /// Appends zeros up to a multiple of 8 bytes.
    pub fn pad(&mut self) {
        let by = self.length.next_multiple_of(8) - self.length;
        self.push_bytes([0; 8].get(..by).unwrap_or_default());
    }

    /// Lets `fill` write up to `most` bytes behind what is there, and appends as many as it says.
    pub fn fill<E>(
        &mut self,
        most: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        let most = most.min(self.bytes.len() - HEADER - self.length);
        let written = fill(self.room(most).unwrap_or_default())?;
        self.length += written.min(most);
        Ok(())
    }

    fn room(&mut self, count: usize) -> Option<&mut [u8]> {
        self.bytes.get_mut(HEADER + self.length..)?.get_mut(..count)
    }

    /// All of it, as the answer to the request of this number.
    pub fn done(&mut self, unique: u64) -> &[u8] {
        let length = self.length;
        self.with_header(unique, 0, length)
    }

    /// An error in its place.
    pub fn error(&mut self, unique: u64, errno: Errno) -> &[u8] {
        // The kernel takes nothing else for an error.
        let number = errno.0.get();
        let number = if (1..512).contains(&number) { number } else { EIO.get() };
        self.with_header(unique, -number, 0)
    }

    fn with_header(&mut self, unique: u64, error: i32, length: usize) -> &[u8] {
        let len = HEADER + length;
        let header = fuse_out_header { len: len as u32, error, unique }; // at most some MiB
        if let Some(place) = self.bytes.get_mut(..HEADER) {
            place.copy_from_slice(header.as_bytes());
        }
        self.bytes.get(..len).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_left_out() {
        let mut reply = Reply::new(0);
        reply.push_bytes(&[1; OVERHEAD]);
        reply.push_bytes(&[2]);
        assert_eq!(reply.done(7).len(), HEADER + OVERHEAD);
        reply.clear();
        reply.fill(usize::MAX, |room| Ok::<_, Errno>(room.len())).unwrap();
        assert_eq!(reply.len(), OVERHEAD);
    }

    #[test]
    fn an_error_is_one_that_the_kernel_knows() {
        let mut reply = Reply::new(0);
        let error = |bytes: &[u8]| i32::from_ne_bytes(bytes[4..8].try_into().unwrap());
        assert_eq!(error(reply.error(1, Errno(base::errno::Errno::new(2)))), -2);
        assert_eq!(error(reply.error(1, Errno(base::errno::Errno::new(0)))), -EIO.get());
        assert_eq!(error(reply.error(1, Errno(base::errno::Errno::new(100_000)))), -EIO.get());
    }
}
