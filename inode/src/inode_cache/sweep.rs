//! Which inodes are evicted when the cache shrinks: those of whole regions of the address space.
//!
//! An allocator returns memory to the system when all objects of a page of its own, which has the size of a *region*,
//! are free. Inodes that were used last are anywhere in memory: after many were evicted in the order of their use, two
//! thirds of the memory of the others were holes. New inodes fill the holes, so this matters only when the cache
//! shrinks.
//!
//! A sweep considers all inodes of the cache, shard by shard, in rounds:
//!
//! | round | evicts | next round |
//! |---|---|---|
//! | order | of the first inodes of each shard those that were not used since they were last considered | count |
//! | count | one of sixteen of those that were not used | regions, or order |
//! | regions | the inodes of the regions that were selected | regions, or order |
//!
//! The rounds "count" and "regions" count the inodes of each region. After them, the regions with the fewest used
//! inodes are selected, of those in which no inode is in use or dirty. If a selected region had no used inodes, those
//! that were used after they were counted stay. If too few regions can be selected, rounds in order follow until they
//! have considered as many inodes as were counted: counting again at once would take much time for each inode that is
//! evicted. When the cache is small enough, all this is forgotten: the next sweep begins with one round in order, which
//! is enough for a few inodes. In a simulation, in which nothing may depend on addresses, all rounds are in order.

use rustc_hash::FxHashMap;

/// log2 of the bytes of a region: mimalloc's pages of small objects. Allocators with smaller pages return these, too.
const REGION_LOG: u32 = 16;
/// A round evicts at least this part of all inodes, as a divisor, if there are as many in regions that can be selected.
const ROUND_PART: u64 = 8;
/// The regions of a round have at least this part of all inodes, as a divisor.
const LEAST_PART: u64 = 64;
/// Inodes considered in one call of a round in order.
const ORDER_CALL: usize = 128;
/// Inodes considered in one call of another round.
const CALL: usize = 512;
/// One of so many inodes may be evicted while they are counted, so that the cache does not grow meanwhile.
const COUNT_PART: u32 = 16;
/// Inodes considered while a shard is locked.
const LOCKED: usize = 64;
/// The same in a round in order: so few that all shards lose some.
const LOCKED_IN_ORDER: usize = 8;

/// The inodes of a region that stay in memory.
#[derive(Clone, Copy, Debug, Default)]
struct Region {
    inodes: u32,
    /// Used since it was last considered.
    used: u32,
    /// In use or dirty.
    needed: u32,
}

#[derive(Debug, Default)]
enum Round {
    #[default]
    Order,
    Count,
    /// Evicts the inodes of these regions. Says whether a region had used ones when they were counted.
    Regions(FxHashMap<usize, bool>),
}

/// The state of a sweep.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    round: Round,
    /// The shard that is considered.
    shard: usize,
    /// Number of its inodes that are left in this round; `None` at its beginning.
    left: Option<usize>,
    /// Regions of inodes that were considered in this round.
    regions: FxHashMap<usize, Region>,
    /// Number of inodes not used that the round "count" considered.
    counted: u32,
    /// Number of inodes considered in this round.
    considered: u64,
    /// Number of inodes to be considered in order before they are counted again.
    in_order: u64,
    has_evicted: bool,
}

impl Sweep {
    /// Inodes to be considered in one call.
    pub fn call(&self) -> usize {
        if matches!(self.round, Round::Order) { ORDER_CALL } else { CALL }
    }

    /// Whether the round is not in order, so that idle inodes which stay in this round may be evicted in the next one.
    pub fn is_undecided(&self) -> bool {
        !matches!(self.round, Round::Order)
    }

    /// Whether considering an inode clears its mark. What is only counted may be used until it is considered again.
    pub fn clears_used(&self) -> bool {
        !matches!(self.round, Round::Count)
    }

    pub fn shard(&self) -> usize {
        self.shard
    }

    /// Number of inodes to be considered next, of a shard with so many.
    pub fn count(&self, inodes: usize) -> usize {
        let most = if self.is_undecided() { LOCKED } else { LOCKED_IN_ORDER };
        self.left.unwrap_or(inodes).min(inodes).min(most)
    }

