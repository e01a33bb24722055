//! A memory budget that caches share.
//!
//! | part | subject |
//! |---|---|
//! | [`Budget`] | the bytes that all caches together may hold |
//! | [`Share`] | what one cache holds, and may hold |
//! | [`Counted`] | memory of one object that is counted in a share |
//! | [`Shrink`] | a cache that drops memory |
//! | `machine` | the memory of the machine, or of the process's control group |
//! | [`pressure`] | a budget becomes smaller while memory is short |
//!
//! A cache has a part of the budget, by its weight. It may hold more while the others leave some of theirs. When the
//! budget is exceeded, caches that hold more than their part drop memory: a cache that grows drops its own. If that is
//! within its part, its memory was lent to others, which may be idle. They drop memory when any thread calls
//! [`Budget::make_room`].
//!
//! # Invariants
//! - The parts add up to the limit of the budget. So if it is exceeded, a cache holds more than its part.
//! - What is dropped is clean and not in use: dropping memory never writes, and never waits for a device, unless a
//!   cache has an option to do so.
//!
//! # Locking
//! The list of shares is locked for a copy of it. Caches drop memory outside of that lock.

mod machine;
pub mod pressure;

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use crate::lock::{Rank, SpinLock};
use crate::percpu::Amount;
use crate::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// A cache that can drop memory.
pub trait Shrink: Send + Sync {
    /// Drops memory that is clean and was not used recently, until the cache holds at most `bytes` bytes, or for as
    /// long as it takes to look at some hundred objects. Returns whether another call may soon drop more. Called
    /// without locks, except by the cache itself.
    fn shrink(&self, bytes: u64) -> bool;

    /// Requests that dirty memory be written back, as the cache could not drop enough. Does not wait. Called without
    /// locks.
    fn write_back(&self) {}
}

/// The bytes that the caches of a process, or of some volumes, may hold together.
pub struct Budget {
    bytes: AtomicU64,
    /// What the caches may hold now: less than `bytes` while memory is short.
    limit: AtomicU64,
    /// The budget is so much of the memory that the process may use, if that changes.
    part_of_memory: Option<u64>,
    /// A thread watches the memory of the system.
    is_followed: AtomicBool,
    /// Bytes of all shares.
    used: Amount,
    /// Sum of the shares when a thread last found that no cache can drop more; [`UNKNOWN`] if one may.
    settled: AtomicU64,
    /// A thread is making the caches drop memory.
    is_shrinking: AtomicBool,
    /// Sum of the weights of all shares.
    weights: AtomicU64,
    /// A spinlock, which threads in and outside of a simulation may share: volumes of both may have one budget.
    shares: SpinLock<Vec<Weak<Share>>>,
}

/// More than any cache holds.
const UNKNOWN: u64 = u64::MAX;

