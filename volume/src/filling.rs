//! Contents of new files, written past the cache: many files at once.
//!
//! Who makes thousands of files and knows what is in them needs no cache for it: the bytes are handed over as they are,
//! and when there are enough they go to the device together, to blocks that lie one behind the other. What the cache
//! does for a file that somebody keeps writing, memory for each page and a look at its map, falls away.
//!
//! | step | does |
//! |---|---|
//! | [`Filling::put`] | keeps bytes, and reserves their blocks |
//! | `place` | claims blocks: one claim for all files of a group that follow each other, cut into pieces |
//! | `write` | everything under one plug, in the order of the device |
//! | `inode::contents::finish` | the maps and sizes, several small files in one transaction |
//!
//! # Invariants
//! - Until [`Filling::finish`] has returned, a file has the size that it had before; then all of it.
//! - The bytes are on their way to the device before the transaction that maps them.
//!
//! # Locking
//! None over any call; what is called locks as it does for the cache.

use std::sync::Arc;

use ag::{AllocTarget, Claim, ClaimRequest};
use base::{FileBlock, FsBlock, Ino, errno};
use block::{Plug, PlugCounters, WriteRequest};
use format::inode::{FileType, ForkKind, ag_of};
use inode::InodeRef;
use inode::contents::{self as maps, Finish, Written};

use crate::contents::in_memory;
use crate::{Error, Result, Volume};

/// Contents of new files on their way; see the module.
///
/// ```
/// # use std::sync::Arc;
/// # let device = Arc::new(block::MemoryDevice::new(32 << 20));
/// # mkfs::format(&*device, &mkfs::Options::default())?;
/// use xebec_volume::{Filling, NewFile, Options, Volume};
///
/// let volume = Volume::open(device, Options::default())?;
/// let mut filling = Filling::new(&volume);
/// for name in [b"one", b"two"] {
///     let file = volume.create(volume.root(), name, &NewFile::regular())?;
///     filling.put(file, 0, b"contents".to_vec())?;
/// }
/// filling.finish()?;
/// drop(filling);
/// assert_eq!(volume.metadata(volume.resolve(b"/two", true)?)?.size, 8);
/// volume.unmount()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Filling<'v> {
    volume: &'v Volume,
    parts: Vec<Part>,
    counters: PlugCounters,
}

/// Contents of a file in a row.
#[derive(Debug)]
struct Part {
    file: InodeRef,
    at: FileBlock,
    /// Each but the last in whole blocks; the last one, too, as it is filled up with zeros.
    bytes: Vec<Vec<u8>>,
    blocks: u32,
    /// Bytes that the file has at least with it.
    size: u64,
    /// Blocks that were reserved: its own, and those of its map.
    reserved: u32,
    /// Where it goes.
    claims: Vec<Claim>,
}

impl<'v> Filling<'v> {
    /// With nothing to be written yet.
    pub fn new(volume: &'v Volume) -> Self {
        Self { volume, parts: Vec::new(), counters: PlugCounters::default() }
    }

    /// Pieces begin at multiples of so many bytes.
    pub fn unit(&self) -> u64 {
        self.volume.geometry.block_size.into()
    }

    /// Takes contents of a regular file that nobody has open, at an offset that is a multiple of
    /// [`unit`](Self::unit) and where nothing was written before. Without bytes the file grows to `offset`, wherever
    /// that is, by a hole. Parts of a file come in the order of their offsets.
    ///
    /// # Errors
    /// `ENOSPC` where blocks are missing even when all that came before is written; `EINVAL`; what
    /// [`finish`](Self::finish) meets.
    pub fn put(&mut self, file: Ino, offset: u64, mut bytes: Vec<u8>) -> Result<()> {
        let file = self.volume.inode(file)?;
        self.expect_fillable(&file)?;
        if !bytes.is_empty() && !offset.is_multiple_of(self.unit()) {
            return Err(Error::refused(errno::EINVAL, "contents begin within a block"));
        }
        let size = offset + bytes.len() as u64;
        let unit = self.unit() as usize; // a block's size
        bytes.resize(bytes.len().next_multiple_of(unit), 0);
        let blocks = u32::try_from(bytes.len() / unit)
            .map_err(|_| Error::refused(errno::EINVAL, "more bytes at once than an extent has blocks"))?;
        let at = FileBlock(offset / self.unit());
        let mut part = Part { file, at, bytes: vec![bytes], blocks, size, reserved: 0, claims: Vec::new() };
        match self.reserve(blocks + self.map_blocks(&part, blocks)) {
            Ok(reserved) => {
                part.reserved = reserved;
                self.push(part);
                Ok(())
            }
            Err(error) if error.errno() == errno::ENOSPC => {
                self.finish()?;
                self.volume.retry_on_enospc(|| self.place_before_reserving(&mut part))?;
                self.parts.push(part);
                self.finish()
            }
            Err(error) => Err(error),
        }
    }

