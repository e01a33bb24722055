//! Writeback of many files: claim, write, finish.
//!
//! | step | does |
//! |---|---|
//! | [`WritebackOrder`](crate::WritebackOrder) | which files come first |
//! | [`FileWriteback`] | one file: dirty blocks, where they are written, claims |
//! | `write_all` | all data, sorted by device offset, under plugs of limited size |
//! | `finish_all` | maps and sizes, several small files in one transaction |
//! | [`Cache::write_plugged`], [`Cache::finish_writes`] | the last two steps, for [`BulkWriter`](crate::BulkWriter), too; direct I/O uses the second |
//!
//! # Invariants
//! When a pass ends, blocks that were in writeback are written and finished, or dirty again with the error noted in the
//! file.
//!
//! # Locking
//! A pass over several files works in batches, and only tries the locks of each file; files locked by others are
//! written later, one by one. Folios are read-locked while their bytes are written, some megabytes at a time, in the
//! order of inode numbers and offsets.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use backing::{Backing, WriteCompletion};
use block::{DeviceError, Plug, WriteRequest};
use error::Error;

use crate::cache::Cache;
use crate::claim_pool::ClaimPool;
use crate::contents::{Contents, MapReservation};
use crate::dirty_files::DirtyFile;
use crate::file_writeback::{FileWriteback, ToFinish};
use crate::folio::{FOLIO_LOG, Folio};
use crate::reclaim::assert_may_write;
use crate::tuning::{BATCH_FILES_MAX, FINISH_FILES_MAX, FINISH_RANGES_MAX, PLUG_BYTES, PLUG_PIECES_MAX};

/// Bytes of one folio that are written to one place.
pub(crate) struct FolioPiece<B: Backing> {
    /// Index of the file in the batch.
    file: usize,
    /// Index of the run in the file.
    run: usize,
    /// First block, relative to the run.
    first: u64,
    folio: Arc<Folio<B>>,
    from: usize,
    to: usize,
    device_offset: u64,
}

/// A file that a batch did not write, or not to its end.
struct Later<B: Backing> {
    dirty: DirtyFile<B>,
    /// Offset to begin at.
    from: u64,
    /// Time when its writeback began; `None` if it did not begin.
    begun: Option<u64>,
}

impl<B: Backing> Cache<B> {
    /// Writes all requests of a plug, and tells the log of it. Returns the number of the write, and the failed requests
    /// by their index.
    pub(crate) fn write_plugged(&self, plug: Plug<'_>) -> (u64, Vec<(usize, DeviceError)>) {
        assert_may_write();
        let failed = plug.finish(&*self.device, &self.plug);
        (self.backing.note_unlogged_write(), failed)
    }