    /// Considers an inode at this address: returns whether to evict it. An inode that is not idle is never evicted.
    pub fn consider(&mut self, address: usize, was_used: bool, is_idle: bool) -> bool {
        let region = address >> REGION_LOG;
        let evicts = is_idle
            && match &self.round {
                Round::Order => !was_used,
                Round::Count => {
                    self.counted += u32::from(!was_used);
                    !was_used && self.counted.is_multiple_of(COUNT_PART)
                }
                Round::Regions(regions) => {
                    regions.get(&region).is_some_and(|had_used| *had_used || !was_used)
                }
            };
        self.has_evicted |= evicts;
        if !evicts && self.is_undecided() {
            let region = self.regions.entry(region).or_default();
            region.inodes += 1;
            region.used += u32::from(was_used);
            region.needed += u32::from(!is_idle);
        }
        evicts
    }

    /// `count` of a shard's inodes, which were `inodes`, were considered.
    pub fn advance(&mut self, count: usize, inodes: usize) {
        let left = self.left.unwrap_or(inodes).min(inodes) - count;
        self.left = (left > 0 && self.is_undecided()).then_some(left);
        self.shard += usize::from(self.left.is_none());
        self.considered += count as u64;
    }

    /// Leaves a shard out.
    pub fn skip(&mut self) {
        (self.left, self.shard) = (None, self.shard + 1);
    }

    /// The cache is small enough: what was counted is forgotten.
    pub fn end(&mut self) {
        *self = Self { shard: self.shard, ..Self::default() };
    }

    /// Begins the next round if all of so many shards were considered. So many inodes are too many.
    pub fn begin_round(&mut self, shards: usize, excess: u64) {
        if self.shard < shards {
            return;
        }
        let regions = std::mem::take(&mut self.regions);
        let was_useless = !std::mem::take(&mut self.has_evicted) && matches!(self.round, Round::Regions(_));
        let considered = std::mem::take(&mut self.considered);
        (self.shard, self.left, self.counted) = (0, None, 0);
        self.in_order = self.in_order.saturating_sub(considered);
        if base::simulation::is_simulated() || self.in_order > 0 {
            return;
        }
        let selected = match self.round {
            Round::Order => {
                self.round = Round::Count;
                return;
            }
            _ if was_useless => None,
            _ => select(regions, excess),
        };
        if selected.is_none() {
            self.in_order = considered;
        }
        self.round = selected.map_or(Round::Order, Round::Regions);
    }
}

