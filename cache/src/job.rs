//! One file that is being written back: what of it is dirty, and where that goes.
//!
//! # Invariants
//! - Blocks in writeback belong to one job, which holds the file's `flushing`.
//! - What failed is dirty again, with what was set aside for it.
//! - The size on disk follows the size in memory up to the first byte that is not written: a file of which nothing is
//!   dirty has one size.
//!
//! # Locking
//! A job holds `flushing` and `layout` (shared) of its file to its end. It locks a folio at a time, and none while it
//! asks for the map or claims.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use base::FsBlock;
use base::lock::{OwnedMutexGuard, OwnedReadGuard};
use error::Error;
use smallvec::SmallVec;

use crate::backing::{Backing, Claimed, Kind, Want, Written};
use crate::contents::Contents;
use crate::folio::{FOLIO_LOG, State, bits, runs};

/// Blocks of a file that are written to one place.
#[derive(Debug)]
pub(crate) struct Run<B: Backing> {
    /// The first block of the file.
    pub at: u64,
    pub count: u64,
    /// Where the first goes.
    pub start: FsBlock,
    /// Finishing changes the map: they were unwritten, or are claimed.
    pub changes_map: bool,
    pub claim: Option<B::Claim>,
    /// Blocks, counted from `at`, that could not be written.
    pub failed: Vec<u64>,
    /// The same, that were written for nothing: the map did not take them.
    pub refused: Vec<u64>,
}

/// What is to be finished of one file: what was written, and the size on disk if it moves.
type Finished<B> = (Vec<Written<<B as Backing>::Claim>>, Option<u64>);

/// One file that is being written back.
pub(crate) struct Job<B: Backing> {
    pub contents: Arc<Contents<B>>,
    _flushing: OwnedMutexGuard<Contents<B>, ()>,
    _layout: OwnedReadGuard<Contents<B>, ()>,
    /// Runs of dirty blocks that have no place on the device yet: the first block of the file, and how many.
    dirty: SmallVec<[(u64, u64); 1]>,
    /// How many of these blocks have a reservation. They keep it until they are written, or `layout` is released.
    pub reserved: u64,
    pub runs: Vec<Run<B>>,
    /// The size before anything was picked.
    size: u64,
    pub failed: Option<Error>,
    /// Where to go on, if not all of the range was looked at.
    pub next: Option<u64>,
    /// Bytes that were picked.
    pub bytes: u64,
    /// Bytes that were written for nothing: finishing failed, and they are dirty again.
    pub undone: u64,
}

/// Claims for the small files of a pass are cut from one, so that they lie together.
///
/// # Invariants
/// All that is claimed for these files is reserved, at every moment: others may have reserved the rest of the free
/// blocks, and a transaction of theirs would not find them. So the pool claims no more than the dirty blocks that have
/// a reservation and no place yet.
pub(crate) struct Pool<B: Backing> {
    claim: Option<B::Claim>,
    /// Files of which group it serves, and how many of their reserved blocks have no place yet.
    group: Option<u64>,
    expected: u64,
    near: Option<FsBlock>,
}

impl<B: Backing> Default for Pool<B> {
    fn default() -> Self {
        Self { claim: None, group: None, expected: 0, near: None }
    }
}

impl<B: Backing> Pool<B> {
    /// From now on for files of this group, which want so many blocks together.
    pub fn serve(&mut self, group: u64, expected: u64) {
        *self = Self { claim: None, group: Some(group), expected, near: None };
    }

    /// Claims. What others hold that is not needed now goes first, where space is short.
    fn claim(&mut self, contents: &Contents<B>, want: &Want) -> Result<B::Claim, Error> {
        let below = &contents.cache.below;
        match below.claim(&contents.file, want) {
            Err(Error::NoSpace { .. }) => {
                self.claim = None;
                contents.cache.give_back_ahead();
                below.claim(&contents.file, want)
            }
            claimed => claimed,
        }
    }

    /// A file's blocks are about to come from elsewhere: what is claimed here in advance may be reserved for these.
    fn release(&mut self) {
        self.claim = None;
    }

