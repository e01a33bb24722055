//! The pass over all inodes: reads them in large batches, checks each, claims the blocks of its forks, and records its
//! state in the inode map.

use base::{AgIno, AgNumber, Ino};
use block::ReadRequest;
use format::agi::NULL_AG_INO;
use format::inode::{Dinode, FileType, ForkKind, flags2};
use format::{Damage, Place};

use crate::attr::AttrCheck;
use crate::block_map::{Batch, BlockMap};
use crate::fork::{ForkClaims, ForkSize, ForkWalk};
use crate::inode;
use crate::inode_map::{AgInodes, CHUNK, Chunk, InodeMap, state};
use crate::ownership::claim::NO_SHARING;
use crate::ownership::store::{ClaimBuffer, ClaimStore};
use crate::volume::Volume;
use crate::{quota, symlink};

/// Bytes of inodes in a range: large enough for an efficient read, small enough for the cache of a core.
const RANGE_BYTES: usize = 256 << 10;

/// Consecutive inode chunks of one AG: a unit of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkRange {
    pub ag: AgNumber,
    pub first: usize,
    pub count: usize,
}

/// Splits all chunks into ranges.
pub(crate) fn chunk_ranges(map: &InodeMap<'_>, volume: &Volume<'_>) -> Vec<ChunkRange> {
    let per_range = (RANGE_BYTES / (CHUNK * volume.geometry.inode_size as usize)).max(1);
    let of_ag = |(ag, inodes): (AgNumber, &AgInodes)| {
        let chunks = inodes.chunks.len();
        (0..chunks)
            .step_by(per_range)
            .map(move |first| ChunkRange { ag, first, count: per_range.min(chunks - first) })
            .collect::<Vec<_>>()
    };
    map.ags().flat_map(of_ag).collect()
}

/// Reads the inodes of a range of chunks into one buffer.
#[derive(Default)]
pub(crate) struct ChunkReader {
    bytes: Vec<u8>,
    /// Whether each chunk could be read.
    readable: Vec<bool>,
}

impl ChunkReader {
    /// Reads the chunks for which `wanted` returns true, in one batch.
    pub fn read(
        &mut self,
        volume: &Volume<'_>,
        ag: AgNumber,
        chunks: &[Chunk],
        wanted: impl Fn(usize) -> bool,
    ) {
        let chunk_bytes = CHUNK * volume.geometry.inode_size as usize;
        self.bytes.resize(chunks.len() * chunk_bytes, 0);
        self.readable.clear();
        self.readable.extend((0..chunks.len()).map(&wanted));
        let runs = inode_runs(volume, ag, chunks, &wanted);
        let mut rest = self.bytes.as_mut_slice();
        let mut position = 0;
        let mut requests = Vec::with_capacity(runs.len());
        for run in &runs {
            let (_, tail) = rest.split_at_mut((run.position - position).min(rest.len()));
            let (buf, tail) = tail.split_at_mut(run.length.min(tail.len()));
            requests.push(ReadRequest::new(run.offset, buf));
            (rest, position) = (tail, run.position + run.length);
        }
        if volume.device.read_many(&mut requests).is_ok() {
            return;
        }
        // Read the runs again one by one, to find out which ones fail.
        for (run, request) in runs.iter().zip(&mut requests) {
            let place = Place::block(ag, volume.geometry.ag_ino_block(run.start));
            if !volume.read(place, "inode chunk", request.offset, request.buf) {
                let (first, last) =
                    (run.position / chunk_bytes, (run.position + run.length - 1) / chunk_bytes);
                self.readable.iter_mut().take(last + 1).skip(first).for_each(|readable| *readable = false);
            }
        }
    }

    /// The bytes of the inode in a slot, counted from the start of the range. `None` if they could not be read.
    pub fn inode(&self, volume: &Volume<'_>, slot: usize) -> Option<&[u8]> {
        let size = volume.geometry.inode_size as usize;
        self.readable.get(slot / CHUNK).filter(|readable| **readable)?;
        self.bytes.get(slot * size..(slot + 1) * size)
    }
}

