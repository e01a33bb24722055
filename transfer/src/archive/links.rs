//! Hard links with a size: whether contents follow.
//!
//! POSIX does not write contents of a hard link to ustar archives, and leaves it to writers of extended headers
//! ("pax"). Some writers store the size of the file without contents, in either format. Readers disagree: GNU tar and
//! Go always expect the next member; libarchive skips contents in pax archives, and in others if no header follows.
//! Each of these loses members of some archives, so the following block decides:
//!
//! | after the header of the link | interpretation |
//! |---|---|
//! | neither zeros nor a header | contents |
//! | zeros, later other data | contents that begin with zeros |
//! | zeros to the end of the stream | contents, or the end of the archive: no member is lost |
//! | a header with which the linked file begins, in a pax archive | contents: the file is an archive |
//! | the same in another archive | ambiguous: an error |
//! | another header | the next member |
//!
//! The last row is wrong if the linked file is not in this archive and the contents are an archive. The end of those
//! contents would end this archive early. So if the archive ends before the place at which the contents would end, and
//! a header is there, that is an error.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read};

use super::unpack::Stream;

/// Files of an archive that begin with a tar header.
#[derive(Debug, Default)]
pub struct Nested {
    /// Hash of the first block, by the hash of the path: paths may be long.
    first_blocks: HashMap<u64, u64>,
    hasher: RandomState,
}

impl Nested {
    /// The hash of a path.
    pub fn key(&self, path: &[u8]) -> u64 {
        self.hasher.hash_one(path)
    }

    /// Forgets a file that is replaced.
    pub fn forget(&mut self, key: u64) {
        if !self.first_blocks.is_empty() {
            self.first_blocks.remove(&key);
        }
    }

    /// Records a file whose first block is a header.
    pub fn add(&mut self, key: u64, block: &[u8]) {
        self.first_blocks.insert(key, self.hasher.hash_one(block));
    }

    /// Records a hard link.
    pub fn link(&mut self, path: &[u8], target: &[u8]) {
        if !self.first_blocks.is_empty() {
            let (path, target) = (self.key(path), self.key(target));
            match self.first_blocks.get(&target).copied() {
                Some(block) => drop(self.first_blocks.insert(path, block)),
                None => drop(self.first_blocks.remove(&path)),
            }
        }
    }

    /// Whether a file begins with this header.
    pub fn begins_with(&self, path: &[u8], block: &[u8]) -> bool {
        !self.first_blocks.is_empty()
            && self.first_blocks.get(&self.key(path)) == Some(&self.hasher.hash_one(block))
    }
}

/// A stream that counts its bytes.
pub struct Counted<R> {
    input: R,
    /// Number of bytes read or skipped.
    pub at: u64,
}

impl<R> Counted<R> {
    /// Starts at the beginning.
    pub fn new(input: R) -> Self {
        Self { input, at: 0 }
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buf)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl<R: Stream> Stream for Counted<R> {
    fn skip(&mut self, bytes: u64) -> io::Result<u64> {
        let skipped = self.input.skip(bytes)?;
        self.at += skipped;
        Ok(skipped)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.input.finish()
    }
}
