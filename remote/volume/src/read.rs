//! Reading: blocks that wait to be stored come from memory, others from frames, of which neighbours are fetched by one
//! request.

use std::sync::Arc;

use store::{Bytes, ErrorKind};

use crate::error::{Damage, ObjectError, Result};
use crate::frames::FrameId;
use crate::map::{ENTRIES, Location, Lookup, Page, PageRef, decode_page};
use crate::names;
use crate::segment::{BLOCK, UNIT, decode_frame};
use crate::state::{Core, State};

/// Bytes of one request at most.
const REQUEST_BYTES: usize = 4 << 20;
/// Blocks that are looked up at once.
const BATCH: usize = 4096;

/// A block that must be fetched.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// Index in the buffer.
    index: usize,
    frame: FrameId,
    /// Length of the frame, in units of 64 bytes.
    length: u32,
    first: u32,
}

/// Blocks of a buffer, and what they need.
#[derive(Default)]
struct Plan {
    wanted: Vec<Wanted>,
    pages: Vec<u32>,
}

impl Core {
    /// Reads bytes that are within the volume.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let within = (offset % BLOCK as u64) as usize;
        let mut block = offset / BLOCK as u64;
        if within == 0 && buf.len().is_multiple_of(BLOCK) {
            for batch in buf.chunks_mut(BATCH * BLOCK) {
                self.read_blocks(block, batch)?;
                block += (batch.len() / BLOCK) as u64;
            }
            return Ok(());
        }
        let mut whole = vec![0; (within + buf.len()).next_multiple_of(BLOCK)];
        for batch in whole.chunks_mut(BATCH * BLOCK) {
            self.read_blocks(block, batch)?;
            block += (batch.len() / BLOCK) as u64;
        }
        if let Some(part) = whole.get(within..within + buf.len()) {
            buf.copy_from_slice(part);
        }
        Ok(())
    }

    fn read_blocks(&self, block: u64, buf: &mut [u8]) -> Result<()> {
        let mut attempts = 0;
        loop {
            let plan = self.plan(block, buf)?;
            if !plan.pages.is_empty() {
                plan.pages.iter().try_for_each(|page| self.load_page(*page))?;
                continue;
            }
            match self.fetch(plan.wanted, buf) {
                // Cleaning has moved blocks, and the old segment is gone: the map has the new places.
                Err(ObjectError::Store(error)) if error.kind == ErrorKind::Absent && attempts < 3 => {
                    attempts += 1
                }
                done => return done,
            }
        }
    }

    /// Copies what is in memory, and lists what is not.
    fn plan(&self, block: u64, buf: &mut [u8]) -> Result<Plan> {
        let mut state = self.state.lock();
        let mut plan = Plan::default();
        for (index, (piece, block)) in buf.chunks_exact_mut(BLOCK).zip(block..).enumerate() {
            match state.pending(block) {
                Some(Some(bytes)) => piece.copy_from_slice(bytes),
                Some(None) => piece.fill(0),
                None => match state.map.lookup(block) {
                    Lookup::Hole => piece.fill(0),
                    Lookup::At(location) => match state.recent(self.epoch, block, location) {
                        Some(bytes) => piece.copy_from_slice(bytes),
                        None => plan.wanted.push(self.want(&state, index, location)?),
                    },
                    Lookup::Load(page) if plan.pages.last() == Some(&page) => {}
                    Lookup::Load(page) => plan.pages.push(page),
                },
            }
        }
        if state.map.is_large(self.options.map_pages) {
            state.map.evict(self.options.map_pages);
        }
        Ok(plan)
    }

    fn want(&self, state: &State, index: usize, location: Location) -> Result<Wanted> {
        let segment = state.map.stored.segments.get(location.slot());
        let segment =
            segment.ok_or_else(|| self.damaged("page of the map", "it names a segment that is not there"))?;
        let frame = (segment.origin, segment.epoch, segment.seq, location.offset());
        Ok(Wanted { index, frame, length: location.length(), first: location.first() })
    }

    /// Damage of a structure that no single object stands for.
    pub fn damaged(&self, what: &'static str, reason: &'static str) -> ObjectError {
        ObjectError::Damaged { volume: self.name.clone(), key: "map".into(), damage: Damage { what, reason } }
    }

    /// Fills the blocks from cached or fetched frames.
    fn fetch(&self, mut wanted: Vec<Wanted>, buf: &mut [u8]) -> Result<()> {
        wanted.sort_unstable_by_key(|wanted| (wanted.frame, wanted.index));
        {
            let mut frames = self.frames.lock();
            let mut missing = Vec::new();
            for group in wanted.chunk_by(|one, next| one.frame == next.frame) {
                let Some(first) = group.first() else { continue };
                match frames.get(&first.frame) {
                    Some(frame) => self.copy_out(&frame, group, buf)?,
                    None => missing.extend_from_slice(group),
                }
            }
            wanted = missing;
        }
        let mut rest = &wanted[..];
        while let Some(first) = rest.first() {
            let run = rest.split_at(run_length(rest));
            self.fetch_run(first.frame, run.0, buf)?;
            rest = run.1;
        }
        Ok(())
    }

    /// Fetches frames that follow each other in one segment.
    fn fetch_run(&self, (origin, epoch, seq, start): FrameId, run: &[Wanted], buf: &mut [u8]) -> Result<()> {
        let end = run.iter().map(|wanted| wanted.frame.3 + wanted.length).max().unwrap_or(start);
        let unit = UNIT as u64;
        let origin_of = self.origin(origin)?;
        let decode = |bytes: &Bytes| {
            let frames = run.chunk_by(|one, next| one.frame == next.frame);
            let decode = |group: &[Wanted]| {
                let Some(Wanted { frame: (.., offset), length, .. }) = group.first().copied() else {
                    return Ok(Vec::new());
                };
                let from = (offset - start) as usize * UNIT;
                let stored = bytes.get(from..from + length as usize * UNIT).unwrap_or_default();
                decode_frame(stored, &origin_of.uuid, epoch, seq, offset)
            };
            frames.map(decode).collect::<std::result::Result<Vec<_>, Damage>>()
        };
        let key = names::segment(epoch, seq);
        let length = u64::from(end - start) * unit;
        let decoded = origin_of.client.get_decoded(&key, u64::from(start) * unit, length, decode)?;
        for (group, frame) in run.chunk_by(|one, next| one.frame == next.frame).zip(decoded) {
            let frame = Arc::new(frame);
            self.copy_out(&frame, group, buf)?;
            if let Some(first) = group.first() {
                self.frames.lock().insert(first.frame, frame);
            }
        }
        Ok(())
    }

    fn copy_out(&self, frame: &[u8], group: &[Wanted], buf: &mut [u8]) -> Result<()> {
        for wanted in group {
            let from = wanted.first as usize * BLOCK;
            let source = frame.get(from..from + BLOCK);
            let source =
                source.ok_or_else(|| self.damaged("page of the map", "it names a block behind a frame"))?;
            let to = wanted.index * BLOCK;
            if let Some(place) = buf.get_mut(to..to + BLOCK) {
                place.copy_from_slice(source);
            }
        }
        Ok(())
    }

    /// Loads a page of the map.
    pub fn load_page(&self, number: u32) -> Result<()> {
        loop {
            let (page, object) = {
                let mut state = self.state.lock();
                let Some(page) = state.map.stored.pages.get(&number).copied() else {
                    state.map.insert(number, Page::default());
                    return Ok(());
                };
                let object = state.map.stored.objects.get(page.object).cloned();
                (page, object.ok_or_else(|| self.damaged("directory of the map", "it names no object"))?)
            };
            let PageRef { offset, length, .. } = page;
            if length as usize > ENTRIES * 8 + UNIT {
                return Err(self.damaged("directory of the map", "a page is too long"));
            }
            let key = names::map(object.epoch, object.number);
            let client = &self.origin(object.origin)?.client;
            let decoded = client.get_decoded(&key, u64::from(offset), u64::from(length), |bytes| {
                decode_page(bytes, number, object.epoch, object.number)
            });
            let mut state = self.state.lock();
            // A checkpoint may have stored it elsewhere meanwhile, with changes.
            if state.map.stored.pages.get(&number) == Some(&page) {
                state.map.insert(number, decoded?);
                return Ok(());
            }
        }
    }
}

/// Blocks at the front that one request fetches.
fn run_length(wanted: &[Wanted]) -> usize {
    let Some((origin, epoch, seq, start)) = wanted.first().map(|first| first.frame) else { return 0 };
    let (mut end, mut count) = (start, 0);
    for Wanted { frame: (o, e, s, offset), length, .. } in wanted {
        let next = end.max(offset.saturating_add(*length));
        let follows = (*o, *e, *s) == (origin, epoch, seq) && *offset <= end;
        if count > 0 && !(follows && (next - start) as usize * UNIT <= REQUEST_BYTES) {
            break;
        }
        (end, count) = (next, count + 1);
    }
    count
}
