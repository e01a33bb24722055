//! What a volume has in its store, and where its data is.

use std::ops::Range;
use std::sync::atomic::Ordering::SeqCst;

use crate::device::ObjectDevice;
use crate::error::Result;
use crate::map::{ENTRIES, Lookup};
use crate::segment::BLOCK;
use crate::state::{Core, State};

/// What the map of a volume refers to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredUse {
    /// Segments of this volume.
    pub segments: u64,
    /// Bytes in them.
    pub segment_bytes: u64,
    /// Segments of parents.
    pub parent_segments: u64,
    /// Bytes in these.
    pub parent_bytes: u64,
    /// Blocks in all these segments, of 4,096 bytes before compression.
    pub blocks: u64,
    /// Those that the volume still contains.
    pub live_blocks: u64,
    /// Objects with pages of the map.
    pub maps: u64,
}

impl ObjectDevice {
    /// What the map refers to. No request is sent.
    pub fn stored(&self) -> StoredUse {
        let state = self.core().state.lock();
        let mut stored = StoredUse { maps: state.map.stored.objects.len() as u64, ..StoredUse::default() };
        for (_, segment) in state.map.stored.segments.iter() {
            let (number, bytes) = match segment.origin {
                0 => (&mut stored.segments, &mut stored.segment_bytes),
                _ => (&mut stored.parent_segments, &mut stored.parent_bytes),
            };
            (*number, *bytes) = (*number + 1, bytes.saturating_add(segment.bytes));
            stored.blocks += u64::from(segment.blocks);
            stored.live_blocks += u64::from(segment.live);
        }
        stored
    }

    /// Identifies the state that was opened for reading: as long as it is the same, so are all bytes.
    pub fn state(&self) -> String {
        let core = self.core();
        let uuid = core.origins.first().map(|origin| origin.uuid).unwrap_or_default();
        let (root, segments) = core.opened;
        let root = root.map_or_else(String::new, |root| {
            format!("{}.{:x}.{:x}.{:x}.{:x}", root.origin, root.epoch, root.number, root.offset, root.crc)
        });
        let log = if segments == 0 { String::new() } else { format!("{:x}.{segments:x}", core.epoch) };
        // Copies of a volume have one UUID, but different writers.
        let (uuid, nonce, size) = (u128::from_be_bytes(uuid), core.nonce, core.size.load(SeqCst));
        format!("{uuid:x}-{nonce:x}-{root}-{log}-{size:x}")
    }
}

impl Core {
    /// The next run of blocks at or behind `block` that are no holes, within a page of the map.
    pub fn next_data(&self, block: u64) -> Result<Option<Range<u64>>> {
        let mut at = block;
        loop {
            let mut state = self.state.lock();
            if state.map.is_large(self.options.map_pages) {
                state.map.evict(self.options.map_pages);
            }
            let Some(first) = state.next_candidate(at) else { return Ok(None) };
            at = first;
            let end = (at / ENTRIES as u64 + 1) * ENTRIES as u64;
            let mut start = None;
            let mut unloaded = None;
            while at < end {
                match state.is_data(at) {
                    Ok(true) => drop(start.get_or_insert(at)),
                    Ok(false) if start.is_some() => break,
                    Ok(false) => {}
                    Err(page) => {
                        unloaded = Some(page);
                        break;
                    }
                }
                at += 1;
            }
            drop(state);
            match (start, unloaded) {
                (Some(start), _) => return Ok(Some(start..at)),
                (None, Some(page)) => self.load_pages(&[page])?,
                (None, None) => {}
            }
        }
    }
}

impl State {
    /// The first block at or behind `at` that is in a page of the map, or waits to be stored.
    fn next_candidate(&self, at: u64) -> Option<u64> {
        let contents = self.sealed.iter().map(|sealed| &*sealed.contents).chain([&self.open]);
        let pending = contents.filter_map(|contents| contents.blocks.range(at..).next());
        let pending = pending.map(|(block, _)| *block).min();
        let page = self.map.next_page((at / ENTRIES as u64) as u32);
        let paged = page.map(|page| at.max(u64::from(page) * ENTRIES as u64));
        pending.into_iter().chain(paged).min()
    }

    /// Whether a block is no hole; the page that must be loaded first is an error.
    fn is_data(&mut self, block: u64) -> std::result::Result<bool, u32> {
        if let Some(found) = self.pending(block) {
            return Ok(found.is_some());
        }
        match self.map.lookup(block) {
            Lookup::Hole => Ok(false),
            Lookup::At(_) => Ok(true),
            Lookup::Load(page) => Err(page),
        }
    }
}

/// A range of blocks as one of bytes, within a volume of `size` bytes.
pub fn bytes_of(blocks: &Range<u64>, size: u64) -> Range<u64> {
    let unit = BLOCK as u64;
    (blocks.start * unit).min(size)..(blocks.end * unit).min(size)
}
