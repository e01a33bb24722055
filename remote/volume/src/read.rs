//! Reading: blocks that wait to be stored come from memory, others from frames. One request fetches neighbouring
//! frames, and requests for frames at different places are sent at the same time.

use std::sync::Arc;

use store::{Bytes, ErrorKind};

use crate::client::Client;
use crate::error::{Damage, ObjectError, Result};
use crate::frames::FrameId;
use crate::map::{ENTRIES, Location, Lookup, MapObject, Page, PageRef, decode_page};
use crate::names;
use crate::parallel::{self, WIDTH};
use crate::segment::{BLOCK, UNIT, decode_frame};
use crate::state::{Core, State};

/// Bytes of one request at most.
const REQUEST_BYTES: usize = 4 << 20;
/// Blocks that are looked up at once, and pages of the map that they may need: other reads must not have these dropped
/// before the last one is loaded.
const BATCH: usize = 4096;
const BATCH_PAGES: usize = 64;

/// A block that is read, and the place for its bytes.
type Piece<'b> = (u64, &'b mut [u8]);

/// A block that must be fetched.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// Index of the piece.
    index: usize,
    frame: FrameId,
    /// Length of the frame, in units of 64 bytes.
    length: u32,
    first: u32,
}

/// What pieces need that is not in memory.
#[derive(Default)]
struct Plan {
    wanted: Vec<Wanted>,
    pages: Vec<u32>,
}

/// Frames that follow each other in one segment. One request fetches them.
struct Run {
    client: Arc<Client>,
    uuid: [u8; 16],
    first: FrameId,
    /// Offsets and lengths, in units of 64 bytes.
    frames: Vec<(u32, u32)>,
}

impl Run {
    /// The decompressed frames.
    fn fetch(&self) -> Result<Vec<Arc<Vec<u8>>>> {
        let (_, epoch, seq, start) = self.first;
        let end = self.frames.iter().map(|(offset, length)| offset + length).max().unwrap_or(start);
        let decode = |bytes: &Bytes| {
            let decode = |&(offset, length): &(u32, u32)| {
                let from = (offset - start) as usize * UNIT;
                let stored = bytes.get(from..from + length as usize * UNIT).unwrap_or_default();
                decode_frame(stored, &self.uuid, epoch, seq, offset).map(Arc::new)
            };
            self.frames.iter().map(decode).collect::<std::result::Result<Vec<_>, Damage>>()
        };
        let [offset, length] = [start, end - start].map(|units| u64::from(units) * UNIT as u64);
        self.client.get_part(&names::segment(epoch, seq), offset, length, decode)
    }
}

