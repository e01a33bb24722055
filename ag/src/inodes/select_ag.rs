//! Which AG a new inode goes to.
//!
//! A file goes to its directory's AG, so that what is used together lies together. A directory goes to another AG than
//! the one before it, so that the AGs fill evenly, and different CPUs make their directories in different AGs: files
//! then follow, and the CPUs never meet on an AG's headers and trees.
//!
//! So the AGs are dealt to *lanes*, one for each CPU as far as there are AGs: AG `n` belongs to lane `n` modulo the
//! number of lanes. A CPU goes round its own lane, skips AGs that have less room than the average or whose header
//! somebody holds, and leaves the lane only where nothing in it will do.
//!
//! # Invariants
//! Every AG is offered in each of the two last passes, once. The order depends on the CPU, the count of directories
//! that it made, and what the AGs have; no lane stores to a cache line of another.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use base::AgNumber;
use base::percpu::PerCpu;

/// What is known of an AG without its locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgSummary {
    /// Free inodes.
    pub free_inodes: u32,
    /// Free blocks, without those that are kept back.
    pub free_blocks: u32,
    /// The longest free extent.
    pub longest: u32,
}

/// What a new inode needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeNeeds {
    /// The fewest blocks that inodes come in.
    pub chunk: u32,
    /// Blocks that may be lost to alignment.
    pub slack: u32,
    /// Blocks that the file itself will soon want.
    pub file: u32,
    /// Whether new chunks may be allocated, or only free inodes taken.
    pub may_grow: bool,
}

/// How hard is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SelectPass {
    /// Only AGs of the own lane that nobody holds and that have their share of free space. For directories.
    Preferred,
    /// Any AG that nobody holds, with room to spare.
    Any,
    /// Any AG that can possibly do, waiting for its lock.
    Last,
}

impl SelectPass {
    /// The passes in turn.
    pub const ALL: [Self; 3] = [Self::Preferred, Self::Any, Self::Last];

    /// Whether an AG will probably do.
    pub fn accepts(self, offer: &AgSummary, need: &InodeNeeds, average: u32) -> bool {
        let fair = self != Self::Preferred || offer.free_blocks >= average - average / 8;
        if offer.free_inodes > 0 {
            return fair;
        }
        let slack = if self == Self::Last { 0 } else { need.slack };
        let room = u64::from(offer.free_blocks) >= u64::from(need.chunk + slack) + u64::from(need.file);
        fair && need.may_grow && room && offer.longest >= need.chunk + slack
    }
}

/// Deals directories to AGs.
#[derive(Debug)]
pub struct AgRotor {
    turns: PerCpu<AtomicU32>,
    /// No more than there are.
    ags: AtomicU32,
}

impl AgRotor {
    /// For a volume of `ags` AGs that is used by `cpus` CPUs. Both are taken as at least 1.
    pub fn new(cpus: usize, ags: u32) -> Self {
        Self { turns: PerCpu::new(cpus, |_| AtomicU32::new(0)), ags: ags.max(1).into() }
    }

    /// There are so many AGs from now on.
    pub fn grow(&self, ags: u32) {
        self.ags.store(ags.max(1), Relaxed);
    }

    fn lanes(&self, ags: u32) -> u32 {
        u32::try_from(self.turns.slots()).map_or(ags, |slots| slots.min(ags))
    }

    /// The turn of a new directory: where to look for an AG, pass by pass.
    pub fn turn(&self) -> AgOrder {
        let (slot, turns) = self.turns.local();
        let ags = self.ags.load(Relaxed);
        let lanes = self.lanes(ags);
        let lane = slot as u32 % lanes; // slots are as few as CPUs
        let of_lane = (ags - lane).div_ceil(lanes);
        // A thread may move to another CPU in between: then two directories have the same turn, and nothing is lost.
        let turn = turns.load(Relaxed);
        turns.store(turn.wrapping_add(1), Relaxed);
        AgOrder { start: lane + turn % of_lane * lanes, lane, lanes, of_lane, ags }
    }

    /// The same for a file whose directory lies in `ag`.
    pub fn near(&self, ag: AgNumber) -> AgOrder {
        let ags = self.ags.load(Relaxed);
        AgOrder { start: ag.get().min(ags - 1), lane: 0, lanes: ags, of_lane: 0, ags }
    }
}

