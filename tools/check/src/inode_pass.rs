//! The one pass over all inodes: read in large pieces, each verified, its forks followed and claimed, its state kept.

use base::{AgIno, AgNumber, Ino};
use block::ReadRequest;
use format::agi::NULL_AG_INO;
use format::inode::{Dinode, FileType, ForkKind, flags2};
use format::{Damage, Place};

use crate::attr::AttrCheck;
use crate::block_map::{Batch, BlockMap};
use crate::fork::{Claimer, ForkTotal, ForkWalk};
use crate::inode;
use crate::inode_map::{AgInodes, CHUNK, Chunk, InodeMap, state};
use crate::ownership::claim::NO_SHARING;
use crate::ownership::store::{ClaimBuffer, ClaimStore};
use crate::volume::Volume;
use crate::{quota, symlink};

/// Bytes of inodes that one unit of work reads: large enough to be one good read, small enough to stay in a core's
/// cache.
const UNIT_BYTES: usize = 256 << 10;

/// Some chunks of one AG.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    pub ag: AgNumber,
    pub first: usize,
    pub count: usize,
}

/// Cuts all chunks into units of work.
pub(crate) fn units(map: &InodeMap<'_>, volume: &Volume<'_>) -> Vec<Unit> {
    let per_unit = (UNIT_BYTES / (CHUNK * volume.geometry.inode_size as usize)).max(1);
    let of_ag = |(ag, inodes): (AgNumber, &AgInodes)| {
        let chunks = inodes.chunks.len();
        (0..chunks)
            .step_by(per_unit)
            .map(move |first| Unit { ag, first, count: per_unit.min(chunks - first) })
            .collect::<Vec<_>>()
    };
    map.ags().flat_map(of_ag).collect()
}

/// A worker's reader of chunks: the inodes of a unit, in one buffer.
pub(crate) struct ChunkReader {
    bytes: Vec<u8>,
    /// Chunks that could be read.
    good: Vec<bool>,
}

impl ChunkReader {
    pub fn new() -> Self {
        Self { bytes: Vec::new(), good: Vec::new() }
    }

    /// Reads the chunks of a unit for which `wanted` holds, in one batch.
    pub fn read(
        &mut self,
        volume: &Volume<'_>,
        ag: AgNumber,
        chunks: &[Chunk],
        wanted: impl Fn(usize) -> bool,
    ) {
        let chunk_bytes = CHUNK * volume.geometry.inode_size as usize;
        self.bytes.resize(chunks.len() * chunk_bytes, 0);
        self.good.clear();
        self.good.extend((0..chunks.len()).map(&wanted));
        let runs = runs(volume, ag, chunks, &wanted);
        let mut rest = self.bytes.as_mut_slice();
        let mut at = 0;
        let mut requests = Vec::with_capacity(runs.len());
        for run in &runs {
            let (_, tail) = rest.split_at_mut((run.at - at).min(rest.len()));
            let (piece, tail) = tail.split_at_mut(run.length.min(tail.len()));
            requests.push(ReadRequest::new(run.offset, piece));
            (rest, at) = (tail, run.at + run.length);
        }
        if volume.device.read_many(&mut requests).is_ok() {
            return;
        }
        // Which one failed is found out by reading them again, one by one.
        for (run, request) in runs.iter().zip(&mut requests) {
            let place = Place::block(ag, volume.geometry.ag_ino_block(run.start));
            if !volume.read(place, "inode chunk", request.offset, request.buf) {
                let (first, last) = (run.at / chunk_bytes, (run.at + run.length - 1) / chunk_bytes);
                self.good.iter_mut().take(last + 1).skip(first).for_each(|good| *good = false);
            }
        }
    }

    /// The bytes of the inode in a slot of the unit, where they could be read.
    pub fn inode(&self, volume: &Volume<'_>, slot: usize) -> Option<&[u8]> {
        let size = volume.geometry.inode_size as usize;
        self.good.get(slot / CHUNK).filter(|good| **good)?;
        self.bytes.get(slot * size..(slot + 1) * size)
    }
}

/// Bytes that lie together on the device and in the buffer.
struct Run {
    offset: u64,
    at: usize,
    length: usize,
    start: AgIno,
}

