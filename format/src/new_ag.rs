//! A new AG: the layout of its first blocks, and the bytes of its headers and btree roots, as `mkfs.xfs` creates them.
//!
//! Used by `mkfs` and by growing a volume.

use base::{AgBlock, AgNumber};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::agf::{self, RawAgf};
use crate::agfl::{self, RawAgfl};
use crate::agi::{self, RawAgi};
use crate::btree::{
    BnoBt, Btree, CntBt, FinoBt, FreeExtent, InoBt, InodeChunk, NULL_AG_BLOCK, RefcountBt, Rmap, RmapBt,
    ShortHeader, rmap,
};
use crate::checksum;
use crate::geometry::{Geometry, INODES_PER_CHUNK};
use crate::limits::VolumeShape;
use crate::limits::ag::AgRoots;
use crate::ondisk::{OnDisk, U16, U32, U64};

/// Offsets of the checksums in the headers.
const AGF_CRC: usize = std::mem::offset_of!(RawAgf, crc);
const AGI_CRC: usize = std::mem::offset_of!(RawAgi, crc);
const AGFL_CRC: usize = std::mem::offset_of!(RawAgfl, crc);
/// First used slot of a new AGFL.
const AGFL_FIRST: u32 = 1;

/// First block and number of blocks of an extent in an AG.
pub type AgExtent = (u32, u32);

/// The use of the blocks of a new AG after its btree roots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgLayout {
    /// Free extents in block order.
    pub free: Vec<AgExtent>,
    /// Blocks in the AGFL; none if no free extent is large enough.
    pub agfl: AgExtent,
    /// The internal log, if it is in this AG.
    pub log: Option<AgExtent>,
    /// The first inode chunks, if they are in this AG.
    pub chunk: Option<AgExtent>,
}

impl AgLayout {
    /// The layout of an AG of `length` blocks without inodes.
    pub fn new(shape: &VolumeShape, length: u32, log: Option<AgExtent>) -> Self {
        let first = shape.roots().end;
        let mut free = vec![(first, length.saturating_sub(first))];
        if let Some(log) = log {
            take(&mut free, log);
        }
        // Best fit, as the allocator does: the smallest extent that is large enough, the first of equal ones.
        let wanted = shape.agfl_minimum(1, 1);
        let fitting = free.iter().filter(|run| run.1 >= wanted).min_by_key(|run| (run.1, run.0));
        let agfl = fitting.map_or((0, 0), |run| (run.0, wanted));
        take(&mut free, agfl);
        Self { free, agfl, log, chunk: None }
    }

    /// Adds inode chunks in the given blocks.
    #[must_use]
    pub fn with_chunk(mut self, chunk: AgExtent) -> Self {
        take(&mut self.free, chunk);
        self.chunk = Some(chunk);
        self
    }

    /// Free blocks as counted by the superblock, including the AGFL.
    pub fn free_blocks(&self) -> u32 {
        self.free.iter().map(|run| run.1).sum::<u32>() + self.agfl.1
    }
}

/// Removes an extent from the free extents, one of which contains it.
fn take(free: &mut Vec<AgExtent>, (start, count): AgExtent) {
    let mut rest = Vec::with_capacity(free.len() + 1);
    for (from, length) in free.drain(..) {
        let (end, taken_end) = (from + length, start + count);
        if taken_end <= from || start >= end || count == 0 {
            rest.push((from, length));
            continue;
        }
        if start > from {
            rest.push((from, start - from));
        }
        if taken_end < end {
            rest.push((taken_end, end - taken_end));
        }
    }
    *free = rest;
}

/// A new AG of a volume whose size already includes it.
#[derive(Clone, Copy, Debug)]
pub struct NewAg<'a> {
    /// Geometry of the volume.
    pub geometry: &'a Geometry,
    /// AG number.
    pub ag: AgNumber,
    /// Use of its blocks.
    pub space: &'a AgLayout,
    /// The inobt records of the inodes in `space.chunk`.
    pub chunks: &'a [InodeChunk],
}

