//! The headers of an AG and the roots of its trees: its first blocks, in one piece.

use base::{AgBlock, AgNumber};
use format::Geometry;
use format::agf::{self, RawAgf};
use format::agfl::{self, RawAgfl};
use format::agi::{self, RawAgi};
use format::btree::{
    BnoBt, Btree, CntBt, FinoBt, FreeExtent, Header, InoBt, InodeChunk, NULL_AG_BLOCK, RefcountBt, Rmap,
    RmapBt, ShortHeader, rmap,
};
use format::ondisk::{OnDisk, U16, U32, U64};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use super::bytes::{put, seal};
use super::superblock;
use crate::plan::{Plan, Run, Space};

/// Where the checksums of the headers lie.
const AGF_CRC: usize = std::mem::offset_of!(RawAgf, crc);
const AGI_CRC: usize = std::mem::offset_of!(RawAgi, crc);
const AGFL_CRC: usize = std::mem::offset_of!(RawAgfl, crc);
/// The first slot of a fresh AGFL that is used.
const AGFL_FIRST: u32 = 1;

/// Free blocks of the volume before the first inodes, as the superblock counts them: the AGFLs' included.
pub fn free_blocks(plan: &Plan) -> u64 {
    let log = if plan.log.place.is_some() { u64::from(plan.log.blocks) } else { 0 };
    plan.blocks - u64::from(plan.ag_count) * u64::from(plan.roots().end) - log
}

/// The first blocks of an AG: headers and roots.
pub fn head(plan: &Plan, geometry: &Geometry, ag: u32) -> Vec<u8> {
    let shape = &plan.shape;
    let (block, sector) = (shape.block_size as usize, shape.sector_size as usize);
    let roots = plan.roots();
    let space = plan.space(ag);
    let mut head = vec![0; roots.end as usize * block];
    put(&mut head, 0, superblock::copy(plan, ag).as_slice());
    put(&mut head, sector, &raw_agf(plan, ag, &space));
    seal(&mut head, sector, sector, AGF_CRC);
    put(&mut head, 2 * sector, &raw_agi(plan, ag));
    seal(&mut head, 2 * sector, sector, AGI_CRC);
    put_agfl(&mut head, plan, geometry, ag, &space);
    let mut trees = Trees { head: &mut head, plan, geometry, ag };
    let mut extents: Vec<FreeExtent> = space.free.iter().map(|run| free_extent(*run)).collect();
    trees.leftover(roots.bno, &space);
    trees.root::<BnoBt>(roots.bno, &extents);
    extents.sort_by_key(|extent| (extent.blockcount.get(), extent.startblock.get()));
    trees.leftover(roots.cnt, &space);
    trees.root::<CntBt>(roots.cnt, &extents);
    let chunks = if space.chunk.is_some() { first_chunks(plan) } else { Vec::new() };
    trees.root::<InoBt>(roots.inode, &chunks);
    if let Some(at) = roots.free_inode {
        trees.root::<FinoBt>(at, &chunks);
    }
    if let Some(at) = roots.rmap {
        trees.root::<RmapBt>(at, &rmaps(plan, &space));
    }
    if let Some(at) = roots.refcount {
        trees.root::<RefcountBt>(at, &[]);
    }
    head
}

fn raw_agf(plan: &Plan, ag: u32, space: &Space) -> RawAgf {
    let roots = plan.roots();
    let used = space.agfl.1;
    let mut agf = RawAgf::new_zeroed();
    agf.magicnum = U32::new(agf::MAGIC);
    agf.versionnum = U32::new(1);
    agf.seqno = U32::new(ag);
    agf.length = U32::new(plan.ag_length(ag));
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
    // Of an empty one, the slot before the first.
    agf.fllast = U32::new(AGFL_FIRST + used - 1);
    agf.flcount = U32::new(used);
    agf.freeblks = U32::new(space.free.iter().map(|run| run.1).sum());
    agf.longest = U32::new(space.free.iter().map(|run| run.1).max().unwrap_or(0));
    agf.uuid = plan.uuid;
    agf
}

fn raw_agi(plan: &Plan, ag: u32) -> RawAgi {
    let roots = plan.roots();
    let null = U32::new(agi::NULL_AG_INO);
    let mut raw = RawAgi::new_zeroed();
    raw.magicnum = U32::new(agi::MAGIC);
    raw.versionnum = U32::new(1);
    raw.seqno = U32::new(ag);
    raw.length = U32::new(plan.ag_length(ag));
    raw.root = U32::new(roots.inode);
    raw.level = U32::new(1);
    raw.newino = null;
    raw.dirino = null;
    raw.unlinked = [null; agi::UNLINKED_BUCKETS];
    raw.uuid = plan.uuid;
    if let Some(root) = roots.free_inode {
        raw.free_root = U32::new(root);
        raw.free_level = U32::new(1);
    }
    if plan.shape.features.inobtcount() {
        raw.iblocks = U32::new(1);
        raw.fblocks = U32::new(u32::from(roots.free_inode.is_some()));
    }
    if ag == 0 {
        raw.count = U32::new(plan.first_inodes());
        raw.freecount = U32::new(plan.first_inodes() - 3);
        // The first AG's inodes are the volume's.
        raw.newino = U32::new(plan.root_inode() as u32);
    }
    raw
}

