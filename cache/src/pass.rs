//! Writing files back: claim, write, finish.
//!
//! | step | does |
//! |---|---|
//! | [`Job`] | one file: which blocks are dirty, where they go, and claims |
//! | `write_jobs` | everything of all jobs to the device, sorted, under one plug |
//! | `finish_jobs` | the maps and sizes, several small files in one transaction |
//!
//! # Invariants
//! What is in writeback is written and finished, or dirty again and its file remembers the failure, when a pass ends.
//!
//! # Locking
//! Who has several jobs only tries the locks of their files; files that others hold come later, one by one. Folios are
//! locked for reading while their bytes go to the device, a few megabytes at a time, in the order of files and offsets.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use block::{Plug, WriteRequest};
use error::Error;

use crate::backing::{Backing, Finish, Written};
use crate::cache::{Cache, Listed};
use crate::contents::{Contents, Share};
use crate::folio::{FOLIO_BYTES, FOLIO_LOG, Folio};
use crate::job::{Job, Pool};

/// Files of one batch: each holds two locks.
const FILES_MAX: usize = 2048;
/// Files that are finished in one transaction.
const FINISH_MAX: usize = 16;
/// Runs of a file that is finished together with others.
const SMALL_RUNS: usize = 2;
/// Bytes that are locked in memory and written at once.
const CHUNK_BYTES: usize = 8 << 20;

/// Bytes of one folio that go to one place.
struct Piece<B: Backing> {
    job: usize,
    run: usize,
    /// The first block, counted from the run's.
    first: u64,
    folio: Arc<Folio<B>>,
    from: usize,
    to: usize,
    /// In bytes on the device.
    place: u64,
}

impl<B: Backing> Cache<B> {
    /// Writes back what is dirty of these files, which came out of the lists; how many bytes, and the first failure.
    pub(crate) fn write_files(&self, mut files: Vec<Listed<B>>) -> (u64, Option<Error>) {
        files.sort_unstable_by_key(|listed| self.below.ino(&listed.contents.file));
        let (mut bytes, mut failed) = (0, None);
        let mut later = Vec::new();
        let mut rest = files.into_iter();
        while !rest.as_slice().is_empty() {
            let (mut jobs, batch) = self.begin_jobs(&mut rest, &mut later);
            self.prepare_jobs(&mut jobs);
            bytes += self.complete(&mut jobs, &mut failed);
            for (job, listed) in jobs.into_iter().zip(batch) {
                match job.next {
                    Some(next) => later.push((listed, next)),
                    None => self.relist(&listed, job.failed.is_some()),
                }
            }
        }
        for (listed, from) in later {
            let (wrote, error) = self.write_file(&listed.contents, from, u64::MAX);
            bytes += wrote;
            self.relist(&listed, error.is_some());
            failed = failed.or(error);
        }
        (bytes, failed)
    }

    /// Begins with as many files as one pass takes; those that others hold come later.
    fn begin_jobs(
        &self,
        rest: &mut impl Iterator<Item = Listed<B>>,
        later: &mut Vec<(Listed<B>, u64)>,
    ) -> (Vec<Job<B>>, Vec<Listed<B>>) {
        let (mut jobs, mut batch, mut blocks) = (Vec::new(), Vec::new(), 0);
        let most = (self.options.pass_bytes >> self.block_log).max(1);
        while blocks < most && jobs.len() < FILES_MAX {
            let Some(listed) = rest.next() else { break };
            let Some(job) = Job::begin(&listed.contents, false) else {
                later.push((listed, 0));
                continue;
            };
            blocks += u64::try_from(listed.contents.dirty_blocks.load(SeqCst)).unwrap_or(0);
            jobs.push(job);
            batch.push(listed);
        }
        (jobs, batch)
    }

    /// Decides where all that is dirty of these files goes. Blocks for several files of one group are claimed together.
    fn prepare_jobs(&self, jobs: &mut [Job<B>]) {
        let mut most = self.options.pass_bytes.max(1);
        for job in jobs.iter_mut() {
            most = most.saturating_sub(job.find(0, u64::MAX, most));
        }
        let mut pool = Pool::default();
        let mut rest = jobs;
        while let [job, behind @ ..] = rest {
            let group = self.below.group(&job.contents.file);
            if !pool.serves(group) {
                let of_group = |job: &&Job<B>| self.below.group(&job.contents.file) == group;
                let others: u64 = behind.iter().take_while(of_group).map(|job| job.reserved).sum();
                pool.serve(group, job.reserved + others);
            }
            job.prepare(&mut pool);
            rest = behind;
        }
    }