    /// Finishes writes ([`Backing::finish`]).
    pub(crate) fn finish_writes(&self, files: &mut [WriteCompletion<'_, B>]) -> Result<(), Error> {
        self.counters.finishes.add();
        self.counters.finished_files.add_many(files.len() as u64);
        self.backing.finish(files)
    }

    /// Writes back these files, which are not tracked now. Returns the bytes written, and the first error.
    pub(crate) fn write_files(&self, mut files: Vec<DirtyFile<B>>) -> (u64, Option<Error>) {
        files.sort_by_cached_key(|dirty| (self.options.order.key(dirty), dirty.ino()));
        let (mut bytes, mut failed) = (0, None);
        let mut later = Vec::new();
        let mut rest = files.into_iter();
        while !rest.as_slice().is_empty() {
            let begun = self.now();
            let (mut writebacks, batch) = self.lock_batch(&mut rest, &mut later);
            self.prepare_all(&mut writebacks);
            bytes += self.write_and_finish(&mut writebacks, &mut failed);
            for (file, dirty) in writebacks.into_iter().zip(batch) {
                match file.next {
                    Some(from) => later.push(Later { dirty, from, begun: Some(begun) }),
                    None => self.end_file(dirty, begun, file.failed.is_some()),
                }
            }
        }
        for Later { dirty, from, begun } in later {
            let begun = begun.unwrap_or_else(|| self.now());
            let (written, error) = self.write_file(&dirty.contents, from, u64::MAX);
            bytes += written;
            self.end_file(dirty, begun, error.is_some());
            failed = failed.or(error);
        }
        (bytes, failed)
    }

    /// Locks the files of the next batch. Files locked by others are added to `later`.
    fn lock_batch(
        &self,
        rest: &mut impl Iterator<Item = DirtyFile<B>>,
        later: &mut Vec<Later<B>>,
    ) -> (Vec<FileWriteback<B>>, Vec<DirtyFile<B>>) {
        let (mut writebacks, mut batch, mut blocks) = (Vec::new(), Vec::new(), 0);
        let max = (self.options.pass_bytes >> self.block_log).max(1);
        while blocks < max && writebacks.len() < BATCH_FILES_MAX {
            let Some(dirty) = rest.next() else { break };
            let Some(file) = FileWriteback::begin(&dirty.contents, false) else {
                later.push(Later { dirty, from: 0, begun: None });
                continue;
            };
            blocks += u64::try_from(dirty.contents.dirty_blocks.load(SeqCst)).unwrap_or(0);
            writebacks.push(file);
            batch.push(dirty);
        }
        (writebacks, batch)
    }

    /// Places the dirty blocks of all files. Blocks for neighbouring files of one group are claimed together.
    fn prepare_all(&self, files: &mut [FileWriteback<B>]) {
        let mut max = self.options.pass_bytes.max(1);
        for file in files.iter_mut() {
            max = max.saturating_sub(file.find(0, u64::MAX, max));
        }
        let mut pool = ClaimPool::default();
        let mut rest = files;
        while let [file, others @ ..] = rest {
            let group = self.backing.group(&file.contents.file);
            if !pool.serves(group) {
                let in_group = |file: &&FileWriteback<B>| self.backing.group(&file.contents.file) == group;
                let reserved: u64 = others.iter().take_while(in_group).map(|file| file.reserved).sum();
                pool.serve(group, file.reserved + reserved);
            }
            file.prepare(&mut pool);
            rest = others;
        }
    }

    /// Writes back a range of one file of any size. Returns the bytes written, and the first error.
    pub(crate) fn write_file(&self, contents: &Arc<Contents<B>>, from: u64, to: u64) -> (u64, Option<Error>) {
        let (mut bytes, mut failed) = (0, None);
        let mut next = Some(from);
        // Does not wait for what is appended meanwhile.
        let to = to.min(contents.size().max(from)).next_multiple_of(contents.block_size());
        if from >= to {
            // Waits for another thread's writeback, which may be that of an append that has not raised the size yet.
            drop(FileWriteback::begin(contents, true));
        }
        // After an error the rest is written nevertheless, unless nothing can be.
        let is_over = |failed: &Option<Error>| matches!(failed, Some(Error::ShutDown { .. }));
        while let Some(at) = next.take().filter(|at| *at < to && !is_over(&failed)) {
            let Some(mut file) = FileWriteback::begin(contents, true) else { break };
            if contents.dirty_blocks.load(SeqCst) > 0 {
                let mut pool = ClaimPool::default();
                pool.serve(self.backing.group(&contents.file), 0);
                file.find(at, to, self.options.pass_bytes.max(1));
                file.prepare(&mut pool);
            }
            next = file.next;
            bytes += self.write_and_finish(std::slice::from_mut(&mut file), &mut failed);
        }
        (bytes, failed)
    }

    /// Ends a pass for a file. If it is dirty again, it is so since its writeback began at the earliest; after a
    /// failure, since the time it had before.
    fn end_file(&self, mut dirty: DirtyFile<B>, begun: u64, failed: bool) {
        let contents = Arc::clone(&dirty.contents);
        // Not clean either while another thread writes some of its blocks: who syncs must find it, and wait.
        let is_clean = || !contents.is_dirty() && contents.newer_blocks() == 0;
        if is_clean() {
            contents.listed.store(false, SeqCst);
            // A writer that found it listed had made a block dirty, or raised the size, before.
            if is_clean() {
                return;
            }
            if contents.listed.swap(true, SeqCst) {
                contents.wait_until_listed();
                return;
            }
        }
        if !failed {
            dirty.since = begun;
        }
        self.put_back_dirty(dirty);
    }

    /// Writes and finishes. Returns the bytes that are clean now.
    fn write_and_finish(&self, files: &mut [FileWriteback<B>], failed: &mut Option<Error>) -> u64 {
        let written = self.write_all(files);
        self.finish_all(files);
        let mut undone = 0;
        for file in files.iter() {
            undone += file.undone;
            if let Some(error) = &file.failed {
                file.contents.errors.note(error);
                failed.get_or_insert_with(|| error.clone());
            }
        }
        written.saturating_sub(undone)
    }

    /// Writes the data of all files. Returns the bytes written.
    fn write_all(&self, files: &mut [FileWriteback<B>]) -> u64 {
        if self.options.plug_over_pass {
            return self.write_sorted(files, 0..files.len());
        }
        (0..files.len()).map(|file| self.write_sorted(files, file..file + 1)).sum()
    }

    fn write_sorted(&self, files: &mut [FileWriteback<B>], which: Range<usize>) -> u64 {
        let mut pieces = self.pieces(files, which);
        pieces.sort_unstable_by_key(|piece| piece.device_offset);
        let mut written = 0;
        let mut rest = pieces.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take(PLUG_PIECES_MAX).take_while(|piece| {
                bytes += piece.to - piece.from;
                bytes <= PLUG_BYTES
            });
            let (now, later) = rest.split_at(fits.count().max(1));
            written += self.write_pieces(files, now);
            rest = later;
        }
        written
    }