fn put_agfl(head: &mut [u8], plan: &Plan, geometry: &Geometry, ag: u32, space: &Space) {
    let sector = plan.shape.sector_size as usize;
    let at = 3 * sector;
    let mut header = RawAgfl::new_zeroed();
    header.magicnum = U32::new(agfl::MAGIC);
    header.seqno = U32::new(ag);
    header.uuid = plan.uuid;
    put(head, at, &header);
    let (first, used) = space.agfl;
    for slot in 0..agfl::slots(geometry) {
        let index = slot.wrapping_sub(AGFL_FIRST);
        let block = if index < used { first + index } else { NULL_AG_BLOCK };
        put(head, at + RawAgfl::SIZE + 4 * slot as usize, &U32::new(block));
    }
    seal(head, at, sector, AGFL_CRC);
}

fn free_extent((start, count): Run) -> FreeExtent {
    FreeExtent { startblock: U32::new(start), blockcount: U32::new(count) }
}

/// The records of the first inodes, of which three are in use.
fn first_chunks(plan: &Plan) -> Vec<InodeChunk> {
    let sparse = plan.shape.features.sparse_inodes();
    (0..plan.first_inodes() / 64)
        .map(|n| {
            let used = if n == 0 { 3 } else { 0 };
            InodeChunk {
                // The first AG's inodes are the volume's: their numbers are small.
                startino: U32::new(plan.root_inode() as u32 + 64 * n),
                holemask: U16::new(0),
                count: if sparse { 64 } else { 0 },
                freecount: 64 - used,
                free: U64::new(u64::MAX << used),
            }
        })
        .collect()
}

/// Who owns what, neighbours of one owner joined where the AGFL is one of them.
fn rmaps(plan: &Plan, space: &Space) -> Vec<Rmap> {
    let roots = plan.roots();
    let mut runs: Vec<(Run, i64)> = vec![
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
    let mut joined: Vec<(Run, i64)> = Vec::with_capacity(runs.len());
    for (run, owner) in runs {
        match joined.last_mut() {
            Some((before, who)) if *who == owner && before.0 + before.1 == run.0 => before.1 += run.1,
            _ => joined.push((run, owner)),
        }
    }
    joined
        .into_iter()
        .map(|((start, count), owner)| Rmap {
            startblock: U32::new(start),
            blockcount: U32::new(count),
            owner: U64::new(owner as u64),
            offset: U64::new(0),
        })
        .collect()
}

/// Writes roots into the head of an AG.
struct Trees<'a> {
    head: &'a mut [u8],
    plan: &'a Plan,
    geometry: &'a Geometry,
    ag: u32,
}

impl Trees<'_> {
    /// `mkfs.xfs` first describes the space before and behind an aligned log; where none is behind it, the record of
    /// that stays as an unused one.
    fn leftover(&mut self, at: u32, space: &Space) {
        let length = self.plan.ag_length(self.ag);
        let aligned = space.log.filter(|log| log.0 > self.plan.roots().end && log.0 + log.1 == length);
        if aligned.is_some() {
            let from = at as usize * self.plan.shape.block_size as usize + ShortHeader::SIZE;
            put(self.head, from + FreeExtent::SIZE, &free_extent((length, 0)));
        }
    }

    fn root<T>(&mut self, at: u32, records: &[T::Record])
    where
        T: Btree<Header = ShortHeader>,
        T::Record: IntoBytes + Immutable,
    {
        let block = self.plan.shape.block_size as usize;
        let from = at as usize * block;
        let header = ShortHeader {
            magic: U32::new(T::MAGIC),
            level: U16::new(0),
            numrecs: U16::new(records.len() as u16),
            leftsib: U32::new(NULL_AG_BLOCK),
            rightsib: U32::new(NULL_AG_BLOCK),
            bno: U64::new(self.geometry.ag_block_daddr(AgNumber(self.ag), AgBlock(at)).get()),
            lsn: U64::new(0),
            uuid: self.plan.uuid,
            owner: U32::new(self.ag),
            crc: FromZeros::new_zeroed(),
        };
        put(self.head, from, &header);
        put(self.head, from + ShortHeader::SIZE, records);
        seal(self.head, from, block, ShortHeader::CRC_OFFSET);
    }
}
