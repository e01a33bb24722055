//! The inobt and the finobt of one AG, compared with each other, and the counters of the AGI.

use base::{AgBlock, AgIno};
use format::agi::{NULL_AG_INO, RawAgi};
use format::btree::{Btree, FinoBt, InoBt, InodeChunk, rmap};
use format::geometry::INODES_PER_CHUNK;
use format::{Damage, Place};

use crate::ag::AgCheck;
use crate::inode_map::Chunk;
use crate::tree::TreeSize;

/// Checks the inode btrees of an AG whose AGI could be read.
pub(crate) fn check(ag: &mut AgCheck<'_>, agi: &RawAgi) {
    ag.summary.unlinked = agi.unlinked.iter().map(|head| head.get()).collect();
    check_hints(ag, agi);
    let Some(root) = ag.root(agi.root.get(), agi.level.get()) else {
        ag.volume.set_owners_missing();
        return ag.volume.set_names_missing();
    };
    let (mut count, mut free) = (0, 0);
    let inobt = ag.walk::<InoBt>(root, rmap::OWNER_INOBT, |ag, records| {
        for record in records {
            if let Some(chunk) = check_record(ag, record, InoBt::NAME) {
                count += u64::from(chunk.present.count_ones());
                free += u64::from((chunk.free & chunk.present).count_ones());
                claim_chunk(ag, &chunk);
                ag.summary.inodes.chunks.push(chunk);
            }
        }
    });
    sort_chunks(ag);
    if inobt.complete {
        ag.compare("AGI", "count", count, agi.count.get());
        ag.compare("AGI", "freecount", free, agi.freecount.get());
    } else {
        ag.volume.set_owners_missing();
        ag.volume.set_names_missing();
    }
    let finobt = check_finobt(ag, agi, inobt.complete);
    if ag.volume.geometry.features.inobtcount() {
        compare_blocks(ag, "iblocks", Some(inobt), agi.iblocks.get());
        compare_blocks(ag, "fblocks", finobt, agi.fblocks.get());
    }
    let with_parents = ag.volume.geometry.features.parent();
    let in_memory = ag.take_memory(ag.summary.inodes.bytes(with_parents));
    ag.summary.inodes.allocate(with_parents, in_memory, &ag.volume.slots);
}

fn compare_blocks(ag: &AgCheck<'_>, field: &'static str, size: Option<TreeSize>, stored: u32) {
    if let Some(size) = size.filter(|size| size.complete) {
        ag.compare("AGI", field, size.blocks, stored);
    }
}

fn check_hints(ag: &AgCheck<'_>, agi: &RawAgi) {
    for (field, ino) in [("newino", agi.newino.get()), ("dirino", agi.dirino.get())] {
        let number = ag.volume.geometry.ino(ag.ag, AgIno(ino));
        if ino != NULL_AG_INO && !ag.volume.geometry.ino_is_valid(number) {
            ag.error(Damage::new("AGI", field, "an inode of this AG, or none", ino));
        }
    }
}

/// Sorts the chunks and removes overlapping ones, which the walk has reported.
fn sort_chunks(ag: &mut AgCheck<'_>) {
    let chunks = &mut ag.summary.inodes.chunks;
    let in_order = |left: &Chunk, right: &Chunk| {
        u64::from(left.start.get()) + u64::from(INODES_PER_CHUNK) <= u64::from(right.start.get())
    };
    if !chunks.is_sorted_by(in_order) {
        chunks.sort_by_key(|chunk| chunk.start);
        chunks.dedup_by(|next, kept| !in_order(kept, next));
    }
    chunks.shrink_to_fit();
}

/// Checks a record by itself. Returns `None` if its inodes cannot be read.
fn check_record(ag: &AgCheck<'_>, record: &InodeChunk, tree: &'static str) -> Option<Chunk> {
    let sparse = ag.volume.geometry.features.sparse_inodes();
    let start = AgIno(record.startino.get());
    let chunk = Chunk { start, present: record.present(sparse), free: record.free.get() };
    let place = Place::block(ag.ag, ag.volume.geometry.ag_ino_block(start));
    let report = |field, expected: String, found: String| {
        ag.volume.error(place, Damage::new(tree, field, expected, found));
    };
    if let Some(expected) = wrong_start(ag, &chunk) {
        report("startino", expected, start.to_string());
        return None;
    }
    if chunk.present == 0 {
        report(
            "holemask",
            "at least one inode that is not in a hole".to_owned(),
            format!("{:#x}", record.holemask),
        );
        return None;
    }
    let free = (chunk.free & chunk.present).count_ones();
    if record.free_count(sparse) != free {
        report("freecount", free.to_string(), record.free_count(sparse).to_string());
    }
    if sparse {
        let count = chunk.present.count_ones();
        if u32::from(record.count) != count {
            report("count", count.to_string(), record.count.to_string());
        }
        if chunk.free | chunk.present != u64::MAX {
            let found = format!("{:#x} with holes {:#x}", record.free, record.holemask);
            report("free", "a set bit for each inode in a hole".to_owned(), found);
        }
        if let Some(expected) = partial_block_holes(ag, &chunk) {
            report("holemask", expected, format!("{:#x}", record.holemask));
        }
    }
    Some(chunk)
}