    fn pieces(&self, files: &[FileWriteback<B>], which: Range<usize>) -> Vec<FolioPiece<B>> {
        let mut pieces = Vec::new();
        let log = self.block_log;
        let per_folio = 1u64 << (FOLIO_LOG - log);
        for (file_index, file) in files.iter().enumerate().skip(which.start).take(which.len()) {
            for (run_index, run) in file.runs.iter().enumerate() {
                let mut at = run.offset;
                while at < run.offset + run.count {
                    let base = at & !(per_folio - 1);
                    let end = (base + per_folio).min(run.offset + run.count);
                    if let Some(folio) = file.contents.find_folio(at / per_folio) {
                        let first = at - run.offset;
                        pieces.push(FolioPiece {
                            file: file_index,
                            run: run_index,
                            first,
                            folio,
                            from: ((at - base) << log) as usize,
                            to: ((end - base) << log) as usize,
                            device_offset: self.backing.device_offset(run.start) + (first << log),
                        });
                    }
                    at = end;
                }
            }
        }
        pieces
    }

    /// Writes pieces under one plug. Returns the bytes written.
    fn write_pieces(&self, files: &mut [FileWriteback<B>], pieces: &[FolioPiece<B>]) -> u64 {
        // Locks each folio once, in the lock order.
        let mut order: Vec<usize> = (0..pieces.len()).collect();
        let ino = |file: usize| files.get(file).map(|file| self.backing.ino(&file.contents.file));
        let key = |at: &usize| pieces.get(*at).map(|piece| (ino(piece.file), piece.folio.index));
        order.sort_unstable_by_key(key);
        let mut guards = Vec::new();
        let mut guard_of = vec![None; pieces.len()];
        let mut last = None;
        for at in order {
            if key(&at) != last {
                last = key(&at);
                let Some(piece) = pieces.get(at) else { continue };
                guards.push(Contents::lock_read(&piece.folio));
            }
            if let Some(slot) = guard_of.get_mut(at) {
                *slot = Some(guards.len() - 1);
            }
        }
        let mut plug = Plug::new();
        let mut bytes = 0;
        for (piece, guard) in pieces.iter().zip(&guard_of) {
            let guard = guard.and_then(|at| guards.get(at)).and_then(Option::as_ref);
            let buf = guard.map_or(&[][..], |guard| guard.bytes(piece.from, piece.to));
            bytes += buf.len() as u64;
            plug.push(WriteRequest::new(piece.device_offset, buf));
        }
        let (number, failed) = self.write_plugged(plug);
        drop(guards);
        for file in pieces.chunk_by(|one, next| one.file == next.file).filter_map(|of_file| of_file.first()) {
            if let Some(file) = files.get(file.file) {
                file.contents.note_written(number);
            }
        }
        for (at, error) in failed {
            let Some(piece) = pieces.get(at) else { continue };
            bytes = bytes.saturating_sub((piece.to - piece.from) as u64);
            let blocks = ((piece.to - piece.from) >> self.block_log) as u64;
            let Some(file) = files.get_mut(piece.file) else { continue };
            file.failed.get_or_insert_with(|| error.into());
            if let Some(run) = file.runs.get_mut(piece.run) {
                run.failed.extend(piece.first..piece.first + blocks);
            }
        }
        self.dirty.sub(bytes);
        self.pace.wrote(bytes);
        bytes
    }