/// The parts of chunks that exist, joined where they touch.
fn runs(volume: &Volume<'_>, ag: AgNumber, chunks: &[Chunk], wanted: &dyn Fn(usize) -> bool) -> Vec<Run> {
    let geometry = &volume.geometry;
    let size = geometry.inode_size as usize;
    let ag_offset = geometry.ag_block_offset(ag, base::AgBlock(0));
    let mut runs: Vec<Run> = Vec::new();
    for (n, chunk) in chunks.iter().enumerate().filter(|(n, _)| wanted(*n)) {
        let mut from = 0;
        while from < CHUNK as u32 {
            let bits = chunk.present >> from;
            let skip = bits.trailing_zeros().min(CHUNK as u32 - from);
            let count = (bits >> skip.min(63)).trailing_ones().min(CHUNK as u32 - from - skip);
            from += skip;
            if count == 0 {
                break;
            }
            let Some(start) = chunk.start.checked_add(from) else { break };
            let (at, length) = ((n * CHUNK + from as usize) * size, count as usize * size);
            let offset = ag_offset + u64::from(start.get()) * size as u64;
            match runs.last_mut() {
                Some(last) if last.at + last.length == at && last.offset + last.length as u64 == offset => {
                    last.length += length;
                }
                _ => runs.push(Run { offset, at, length, start }),
            }
            from += count;
        }
    }
    runs
}

/// One worker of the pass.
pub(crate) struct InodeWorker<'v> {
    volume: &'v Volume<'v>,
    map: &'v InodeMap<'v>,
    store: &'v ClaimStore,
    pub buffer: ClaimBuffer,
    reader: ChunkReader,
    forks: ForkWalk<'v>,
    blocks: BlockMap,
    batch: Batch,
    attrs: AttrCheck,
    pub tally: Tally,
}

/// What a worker saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub inodes: u64,
    pub directories: u64,
    pub extents: u64,
}

impl<'v> InodeWorker<'v> {
    pub fn new(volume: &'v Volume<'v>, map: &'v InodeMap<'v>, store: &'v ClaimStore) -> Self {
        let (buffer, tally) = (ClaimBuffer::default(), Tally::default());
        let (reader, forks) = (ChunkReader::new(), ForkWalk::new(volume));
        let (blocks, batch, attrs) = (BlockMap::default(), Batch::default(), AttrCheck::default());
        Self { volume, map, store, buffer, reader, forks, blocks, batch, attrs, tally }
    }

    /// Checks all inodes of a unit.
    pub fn run(&mut self, unit: Unit) {
        let Some(inodes) = self.map.ag(unit.ag) else { return };
        let chunks = inodes.chunks.get(unit.first..unit.first + unit.count).unwrap_or_default();
        let mut reader = std::mem::replace(&mut self.reader, ChunkReader::new());
        reader.read(self.volume, unit.ag, chunks, |_| true);
        for (n, chunk) in chunks.iter().enumerate() {
            for (within, slot) in inodes.slots(unit.first + n) {
                let ino = self.volume.geometry.ino(unit.ag, within);
                let free = chunk.free >> (slot % CHUNK) & 1 != 0;
                match reader.inode(self.volume, slot - unit.first * CHUNK) {
                    Some(bytes) => self.check(inodes, slot, ino, bytes, free),
                    None => self.lose(inodes, slot),
                }
            }
        }
        self.reader = reader;
    }

    /// An inode that cannot be told anything of.
    fn lose(&self, inodes: &AgInodes, slot: usize) {
        inodes.set_state(slot, state::DAMAGED);
        self.volume.miss_owners();
        self.volume.miss_names();
    }

    fn check(&mut self, inodes: &AgInodes, slot: usize, ino: Ino, bytes: &[u8], free: bool) {
        let volume = self.volume;
        let inode = match Dinode::identify(bytes, &volume.geometry, ino) {
            Ok(inode) => inode,
            Err(damage) => {
                volume.error(Place::ino(ino), damage);
                if !free {
                    self.lose(inodes, slot);
                }
                return;
            }
        };
        volume.check_lsn(Place::ino(ino), "inode", inode.core.lsn.get());
        let mut tell = |damage| volume.error(Place::ino(ino), damage);
        if inode.is_free() {
            inode::check_free(&inode, &volume.geometry, &mut tell);
            if !free {
                tell(Damage::new("inode", "mode", "an inode in use, as its tree says", 0));
            }
            return;
        }
        if free {
            let found = format!("mode {:#o}", inode.core.mode);
            tell(Damage::new("inode", "mode", "0, free, as its tree says", found));
        }
        self.check_used(inodes, slot, ino, &inode);
    }