    /// Writes back a range of one file, whatever its size; how many bytes, and the first failure.
    pub(crate) fn write_file(&self, contents: &Arc<Contents<B>>, from: u64, to: u64) -> (u64, Option<Error>) {
        let (mut bytes, mut failed) = (0, None);
        let mut next = Some(from);
        // What is appended meanwhile is not waited for.
        let to = to.min(contents.size().max(from)).next_multiple_of(contents.block_size());
        // A part that fails keeps no other from being written, unless nothing can be.
        let is_over = |failed: &Option<Error>| matches!(failed, Some(Error::ShutDown { .. }));
        while let Some(at) = next.take().filter(|at| *at < to && !is_over(&failed)) {
            let Some(mut job) = Job::begin(contents, true) else { break };
            if contents.dirty_blocks.load(SeqCst) > 0 {
                let mut pool = Pool::default();
                pool.serve(self.below.group(&contents.file), 0);
                job.find(at, to, self.options.pass_bytes.max(1));
                job.prepare(&mut pool);
            }
            next = job.next;
            bytes += self.complete(std::slice::from_mut(&mut job), &mut failed);
        }
        (bytes, failed)
    }

    /// A pass is done with a file. What stayed dirty keeps its stamp.
    fn relist(&self, listed: &Listed<B>, failed: bool) {
        let contents = &listed.contents;
        contents.listed.store(false, SeqCst);
        if contents.dirty_blocks.load(SeqCst) > 0 {
            contents.list(if failed { listed.since } else { self.now() });
        }
    }

    /// Writes and finishes; how many bytes of it are not dirty again.
    fn complete(&self, jobs: &mut [Job<B>], failed: &mut Option<Error>) -> u64 {
        let written = self.write_jobs(jobs);
        self.finish_jobs(jobs);
        let mut undone = 0;
        for job in jobs.iter() {
            undone += job.undone;
            if let Some(error) = &job.failed {
                job.contents.errors.note(error);
                failed.get_or_insert_with(|| error.clone());
            }
        }
        written.saturating_sub(undone)
    }

    /// Everything of all jobs to the device; how many bytes it took.
    fn write_jobs(&self, jobs: &mut [Job<B>]) -> u64 {
        let mut written = 0;
        if self.options.plug_over_pass {
            let mut pieces = self.pieces(jobs, 0..jobs.len());
            pieces.sort_unstable_by_key(|piece| piece.place);
            return self.write_pieces(jobs, &pieces);
        }
        for job in 0..jobs.len() {
            let mut pieces = self.pieces(jobs, job..job + 1);
            pieces.sort_unstable_by_key(|piece| piece.place);
            written += self.write_pieces(jobs, &pieces);
        }
        written
    }

    fn pieces(&self, jobs: &[Job<B>], which: std::ops::Range<usize>) -> Vec<Piece<B>> {
        let mut pieces = Vec::new();
        let log = self.block_log;
        let per = 1u64 << (FOLIO_LOG - log);
        for (job_index, job) in jobs.iter().enumerate().skip(which.start).take(which.len()) {
            for (run_index, run) in job.runs.iter().enumerate() {
                let mut at = run.at;
                while at < run.at + run.count {
                    let base = at & !(per - 1);
                    let end = (base + per).min(run.at + run.count);
                    if let Some(folio) = job.contents.look(at / per) {
                        let place = self.below.device_offset(run.start) + ((at - run.at) << log);
                        let (from, to) = (((at - base) << log) as usize, ((end - base) << log) as usize);
                        let (job, run, first) = (job_index, run_index, at - run.at);
                        pieces.push(Piece { job, run, first, folio, from, to, place });
                    }
                    at = end;
                }
            }
        }
        pieces
    }

    /// Writes pieces that are sorted by their place, some megabytes at a time.
    fn write_pieces(&self, jobs: &mut [Job<B>], pieces: &[Piece<B>]) -> u64 {
        let mut written = 0;
        for chunk in pieces.chunks((CHUNK_BYTES / FOLIO_BYTES) * 8) {
            let mut rest = chunk;
            while !rest.is_empty() {
                let mut bytes = 0;
                let fits = rest.iter().take_while(|piece| {
                    bytes += piece.to - piece.from;
                    bytes <= CHUNK_BYTES
                });
                let (now, later) = rest.split_at(fits.count().max(1));
                written += self.write_chunk(jobs, now);
                rest = later;
            }
        }
        written
    }

