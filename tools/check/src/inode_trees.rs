//! The inode trees of one AG: both against each other, and the AGI's counters.

use base::{AgBlock, AgIno};
use format::agi::{NULL_AG_INO, RawAgi};
use format::btree::{Btree, FinoBt, InoBt, InodeChunk, rmap};
use format::geometry::INODES_PER_CHUNK;
use format::{Damage, Place};

use crate::ag::{AgCheck, Walked};
use crate::inode_map::Chunk;

/// Checks the inode trees of an AG whose AGI could be read.
pub(crate) fn check(ag: &mut AgCheck<'_>, agi: &RawAgi) {
    ag.trees.unlinked = agi.unlinked.iter().map(|head| head.get()).collect();
    check_hint(ag, agi);
    let Some(root) = ag.root(agi.root.get(), agi.level.get()) else {
        ag.volume.miss_owners();
        return ag.volume.miss_names();
    };
    let (mut count, mut free) = (0, 0);
    let walked = ag.walk::<InoBt>(root, rmap::OWNER_INOBT, |ag, records| {
        for record in records {
            if let Some(chunk) = accept(ag, record, InoBt::NAME) {
                count += u64::from(chunk.present.count_ones());
                free += u64::from((chunk.free & chunk.present).count_ones());
                own(ag, &chunk);
                ag.trees.inodes.chunks.push(chunk);
            }
        }
    });
    settle(ag);
    if walked.complete {
        ag.compare("AGI", "count", count, agi.count.get());
        ag.compare("AGI", "freecount", free, agi.freecount.get());
    } else {
        ag.volume.miss_owners();
        ag.volume.miss_names();
    }
    let fino = check_free_tree(ag, agi, walked.complete);
    if ag.volume.geometry.features.inobtcount() {
        compare_blocks(ag, "iblocks", Some(walked), agi.iblocks.get());
        compare_blocks(ag, "fblocks", fino, agi.fblocks.get());
    }
    let with_parents = ag.volume.geometry.features.parent();
    ag.trees.inodes.seal(with_parents);
}

fn compare_blocks(ag: &AgCheck<'_>, field: &'static str, walked: Option<Walked>, stored: u32) {
    if let Some(walked) = walked
        && walked.complete
    {
        ag.compare("AGI", field, walked.blocks, stored);
    }
}

fn check_hint(ag: &AgCheck<'_>, agi: &RawAgi) {
    for (field, ino) in [("newino", agi.newino.get()), ("dirino", agi.dirino.get())] {
        let number = ag.volume.geometry.ino(ag.ag, AgIno(ino));
        if ino != NULL_AG_INO && !ag.volume.geometry.ino_is_valid(number) {
            ag.error(Damage::new("AGI", field, "an inode of this AG, or none", ino));
        }
    }
}

/// Makes the chunks searchable: in order, each once. That they are not has been reported by the walk.
fn settle(ag: &mut AgCheck<'_>) {
    let chunks = &mut ag.trees.inodes.chunks;
    let apart = |left: &Chunk, right: &Chunk| {
        u64::from(left.start.get()) + u64::from(INODES_PER_CHUNK) <= u64::from(right.start.get())
    };
    if !chunks.is_sorted_by(apart) {
        chunks.sort_by_key(|chunk| chunk.start);
        chunks.dedup_by(|next, kept| !apart(kept, next));
    }
    chunks.shrink_to_fit();
}

/// Checks one record by itself; `None` where no inode can be reached by it.
fn accept(ag: &AgCheck<'_>, record: &InodeChunk, tree: &'static str) -> Option<Chunk> {
    let sparse = ag.volume.geometry.features.sparse_inodes();
    let start = AgIno(record.startino.get());
    let chunk = Chunk { start, present: record.present(sparse), free: record.free.get() };
    let place = Place::block(ag.ag, ag.volume.geometry.ag_ino_block(start));
    let tell = |field, expected: String, found: String| {
        ag.volume.error(place, Damage::new(tree, field, expected, found));
    };
    if let Some(expected) = misplaced(ag, &chunk) {
        tell("startino", expected, start.to_string());
        return None;
    }
    if chunk.present == 0 {
        tell("holemask", "some inodes".to_owned(), format!("{:#x}", record.holemask));
        return None;
    }
    let free = (chunk.free & chunk.present).count_ones();
    if record.free_count(sparse) != free {
        tell("freecount", free.to_string(), record.free_count(sparse).to_string());
    }
    if sparse {
        let count = chunk.present.count_ones();
        if u32::from(record.count) != count {
            tell("count", count.to_string(), record.count.to_string());
        }
        if chunk.free | chunk.present != u64::MAX {
            let found = format!("{:#x} with holes {:#x}", record.free, record.holemask);
            tell("free", "a set bit for each inode in a hole".to_owned(), found);
        }
        if let Some(expected) = torn(ag, &chunk) {
            tell("holemask", expected, format!("{:#x}", record.holemask));
        }
    }
    Some(chunk)
}