impl Budget {
    /// A budget of so many bytes.
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self::with_part(bytes, None))
    }

    fn with_part(bytes: u64, part_of_memory: Option<u64>) -> Self {
        Self {
            bytes: AtomicU64::new(bytes),
            limit: AtomicU64::new(bytes),
            part_of_memory,
            is_followed: AtomicBool::new(false),
            used: Amount::new(bytes),
            settled: AtomicU64::new(UNKNOWN),
            is_shrinking: AtomicBool::new(false),
            weights: AtomicU64::new(0),
            shares: SpinLock::new(Rank::Leaf, Vec::new()),
        }
    }

    /// The budget of all volumes of the process that have no other: a quarter of the memory of the machine, or of the
    /// control group of the process if that has a limit.
    pub fn of_process() -> Arc<Self> {
        static BUDGET: OnceLock<Arc<Budget>> = OnceLock::new();
        const PART: u64 = 4;
        let bytes = || machine::memory().map_or(DEFAULT, |bytes| bytes / PART);
        Arc::clone(BUDGET.get_or_init(|| Arc::new(Self::with_part(bytes(), Some(PART)))))
    }

    /// The bytes that the caches may hold while memory is not short.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// The bytes that the caches may hold now.
    #[inline]
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    fn set_limit(&self, bytes: u64) {
        if self.limit.swap(bytes, Relaxed) > bytes {
            self.search_again();
        }
    }

    /// The bytes that the caches hold.
    pub fn used(&self) -> u64 {
        self.used.exact()
    }

    /// Whether the caches hold more than they may; nearly exact.
    #[inline]
    pub fn is_exceeded(&self) -> bool {
        self.used.get() > self.limit()
    }

    /// If the caches hold more than they may, those that hold more than their part drop memory, unless another thread
    /// is making them. To be called without locks.
    #[inline]
    pub fn make_room(&self) {
        if self.is_exceeded() {
            self.shrink_borrowers();
        }
    }

    /// Something was written back: caches that could not drop enough may be able to drop more now.
    pub fn became_clean(&self) {
        if self.is_exceeded() {
            self.search_again();
        }
    }

    fn search_again(&self) {
        for share in self.shares() {
            share.left.store(UNKNOWN, Relaxed);
        }
        self.settled.store(UNKNOWN, Relaxed);
    }

    /// Makes the caches drop memory until they hold what they may, or cannot drop more; not for ever, as others
    /// allocate meanwhile. To be called without locks.
    fn make_all_room(&self) {
        for _ in 0..PASSES_MAX {
            if !self.is_exceeded() || self.is_settled() {
                break;
            }
            self.make_room();
            crate::thread::yield_now();
        }
    }

    /// Whether all is dirty or in use, until there is a little more or less, or something became clean.
    fn is_settled(&self) -> bool {
        self.used.get().abs_diff(self.settled.load(Relaxed)) <= self.bytes() / 64
    }

    fn shares(&self) -> Vec<Arc<Share>> {
        self.shares.lock().iter().filter_map(Weak::upgrade).collect()
    }

    #[cold]
    fn shrink_borrowers(&self) {
        if self.is_settled() {
            return;
        }
        let Some(_claim) = Claim::take(&self.is_shrinking) else { return };
        // First, as another thread may find out meanwhile that a cache can drop more.
        self.settled.store(self.used.get(), Relaxed);
        let mut has_more = false;
        for share in self.shares() {
            let Some(cache) = share.cache.get().and_then(Weak::upgrade) else { continue };
            if share.should_shrink() {
                has_more |= share.shrink(|bytes| cache.shrink(bytes));
            }
            if share.is_stuck.swap(false, Relaxed) {
                cache.write_back();
            }
        }
        if has_more {
            self.settled.store(UNKNOWN, Relaxed);
        }
    }
}

/// The most calls of all caches to reach a lower limit.
const PASSES_MAX: usize = 100_000;

/// If the memory of the machine is not known.
const DEFAULT: u64 = 512 << 20;

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Budget({} of {} bytes)", self.used.get(), self.limit())
    }
}

/// The right to do what only one thread does at a time. Dropping it, also by a panic, gives it back.
struct Claim<'c>(&'c AtomicBool);

