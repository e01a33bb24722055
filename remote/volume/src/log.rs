//! Writing: blocks collect in a segment, threads store segments, and what is stored is acknowledged in order.
//!
//! # Invariants
//! - A segment becomes part of the map, and a flush returns, only when all earlier segments are stored: what a crash
//!   leaves is a prefix of the writes.

use store::Bytes;

use crate::error::{ObjectError, Result};
use crate::map::{Lookup, Segment};
use crate::names;
#[cfg(test)]
use crate::options::Defect;
use crate::segment::{BLOCK, Block};
use crate::state::{Core, Failure, Progress, State};

impl Core {
    /// Writes bytes that are within the volume.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let (mut offset, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let within = (offset % BLOCK as u64) as usize;
            let (piece, tail) = rest.split_at(rest.len().min(BLOCK - within));
            match piece.len() {
                BLOCK => self.write_block(offset / BLOCK as u64, piece)?,
                _ => self.write_part(offset / BLOCK as u64, within, piece)?,
            }
            offset += piece.len() as u64;
            rest = tail;
        }
        Ok(())
    }

    /// Locks the state when the open segment may take a block.
    fn with_space<T>(&self, change: impl FnOnce(&mut State) -> T) -> Result<T> {
        let mut state = self.state.lock();
        self.check(&state)?;
        while state.open.is_full() {
            self.wait_until(&mut state, |state| {
                !state.open.is_full() || !state.is_full(self.options.uploads)
            })?;
            if state.open.is_full() {
                state.seal();
                self.changed.notify_all();
            }
        }
        Ok(change(&mut state))
    }

    fn write_block(&self, block: u64, bytes: &[u8]) -> Result<()> {
        self.with_space(|state| {
            let place = state.open.blocks.entry(block).or_insert_with(|| Box::new([0; BLOCK]));
            place.copy_from_slice(bytes);
        })
    }

    /// Writes a part of a block.
    fn write_part(&self, block: u64, within: usize, bytes: &[u8]) -> Result<()> {
        let mut read: Option<(Lookup, Block)> = None;
        loop {
            let found = self.with_space(|state| {
                let mut pending = state.pending(block).map(|found| found.copied().unwrap_or([0; BLOCK]));
                let lookup = if pending.is_some() { Lookup::Hole } else { state.map.lookup(block) };
                if let Lookup::At(at) = lookup {
                    pending = state.recent(self.epoch, block, at).copied();
                }
                let old = match (pending, lookup, &read) {
                    (Some(pending), ..) => Box::new(pending),
                    (None, Lookup::Hole, _) => Box::new([0; BLOCK]),
                    // What was read is still there.
                    (None, lookup, Some((at, old))) if *at == lookup => old.clone(),
                    (None, lookup, _) => return Some(lookup),
                };
                let place = state.open.blocks.entry(block).or_insert(old);
                if let Some(place) = place.get_mut(within..within + bytes.len()) {
                    place.copy_from_slice(bytes);
                }
                None
            })?;
            let Some(lookup) = found else { return Ok(()) };
            match lookup {
                Lookup::Load(page) => self.load_pages(&[page])?,
                lookup => {
                    let mut old = Box::new([0; BLOCK]);
                    self.read(block * BLOCK as u64, &mut old[..])?;
                    read = Some((lookup, old));
                }
            }
        }
    }

    /// Makes whole blocks holes.
    pub fn discard(&self, block: u64, end: u64) -> Result<()> {
        self.with_space(|state| state.open.discard(block, end))
    }

    /// Makes all writes durable that returned before.
    pub fn flush(&self) -> Result<()> {
        let mut state = self.state.lock();
        self.check(&state)?;
        state.seal();
        self.changed.notify_all();
        let target = state.next_seq;
        self.wait_until(&mut state, |state| {
            #[cfg(test)]
            if self.options.has(Defect::OutOfOrder) {
                let own = state.sealed.iter().find(|sealed| sealed.seq + 1 == target);
                return own.is_none_or(|own| matches!(own.progress, Progress::Stored(..)));
            }
            state.acked >= target
        })
    }

    /// The work of a thread that stores segments.
    pub fn store_segments(&self) {
        loop {
            let mut state = self.state.lock();
            let queued = loop {
                if state.failed.is_some() {
                    return;
                }
                let is_queued =
                    |sealed: &&mut crate::state::Sealed| matches!(sealed.progress, Progress::Queued);
                match state.sealed.iter_mut().find(is_queued) {
                    Some(sealed) => {
                        sealed.progress = Progress::InFlight;
                        break (sealed.seq, sealed.contents.clone());
                    }
                    None => self.changed.wait(&mut state),
                }
            };
            drop(state);
            let (seq, contents) = queued;
            let stamp = self.stamp(seq);
            let (object, entries) = contents.encode(&stamp);
            let length = object.len() as u64;
            let object = Bytes::from(object);
            let stored = self.client().and_then(|client| {
                let found = client.put_stamped(&stamp, &object, true)?;
                if found == stamp {
                    client.keep(&names::segment(stamp.epoch, seq), &object);
                }
                Ok(found)
            });
            match stored {
                Ok(found) if found == stamp => self.acknowledge(seq, Progress::Stored(entries, length)),
                Ok(_) => self.fail(Failure::Fenced),
                // After a close, what is not stored is lost, as in a crash.
                Err(error) => self.fail(Failure::Refused(error.to_string())),
            }
        }
    }

    /// A segment is stored. Applies all to the map that now have no earlier one before them.
    fn acknowledge(&self, seq: u64, progress: Progress) {
        let mut state = self.state.lock();
        if let Some(sealed) = state.sealed.iter_mut().find(|sealed| sealed.seq == seq) {
            sealed.progress = progress;
        }
        while let Some(Progress::Stored(..)) = state.sealed.front().map(|front| &front.progress) {
            let Some(front) = state.sealed.pop_front() else { break };
            let Progress::Stored(entries, bytes) = front.progress else { break };
            let segment = Segment {
                origin: 0,
                epoch: self.epoch,
                seq: front.seq,
                blocks: front.contents.blocks.len() as u32,
                live: 0,
                bytes,
            };
            let Some(slot) = state.map.stored.segments.add(segment) else {
                state.failed.get_or_insert(Failure::Refused("the volume has too many segments".into()));
                break;
            };
            state.map.apply(slot, &entries);
            state.remember(front.seq, front.contents);
            state.acked = front.seq + 1;
            state.unsaved = (state.unsaved.0 + 1, state.unsaved.1 + bytes);
        }
        state.progress_at = base::thread::elapsed();
        drop(state);
        self.changed.notify_all();
    }

    /// Writes blocks again where they are, so that their old segment can go. Nothing happens to those that were changed
    /// meanwhile.
    pub fn rewrite(&self, blocks: &[(u64, Lookup)]) -> Result<()> {
        let mut bytes = vec![0; blocks.len() * BLOCK];
        let places = bytes.chunks_exact_mut(BLOCK);
        self.read_many(blocks.iter().zip(places).map(|((block, _), place)| (block * BLOCK as u64, place)))?;
        for ((block, at), bytes) in blocks.iter().zip(bytes.chunks_exact(BLOCK)) {
            self.with_space(|state| {
                if state.pending(*block).is_none() && state.map.lookup(*block) == *at {
                    let place = state.open.blocks.entry(*block).or_insert_with(|| Box::new([0; BLOCK]));
                    place.copy_from_slice(bytes);
                }
            })?;
        }
        Ok(())
    }

    /// The error of a volume that cannot be written.
    pub fn refuse_read_only(&self) -> Result<()> {
        match self.read_only {
            false => Ok(()),
            true => Err(ObjectError::Refused {
                volume: self.name.clone(),
                reason: "it is open for reading only".into(),
            }),
        }
    }
}