    /// Adds a part to those that wait, as a piece of the last one where it continues that.
    fn push(&mut self, part: Part) {
        match self.parts.last_mut() {
            Some(last) if last.is_continued_by(&part) => {
                last.bytes.extend(part.bytes);
                last.blocks += part.blocks;
                last.reserved += part.reserved;
                last.size = part.size;
            }
            _ => self.parts.push(part),
        }
    }

    fn expect_fillable(&self, file: &InodeRef) -> Result<()> {
        if FileType::from_mode(file.read().mode()) != Some(FileType::Regular) {
            return Err(Error::refused(errno::EINVAL, "only regular files have contents"));
        }
        if in_memory(file).is_some() {
            return Err(Error::refused(
                errno::EINVAL,
                "contents of the file are in memory: it was opened before",
            ));
        }
        Ok(())
    }

    fn reserve(&self, blocks: u32) -> Result<u32> {
        Ok(self.volume.groups.reserve_blocks(blocks)?.give(blocks))
    }

    /// Blocks that the map of a file may take for `records` extents of a part, after the extents that it has and those
    /// of the file's earlier parts, each of whose blocks may become one.
    fn map_blocks(&self, part: &Part, records: u32) -> u32 {
        let mut extents = part.file.read().extent_count(ForkKind::Data);
        if part.at > FileBlock(0) {
            let earlier = self.parts.iter().filter(|earlier| earlier.file.ino() == part.file.ino());
            extents += earlier.map(|earlier| u64::from(earlier.blocks)).sum::<u64>();
        }
        self.volume.inode_cache.shared().reservations.map_blocks_for(extents, records.into()) as u32
    }