    /// So many blocks have a place.
    fn placed(&mut self, count: u64) {
        self.expected = self.expected.saturating_sub(count);
    }

    /// Whether it serves this group already.
    pub fn serves(&self, group: u64) -> bool {
        self.group == Some(group)
    }

    /// Up to `count` blocks.
    fn take(&mut self, contents: &Contents<B>, at: u64, count: u64) -> Result<B::Claim, Error> {
        if self.claim.as_ref().is_none_or(|claim| claim.count() == 0) {
            let want = Want { at, near: self.near, most: self.expected.max(count) };
            self.claim = Some(self.claim(contents, &want)?);
        }
        let Some(claim) = &mut self.claim else { return Err(Error::NoSpace { what: "contents of a file" }) };
        let front = claim.take_front(count);
        self.near = Some(FsBlock(front.start().get() + front.count()));
        self.placed(front.count());
        Ok(front)
    }
}

impl<B: Backing> Job<B> {
    /// Takes the file's locks: waits for them, or not.
    pub fn begin(contents: &Arc<Contents<B>>, wait: bool) -> Option<Self> {
        let (flushing, layout) = match wait {
            true => (
                OwnedMutexGuard::lock(Arc::clone(contents), |contents| &contents.flushing),
                OwnedReadGuard::lock(Arc::clone(contents), |contents| &contents.layout),
            ),
            false => (
                OwnedMutexGuard::try_lock(Arc::clone(contents), |contents| &contents.flushing)?,
                OwnedReadGuard::try_lock(Arc::clone(contents), |contents| &contents.layout)?,
            ),
        };
        Some(Self {
            contents: Arc::clone(contents),
            _flushing: flushing,
            _layout: layout,
            dirty: SmallVec::new(),
            reserved: 0,
            runs: Vec::new(),
            size: contents.size(),
            failed: None,
            next: None,
            bytes: 0,
            undone: 0,
        })
    }

    /// Decides where all that was found goes, and picks it.
    pub fn prepare(&mut self, pool: &mut Pool<B>) {
        // What fails for one run may succeed for the next.
        for (at, count) in std::mem::take(&mut self.dirty) {
            if let Err(error) = self.place(at, count, pool) {
                self.failed.get_or_insert(error);
            }
        }
        self.pick();
    }

    /// Finds the dirty blocks of a range of bytes, but for what goes beyond `most` bytes; how many bytes.
    pub fn find(&mut self, from: u64, to: u64, most: u64) -> u64 {
        let contents = &self.contents;
        let (log, per) = (contents.block_log(), contents.folio_blocks());
        let (first, behind) = (from >> log, to.div_ceil(1 << log));
        let (mut next, mut bytes) = (from >> FOLIO_LOG, 0);
        while let Some(folio) = contents.next_dirty_folio(next) {
            let base = folio.index * per;
            if base >= behind {
                break;
            }
            if bytes >= most {
                self.next = Some(folio.offset());
                break;
            }
            next = folio.index + 1;
            let mask = bits(first.saturating_sub(base).min(per), (behind - base).min(per));
            let Some(state) = Contents::lock_read(&folio) else { continue };
            if state.dirty == 0 {
                contents.unmark_dirty(&folio);
            }
            self.reserved += u64::from((state.dirty & state.reserved & mask).count_ones());
            for (start, end) in runs(state.dirty & mask) {
                bytes += (end - start) << log;
                match self.dirty.last_mut() {
                    Some((at, count)) if *at + *count == base + start => *count += end - start,
                    _ => self.dirty.push((base + start, end - start)),
                }
            }
        }
        bytes
    }

    /// Decides where a run of dirty blocks goes.
    fn place(&mut self, at: u64, count: u64, pool: &mut Pool<B>) -> Result<(), Error> {
        let mut at = at;
        let end = at + count;
        while at < end {
            let contents = Arc::clone(&self.contents);
            let part = contents.cache.below.map(&contents.file, at, end - at)?;
            let part_end = part.end().clamp(at + 1, end);
            if !part.needs_blocks() {
                let changes_map = part.kind == Kind::Unwritten;
                let (start, count) = (part.place(at), part_end - at);
                self.runs.push(Run {
                    at,
                    count,
                    start,
                    changes_map,
                    claim: None,
                    failed: Vec::new(),
                    refused: Vec::new(),
                });
                at = part_end;
            }
            while at < part_end {
                let claim = self.claim(at, part_end - at, pool)?;
                let (start, count) = (claim.start(), claim.count().min(part_end - at).max(1));
                let claim = Some(claim);
                self.runs.push(Run {
                    at,
                    count,
                    start,
                    changes_map: true,
                    claim,
                    failed: Vec::new(),
                    refused: Vec::new(),
                });
                at += count;
            }
        }
        Ok(())
    }

