//! Builds replies in the buffer from which they are sent.

use base::errno::EIO;
use fuse_abi::linux::fuse_out_header;
use zerocopy::{Immutable, IntoBytes};

use crate::operations::Errno;

const HEADER: usize = size_of::<fuse_out_header>();

/// Bytes of a reply in addition to data of a read.
pub const OVERHEAD: usize = 4096;

/// A buffer for the replies of a thread: the header, and the longest possible body.
#[derive(Debug)]
pub struct Reply {
    bytes: Box<[u8]>,
    /// Length of the body.
    length: usize,
}

impl Reply {
    /// A buffer for up to `max_data` bytes of data.
    pub fn new(max_data: usize) -> Self {
        Self { bytes: vec![0; HEADER + OVERHEAD + max_data].into(), length: 0 }
    }

    /// Starts a new reply.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// Length of the body.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Appends a structure.
    pub fn push<T: IntoBytes + Immutable>(&mut self, value: &T) {
        self.push_bytes(value.as_bytes());
    }

    /// Appends bytes. If they do not fit, which is a bug of the caller, they are dropped and the kernel rejects the
    /// reply.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        if let Some(target) = self.free(bytes.len()) {
            target.copy_from_slice(bytes);
            self.length += bytes.len();
        }
    }

    /// Appends zeros up to a multiple of 8 bytes.
    pub fn pad(&mut self) {
        let padding = self.length.next_multiple_of(8) - self.length;
        self.push_bytes([0; 8].get(..padding).unwrap_or_default());
    }

    /// Calls `fill` with a buffer of up to `max` bytes, and appends the number of bytes that it returns.
    pub fn fill<E>(&mut self, max: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Result<(), E> {
        let max = max.min(self.bytes.len() - HEADER - self.length);
        let written = fill(self.free(max).unwrap_or_default())?;
        self.length += written.min(max);
        Ok(())
    }

    fn free(&mut self, count: usize) -> Option<&mut [u8]> {
        self.bytes.get_mut(HEADER + self.length..)?.get_mut(..count)
    }

    /// The bytes of the reply to a request.
    pub fn finish(&mut self, unique: u64) -> &[u8] {
        let length = self.length;
        self.with_header(unique, 0, length)
    }

    /// The bytes of an error reply.
    pub fn error(&mut self, unique: u64, errno: Errno) -> &[u8] {
        // The kernel accepts no other numbers.
        let number = errno.0.get();
        let number = if (1..512).contains(&number) { number } else { EIO.get() };
        self.with_header(unique, -number, 0)
    }

    fn with_header(&mut self, unique: u64, error: i32, length: usize) -> &[u8] {
        let len = HEADER + length;
        let header = fuse_out_header { len: len as u32, error, unique }; // at max some MiB
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
    fn data_that_does_not_fit_is_dropped() {
        let mut reply = Reply::new(0);
        reply.push_bytes(&[1; OVERHEAD]);
        reply.push_bytes(&[2]);
        assert_eq!(reply.finish(7).len(), HEADER + OVERHEAD);
        reply.clear();
        reply.fill(usize::MAX, |buf| Ok::<_, Errno>(buf.len())).unwrap();
        assert_eq!(reply.len(), OVERHEAD);
    }

    #[test]
    fn errors_are_valid_for_the_kernel() {
        let mut reply = Reply::new(0);
        let error = |bytes: &[u8]| i32::from_ne_bytes(bytes[4..8].try_into().unwrap());
        assert_eq!(error(reply.error(1, Errno(base::errno::Errno::new(2)))), -2);
        assert_eq!(error(reply.error(1, Errno(base::errno::Errno::new(0)))), -EIO.get());
        assert_eq!(error(reply.error(1, Errno(base::errno::Errno::new(100_000)))), -EIO.get());
    }
}