/// Where to look for an AG.
#[derive(Clone, Copy, Debug)]
pub struct AgOrder {
    start: u32,
    lane: u32,
    lanes: u32,
    /// AGs of the lane; 0 for files, which have none.
    of_lane: u32,
    ags: u32,
}

impl AgOrder {
    /// The AGs of a pass, in the order in which they are asked.
    pub fn ags(self, pass: SelectPass) -> impl Iterator<Item = AgNumber> {
        let first = (self.start - self.lane) / self.lanes;
        let lane = (0..self.of_lane).map(move |n| self.lane + (first + n) % self.of_lane * self.lanes);
        // Ascending from the start: two threads that found all AGs busy do not run in step.
        let all =
            (0..self.ags).map(move |n| ((u64::from(self.start) + u64::from(n)) % u64::from(self.ags)) as u32);
        let (lane, all) = if pass == SelectPass::Preferred { (Some(lane), None) } else { (None, Some(all)) };
        lane.into_iter().flatten().chain(all.into_iter().flatten()).map(AgNumber)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::percpu::override_current;

    fn preferred(rotor: &AgRotor, cpu: usize) -> Vec<u32> {
        override_current(Some(cpu));
        let ags = rotor.turn().ags(SelectPass::Preferred).map(AgNumber::get).collect();
        override_current(None);
        ags
    }

    #[test]
    fn cpus_go_round_lanes_of_their_own() {
        let rotor = AgRotor::new(2, 5);
        assert_eq!(preferred(&rotor, 0), [0, 2, 4]);
        assert_eq!(preferred(&rotor, 1), [1, 3]);
        assert_eq!(preferred(&rotor, 0), [2, 4, 0]);
        assert_eq!(preferred(&rotor, 1), [3, 1]);
        assert_eq!(preferred(&rotor, 0), [4, 0, 2]);
        assert_eq!(preferred(&rotor, 0), [0, 2, 4]);
    }

    #[test]
    fn no_two_cpus_share_an_ag_where_there_are_enough() {
        for (cpus, ags) in [(1, 1), (2, 4), (3, 8), (8, 8), (7, 32)] {
            let rotor = AgRotor::new(cpus, ags);
            let mut seen: Vec<u32> = (0..cpus).flat_map(|cpu| preferred(&rotor, cpu)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..ags).collect::<Vec<_>>(), "{cpus} CPUs, {ags} AGs");
        }
    }

    #[test]
    fn with_more_cpus_than_ags_each_has_one() {
        let rotor = AgRotor::new(32, 4);
        for cpu in 0..32 {
            assert_eq!(preferred(&rotor, cpu), [cpu as u32 % 4]);
        }
    }

    #[test]
    fn later_passes_ask_every_ag_once_and_files_begin_at_their_directory() {
        let rotor = AgRotor::new(2, 4);
        let turn = rotor.near(AgNumber(2));
        assert_eq!(turn.ags(SelectPass::Preferred).count(), 0);
        for pass in [SelectPass::Any, SelectPass::Last] {
            assert_eq!(turn.ags(pass).map(AgNumber::get).collect::<Vec<_>>(), [2, 3, 0, 1]);
        }
        assert_eq!(AgRotor::new(2, 0).near(AgNumber(7)).ags(SelectPass::Any).count(), 1);
    }

    #[test]
    fn an_ag_without_its_share_waits_for_a_later_pass() {
        let need = InodeNeeds { chunk: 4, slack: 8, file: 1, may_grow: true };
        let offer = |free_inodes, free_blocks, longest| AgSummary { free_inodes, free_blocks, longest };
        assert!(SelectPass::Preferred.accepts(&offer(0, 900, 900), &need, 1000));
        assert!(!SelectPass::Preferred.accepts(&offer(5, 800, 800), &need, 1000));
        assert!(SelectPass::Any.accepts(&offer(5, 0, 0), &need, 1000));
        assert!(!SelectPass::Any.accepts(&offer(0, 800, 11), &need, 1000), "alignment may need more");
        assert!(SelectPass::Last.accepts(&offer(0, 5, 4), &need, 1000));
        assert!(!SelectPass::Last.accepts(&offer(0, 4, 4), &need, 1000), "no room for the file");
        assert!(!SelectPass::Last.accepts(&offer(0, 800, 3), &need, 1000));
        let full = InodeNeeds { may_grow: false, ..need };
        assert!(!SelectPass::Last.accepts(&offer(0, 800, 800), &full, 1000));
        assert!(SelectPass::Last.accepts(&offer(1, 0, 0), &full, 1000));
    }
}