impl NewAg<'_> {
    /// Builds the first blocks of the AG: headers and btree roots. `superblock` is the sector of its superblock copy
    /// with a valid checksum.
    pub fn head(&self, superblock: &[u8]) -> Vec<u8> {
        let (block, sector) = (self.geometry.block_size as usize, self.geometry.sector_size as usize);
        let roots = self.roots();
        let mut head = vec![0; roots.end as usize * block];
        put(&mut head, 0, superblock);
        put(&mut head, sector, &self.agf(&roots));
        seal(&mut head, sector, sector, AGF_CRC);
        put(&mut head, 2 * sector, &self.agi(&roots));
        seal(&mut head, 2 * sector, sector, AGI_CRC);
        self.put_agfl(&mut head);
        let mut extents: Vec<FreeExtent> = self.space.free.iter().map(|run| free_extent(*run)).collect();
        self.put_leftover(&mut head, roots.bno);
        self.put_root::<BnoBt>(&mut head, roots.bno, &extents);
        extents.sort_by_key(|extent| (extent.blockcount.get(), extent.startblock.get()));
        self.put_leftover(&mut head, roots.cnt);
        self.put_root::<CntBt>(&mut head, roots.cnt, &extents);
        self.put_root::<InoBt>(&mut head, roots.inode, self.chunks);
        if let Some(at) = roots.free_inode {
            self.put_root::<FinoBt>(&mut head, at, self.chunks);
        }
        if let Some(at) = roots.rmap {
            self.put_root::<RmapBt>(&mut head, at, &self.rmaps(&roots));
        }
        if let Some(at) = roots.refcount {
            self.put_root::<RefcountBt>(&mut head, at, &[]);
        }
        head
    }

    fn roots(&self) -> AgRoots {
        VolumeShape::of(self.geometry).roots()
    }

    fn length(&self) -> u32 {
        self.geometry.ag_length(self.ag)
    }

    fn agf(&self, roots: &AgRoots) -> RawAgf {
        let used = self.space.agfl.1;
        let mut agf = RawAgf::new_zeroed();
        agf.magicnum = U32::new(agf::MAGIC);
        agf.versionnum = U32::new(1);
        agf.seqno = U32::new(self.ag.get());
        agf.length = U32::new(self.length());
        agf.bnoroot = U32::new(roots.bno);
        agf.cntroot = U32::new(roots.cnt);
        agf.bnolevel = U32::new(1);
        agf.cntlevel = U32::new(1);
        if let Some(root) = roots.rmap {
            agf.rmaproot = U32::new(root);
            agf.rmaplevel = U32::new(1);
            agf.rmapblocks = U32::new(1);
        }
        if let Some(root) = roots.refcount {
            agf.refcntroot = U32::new(root);
            agf.refcntlevel = U32::new(1);
            agf.refcntblocks = U32::new(1);
        }
        agf.flfirst = U32::new(AGFL_FIRST);
        // An empty AGFL ends in the slot before its first.
        agf.fllast = U32::new(AGFL_FIRST + used - 1);
        agf.flcount = U32::new(used);
        agf.freeblks = U32::new(self.space.free.iter().map(|run| run.1).sum());
        agf.longest = U32::new(self.space.free.iter().map(|run| run.1).max().unwrap_or(0));
        agf.uuid = self.geometry.uuid;
        agf
    }

    fn agi(&self, roots: &AgRoots) -> RawAgi {
        let null = U32::new(agi::NULL_AG_INO);
        let mut raw = RawAgi::new_zeroed();
        raw.magicnum = U32::new(agi::MAGIC);
        raw.versionnum = U32::new(1);
        raw.seqno = U32::new(self.ag.get());
        raw.length = U32::new(self.length());
        raw.root = U32::new(roots.inode);
        raw.level = U32::new(1);
        raw.newino = self.chunks.first().map_or(null, |chunk| chunk.startino);
        raw.dirino = null;
        raw.unlinked = [null; agi::UNLINKED_BUCKETS];
        raw.uuid = self.geometry.uuid;
        if let Some(root) = roots.free_inode {
            raw.free_root = U32::new(root);
            raw.free_level = U32::new(1);
        }
        if self.geometry.features.inobtcount() {
            raw.iblocks = U32::new(1);
            raw.fblocks = U32::new(u32::from(roots.free_inode.is_some()));
        }
        raw.count = U32::new(INODES_PER_CHUNK * self.chunks.len() as u32);
        raw.freecount = U32::new(self.chunks.iter().map(|chunk| u32::from(chunk.freecount)).sum());
        raw
    }

    fn put_agfl(&self, head: &mut [u8]) {
        let sector = self.geometry.sector_size as usize;
        let at = 3 * sector;
        let mut header = RawAgfl::new_zeroed();
        header.magicnum = U32::new(agfl::MAGIC);
        header.seqno = U32::new(self.ag.get());
        header.uuid = self.geometry.uuid;
        put(head, at, &header);
        let (first, used) = self.space.agfl;
        for slot in 0..agfl::slots(self.geometry) {
            let index = slot.wrapping_sub(AGFL_FIRST);
            let block = if index < used { first + index } else { NULL_AG_BLOCK };
            put(head, at + RawAgfl::SIZE + 4 * slot as usize, &U32::new(block));
        }
        seal(head, at, sector, AGFL_CRC);
    }

    /// The reverse mappings, with adjacent mappings of the AGFL merged.
    fn rmaps(&self, roots: &AgRoots) -> Vec<Rmap> {
        let space = self.space;
        let mut runs: Vec<(AgExtent, i64)> = vec![
            ((0, roots.bno), rmap::OWNER_FS),
            ((roots.bno, 2), rmap::OWNER_AG),
            ((roots.inode, 1 + u32::from(roots.free_inode.is_some())), rmap::OWNER_INOBT),
        ];
        runs.extend(roots.rmap.map(|at| ((at, 1), rmap::OWNER_AG)));
        runs.extend(roots.refcount.map(|at| ((at, 1), rmap::OWNER_REFC)));
        runs.extend(space.log.map(|log| (log, rmap::OWNER_LOG)));
        runs.push((space.agfl, rmap::OWNER_AG));
        runs.extend(space.chunk.map(|chunk| (chunk, rmap::OWNER_INODES)));
        runs.retain(|(run, _)| run.1 > 0);
        runs.sort_by_key(|(run, _)| run.0);
        let mut joined: Vec<(AgExtent, i64)> = Vec::with_capacity(runs.len());
        for (run, owner) in runs {
            match joined.last_mut() {
                Some((before, who)) if *who == owner && before.0 + before.1 == run.0 => before.1 += run.1,
                _ => joined.push((run, owner)),
            }
        }
        let record = |((start, count), owner): (AgExtent, i64)| Rmap {
            startblock: U32::new(start),
            blockcount: U32::new(count),
            owner: U64::new(owner as u64),
            offset: U64::new(0),
        };
        joined.into_iter().map(record).collect()
    }

    /// `mkfs.xfs` first adds records for the free space before and after an aligned log. If there is none after it, the
    /// bytes of that record remain in the block, unused.
    fn put_leftover(&self, head: &mut [u8], at: u32) {
        let length = self.length();
        let roots_end = self.roots().end;
        if self.space.log.is_some_and(|log| log.0 > roots_end && log.0 + log.1 == length) {
            let from = at as usize * self.geometry.block_size as usize + ShortHeader::SIZE;
            put(head, from + FreeExtent::SIZE, &free_extent((length, 0)));
        }
    }

    fn put_root<T>(&self, head: &mut [u8], at: u32, records: &[T::Record])
    where
        T: Btree<Header = ShortHeader>,
        T::Record: IntoBytes + Immutable,
    {
        let block = self.geometry.block_size as usize;
        let from = at as usize * block;
        if let Some(block) = head.get_mut(from..from + block) {
            fill_root::<T>(block, self.geometry, (self.ag, AgBlock(at)), records);
        }
    }
}