impl Core {
    /// Reads bytes that are within the volume.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_many([(offset, buf)])
    }

    /// Reads several ranges that are within the volume. Their requests are sent at the same time.
    pub fn read_many<'b>(&self, reads: impl IntoIterator<Item = (u64, &'b mut [u8])>) -> Result<()> {
        let mut pieces: Vec<Piece<'b>> = Vec::new();
        for (offset, buf) in reads {
            if offset.is_multiple_of(BLOCK as u64) && buf.len().is_multiple_of(BLOCK) {
                pieces.extend((offset / BLOCK as u64..).zip(buf.chunks_exact_mut(BLOCK)));
            } else {
                self.read_part(offset, buf)?;
            }
        }
        let mut rest = &mut pieces[..];
        while !rest.is_empty() {
            let (batch, tail) = rest.split_at_mut(batch_length(rest));
            self.read_blocks(batch)?;
            rest = tail;
        }
        Ok(())
    }

    /// Reads a range that does not consist of whole blocks.
    fn read_part(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let within = (offset % BLOCK as u64) as usize;
        let mut whole = vec![0; (within + buf.len()).next_multiple_of(BLOCK)];
        self.read_many([(offset - within as u64, &mut whole[..])])?;
        if let Some(part) = whole.get(within..within + buf.len()) {
            buf.copy_from_slice(part);
        }
        Ok(())
    }

    fn read_blocks(&self, pieces: &mut [Piece<'_>]) -> Result<()> {
        let mut attempts = 0;
        loop {
            let plan = self.plan(pieces)?;
            if !plan.pages.is_empty() {
                self.load_pages(&plan.pages)?;
                continue;
            }
            match self.fetch(plan.wanted, pieces) {
                // Cleaning has moved blocks, and the old segment is gone: the map has the new places.
                Err(ObjectError::Store(error)) if error.kind == ErrorKind::Absent && attempts < 3 => {
                    attempts += 1
                }
                done => return done,
            }
        }
    }

    /// Copies what is in memory, and lists what is not.
    fn plan(&self, pieces: &mut [Piece<'_>]) -> Result<Plan> {
        let mut state = self.state.lock();
        let mut plan = Plan::default();
        for (index, (block, place)) in pieces.iter_mut().enumerate() {
            let block = *block;
            match state.pending(block) {
                Some(Some(bytes)) => place.copy_from_slice(bytes),
                Some(None) => place.fill(0),
                None => match state.map.lookup(block) {
                    Lookup::Hole => place.fill(0),
                    Lookup::At(location) => match state.recent(self.epoch, block, location) {
                        Some(bytes) => place.copy_from_slice(bytes),
                        None => plan.wanted.push(self.want(&state, index, location)?),
                    },
                    Lookup::Load(page) => plan.pages.push(page),
                },
            }
        }
        plan.pages.sort_unstable();
        plan.pages.dedup();
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

    /// Fills the pieces from cached or fetched frames.
    fn fetch(&self, mut wanted: Vec<Wanted>, pieces: &mut [Piece<'_>]) -> Result<()> {
        wanted.sort_unstable_by_key(|wanted| (wanted.frame, wanted.index));
        let mut missing = Vec::new();
        for group in wanted.chunk_by(same_frame) {
            let Some(first) = group.first() else { continue };
            let frame = self.frames.lock().get(&first.frame);
            match frame {
                Some(frame) => self.copy_out(&frame, group, pieces)?,
                None => missing.extend_from_slice(group),
            }
        }
        let mut rest = &missing[..];
        let runs = std::iter::from_fn(|| {
            let (run, tail) = rest.split_at(run_length(rest));
            rest = tail;
            (!run.is_empty()).then_some(run)
        });
        let runs: Vec<&[Wanted]> = runs.collect();
        // Not all at once, as the frames of a batch may be much larger than what is wanted of them.
        runs.chunks(WIDTH).try_for_each(|runs| self.fetch_runs(runs, pieces))
    }

    fn fetch_runs(&self, runs: &[&[Wanted]], pieces: &mut [Piece<'_>]) -> Result<()> {
        let request = |run: &&[Wanted]| self.run(run).map(|run| move || run.fetch());
        let requests = runs.iter().map(request).collect::<Result<Vec<_>>>()?;
        for (run, frames) in runs.iter().zip(parallel::all(requests)) {
            for (group, frame) in run.chunk_by(same_frame).zip(frames?) {
                self.copy_out(&frame, group, pieces)?;
                if let Some(first) = group.first() {
                    self.frames.lock().insert(first.frame, frame);
                }
            }
        }
        Ok(())
    }

    fn run(&self, wanted: &[Wanted]) -> Result<Run> {
        let first = wanted.first().map(|first| first.frame).unwrap_or_default();
        let origin = self.origin(first.0)?;
        let groups = wanted.chunk_by(same_frame).filter_map(|group| group.first());
        let frames = groups.map(|wanted| (wanted.frame.3, wanted.length)).collect();
        Ok(Run { client: Arc::clone(&origin.client), uuid: origin.uuid, first, frames })
    }

    fn copy_out(&self, frame: &[u8], group: &[Wanted], pieces: &mut [Piece<'_>]) -> Result<()> {
        for wanted in group {
            let from = wanted.first as usize * BLOCK;
            let source = frame.get(from..from + BLOCK);
            let source =
                source.ok_or_else(|| self.damaged("page of the map", "it names a block behind a frame"))?;
            if let Some((_, place)) = pieces.get_mut(wanted.index) {
                place.copy_from_slice(source);
            }
        }
        Ok(())
    }

    /// Loads pages of the map. One that a checkpoint stores elsewhere meanwhile is not loaded: the caller looks again.
    pub fn load_pages(&self, numbers: &[u32]) -> Result<()> {
        for numbers in numbers.chunks(WIDTH) {
            let stored = self.stored_pages(numbers)?;
            let request = |(number, page, object): &(u32, PageRef, MapObject)| {
                let client = Arc::clone(&self.origin(object.origin)?.client);
                let (number, page, epoch, object) = (*number, *page, object.epoch, object.number);
                Ok(move || {
                    let [offset, length] = [page.offset, page.length].map(u64::from);
                    client.get_part(&names::map(epoch, object), offset, length, |bytes| {
                        decode_page(bytes, number, epoch, object)
                    })
                })
            };
            let requests = stored.iter().map(request).collect::<Result<Vec<_>>>()?;
            let loaded = parallel::all(requests);
            let mut state = self.state.lock();
            for ((number, page, _), loaded) in stored.iter().zip(loaded) {
                if state.map.stored.pages.get(number) == Some(page) {
                    state.map.insert(*number, loaded?);
                }
            }
        }
        Ok(())
    }

    /// Where pages are stored. Others are empty, and are inserted.
    fn stored_pages(&self, numbers: &[u32]) -> Result<Vec<(u32, PageRef, MapObject)>> {
        let mut state = self.state.lock();
        let mut found = Vec::new();
        for number in numbers {
            let Some(page) = state.map.stored.pages.get(number).copied() else {
                state.map.insert(*number, Page::default());
                continue;
            };
            if page.length as usize > ENTRIES * 8 + UNIT {
                return Err(self.damaged("directory of the map", "a page is too long"));
            }
            let object = state.map.stored.objects.get(page.object).cloned();
            let object = object.ok_or_else(|| self.damaged("directory of the map", "it names no object"))?;
            found.push((*number, page, object));
        }
        Ok(found)
    }
}

fn same_frame(one: &Wanted, next: &Wanted) -> bool {
    one.frame == next.frame
}

/// Pieces at the front that are looked up at once; at least one.
fn batch_length(pieces: &[Piece<'_>]) -> usize {
    let (mut last, mut pages) = (None, 0);
    let fits = |(block, _): &&Piece<'_>| {
        let page = Some(block / ENTRIES as u64);
        pages += usize::from(page != last);
        last = page;
        pages <= BATCH_PAGES
    };
    pieces.iter().take(BATCH).take_while(fits).count()
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