    fn write_chunk(&self, jobs: &mut [Job<B>], pieces: &[Piece<B>]) -> u64 {
        // Each folio once, in the order in which several may be locked.
        let mut order: Vec<usize> = (0..pieces.len()).collect();
        let key = |at: &usize| pieces.get(*at).map(|piece| (piece.job, piece.folio.index));
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
            plug.push(WriteRequest::new(piece.place, buf));
        }
        let failed = plug.finish(self.below.device(), &self.plug);
        self.below.written_past_log();
        drop(guards);
        for (at, error) in failed {
            let Some(piece) = pieces.get(at) else { continue };
            bytes = bytes.saturating_sub((piece.to - piece.from) as u64);
            let blocks = ((piece.to - piece.from) >> self.block_log) as u64;
            let Some(job) = jobs.get_mut(piece.job) else { continue };
            job.failed.get_or_insert_with(|| error.into());
            if let Some(run) = job.runs.get_mut(piece.run) {
                run.failed.extend(piece.first..piece.first + blocks);
            }
        }
        self.dirty.sub(bytes);
        self.pace.notify();
        bytes
    }

    /// Maps and sizes of all jobs: small files together, large ones alone.
    fn finish_jobs(&self, jobs: &mut [Job<B>]) {
        let mut rest = jobs;
        while !rest.is_empty() {
            let small = rest.iter().take(FINISH_MAX).take_while(|job| job.runs.len() <= SMALL_RUNS).count();
            let (now, later) = rest.split_at_mut(small.max(1));
            self.finish_together(now);
            rest = later;
        }
    }

    fn finish_together(&self, jobs: &mut [Job<B>]) {
        let (mut files, mut finished) = (Vec::new(), Vec::new());
        for (index, job) in jobs.iter_mut().enumerate() {
            match job.finish() {
                None => job.end_unchanged(),
                Some((written, size)) => {
                    let claimed = blocks_claimed::<B>(&written);
                    files.push((index, claimed, Arc::clone(&job.contents)));
                    finished.push((written, size));
                }
            }
        }
        if files.is_empty() {
            return;
        }
        let mut given = Vec::with_capacity(files.len());
        for ((_, claimed, contents), (written, size)) in files.iter().zip(finished) {
            // In this order: the records are those of all that is dirty, with what is finished now.
            let Share { tree, records, rooms } = contents.take_share();
            let reserved = tree + contents.spend(*claimed);
            given.push(Finish {
                file: &contents.file,
                written,
                size,
                reserved,
                records,
                rooms,
                refused: None,
            });
        }
        let result = self.below.finish(&mut given);
        self.counters.finishes.add();
        self.counters.finished_files.add_many(given.len() as u64);
        for ((index, claimed, _), finish) in files.iter().zip(given) {
            let Some(job) = jobs.get_mut(*index) else { continue };
            match &result {
                Ok(()) => job.end(*claimed, finish),
                Err(error) => job.end_failed(*claimed, finish, error),
            }
        }
    }
}

/// Blocks that are claimed for these ranges.
fn blocks_claimed<B: Backing>(written: &[Written<B::Claim>]) -> u64 {
    written.iter().filter(|part| part.claim.is_some()).map(|part| part.count).sum()
}

/// How a job ends. `claimed` blocks had been claimed for it.
impl<B: Backing> Job<B> {
    /// Neither the map nor the size changed.
    fn end_unchanged(&self) {
        self.contents.give_back(self.settle(false));
        self.contents.give_back_surplus();
    }

    /// Its transactions committed, except for the ranges that are left in `finish.written`.
    fn end(&mut self, claimed: u64, finish: Finish<'_, B>) {
        let contents = Arc::clone(&self.contents);
        contents.map_changed();
        let Finish { written: refused, size, reserved: left, rooms, refused: why, .. } = finish;
        if let Some(size) = size.filter(|_| refused.is_empty()) {
            contents.disk_size.store(size, SeqCst);
        }
        refused.iter().for_each(|part| self.refuse((part.at, part.count)));
        let back = blocks_claimed::<B>(&refused).min(left);
        // Claims first: they are of blocks that are reserved.
        drop(refused);
        self.failed = self.failed.take().or(why.map(|why| *why));
        let released = self.settle(false);
        contents.give_back(released.saturating_sub(claimed - back));
        contents.put_back(back, left - back, rooms);
    }

    /// One of its transactions failed; earlier ones may have committed.
    fn end_failed(&mut self, claimed: u64, finish: Finish<'_, B>, error: &Error) {
        let contents = Arc::clone(&self.contents);
        contents.map_changed();
        let Finish { written, reserved: left, rooms, .. } = finish;
        drop(written);
        self.failed.get_or_insert_with(|| error.clone());
        self.settle(true);
        self.undone = self.bytes;
        let back = claimed.min(left);
        // What was taken along by the change that failed is set aside anew, for the next attempt.
        let again = claimed - back;
        let again = if again > 0 && contents.cache.below.reserve(again).is_ok() { again } else { 0 };
        contents.put_back(back + again, left - back, rooms);
    }
}

impl<B: Backing> Contents<B> {
    /// Writes back a range of the file, and waits.
    pub(crate) fn flush_range(&self, from: u64, to: u64) -> Result<(), Error> {
        let Some(me) = self.arc().filter(|_| from < to) else { return Ok(()) };
        let (_, failed) = self.cache.write_file(&me, from, to);
        failed.map_or(Ok(()), Err)
    }
}