    fn check_used(&mut self, inodes: &AgInodes, slot: usize, ino: Ino, inode: &Dinode<'_>) {
        let volume = self.volume;
        let mut tell = |damage| volume.error(Place::ino(ino), damage);
        inode::check_core(inode, &volume.geometry, &mut tell);
        let [is_bitmap, is_summary] = [volume.raw.rbmino, volume.raw.rsumino].map(|n| n.get() == ino.get());
        inode::check_realtime_files(inode, is_bitmap, is_summary).unwrap_or_else(&mut tell);
        let data = self.check_data(ino, inode);
        let attr = self.check_attrs(inodes, slot, ino, inode);
        inode::check_totals(inode, &data, &attr, &mut tell);
        if !(data.complete && attr.complete) {
            volume.miss_owners();
        }
        self.tally.inodes += 1;
        self.tally.extents += data.extents + attr.extents;
        self.tally.directories += u64::from(inode.file_type() == Some(FileType::Directory));
        inodes.set_state(slot, new_state(inode, data.complete));
        inodes.add_links(slot, inode.core.nlink.get().wrapping_neg());
        if inode.file_type().is_none() {
            volume.miss_names();
        }
    }

    /// Follows the data fork, and looks into it where it holds neither a user's data nor a directory.
    fn check_data(&mut self, ino: Ino, inode: &Dinode<'_>) -> ForkTotal {
        let volume = self.volume;
        let reflink = inode.core.flags2.get() & flags2::REFLINK != 0;
        let notes = if reflink { 0 } else { NO_SHARING };
        let mut claimer = Claimer { store: self.store, buffer: &mut self.buffer, notes };
        let symlink = inode.file_type() == Some(FileType::Symlink);
        let quota = quota::kind_of(volume, ino);
        let blocks = &mut self.blocks;
        blocks.reset(ino);
        let total = self.forks.run(ino, inode, ForkKind::Data, Some(&mut claimer), &mut |extent| {
            if symlink || quota.is_some() {
                blocks.push(extent);
            }
        });
        if symlink && total.complete {
            symlink::check(volume, ino, inode, blocks, &mut self.batch);
        }
        if let Some(kind) = quota.filter(|_| total.complete) {
            quota::check(volume, blocks, kind, &mut self.batch);
        }
        total
    }

    /// Follows the attribute fork, and checks what is in it.
    fn check_attrs(&mut self, inodes: &AgInodes, slot: usize, ino: Ino, inode: &Dinode<'_>) -> ForkTotal {
        let mut claimer = Claimer { store: self.store, buffer: &mut self.buffer, notes: 0 };
        let blocks = &mut self.blocks;
        blocks.reset(ino);
        let total = self.forks.run(ino, inode, ForkKind::Attr, Some(&mut claimer), &mut |extent| {
            blocks.push(extent);
        });
        if total.complete {
            let attrs = self.attrs.run(self.volume, ino, inode, blocks);
            inodes.add_parent(slot, attrs.parents.wrapping_neg());
        }
        total
    }
}

fn new_state(inode: &Dinode<'_>, complete: bool) -> u8 {
    let core = inode.core;
    let file_type = inode.file_type();
    let mut new = file_type.map_or(0, FileType::ftype);
    let unusable = file_type.is_none() || file_type == Some(FileType::Directory) && !complete;
    for (holds, bit) in [
        (unusable, state::DAMAGED),
        (core.next_unlinked.get() != NULL_AG_INO, state::NEXT_UNLINKED),
        (core.flags2.get() & flags2::METADATA != 0, state::METADATA),
        (core.nlink.get() == 0, state::NO_LINKS),
    ] {
        if holds {
            new |= bit;
        }
    }
    new
}
