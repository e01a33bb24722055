//! Hard links that have a size: whether their contents follow.
//!
//! POSIX writes no contents of a hard link to ustar archives, and lets a writer of extended headers ("pax") choose.
//! Some writers give a link the size of its file and no contents, in either form. Readers disagree: GNU tar and Go
//! always take what follows for the next member; libarchive passes over contents in pax archives, and elsewhere where
//! no header follows. Each of these loses members of some archives, so what follows decides:
//!
//! | behind the header of the link | is |
//! |---|---|
//! | neither zeros nor a header | contents |
//! | zeros, and something else later | contents that begin with zeros |
//! | zeros to the end of the stream | contents, or the end of the archive: no member is lost by either |
//! | a header, with which the file that is linked begins, in a pax archive | contents, which are an archive |
//! | the same in another archive | either: an error |
//! | any other header | the next member |
//!
//! The last row is wrong where the file that is linked is not of this archive, and the contents are an archive. The end
//! of those contents would end the archive early. So where a header lies at the place at which the contents would have
//! ended, and the archive ended before it, that is an error.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read};

use super::unpack::Stream;

/// Files of an archive that begin as an archive does.
#[derive(Debug, Default)]
pub struct Nested {
    /// The hash of the first block, by that of the path: names may be long.
    first_blocks: HashMap<u64, u64>,
    hasher: RandomState,
}

impl Nested {
    /// What stands for a path.
    pub fn key(&self, path: &[u8]) -> u64 {
        self.hasher.hash_one(path)
    }

    /// What was there is replaced.
    pub fn forget(&mut self, key: u64) {
        if !self.first_blocks.is_empty() {
            self.first_blocks.remove(&key);
        }
    }

    /// Its first block is a header.
    pub fn add(&mut self, key: u64, block: &[u8]) {
        self.first_blocks.insert(key, self.hasher.hash_one(block));
    }

    /// Another name of the same file.
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

/// A stream that knows how far it was read.
pub struct Counted<R> {
    input: R,
    /// Bytes that were read or passed over.
    pub at: u64,
}

impl<R> Counted<R> {
    /// From the beginning.
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
    fn pass_over(&mut self, bytes: u64) -> io::Result<u64> {
        let passed = self.input.pass_over(bytes)?;
        self.at += passed;
        Ok(passed)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.input.finish()
    }
}