/// Selects regions that have `excess` inodes together, or an eighth of all; fewer if there are no more. `None` if that
/// is less than a part which is worth a round.
fn select(regions: FxHashMap<usize, Region>, excess: u64) -> Option<FxHashMap<usize, bool>> {
    let all: u64 = regions.values().map(|region| u64::from(region.inodes)).sum();
    let mut free: Vec<_> = regions.into_iter().filter(|(_, region)| region.needed == 0).collect();
    free.sort_unstable_by_key(|(number, region)| (region.used, region.inodes, *number));
    let (mut selected, mut inodes) = (FxHashMap::default(), 0);
    for (number, region) in free {
        if inodes >= excess.max(all / ROUND_PART) {
            break;
        }
        inodes += u64::from(region.inodes);
        selected.insert(number, region.used > 0);
    }
    (inodes >= excess.min(all / LEAST_PART).max(1)).then_some(selected)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Considers inodes at these addresses in one round; returns those that are evicted.
    fn round(sweep: &mut Sweep, inodes: &[(usize, bool, bool)]) -> Vec<usize> {
        let mut evicted = Vec::new();
        for (address, was_used, is_idle) in inodes {
            if sweep.consider(*address, *was_used, *is_idle) {
                evicted.push(*address);
            }
        }
        sweep.advance(inodes.len(), inodes.len());
        sweep.begin_round(1, 1);
        evicted
    }

    const REGION: usize = 1 << REGION_LOG;

    /// A sweep that has counted these inodes.
    fn counted(inodes: &[(usize, bool, bool)]) -> Sweep {
        let mut sweep = Sweep::default();
        sweep.advance(0, 0);
        sweep.begin_round(1, 1);
        assert!(round(&mut sweep, inodes).is_empty());
        sweep
    }

    /// A shrink evicted nothing before it had counted all inodes; a simulated one, too.
    #[test]
    fn a_sweep_begins_in_order() {
        let mut sweep = Sweep::default();
        assert_eq!(round(&mut sweep, &[(0, true, true), (640, false, true)]), [640]);
    }

    #[test]
    fn whole_regions_are_evicted_first_those_that_are_used_least() {
        // A region with many inodes, one with few, one with a used one, and one with an inode in use.
        let mut inodes: Vec<_> = (0..8).map(|n| (n * 640, false, true)).collect();
        inodes.extend((0..4).map(|n| (REGION + n * 640, false, true)));
        inodes.extend([
            (2 * REGION, true, true),
            (3 * REGION, false, true),
            (3 * REGION + 640, false, false),
        ]);
        let mut sweep = counted(&inodes);
        assert_eq!(round(&mut sweep, &inodes), [0, 640, 1280, 1920].map(|at| REGION + at));
    }

    /// They were evicted, with their contents, although others had not been used.
    #[test]
    fn inodes_that_were_used_since_they_were_counted_stay() {
        let inodes = |was_used| [(0, was_used, true), (640, false, true), (REGION, true, true)];
        let mut sweep = counted(&inodes(false));
        assert_eq!(round(&mut sweep, &inodes(true)), [640]);
        // All regions had used ones: those are evicted that have the fewest.
        let used = [(0, true, true), (REGION, true, true), (REGION + 640, true, true)];
        let mut sweep = counted(&used);
        assert_eq!(round(&mut sweep, &used), [0]);
    }

    /// A set of regions was kept for ever after the cache had become small enough, and applied to what was there later.
    #[test]
    fn regions_are_counted_again_for_each_shrink() {
        let inodes = [(0, false, true), (640, true, true), (REGION, true, true)];
        let mut sweep = counted(&inodes);
        sweep.end();
        assert_eq!(round(&mut sweep, &inodes), [0], "in order");
        assert!(!sweep.clears_used(), "they are counted");
    }

    #[test]
    fn some_inodes_are_evicted_while_they_are_counted() {
        let mut sweep = counted(&[]);
        assert!(!sweep.is_undecided());
        sweep.advance(0, 0);
        sweep.begin_round(1, 1);
        let inodes: Vec<_> = (0..100).map(|n| (n * 640, n % 2 == 0, true)).collect();
        assert_eq!(round(&mut sweep, &inodes).len(), 3);
    }

    #[test]
    fn inodes_are_evicted_in_order_if_each_region_has_one_in_use() {
        let inodes = [(0, true, true), (640, false, true), (1280, false, false)];
        let mut sweep = counted(&inodes);
        assert!(!sweep.is_undecided());
        assert_eq!(round(&mut sweep, &inodes), [640]);
        assert!(sweep.is_undecided(), "regions are counted again");
    }

    /// After a round over all inodes that could not select regions, only the first of each shard were considered in
    /// order before the next such round: with many inodes, thousands were considered for each one evicted.
    #[test]
    fn inodes_are_considered_a_few_times_if_each_region_has_one_in_use() {
        const SHARDS: usize = 16;
        const INODES: usize = 32_000;
        let idle = |number: usize| !number.is_multiple_of(50);
        let mut shards = vec![VecDeque::new(); SHARDS];
        (0..INODES).for_each(|number| shards[number / 7 % SHARDS].push_back((number, true)));
        let mut left = (0..INODES).filter(|number| idle(*number)).count();
        let (mut sweep, mut considered) = (Sweep::default(), 0);
        while left > 0 {
            sweep.begin_round(SHARDS, left as u64);
            let shard = &mut shards[sweep.shard()];
            let inodes = shard.len();
            let count = sweep.count(inodes);
            for _ in 0..count {
                let (number, was_used) = shard.pop_front().unwrap();
                if sweep.consider(number * 640, was_used, idle(number)) {
                    left -= 1;
                } else {
                    shard.push_back((number, was_used && !sweep.clears_used()));
                }
            }
            sweep.advance(count, inodes);
            considered += count;
            assert!(considered <= 6 * INODES, "{left} are left");
        }
    }
}