    /// Claims up to `count` blocks for the file's block `at`.
    fn claim(&self, at: u64, count: u64, pool: &mut Pool<B>) -> Result<B::Claim, Error> {
        let (contents, below) = (&self.contents, &self.contents.cache.below);
        if let Some(claim) = contents.take_ahead(at, count) {
            pool.release();
            pool.placed(claim.count());
            // They were reserved twice: for the claim, and when they became dirty.
            below.unreserve(claim.count());
            return Ok(claim);
        }
        let options = &contents.cache.options;
        let to_end = (at + count) << contents.block_log() >= self.size;
        let more = if options.claim_ahead && to_end { contents.want_ahead() } else { 0 };
        if more == 0 {
            return pool.take(contents, at, count);
        }
        pool.release();
        let more = if below.reserve(more).is_ok() { more } else { 0 };
        let behind = self.runs.last().filter(|run| run.at + run.count == at);
        let near = behind.map(|run| FsBlock(run.start.get() + run.count)).or_else(|| self.before(at));
        let claimed = pool.claim(contents, &Want { at, near, most: count + more });
        let mut claim = match claimed {
            Ok(claim) => claim,
            Err(error) => {
                below.unreserve(more);
                return Err(error);
            }
        };
        let beyond = claim.count().saturating_sub(count);
        pool.placed(claim.count() - beyond);
        below.unreserve(more - beyond.min(more));
        if beyond == 0 {
            return Ok(claim);
        }
        let front = claim.take_front(count);
        contents.keep_ahead(at + count, claim);
        Ok(front)
    }

    /// The block behind that of the file's block before `at`.
    fn before(&self, at: u64) -> Option<FsBlock> {
        let before = at.checked_sub(1)?;
        let part = self.contents.cache.below.map(&self.contents.file, before, 1).ok()?;
        (part.kind != Kind::Hole).then(|| FsBlock(part.place(before).get() + 1))
    }

    /// What is decided is in writeback from now on.
    fn pick(&mut self) {
        let mut picked = 0;
        self.each_folio(|_, _, state, mask| {
            debug_assert_eq!(mask & !state.dirty, 0, "only the holder of these locks cleans a block");
            picked += u64::from((mask & state.dirty).count_ones());
            state.dirty &= !mask;
            state.writeback |= mask;
        });
        self.contents.dirty_blocks.fetch_sub(picked as i64, SeqCst);
        self.bytes = picked << self.contents.block_log();
    }

    /// Every folio of the runs, locked for writing, with its first block and the bits of one run.
    fn each_folio(&self, mut each: impl FnMut(&Run<B>, u64, &mut State, u64)) {
        let per = self.contents.folio_blocks();
        for run in &self.runs {
            let mut at = run.at;
            while at < run.at + run.count {
                let base = at & !(per - 1);
                let end = (base + per).min(run.at + run.count);
                if let Some(folio) = self.contents.look(at / per)
                    && let Some(mut state) = Contents::lock(&folio)
                {
                    each(run, base, &mut state, bits(at - base, end - base));
                    #[cfg(debug_assertions)]
                    {
                        state.check();
                        assert!(
                            state.dirty == 0 || folio.is_marked(),
                            "writeback finds what is dirty by its mark"
                        );
                    }
                }
                at = end;
            }
        }
    }