    /// Finishes all files: small ones together, large ones alone.
    fn finish_all(&self, files: &mut [FileWriteback<B>]) {
        let mut rest = files;
        while !rest.is_empty() {
            let is_small = |file: &&FileWriteback<B>| file.runs.len() <= FINISH_RANGES_MAX;
            let small = rest.iter().take(FINISH_FILES_MAX).take_while(is_small).count();
            let (now, later) = rest.split_at_mut(small.max(1));
            self.finish_together(now);
            rest = later;
        }
    }

    fn finish_together(&self, files: &mut [FileWriteback<B>]) {
        let (mut finishing, mut to_finish) = (Vec::new(), Vec::new());
        for (index, file) in files.iter_mut().enumerate() {
            match file.take_finished() {
                None => file.end_unchanged(),
                Some(ranges) => {
                    finishing.push((index, Arc::clone(&file.contents)));
                    to_finish.push(ranges);
                }
            }
        }
        if finishing.is_empty() {
            return;
        }
        let mut completions = Vec::with_capacity(finishing.len());
        for ((_, contents), ToFinish { written, size }) in finishing.iter().zip(to_finish) {
            // Taken first: `records` counts everything that is dirty, including what is finished now.
            let MapReservation { tree, records, rmap } = contents.take_map_reservation();
            let mut completion = WriteCompletion::new(&contents.file, written, tree, records);
            completion.reserved += contents.spend_to_map(completion.claimed());
            (completion.size, completion.rmap) = (size, rmap);
            completions.push(completion);
        }
        let claimed: Vec<u64> = completions.iter().map(WriteCompletion::claimed).collect();
        let result = self.finish_writes(&mut completions);
        for (((index, _), claimed), completion) in finishing.iter().zip(claimed).zip(completions) {
            let Some(file) = files.get_mut(*index) else { continue };
            match &result {
                Ok(()) => file.end(claimed, completion),
                Err(error) => file.end_failed(claimed, completion, error),
            }
            file.contents.end_mapping(claimed);
        }
    }
}

impl<B: Backing> Contents<B> {
    /// Writes back a range of the file, and waits.
    pub(crate) fn flush_range(&self, from: u64, to: u64) -> Result<(), Error> {
        let Some(me) = self.me.upgrade().filter(|_| from < to) else { return Ok(()) };
        let (_, failed) = self.cache.write_file(&me, from, to);
        failed.map_or(Ok(()), Err)
    }
}