impl<'c> Claim<'c> {
    fn take(claimed: &'c AtomicBool) -> Option<Self> {
        (!claimed.load(Relaxed) && !claimed.swap(true, Acquire)).then(|| Self(claimed))
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

/// The share of a cache in a budget.
pub struct Share {
    budget: Arc<Budget>,
    weight: u64,
    used: Amount,
    /// By how much the cache exceeded what it may hold when it last could not drop enough; [`UNKNOWN`] otherwise.
    left: AtomicU64,
    /// The cache could not drop enough, and writeback of what it holds has not been requested since.
    is_stuck: AtomicBool,
    /// A thread is making the cache drop memory.
    is_shrinking: AtomicBool,
    cache: OnceLock<Weak<dyn Shrink>>,
}

impl Share {
    /// A share of a budget. The parts of all shares are in proportion to their weights.
    pub fn new(budget: &Arc<Budget>, weight: u64) -> Arc<Self> {
        let share = Arc::new(Self {
            budget: Arc::clone(budget),
            weight,
            used: Amount::new(budget.bytes()),
            left: AtomicU64::new(UNKNOWN),
            is_stuck: AtomicBool::new(false),
            is_shrinking: AtomicBool::new(false),
            cache: OnceLock::new(),
        });
        let mut shares = budget.shares.lock();
        shares.retain(|share| share.strong_count() > 0);
        shares.push(Arc::downgrade(&share));
        budget.weights.fetch_add(weight, Relaxed);
        drop(shares);
        share
    }

    /// The only share of a budget of so many bytes.
    pub fn alone(bytes: u64) -> Arc<Self> {
        Self::new(&Budget::new(bytes), 1)
    }

    /// Sets the cache. It is set once.
    pub fn set_cache(&self, cache: Weak<dyn Shrink>) {
        let is_first = self.cache.set(cache).is_ok();
        debug_assert!(is_first, "a share is that of one cache");
    }

    /// The budget.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// The cache has allocated memory.
    #[inline]
    pub fn add(&self, bytes: u64) {
        self.used.add(bytes);
        self.budget.used.add(bytes);
    }

    /// The cache has freed memory.
    #[inline]
    pub fn sub(&self, bytes: u64) {
        self.used.sub(bytes);
        self.budget.used.sub(bytes);
    }

    /// The bytes that the cache holds; nearly exact.
    #[inline]
    pub fn used(&self) -> u64 {
        self.used.get()
    }

    /// The bytes that the cache holds, while no thread changes it.
    pub fn exact(&self) -> u64 {
        self.used.exact()
    }

    /// The bytes that the cache may always hold.
    pub fn part(&self) -> u64 {
        let weights = self.budget.weights.load(Relaxed).max(self.weight);
        (u128::from(self.budget.limit()) * u128::from(self.weight) / u128::from(weights)) as u64
    }

    /// The bytes that the cache may hold now: its part, or what the other caches leave if that is more.
    pub fn limit(&self) -> u64 {
        let others = self.budget.used.get().saturating_sub(self.used.get());
        self.part().max(self.budget.limit().saturating_sub(others))
    }

    /// Whether the cache holds more than it may.
    #[inline]
    pub fn is_exceeded(&self) -> bool {
        self.budget.is_exceeded() && self.excess() > 0
    }

    /// By how much the cache holds more than it may; nearly exact.
    fn excess(&self) -> u64 {
        self.used.get().saturating_sub(self.limit())
    }

    /// Whether the cache should [drop memory](Self::shrink). If it could not drop enough the last time, what it holds
    /// is in use or dirty: it is searched again when its excess has changed by an eighth of its part, because it or
    /// others grew or shrank, or when something [became clean](Budget::became_clean).
    #[inline]
    pub fn should_shrink(&self) -> bool {
        self.is_exceeded() && self.excess().abs_diff(self.left.load(Relaxed)) > self.part() / 8
    }

    /// Calls `shrink` with the bytes that the cache may hold, to drop memory, unless another thread does. Returns
    /// whether another call may soon drop more: see [`Shrink::shrink`].
    #[cold]
    pub fn shrink(&self, shrink: impl FnOnce(u64) -> bool) -> bool {
        let Some(_claim) = Claim::take(&self.is_shrinking) else { return false };
        let (limit, before) = (self.limit(), self.excess());
        // First, as something may become clean while the cache looks elsewhere.
        self.left.store(before, Relaxed);
        let has_more = shrink(limit);
        let excess = self.used.get().saturating_sub(limit);
        let is_stuck = excess > 0 && !has_more;
        let left = if is_stuck { excess } else { UNKNOWN };
        let _ = self.left.compare_exchange(before, left, Relaxed, Relaxed);
        if is_stuck {
            self.is_stuck.store(true, Relaxed);
            self.budget.settled.store(UNKNOWN, Relaxed);
        }
        excess > 0 && has_more
    }
}

/// Counts the memory of the object that contains it, until it is dropped.
#[derive(Debug)]
pub struct Counted<'s> {
    share: &'s Share,
    bytes: u64,
}

impl<'s> Counted<'s> {
    /// Counts so many bytes.
    pub fn new(share: &'s Share, bytes: usize) -> Self {
        let bytes = bytes as u64;
        share.add(bytes);
        Self { share, bytes }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.share.sub(self.bytes);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.weights.fetch_sub(self.weight, Relaxed);
        self.budget.used.sub(self.used.exact());
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Share({} of {} bytes, {:?})", self.used.get(), self.part(), self.budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::percpu;

    /// A cache that can drop all but some bytes.
    pub(super) struct Fake {
        pub(super) memory: Arc<Share>,
        in_use: AtomicU64,
        requests: AtomicU64,
        /// All becomes clean while the cache looks for clean memory, which it does not find.
        becomes_clean: AtomicBool,
    }

    impl Shrink for Fake {
        fn shrink(&self, bytes: u64) -> bool {
            if self.becomes_clean.swap(false, Relaxed) {
                self.memory.budget().became_clean();
                return false;
            }
            let least = bytes.max(self.in_use.load(Relaxed));
            self.memory.sub(self.memory.exact().saturating_sub(least));
            false
        }

        fn write_back(&self) {
            self.requests.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn fake(budget: &Arc<Budget>, weight: u64, in_use: u64) -> Arc<Fake> {
        let memory = Share::new(budget, weight);
        let fake = Arc::new(Fake {
            memory,
            in_use: AtomicU64::new(in_use),
            requests: AtomicU64::new(0),
            becomes_clean: AtomicBool::new(false),
        });
        let weak = Arc::downgrade(&fake);
        fake.memory.set_cache(weak);
        fake
    }

    const BUDGET: u64 = 64 << 20;
    /// A limit depends on two sums, each of which is exact to a sixteenth.
    const EXACT_TO: u64 = BUDGET / 8;

    #[test]
    fn a_cache_may_hold_what_the_others_leave() {
        let budget = Budget::new(BUDGET);
        let (first, second) = (fake(&budget, 3, 0), fake(&budget, 1, 0));
        assert_eq!((first.memory.part(), second.memory.part()), (BUDGET / 4 * 3, BUDGET / 4));
        assert_eq!(second.memory.limit(), BUDGET);
        second.memory.add(BUDGET / 2);
        assert!(!second.memory.is_exceeded() && !budget.is_exceeded());
        assert!(first.memory.limit().abs_diff(BUDGET / 4 * 3) <= EXACT_TO);
        first.memory.add(BUDGET / 4 * 3);
        // The second has borrowed what is the first one's.
        assert!(second.memory.is_exceeded() && !first.memory.is_exceeded());
        budget.make_room();
        assert!(!budget.is_exceeded() && !second.memory.is_exceeded());
        assert_eq!(first.memory.exact(), BUDGET / 4 * 3);
        assert!(second.memory.exact() <= BUDGET / 4 + EXACT_TO);
    }

    #[test]
    fn memory_in_use_exceeds_the_budget_and_others_keep_their_part() {
        let budget = Budget::new(BUDGET);
        let (first, second) = (fake(&budget, 1, BUDGET), fake(&budget, 1, 0));
        first.memory.add(BUDGET);
        second.memory.add(BUDGET);
        budget.make_room();
        budget.make_room();
        assert_eq!((first.memory.exact(), first.requests.load(Relaxed)), (BUDGET, 1));
        assert!(second.memory.exact().abs_diff(BUDGET / 2) <= EXACT_TO, "{second:?}", second = second.memory);
    }

    /// What a cache could not drop was never looked at again, unless the cache became larger or smaller.
    #[test]
    fn what_became_clean_is_dropped() {
        let budget = Budget::new(BUDGET);
        let (first, second) = (fake(&budget, 1, BUDGET), fake(&budget, 1, 0));
        first.memory.add(BUDGET);
        second.memory.add(BUDGET / 2);
        budget.make_room();
        first.in_use.store(0, Relaxed);
        budget.make_room();
        assert_eq!(first.memory.exact(), BUDGET);
        budget.became_clean();
        budget.make_room();
        assert!(first.memory.exact() <= BUDGET / 2 + EXACT_TO, "{first:?}", first = first.memory);
        assert!(!budget.is_exceeded());
    }

    /// A cache that could not drop a little was not searched again when others needed all that it had borrowed, as it
    /// did not change itself: the caches held half as much again as the budget.
    #[test]
    fn a_cache_is_searched_again_when_others_need_more() {
        let budget = Budget::new(BUDGET);
        let held = BUDGET + BUDGET / 32;
        let (first, second) = (fake(&budget, 1, held), fake(&budget, 1, 0));
        first.memory.add(held);
        budget.make_room();
        assert_eq!((first.memory.exact(), first.requests.load(Relaxed)), (held, 1));
        first.in_use.store(0, Relaxed);
        for _ in 0..16 {
            second.memory.add(BUDGET / 32);
            budget.make_room();
        }
        assert!(budget.used() <= BUDGET + EXACT_TO, "{budget:?}");
        assert_eq!(second.memory.exact(), BUDGET / 2);
    }

    /// A pass of writeback that ended during a search was forgotten when the search ended.
    #[test]
    fn what_became_clean_during_a_search_is_dropped_by_the_next() {
        let budget = Budget::new(BUDGET);
        let (first, second) = (fake(&budget, 1, 0), fake(&budget, 1, 0));
        first.memory.add(BUDGET);
        second.memory.add(BUDGET / 2);
        first.becomes_clean.store(true, Relaxed);
        budget.make_room();
        assert_eq!(first.memory.exact(), BUDGET);
        budget.make_room();
        assert!(!budget.is_exceeded(), "{budget:?}");
    }

    #[test]
    fn a_share_that_is_dropped_leaves_its_part_to_the_others() {
        let budget = Budget::new(BUDGET);
        let (first, second) = (fake(&budget, 1, 0), fake(&budget, 1, 0));
        for cpu in 0..8 {
            percpu::override_current(Some(cpu));
            second.memory.add(BUDGET / 8);
        }
        percpu::override_current(None);
        drop(second);
        assert_eq!((first.memory.part(), budget.used()), (BUDGET, 0));
    }

    /// The list of shares had a mutex. A simulated thread that found it taken by a thread outside of the simulation,
    /// which opened a volume, waited for the scheduler, which does not know that thread: the run ended as a deadlock.
    #[test]
    #[cfg(debug_assertions)]
    fn threads_outside_of_a_simulation_do_not_stop_it() {
        use crate::simulation::{SchedulingStrategy, SimulationOptions, run};
        let (budget, stop) = (Budget::new(BUDGET), AtomicBool::new(false));
        let open = |times: usize| (0..times).for_each(|_| drop(Share::new(&budget, 1)));
        std::thread::scope(|scope| {
            let outside = scope.spawn(|| {
                while !stop.load(Relaxed) {
                    open(1000);
                }
            });
            for seed in 0..5 {
                let strategy = SchedulingStrategy::Random { per_mille: 300 };
                run(SimulationOptions::new(seed, strategy), || open(20_000));
            }
            stop.store(true, Relaxed);
            outside.join().unwrap();
        });
    }

    #[test]
    fn the_process_has_one_budget() {
        let budget = Budget::of_process();
        assert!(Arc::ptr_eq(&budget, &Budget::of_process()));
        assert!(budget.bytes() >= 1 << 20, "{budget:?}");
    }
}
