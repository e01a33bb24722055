//! Compares the contents of two files of the same size.

use std::ops::Range;

use crate::copy::CopyReason;
use crate::copy::ends::Contents;
use crate::difference::TreeSide;

/// Bytes that are compared at once.
const CHUNK: usize = 256 << 10;

/// Compares contents; holes on both sides are skipped.
#[derive(Default)]
pub struct ContentsComparison {
    old: Vec<u8>,
    new: Vec<u8>,
}

/// An error with its side.
pub type SideResult<T> = Result<T, (TreeSide, CopyReason)>;

impl ContentsComparison {
    /// Whether the contents up to `size` are equal. A file that has become shorter is different.
    pub fn are_equal(
        &mut self,
        old: &mut dyn Contents,
        new: &mut dyn Contents,
        size: u64,
    ) -> SideResult<bool> {
        self.old.resize(CHUNK, 0);
        self.new.resize(CHUNK, 0);
        let (mut old, mut new) = (Side::new(old, TreeSide::Old), Side::new(new, TreeSide::New));
        let mut at = 0;
        while at < size {
            let start = old.next_data(at, size)?.min(new.next_data(at, size)?);
            let length = (size - start).min(CHUNK as u64) as usize;
            let (left, right) =
                (old.read(start, &mut self.old, length)?, new.read(start, &mut self.new, length)?);
            if left != right || left.len() < length {
                return Ok(false);
            }
            at = start + length as u64;
        }
        Ok(true)
    }
}

/// One of the files.
struct Side<'c> {
    contents: &'c mut dyn Contents,
    side: TreeSide,
    /// The run of data at or after the last offset.
    run: Option<Range<u64>>,
    /// Whether it is read without looking for holes.
    is_sequential: bool,
}

impl<'c> Side<'c> {
    fn new(contents: &'c mut dyn Contents, side: TreeSide) -> Self {
        let is_sequential = contents.size().is_none();
        Self { contents, side, run: None, is_sequential }
    }

    /// The first offset of data at or after an offset; `size` if there is none.
    fn next_data(&mut self, at: u64, size: u64) -> SideResult<u64> {
        if self.is_sequential {
            return Ok(at);
        }
        if self.run.as_ref().is_none_or(|run| run.end <= at) {
            let found = self.contents.next_run(at).map_err(|reason| (self.side, reason))?;
            self.run = Some(found.unwrap_or(size..u64::MAX));
        }
        Ok(self.run.as_ref().map_or(size, |run| run.start.max(at).min(size)))
    }

    /// Reads up to `length` bytes; fewer only at the end of the file.
    fn read<'b>(&mut self, at: u64, buffer: &'b mut [u8], length: usize) -> SideResult<&'b [u8]> {
        let mut done = 0;
        while done < length {
            let rest = buffer.get_mut(done..length).unwrap_or_default();
            match self.contents.read(at + done as u64, rest).map_err(|reason| (self.side, reason))? {
                0 => break,
                count => done += count,
            }
        }
        Ok(buffer.get(..done).unwrap_or_default())
    }
}