    /// Claims the blocks of a part first, and then reserves what the map takes for exactly these extents. On a volume
    /// that is nearly full, the map of the worst extents that a part could have had does not fit any more.
    fn place_before_reserving(&self, part: &mut Part) -> Result<()> {
        part.reserved = self.reserve(part.blocks)?;
        let placed = self.place(std::slice::from_mut(part));
        let reserved = placed.and_then(|()| self.reserve(self.map_blocks(part, part.claims.len() as u32)));
        match reserved {
            Ok(more) => part.reserved += more,
            Err(error) => {
                self.give_back(part);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes everything that came, and maps it. What is written survives a power cut when the volume is synced.
    ///
    /// # Errors
    /// `EIO` where something could not be written: the files are then as they were, as far as they are not done. What
    /// else fails shuts the volume down.
    pub fn finish(&mut self) -> Result<()> {
        let mut parts = std::mem::take(&mut self.parts);
        let done = self.place(&mut parts).and_then(|()| self.write(&parts));
        if let Err(error) = done {
            parts.iter_mut().for_each(|part| self.give_back(part));
            return Err(error);
        }
        let (_held, mut finishes): (Vec<_>, Vec<_>) = parts.into_iter().map(Part::written).unzip();
        let done = maps::finish(self.volume.inode_cache.shared(), &self.volume.groups, &mut finishes);
        let mut refused = None;
        for maps::Finish { written, reserved, refused: why, .. } in finishes {
            // Claims first: they are of blocks that are reserved.
            drop(written);
            self.unreserve(reserved);
            refused = refused.or(why);
        }
        Ok(done.and(refused.map_or(Ok(()), |why| Err(*why)))?)
    }

    /// Gives back the blocks of a part that is not written. The claims end first: others may reserve what is given
    /// back.
    fn give_back(&self, part: &mut Part) {
        part.claims.clear();
        self.unreserve(std::mem::take(&mut part.reserved));
    }

    fn unreserve(&self, blocks: u32) {
        drop(self.volume.groups.given_blocks(blocks));
    }

    /// Claims blocks for all parts that have none.
    fn place(&self, parts: &mut [Part]) -> Result<()> {
        let geometry = &self.volume.geometry;
        let group = |part: &Part| ag_of(part.file.ino(), geometry).unwrap_or_default();
        for neighbours in parts.chunk_by_mut(|one, other| group(one) == group(other)) {
            let mut near = neighbours
                .first()
                .map_or(AllocTarget::Block(FsBlock(0)), |part| AllocTarget::Ag(group(part)));
            let mut wanted: u64 = neighbours.iter().map(|part| u64::from(part.missing())).sum();
            let mut claimed: Option<Claim> = None;
            for part in neighbours {
                let mut missing = part.missing();
                while missing > 0 {
                    let mut claim = match claimed.take().filter(|claim| claim.count() > 0) {
                        Some(claim) => claim,
                        None => self.claim(near, wanted)?,
                    };
                    let front = claim.take_front(missing);
                    near = AllocTarget::Block(FsBlock(front.start().get() + u64::from(front.count())));
                    (missing, wanted) = (missing - front.count(), wanted - u64::from(front.count()));
                    part.claims.push(front);
                    claimed = Some(claim);
                }
            }
        }
        Ok(())
    }

    fn claim(&self, target: AllocTarget, most: u64) -> Result<Claim> {
        let max = u32::try_from(most).unwrap_or(u32::MAX);
        let request = ClaimRequest { target, min: 1, max, align: 1 };
        Ok(maps::claim(self.volume.inode_cache.shared(), &self.volume.groups, &request)?)
    }

    /// Writes all parts to where they go.
    fn write(&self, parts: &[Part]) -> Result<()> {
        let mut plug = Plug::new();
        for part in parts {
            let mut claims = part.claims.iter().map(|claim| (claim.start(), u64::from(claim.count())));
            let mut place = claims.next();
            for mut bytes in part.bytes.iter().map(Vec::as_slice) {
                while let Some((start, count)) = place.filter(|_| !bytes.is_empty()) {
                    let fits = bytes.len().min(usize::try_from(count * self.unit()).unwrap_or(usize::MAX));
                    let (now, later) = bytes.split_at(fits);
                    let offset = self.volume.geometry.fs_block_offset(start).unwrap_or(u64::MAX);
                    plug.push(WriteRequest::new(offset, now));
                    let blocks = fits as u64 / self.unit();
                    let left = count - blocks;
                    place =
                        if left > 0 { Some((FsBlock(start.get() + blocks), left)) } else { claims.next() };
                    bytes = later;
                }
            }
        }
        let failed = plug.finish(self.volume.device(), &self.counters);
        self.volume.inode_cache.shared().target.note_unlogged_write();
        match failed.into_iter().next() {
            Some((_, error)) => Err(error.into()),
            None => Ok(()),
        }
    }
}

impl Drop for Filling<'_> {
    /// What was not finished is not written.
    fn drop(&mut self) {
        for mut part in std::mem::take(&mut self.parts) {
            self.give_back(&mut part);
        }
    }
}

impl Part {
    /// Blocks that are not claimed yet.
    fn missing(&self) -> u32 {
        self.blocks - self.claims.iter().map(Claim::count).sum::<u32>()
    }

    /// Whether another part begins where it ends, and both are no more blocks than a number holds.
    fn is_continued_by(&self, next: &Self) -> bool {
        let end = FileBlock(self.at.get() + u64::from(self.blocks));
        let fits = self.reserved.checked_add(next.reserved).is_some();
        self.file.ino() == next.file.ino() && end == next.at && fits
    }

    /// What its map is to be told, and a hold on the file until then.
    fn written(self) -> (InodeRef, Finish) {
        let mut at = self.at;
        let written = self.claims.into_iter().map(|claim| {
            let count = claim.count();
            let from = at;
            at = FileBlock(at.get() + u64::from(count));
            Written { at: from, count, claim: Some(claim) }
        });
        let (written, size, reserved) = (written.collect::<Vec<_>>(), Some(self.size), self.reserved);
        let (inode, records) = (Arc::clone(&self.file), written.len() as u64);
        // New files alone: nothing is mapped where they are written, and no reverse mapping is split.
        let finish = Finish { size, ..Finish::new(inode, written, (reserved, records)) };
        (self.file, finish)
    }
}