/// Builds a btree root without records.
pub fn empty_root<T>(geometry: &Geometry, ag: AgNumber, at: AgBlock) -> Vec<u8>
where
    T: Btree<Header = ShortHeader>,
    T::Record: IntoBytes + Immutable,
{
    let mut block = vec![0; geometry.block_size as usize];
    fill_root::<T>(&mut block, geometry, (ag, at), &[]);
    block
}

fn fill_root<T>(block: &mut [u8], geometry: &Geometry, (ag, at): (AgNumber, AgBlock), records: &[T::Record])
where
    T: Btree<Header = ShortHeader>,
    T::Record: IntoBytes + Immutable,
{
    let header = ShortHeader {
        magic: U32::new(T::MAGIC),
        level: U16::new(0),
        numrecs: U16::new(records.len() as u16),
        leftsib: U32::new(NULL_AG_BLOCK),
        rightsib: U32::new(NULL_AG_BLOCK),
        bno: U64::new(geometry.ag_block_daddr(ag, at).get()),
        lsn: U64::new(0),
        uuid: geometry.uuid,
        owner: U32::new(ag.get()),
        crc: FromZeros::new_zeroed(),
    };
    put(block, 0, &header);
    put(block, ShortHeader::SIZE, records);
    let length = block.len();
    seal(block, 0, length, <ShortHeader as crate::btree::BtreeHeader>::CRC_OFFSET);
}

fn free_extent((start, count): AgExtent) -> FreeExtent {
    FreeExtent { startblock: U32::new(start), blockcount: U32::new(count) }
}

/// Writes a structure at a byte offset. Buffer sizes and offsets are computed from the same numbers; a mismatch would
/// show as a wrong checksum.
pub fn put<T: IntoBytes + Immutable + ?Sized>(buffer: &mut [u8], at: usize, value: &T) {
    let fits = buffer.get_mut(at..).is_some_and(|rest| value.write_to_prefix(rest).is_ok());
    debug_assert!(fits, "a structure outside of its buffer, at {at}");
}

/// Stores the checksum of `buffer[from..from + length]`, whose field has offset `crc` in that range.
pub fn seal(buffer: &mut [u8], from: usize, length: usize, crc: usize) {
    let sealed = buffer.get_mut(from..from + length).is_some_and(|part| checksum::store(part, crc));
    debug_assert!(sealed, "a checksum outside of its buffer, at {from}");
}