    /// What must be finished below; `None` where neither the map nor the size changes. What failed is left out.
    pub fn finish(&mut self) -> Option<Finished<B>> {
        let mut written = Vec::new();
        for run in self.runs.iter_mut().filter(|run| run.changes_map) {
            let mut claim = run.claim.take();
            let mut good = (0..run.count).filter(|block| !run.failed.contains(block)).peekable();
            let mut done = 0;
            while let Some(first) = good.next() {
                let mut count = 1;
                while good.next_if_eq(&(first + count)).is_some() {
                    count += 1;
                }
                let front = claim.as_mut().map(|claim| {
                    drop(claim.take_front(first - done));
                    claim.take_front(count)
                });
                done = first + count;
                written.push(Written { at: run.at + first, count, claim: front });
            }
        }
        let size = self.next_disk_size();
        (!written.is_empty() || size.is_some()).then_some((written, size))
    }

    /// The size on disk after this job, if it moves: that in memory now, but not beyond bytes that are not written.
    ///
    /// Whoever appends makes a block dirty first and moves the size then: so what is below the size that is read here
    /// is dirty now, or is written. A block that is dirty again, and was picked, was written up to the size of then.
    fn next_disk_size(&self) -> Option<u64> {
        let contents = &self.contents;
        let now = contents.disk_size.load(SeqCst);
        let mut most = contents.size();
        // What could not be written is still in writeback.
        for run in &self.runs {
            if let Some(first) = run.failed.iter().min() {
                most = most.min((run.at + first) << contents.block_log());
            }
        }
        // Most often nothing became dirty meanwhile; what has is counted, for the size was read before.
        if contents.dirty_blocks.load(SeqCst) == 0 {
            return (most > now).then_some(most);
        }
        let mut next = now >> FOLIO_LOG;
        while let Some(folio) = contents.next_dirty_folio(next).filter(|folio| folio.offset() < most) {
            next = folio.index + 1;
            let Some(state) = Contents::lock_read(&folio) else { continue };
            let log = contents.block_log();
            let dirty = state.dirty & bits(now.saturating_sub(folio.offset()) >> log, 64);
            let first =
                |mask: u64| (mask != 0).then(|| folio.offset() + (u64::from(mask.trailing_zeros()) << log));
            if let Some(unwritten) = first(dirty & !state.writeback) {
                most = most.min(unwritten);
            }
            if let Some(again) = first(dirty & state.writeback) {
                most = most.min(again.max(self.size));
            }
        }
        (most > now).then_some(most)
    }

    /// The map did not take these blocks of the file.
    pub fn refuse(&mut self, (at, count): (u64, u64)) {
        for run in &mut self.runs {
            let blocks = at.max(run.at)..(at + count).min(run.at + run.count);
            run.refused.extend(blocks.map(|block| block - run.at));
        }
        self.undone += count << self.contents.block_log();
    }

    /// Ends the writeback of blocks: what failed is dirty again, or, where finishing failed, all of it. How many blocks
    /// set aside were for what is finished now.
    pub fn settle(&self, undone: bool) -> u64 {
        let log = self.contents.block_log();
        let (mut again, mut counted, mut twice, mut released) = (0, 0, 0, 0);
        self.each_folio(|run, base, state, mask| {
            state.writeback &= !mask;
            let bits_of = |blocks: &[u64]| {
                let here = blocks.iter().filter_map(|block| (run.at + block).checked_sub(base));
                here.filter(|block| *block < 64).fold(0, |bits, block| bits | 1 << block) & mask
            };
            let (failed, refused) = (bits_of(&run.failed), bits_of(&run.refused));
            let dirty = if undone { mask } else { failed | refused };
            let newly = dirty & !state.dirty;
            again += u64::from(newly.count_ones());
            // What was written counts no more: it counts again.
            counted += u64::from((newly & !failed).count_ones());
            twice += u64::from((failed & state.dirty).count_ones());
            state.dirty |= dirty;
            let held = state.reserved & mask & !dirty;
            state.reserved &= !held;
            released += u64::from(held.count_ones());
        });
        self.contents.newer_blocks.fetch_add(again as i64, SeqCst);
        self.contents.dirty_blocks.fetch_add(again as i64, SeqCst);
        self.contents.came(self.bytes >> log);
        self.contents.cache.dirty.add(counted << log);
        self.contents.cache.dirty.sub(twice << log);
        released
    }
}