/// A run of inodes that is contiguous on the device and in the buffer.
struct InodeRun {
    /// Offset on the device.
    offset: u64,
    /// Position in the buffer.
    position: usize,
    /// Length in bytes.
    length: usize,
    start: AgIno,
}

/// The runs of existing inodes of the wanted chunks.
fn inode_runs(
    volume: &Volume<'_>,
    ag: AgNumber,
    chunks: &[Chunk],
    wanted: &dyn Fn(usize) -> bool,
) -> Vec<InodeRun> {
    let geometry = &volume.geometry;
    let size = geometry.inode_size as usize;
    let ag_offset = geometry.ag_block_offset(ag, base::AgBlock(0));
    let mut runs: Vec<InodeRun> = Vec::new();
    for (n, chunk) in chunks.iter().enumerate().filter(|(n, _)| wanted(*n)) {
        let mut first = 0;
        while first < CHUNK as u32 {
            let bits = chunk.present >> first;
            let skip = bits.trailing_zeros().min(CHUNK as u32 - first);
            let count = (bits >> skip.min(63)).trailing_ones().min(CHUNK as u32 - first - skip);
            first += skip;
            if count == 0 {
                break;
            }
            let Some(start) = chunk.start.checked_add(first) else { break };
            let (position, length) = ((n * CHUNK + first as usize) * size, count as usize * size);
            let offset = ag_offset + u64::from(start.get()) * size as u64;
            let follows = |last: &InodeRun| {
                last.position + last.length == position && last.offset + last.length as u64 == offset
            };
            match runs.last_mut().filter(|last| follows(last)) {
                Some(last) => last.length += length,
                None => runs.push(InodeRun { offset, position, length, start }),
            }
            first += count;
        }
    }
    runs
}

/// State of one worker thread.
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
    pub counts: InodeCounts,
}

/// Numbers for the summary.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InodeCounts {
    pub inodes: u64,
    pub directories: u64,
    pub extents: u64,
}

impl<'v> InodeWorker<'v> {
    pub fn new(volume: &'v Volume<'v>, map: &'v InodeMap<'v>, store: &'v ClaimStore) -> Self {
        Self {
            volume,
            map,
            store,
            buffer: ClaimBuffer::default(),
            reader: ChunkReader::default(),
            forks: ForkWalk::new(volume),
            blocks: BlockMap::default(),
            batch: Batch::default(),
            attrs: AttrCheck::default(),
            counts: InodeCounts::default(),
        }
    }

    /// Checks all inodes of a range.
    pub fn run(&mut self, range: ChunkRange) {
        let Some(inodes) = self.map.ag(range.ag) else { return };
        let chunks = inodes.chunks.get(range.first..range.first + range.count).unwrap_or_default();
        let mut reader = std::mem::take(&mut self.reader);
        reader.read(self.volume, range.ag, chunks, |_| true);
        for (n, chunk) in chunks.iter().enumerate() {
            for (ag_ino, slot) in inodes.slots(range.first + n) {
                let ino = self.volume.geometry.ino(range.ag, ag_ino);
                let free = chunk.free >> (slot % CHUNK) & 1 != 0;
                match reader.inode(self.volume, slot - range.first * CHUNK) {
                    Some(bytes) => self.check(inodes, slot, ino, bytes, free),
                    None => self.set_damaged(inodes, slot),
                }
            }
        }
        self.reader = reader;
    }

    /// Records that an inode, its blocks and its names are not known.
    fn set_damaged(&self, inodes: &AgInodes, slot: usize) {
        inodes.set_state(slot, state::DAMAGED);
        self.volume.set_owners_missing();
        self.volume.set_names_missing();
    }

    fn check(&mut self, inodes: &AgInodes, slot: usize, ino: Ino, bytes: &[u8], free: bool) {
        let volume = self.volume;
        let inode = Dinode::identify(bytes, &volume.geometry, ino);
        let Some(inode) = volume.accept(Place::ino(ino), inode) else {
            if !free {
                self.set_damaged(inodes, slot);
            }
            return;
        };
        volume.check_lsn(Place::ino(ino), "inode", inode.core.lsn.get());
        let mut report = |damage| volume.error(Place::ino(ino), damage);
        if inode.is_free() {
            inode::check_free(&inode, &volume.geometry, &mut report);
            if !free {
                report(Damage::new("inode", "mode", "a mode (the inobt says that the inode is in use)", 0));
            }
            return;
        }
        if free {
            let found = format!("{:#o}", inode.core.mode);
            report(Damage::new("inode", "mode", "0 (the inobt says that the inode is free)", found));
        }
        self.check_used(inodes, slot, ino, &inode);
    }