/// The expected start of a chunk, if its start is wrong.
fn wrong_start(ag: &AgCheck<'_>, chunk: &Chunk) -> Option<String> {
    let geometry = &ag.volume.geometry;
    let per_block = 1u32 << geometry.inodes_per_block_log;
    // If a block holds more than one chunk, only the block is aligned.
    let align = if per_block > INODES_PER_CHUNK {
        INODES_PER_CHUNK
    } else {
        geometry.inode_align.saturating_mul(per_block)
    };
    if !chunk.start.get().is_multiple_of(align) {
        return Some(format!("a multiple of {align}"));
    }
    let highest = 63u32.saturating_sub(chunk.present.leading_zeros());
    let last = u64::from(chunk.start.get()) + u64::from(highest);
    let end = u64::from(geometry.ag_length(ag.ag)) << geometry.inodes_per_block_log;
    let usable = geometry.ag_block_is_usable(ag.ag, geometry.ag_ino_block(chunk.start));
    (last >= end || !usable).then(|| "a chunk within the AG, after its headers".to_owned())
}

/// The expected holes, if a hole begins or ends within a block.
fn partial_block_holes(ag: &AgCheck<'_>, chunk: &Chunk) -> Option<String> {
    let per_block = 1u32 << ag.volume.geometry.inodes_per_block_log;
    let blocks = (64u32).checked_div(per_block).unwrap_or(0);
    let is_whole = |n: u32| {
        let bits = chunk.present >> (n * per_block) & ((1u64 << per_block) - 1);
        bits == 0 || bits == (1u64 << per_block) - 1
    };
    let partial = per_block < 64 && !(0..blocks).all(is_whole);
    partial.then(|| format!("holes of whole blocks, {per_block} inodes each"))
}

/// Claims the blocks of a chunk.
fn claim_chunk(ag: &mut AgCheck<'_>, chunk: &Chunk) {
    let log = ag.volume.geometry.inodes_per_block_log;
    let first = chunk.start.get() >> log;
    let blocks = ag.volume.geometry.blocks_per_chunk();
    if blocks == 1 {
        // Several chunks may share a block; the first one claims it.
        let claimed = ag.summary.inodes.chunks.last().is_some_and(|last| last.start.get() >> log == first);
        if !claimed {
            ag.claim_metadata(AgBlock(first), 1, rmap::OWNER_INODES);
        }
        return;
    }
    for n in 0..blocks {
        if chunk.present & (1 << (n << log)) != 0 {
            ag.claim_metadata(AgBlock(first + n), 1, rmap::OWNER_INODES);
        }
    }
}

/// Walks the finobt, which must have exactly the chunks with free inodes. `complete` says whether the whole inobt
/// could be read.
fn check_finobt(ag: &mut AgCheck<'_>, agi: &RawAgi, complete: bool) -> Option<TreeSize> {
    if !ag.volume.geometry.features.finobt() {
        return None;
    }
    let root = ag.root(agi.free_root.get(), agi.free_level.get())?;
    let mut free = Vec::new();
    let size = ag.walk::<FinoBt>(root, rmap::OWNER_INOBT, |ag, records| {
        free.extend(records.iter().filter_map(|record| check_record(ag, record, FinoBt::NAME)));
    });
    free.sort_unstable_by_key(|chunk: &Chunk| chunk.start);
    let all = &ag.summary.inodes.chunks;
    let find = |list: &[Chunk], start: AgIno| {
        list.binary_search_by_key(&start, |chunk| chunk.start).ok().and_then(|n| list.get(n).copied())
    };
    if size.complete {
        for chunk in all.iter().filter(|chunk| chunk.free & chunk.present != 0) {
            if find(&free, chunk.start).is_none() {
                let expected = "the chunk of the inobt, which has free inodes".to_owned();
                report(ag, chunk, expected, "none".to_owned());
            }
        }
    }
    for chunk in &free {
        match find(all, chunk.start) {
            Some(other) if other == *chunk && chunk.free & chunk.present != 0 => (),
            Some(other) => report(ag, chunk, mask(&other), mask(chunk)),
            None if complete => report(ag, chunk, "no chunk, as in the inobt".to_owned(), mask(chunk)),
            None => (),
        }
    }
    Some(size)
}

fn mask(chunk: &Chunk) -> String {
    format!("free {:#x} of {:#x}", chunk.free, chunk.present)
}

fn report(ag: &AgCheck<'_>, chunk: &Chunk, expected: String, found: String) {
    let place = Place::ino(ag.volume.geometry.ino(ag.ag, chunk.start));
    ag.volume.error(place, Damage::new(FinoBt::NAME, "record", expected, found));
}