/// What a chunk's start should be, where it is not.
fn misplaced(ag: &AgCheck<'_>, chunk: &Chunk) -> Option<String> {
    let geometry = &ag.volume.geometry;
    let per_block = 1u32 << geometry.inodes_per_block_log;
    // Where a block holds more than one chunk, only the block is aligned.
    let step = if per_block > INODES_PER_CHUNK {
        INODES_PER_CHUNK
    } else {
        geometry.inode_align.saturating_mul(per_block)
    };
    if !chunk.start.get().is_multiple_of(step) {
        return Some(format!("a multiple of {step}"));
    }
    let highest = 63u32.saturating_sub(chunk.present.leading_zeros());
    let last = u64::from(chunk.start.get()) + u64::from(highest);
    let end = u64::from(geometry.ag_length(ag.ag)) << geometry.inodes_per_block_log;
    let usable = geometry.ag_block_is_usable(ag.ag, geometry.ag_ino_block(chunk.start));
    (last >= end || !usable).then(|| "a chunk within the AG, behind its header".to_owned())
}

/// Whether holes begin or end within a block.
fn torn(ag: &AgCheck<'_>, chunk: &Chunk) -> Option<String> {
    let per_block = 1u32 << ag.volume.geometry.inodes_per_block_log;
    let blocks = (64u32).checked_div(per_block).unwrap_or(0);
    let whole = |n: u32| {
        let bits = chunk.present >> (n * per_block) & ((1u64 << per_block) - 1);
        bits == 0 || bits == (1u64 << per_block) - 1
    };
    let torn = per_block < 64 && !(0..blocks).all(whole);
    torn.then(|| format!("holes of whole blocks, {per_block} inodes each"))
}

/// Claims the blocks of a chunk.
fn own(ag: &mut AgCheck<'_>, chunk: &Chunk) {
    let log = ag.volume.geometry.inodes_per_block_log;
    let first = chunk.start.get() >> log;
    let blocks = ag.volume.geometry.blocks_per_chunk();
    if blocks == 1 {
        // Several chunks may share the block; the first claims it.
        let again = ag.trees.inodes.chunks.last().is_some_and(|last| last.start.get() >> log == first);
        if !again {
            ag.own(AgBlock(first), 1, rmap::OWNER_INODES);
        }
        return;
    }
    for n in 0..blocks {
        if chunk.present & (1 << (n << log)) != 0 {
            ag.own(AgBlock(first + n), 1, rmap::OWNER_INODES);
        }
    }
}

/// Walks the free inode tree, which holds exactly the chunks that have free inodes.
fn check_free_tree(ag: &mut AgCheck<'_>, agi: &RawAgi, complete: bool) -> Option<Walked> {
    if !ag.volume.geometry.features.finobt() {
        return None;
    }
    let root = ag.root(agi.free_root.get(), agi.free_level.get())?;
    let mut free = Vec::new();
    let walked = ag.walk::<FinoBt>(root, rmap::OWNER_INOBT, |ag, records| {
        free.extend(records.iter().filter_map(|record| accept(ag, record, FinoBt::NAME)));
    });
    free.sort_unstable_by_key(|chunk: &Chunk| chunk.start);
    let all = &ag.trees.inodes.chunks;
    let find = |list: &[Chunk], start: AgIno| {
        list.binary_search_by_key(&start, |chunk| chunk.start).ok().and_then(|n| list.get(n).copied())
    };
    if walked.complete {
        for chunk in all.iter().filter(|chunk| chunk.free & chunk.present != 0) {
            if find(&free, chunk.start).is_none() {
                tell(
                    ag,
                    chunk,
                    "its chunk of the inode tree, which has free inodes".to_owned(),
                    "none".to_owned(),
                );
            }
        }
    }
    for chunk in &free {
        match find(all, chunk.start) {
            Some(other) if other == *chunk && chunk.free & chunk.present != 0 => (),
            Some(other) => tell(ag, chunk, mask(&other), mask(chunk)),
            None if complete => tell(ag, chunk, "no chunk, as in the inode tree".to_owned(), mask(chunk)),
            None => (),
        }
    }
    Some(walked)
}

fn mask(chunk: &Chunk) -> String {
    format!("free {:#x} of {:#x}", chunk.free, chunk.present)
}

fn tell(ag: &AgCheck<'_>, chunk: &Chunk, expected: String, found: String) {
    let place = Place::ino(ag.volume.geometry.ino(ag.ag, chunk.start));
    ag.volume.error(place, Damage::new(FinoBt::NAME, "record", expected, found));
}
