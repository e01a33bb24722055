//! Shared blocks: reflinks, deduplication, unsharing.

use std::ops::ControlFlow;
use std::sync::Arc;

use ag::Groups;
use backing::MappingState;
use base::{FileBlock, FsBlock, errno};
use cache::Edges;
use error::Error as EngineError;
use inode::contents::{self, Share};
use inode::shared::Shared;

use super::File;
use super::allocate::end_of;
use crate::contents::Contents;
use crate::{Error, Result};

/// Bytes compared in one step.
const CHUNK_BYTES: u64 = 1 << 20;

/// A range of the source file and one of the target file, of the same length.
#[derive(Clone, Copy)]
struct Ranges {
    /// Offset in the source.
    from: u64,
    /// Offset in the target.
    to: u64,
    length: u64,
}

impl File<'_> {
    /// Makes a range of this file share the blocks of a range of `source`, which may be the same file (`FICLONERANGE`).
    /// Length 0 means up to the end of `source`.
    ///
    /// # Errors
    /// `EBADF`; `EXDEV` for another volume; `EINVAL` if the ranges overlap, do not begin at block boundaries, or end
    /// within a block that is not the last of both files; `EOPNOTSUPP` without the reflink feature; `ENOSPC`; damage.
    pub fn clone_range(&self, source: &File<'_>, from: u64, to: u64, length: u64) -> Result<()> {
        let Some(ranges) = self.ranges_to_share(source, Ranges { from, to, length }, false)? else {
            return Ok(());
        };
        self.share(source, ranges, false)
    }

    /// Like [`clone_range`](Self::clone_range), for two ranges with the same contents (`FIDEDUPERANGE`).
    ///
    /// # Errors
    /// `EBADE` if the contents differ: nothing is shared then; as [`clone_range`](Self::clone_range).
    pub fn dedupe_range(&self, source: &File<'_>, from: u64, to: u64, length: u64) -> Result<()> {
        let Some(ranges) = self.ranges_to_share(source, Ranges { from, to, length }, true)? else {
            return Ok(());
        };
        self.share(source, ranges, true)
    }

    fn share(&self, source: &File<'_>, ranges: Ranges, equal: bool) -> Result<()> {
        let Ranges { from, to, length } = ranges;
        let block_log = self.volume.geometry.block_log;
        let range = |contents, offset: u64| (contents, offset..offset + length);
        self.volume.retry_on_enospc(|| {
            Contents::change_maps(
                range(&*source.contents, from),
                range(&*self.contents, to),
                |_, change| {
                    // The size of either file may have changed before it was locked.
                    self.verify_ends(source, ranges, equal)?;
                    if equal && !self.has_equal_contents(source, ranges)? {
                        return Err(EngineError::Refused { errno: errno::EBADE, why: "the ranges differ" });
                    }
                    let size = change.size().max(to + length);
                    contents::share(
                        self.map_file(),
                        &Share {
                            source: source.inode(),
                            from: FileBlock(from >> block_log),
                            to: FileBlock(to >> block_log),
                            count: length.div_ceil(1 << block_log),
                            size: Some(size),
                        },
                    )?;
                    change.set_size(size);
                    Ok(())
                },
            )?;
            Ok(())
        })?;
        self.after_write()
    }

    /// Checks the arguments. Returns the ranges with their actual length; `None` if there is nothing to do.
    fn ranges_to_share(&self, source: &File<'_>, ranges: Ranges, equal: bool) -> Result<Option<Ranges>> {
        self.expect_mutable()?;
        if self.access.append {
            return Err(Error::refused(errno::EBADF, "the file is open for appending only"));
        }
        source.expect_readable()?;
        if !std::ptr::eq(self.volume, source.volume) {
            return Err(Error::refused(errno::EXDEV, "files of different volumes cannot share blocks"));
        }
        if !self.volume.geometry.features.reflink() {
            let why = "the volume does not have the reflink feature: files cannot share blocks";
            return Err(Error::refused(errno::EOPNOTSUPP, why));
        }
        let Ranges { from, to, length } = ranges;
        let size = source.len();
        let length = match length {
            0 if from > size => {
                return Err(Error::refused(errno::EINVAL, "the range begins after the end of the file"));
            }
            0 if equal || from == size => return Ok(None),
            0 => size - from,
            length => length,
        };
        let (end, own_end) = (end_of(from, length)?, end_of(to, length)?);
        let invalid = |why| Err(Error::refused(errno::EINVAL, why));
        if !self.is_aligned(from) || !self.is_aligned(to) {
            return invalid("the ranges do not begin at block boundaries");
        }
        let ranges = Ranges { from, to, length };
        self.verify_ends(source, ranges, equal)?;
        if self.ino() == source.ino() && from < own_end && to < end {
            return invalid("the ranges overlap");
        }
        Ok(Some(ranges))
    }

    fn is_aligned(&self, offset: u64) -> bool {
        offset.is_multiple_of(self.volume.geometry.block_size.into())
    }

    /// Refuses ranges that reach behind the end of a file, or end within a block that is not the last of both files:
    /// sharing that block would replace data of the target behind the range.
    fn verify_ends(
        &self,
        source: &File<'_>,
        Ranges { from, to, length }: Ranges,
        equal: bool,
    ) -> std::result::Result<(), EngineError> {
        let (size, own_size) = (source.len(), self.len());
        let (end, own_end) = (from + length, to + length);
        let refused = |errno, why| Err(EngineError::Refused { errno, why });
        if end > size || (equal && own_end > own_size) {
            return refused(errno::EINVAL, "the range reaches behind the end of the file");
        }
        match (self.is_aligned(length) || (end == size && own_end >= own_size), equal) {
            (true, _) => Ok(()),
            (false, true) => refused(errno::EBADE, "the ranges end within a block"),
            (false, false) => {
                refused(errno::EINVAL, "the ranges end within a block that is not the last of both files")
            }
        }
    }

    /// Whether two ranges have the same contents. Both must be written back, and the extent maps must be locked.
    fn has_equal_contents(
        &self,
        source: &File<'_>,
        Ranges { from, to, length }: Ranges,
    ) -> std::result::Result<bool, EngineError> {
        let mut compared = 0;
        while compared < length {
            let count = (length - compared).min(CHUNK_BYTES) as usize;
            if source.read_device(from + compared, count)? != self.read_device(to + compared, count)? {
                return Ok(false);
            }
            compared += count as u64;
        }
        Ok(true)
    }

    /// Reads contents from the device, past the cache. `offset` must be a block boundary.
    fn read_device(&self, offset: u64, count: usize) -> std::result::Result<Vec<u8>, EngineError> {
        let log = self.volume.geometry.block_log;
        let first = FileBlock(offset >> log);
        let end = FileBlock((offset + count as u64).div_ceil(1 << log));
        let mut bytes = vec![0; ((end.get() - first.get()) << log) as usize]; // at most `count` and a block
        let mut extents = Vec::new();
        contents::map(self.map_file(), first, end, &mut |found| {
            extents.push(found);
            ControlFlow::Continue(())
        })?;
        for extent in extents.iter().filter(|extent| extent.state == MappingState::Written) {
            let start = ((extent.offset.get() - first.get()) << log) as usize;
            let target = bytes.get_mut(start..start + (extent.count << log) as usize).unwrap_or_default();
            self.volume.device().read_at(self.device_offset(extent.start), target)?;
        }
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Offset of a block on the device.
    fn device_offset(&self, block: FsBlock) -> u64 {
        self.volume.geometry.fs_block_offset(block).unwrap_or(u64::MAX)
    }

    /// Copies the shared blocks of a range, so that the file shares none (`FALLOC_FL_UNSHARE_RANGE`). Without
    /// `keep_size`, extends the file to the end of the range.
    ///
    /// # Errors
    /// As [`punch_hole`](Self::punch_hole); `EIO`.
    pub fn unshare_range(&self, offset: u64, length: u64, keep_size: bool) -> Result<()> {
        self.expect_changeable()?;
        self.volume.remove_privileges_of(self.caller(), self.inode())?;
        let end = end_of(offset, length)?;
        self.volume.retry_on_enospc(|| {
            self.contents.unshare(offset..end)?;
            if !keep_size && end > self.len() {
                self.contents.change_map(offset..end, Edges::Keep, |change| {
                    let size = change.size().max(end);
                    contents::set_size(self.map_file(), size)?;
                    change.set_size(size);
                    Ok(())
                })?;
            }
            Ok(())
        })?;
        self.after_write()
    }

    pub(super) fn map_file(&self) -> contents::File<'_> {
        contents::File { shared: self.shared(), groups: self.groups(), inode: self.inode() }
    }

    pub(super) fn shared(&self) -> &Shared {
        self.volume.inode_cache.shared()
    }

    pub(super) fn groups(&self) -> &Arc<Groups> {
        &self.volume.groups
    }
}

