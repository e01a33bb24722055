//! Blocks that files share: reflinks, deduplication, and the end of it.

use std::ops::ControlFlow;
use std::sync::Arc;

use ag::{AllocTarget, ClaimRequest, Groups};
use base::{FileBlock, FsBlock, errno};
use block::Durability;
use cache::Edges;
use error::Error as EngineError;
use inode::contents::{self, Finish, Mapped, Share, Written};
use inode::inode::Inode;
use inode::shared::Shared;

use super::File;
use super::reserve::end_of;
use crate::contents::Contents;
use crate::{Error, Result};

/// Bytes that are compared, or copied, at once.
const AT_ONCE: u64 = 1 << 20;

/// Two ranges of the same length.
#[derive(Clone, Copy)]
struct Ranges {
    from: u64,
    to: u64,
    length: u64,
}

impl File<'_> {
    /// Makes a range of this file share the blocks of another range, of another file of the volume or of this one: the
    /// contents are the same from then on, until one of them is written. No length stands for all up to the end of
    /// `source`.
    ///
    /// # Errors
    /// `EBADF`; `EXDEV` for another volume; `EINVAL` where the ranges overlap, do not begin at blocks, or end within
    /// one that is not the last of both files; `EOPNOTSUPP` where the volume cannot share; `ENOSPC`; damage.
    pub fn clone_range(&self, source: &File<'_>, from: u64, to: u64, length: u64) -> Result<()> {
        let Some(ranges) = self.ranges_to_share(source, Ranges { from, to, length }, false)? else {
            return Ok(());
        };
        self.share(source, ranges, false)
    }

    /// The same where both ranges hold the same bytes already.
    ///
    /// # Errors
    /// `EBADE` where they differ, in which case nothing is shared; as [`clone_range`](Self::clone_range).
    pub fn dedupe_range(&self, source: &File<'_>, from: u64, to: u64, length: u64) -> Result<()> {
        let Some(ranges) = self.ranges_to_share(source, Ranges { from, to, length }, true)? else {
            return Ok(());
        };
        self.share(source, ranges, true)
    }

    fn share(&self, source: &File<'_>, ranges: Ranges, equal: bool) -> Result<()> {
        let Ranges { from, to, length } = ranges;
        let block_log = self.volume.geometry.block_log;
        let frame = |contents, at: u64| (contents, at..at + length);
        self.volume.retry_on_enospc(|| {
            Contents::change_maps(frame(&source.contents, from), frame(&self.contents, to), |_, change| {
                // Either file may have become longer or shorter before it was locked.
                self.verify_ends(source, ranges, equal)?;
                if equal && !self.holds_the_same(source, ranges)? {
                    return Err(EngineError::Refused { errno: errno::EBADE, why: "the ranges differ" });
                }
                let size = change.size().max(to + length);
                contents::share(
                    self.shared(),
                    self.groups(),
                    &Share {
                        source: source.inode(),
                        from: FileBlock(from >> block_log),
                        target: self.inode(),
                        to: FileBlock(to >> block_log),
                        count: length.div_ceil(1 << block_log),
                        size: Some(size),
                    },
                )?;
                change.set_size(size);
                Ok(())
            })?;
            Ok(())
        })?;
        self.written()
    }

    /// The ranges with their real length; `None` where there is nothing to do.
    fn ranges_to_share(&self, source: &File<'_>, ranges: Ranges, equal: bool) -> Result<Option<Ranges>> {
        self.expect_mutable()?;
        if self.access.append {
            return Err(Error::refused(errno::EBADF, "the file is open for appending alone"));
        }
        source.expect(source.access.read, "reading")?;
        if !std::ptr::eq(self.volume, source.volume) {
            return Err(Error::refused(errno::EXDEV, "files of different volumes cannot share blocks"));
        }
        if !self.volume.geometry.features.reflink() {
            let why = "the volume was made without the reflink feature: files cannot share blocks";
            return Err(Error::refused(errno::EOPNOTSUPP, why));
        }
        let Ranges { from, to, length } = ranges;
        let size = source.len();
        let length = match length {
            0 if from > size => {
                return Err(Error::refused(errno::EINVAL, "the range begins behind the end of the file"));
            }
            0 if equal || from == size => return Ok(None),
            0 => size - from,
            length => length,
        };
        let (end, own_end) = (end_of(from, length)?, end_of(to, length)?);
        let invalid = |why| Err(Error::refused(errno::EINVAL, why));
        if !self.is_whole(from) || !self.is_whole(to) {
            return invalid("the ranges do not begin at blocks");
        }
        let ranges = Ranges { from, to, length };
        self.verify_ends(source, ranges, equal)?;
        if self.ino() == source.ino() && from < own_end && to < end {
            return invalid("the ranges overlap");
        }
        Ok(Some(ranges))
    }

    fn is_whole(&self, at: u64) -> bool {
        at.is_multiple_of(self.volume.geometry.block_size.into())
    }

    /// Refuses ranges that reach behind a file's end, or end within a block that is not the last of both files: what
    /// the target has behind the range would be replaced by what the source has there.
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
        match (self.is_whole(length) || (end == size && own_end >= own_size), equal) {
            (true, _) => Ok(()),
            (false, true) => refused(errno::EBADE, "the ranges end within a block"),
            (false, false) => {
                refused(errno::EINVAL, "the ranges end within a block that is not the last of both files")
            }
        }
    }

    /// Whether two ranges hold the same bytes. Both are on the device, and their files' maps do not change meanwhile.
    fn holds_the_same(
        &self,
        source: &File<'_>,
        Ranges { from, to, length }: Ranges,
    ) -> std::result::Result<bool, EngineError> {
        let mut done = 0;
        while done < length {
            let count = (length - done).min(AT_ONCE) as usize;
            if source.on_device(from + done, count)? != self.on_device(to + done, count)? {
                return Ok(false);
            }
            done += count as u64;
        }
        Ok(true)
    }

    /// Bytes of the file as they are on the device. `at` is the beginning of a block.
    fn on_device(&self, at: u64, count: usize) -> std::result::Result<Vec<u8>, EngineError> {
        let log = self.volume.geometry.block_log;
        let first = FileBlock(at >> log);
        let end = FileBlock((at + count as u64).div_ceil(1 << log));
        let mut bytes = vec![0; ((end.get() - first.get()) << log) as usize]; // at most a block more than asked for
        let mut extents = Vec::new();
        contents::map(self.shared(), self.groups(), self.inode(), first, end, &mut |found| {
            extents.push(found.extent);
            ControlFlow::Continue(())
        })?;
        for extent in extents.iter().filter(|extent| !extent.unwritten) {
            let start = ((extent.offset.get() - first.get()) << log) as usize;
            let target = bytes.get_mut(start..start + (extent.count << log) as usize).unwrap_or_default();
            self.volume.device().read_at(self.place(extent.start), target)?;
        }
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Where a block lies on the device.
    fn place(&self, block: FsBlock) -> u64 {
        self.volume.geometry.fs_block_offset(block).unwrap_or(u64::MAX)
    }

    /// Gives the file blocks of its own where it shares them, and holes blocks, as [`allocate`](Self::allocate) does.
    ///
    /// # Errors
    /// As [`punch_hole`](Self::punch_hole); `EIO`.
    pub fn unshare_range(&self, offset: u64, length: u64, keep_size: bool) -> Result<()> {
        self.expect_changeable()?;
        self.volume.remove_privileges(self.ino())?;
        let end = end_of(offset, length)?;
        let block = u64::from(self.volume.geometry.block_size);
        self.volume.retry_on_enospc(|| {
            self.contents.change_map(offset..end, Edges::Keep, |change| {
                let mut pieces = Vec::new();
                let last = FileBlock(end.min(change.size()).div_ceil(block));
                let (from, visit) = (FileBlock(offset / block), &mut |found: Mapped| {
                    pieces.push(found);
                    ControlFlow::Continue(())
                });
                contents::map(self.shared(), self.groups(), self.inode(), from, last, visit)?;
                for piece in pieces.into_iter().filter(|piece| piece.shared && !piece.extent.unwritten) {
                    self.copy(&piece)?;
                }
                let size = change.size().max(end);
                if !keep_size && size > change.size() {
                    contents::set_size(self.shared(), self.groups(), self.inode(), size)?;
                    change.set_size(size);
                }
                Ok(())
            })?;
            Ok(())
        })?;
        self.written()
    }

    /// Copies blocks to such as nobody else has.
    fn copy(&self, piece: &Mapped) -> std::result::Result<(), EngineError> {
        let (shared, groups, log) = (self.shared(), self.groups(), self.volume.geometry.block_log);
        let mut done = 0;
        while done < piece.extent.count {
            let most = (piece.extent.count - done).min(AT_ONCE >> log) as u32; // at most 1024
            let room = shared.reservations.map_blocks;
            let mut reserved = groups.reserve_blocks(most + room)?;
            let near = AllocTarget::Block((piece.extent.start.get() + done).into());
            let request = ClaimRequest { target: near, min: 1, max: most, align: 1 };
            let claim = contents::claim(shared, groups, &request)?;
            let count = claim.count();
            let mut bytes = vec![0; (count as usize) << log];
            let device = self.volume.device();
            device.read_at(self.place((piece.extent.start.get() + done).into()), &mut bytes)?;
            let written = device.write_at(self.place(claim.start()), &bytes, Durability::Buffered);
            shared.target.note_unlogged_write();
            written?;
            let at = FileBlock(piece.extent.offset.get() + done);
            let written = vec![Written { at, count, claim: Some(claim) }];
            let mut finish = [Finish {
                modified: Some(shared.now()),
                ..Finish::new(Arc::clone(self.inode()), written, (reserved.give(most + room), 2))
            }];
            let finished = contents::finish(shared, groups, &mut finish);
            let [Finish { written, reserved, refused, .. }] = finish;
            // Claims first: they are of blocks that are reserved.
            drop(written);
            drop(groups.given_blocks(reserved));
            finished.and(refused.map_or(Ok(()), |why| Err(*why)))?;
            done += u64::from(count);
        }
        Ok(())
    }

    pub(super) fn shared(&self) -> &Shared {
        self.volume.inode_cache.shared()
    }

    pub(super) fn groups(&self) -> &Arc<Groups> {
        &self.volume.groups
    }

    pub(super) fn inode(&self) -> &Arc<Inode> {
        self.handle.inode()
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
            let file = OpenOptions::new().read(true).write(true).open_ino(&volume, ino).unwrap();
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