    fn check_used(&mut self, inodes: &AgInodes, slot: usize, ino: Ino, inode: &Dinode<'_>) {
        let volume = self.volume;
        let mut report = |damage| volume.error(Place::ino(ino), damage);
        inode::check_core(inode, &volume.geometry, &mut report);
        let [is_bitmap, is_summary] = [volume.raw.rbmino, volume.raw.rsumino].map(|n| n.get() == ino.get());
        inode::check_realtime_files(inode, is_bitmap, is_summary).unwrap_or_else(&mut report);
        let data = self.check_data(ino, inode);
        let attr = self.check_attrs(inodes, slot, ino, inode);
        inode::check_fork_sizes(inode, &data, &attr, &mut report);
        if !(data.complete && attr.complete) {
            volume.set_owners_missing();
        }
        self.counts.inodes += 1;
        self.counts.extents += data.extents + attr.extents;
        self.counts.directories += u64::from(inode.file_type() == Some(FileType::Directory));
        inodes.set_state(slot, new_state(inode, data.complete));
        inodes.add_links(slot, inode.core.nlink.get().wrapping_neg());
        if inode.file_type().is_none() {
            volume.set_names_missing();
        }
    }

    /// Walks the data fork, and checks the contents of symlinks and quota files.
    fn check_data(&mut self, ino: Ino, inode: &Dinode<'_>) -> ForkSize {
        let volume = self.volume;
        let reflink = inode.core.flags2.get() & flags2::REFLINK != 0;
        let flags = if reflink { 0 } else { NO_SHARING };
        let mut claims = ForkClaims { store: self.store, buffer: &mut self.buffer, flags };
        let symlink = inode.file_type() == Some(FileType::Symlink);
        let quota = quota::quota_type(volume, ino);
        let blocks = &mut self.blocks;
        blocks.reset(ino);
        let size = self.forks.walk(ino, inode, ForkKind::Data, Some(&mut claims), &mut |extent| {
            if symlink || quota.is_some() {
                blocks.push(extent);
            }
        });
        if symlink && size.complete {
            symlink::check(volume, ino, inode, blocks, &mut self.batch);
        }
        if let Some(quota) = quota.filter(|_| size.complete) {
            quota::check(volume, blocks, quota, &mut self.batch);
        }
        size
    }

    /// Walks the attribute fork, and checks the attributes.
    fn check_attrs(&mut self, inodes: &AgInodes, slot: usize, ino: Ino, inode: &Dinode<'_>) -> ForkSize {
        let mut claims = ForkClaims { store: self.store, buffer: &mut self.buffer, flags: 0 };
        let blocks = &mut self.blocks;
        blocks.reset(ino);
        let size = self.forks.walk(ino, inode, ForkKind::Attr, Some(&mut claims), &mut |extent| {
            blocks.push(extent);
        });
        if size.complete {
            let parents = self.attrs.run(self.volume, ino, inode, blocks);
            inodes.add_parent(slot, parents.wrapping_neg());
        }
        size
    }
}

/// The state of an inode in use. `complete` says whether its data fork could be read.
fn new_state(inode: &Dinode<'_>, complete: bool) -> u8 {
    let core = inode.core;
    let file_type = inode.file_type();
    let damaged = file_type.is_none() || file_type == Some(FileType::Directory) && !complete;
    let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
    file_type.map_or(0, FileType::ftype)
        | bit(damaged, state::DAMAGED)
        | bit(core.next_unlinked.get() != NULL_AG_INO, state::NEXT_UNLINKED)
        | bit(core.flags2.get() & flags2::METADATA != 0, state::METADATA)
        | bit(core.nlink.get() == 0, state::NO_LINKS)
}