#[cfg(test)]
mod tests {
    use block::MemoryDevice;

    use super::*;
    use crate::{NewFile, OpenOptions, Options, Volume};

    /// The ends of both files were looked at before they were locked. A target that had become longer by then lost what
    /// had been appended: its last block became that of the source, with zeros behind the source's end. A source that
    /// had become longer gave away bytes behind the range.
    #[test]
    fn files_that_grew_before_they_were_locked_share_no_part_of_a_block() {
        let device = Arc::new(MemoryDevice::new(32 << 20));
        mkfs::format(&*device, &mkfs::Options::default()).unwrap();
        let volume = Volume::open(device, Options::default()).unwrap();
        let make = |name: &[u8]| {
            let ino = volume.create(volume.root(), name, &NewFile::regular()).unwrap();
            let file = OpenOptions::new().read(true).write(true).open_id(&volume, ino).unwrap();
            file.write_at(&[1; 5000], 0).unwrap();
            file
        };
        let all = Ranges { from: 0, to: 0, length: 5000 };
        for (n, equal) in [(0, false), (1, true)] {
            for grows in ["source", "target"] {
                let [source, target] =
                    ["source", "target"].map(|which| make(format!("{which} {n} {grows}").as_bytes()));
                let ranges = target.ranges_to_share(&source, all, equal).unwrap().unwrap();
                let grown = if grows == "source" { &source } else { &target };
                grown.append(&[2; 1000]).unwrap();
                let error = target.share(&source, ranges, equal).unwrap_err();
                let expected = if equal { errno::EBADE } else { errno::EINVAL };
                assert_eq!(error.errno(), expected, "{grows}: {error}");
                let mut bytes = [0; 6000];
                assert_eq!(grown.read_at(&mut bytes, 0).unwrap(), 6000);
                assert!(bytes[..5000] == [1; 5000] && bytes[5000..] == [2; 1000], "{grows}");
            }
        }
        let [source, target] = [b"source", b"target"].map(|name| make(name));
        let ranges = target.ranges_to_share(&source, all, true).unwrap().unwrap();
        target.set_len(4096).unwrap();
        assert_eq!(target.share(&source, ranges, true).unwrap_err().errno(), errno::EINVAL);
        assert_eq!(target.len(), 4096, "a deduplication makes no file longer");
        drop((source, target));
        volume.unmount().unwrap();
    }
}
