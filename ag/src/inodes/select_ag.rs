//! Selecting the AG of a new inode.
//!
//! A file goes to its directory's AG, for locality. A directory goes to another AG than the previous directory, so that
//! AGs fill evenly, and different CPUs create directories in different AGs: files follow, and the CPUs do not contend
//! for an AG's headers and trees.
//!
//! The AGs are divided into *lanes*, one for each CPU as far as there are AGs: AG `n` belongs to lane `n` modulo the
//! number of lanes. A CPU rotates through its own lane, skips AGs that have less free space than the average or whose
//! header is locked, and leaves the lane only if no AG in it is suitable.
//!
//! # Invariants
//! Each of the last two passes tries every AG once. The order depends on the CPU, on the number of directories it has
//! created, and on the AGs' free space; no lane writes to a cache line of another.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use base::AgNumber;
use base::percpu::PerCpu;

/// In-core summary of an AG, read without its locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgSummary {
    /// Free inodes.
    pub free_inodes: u32,
    /// Free blocks for users.
    pub free_blocks: u32,
    /// Longest free extent.
    pub longest: u32,
}

/// Requirements of a new inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeNeeds {
    /// Minimum number of blocks of a chunk allocation.
    pub chunk: u32,
    /// Blocks that may be lost to alignment.
    pub slack: u32,
    /// Blocks that the file will soon need.
    pub file: u32,
    /// Whether a new chunk may be allocated.
    pub may_grow: bool,
}

/// Passes over the AGs, from strict to lenient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SelectPass {
    /// Only AGs of the own lane that are not locked and have their share of free space. For directories.
    Preferred,
    /// Any AG that is not locked and has enough space.
    Any,
    /// Any AG that may have space; waits for its lock.
    Last,
}

impl SelectPass {
    /// The passes in order.
    pub const ALL: [Self; 3] = [Self::Preferred, Self::Any, Self::Last];

    /// Whether an AG is probably suitable.
    pub fn accepts(self, offer: &AgSummary, need: &InodeNeeds, average: u32) -> bool {
        let fair = self != Self::Preferred || offer.free_blocks >= average - average / 8;
        if offer.free_inodes > 0 {
            return fair;
        }
        let slack = if self == Self::Last { 0 } else { need.slack };
        let fits = u64::from(offer.free_blocks) >= u64::from(need.chunk + slack) + u64::from(need.file);
        fair && need.may_grow && fits && offer.longest >= need.chunk + slack
    }
}

/// Distributes directories over AGs.
#[derive(Debug)]
pub struct AgRotor {
    rotations: PerCpu<AtomicU32>,
    /// Number of AGs; it only lags behind.
    ags: AtomicU32,
}

impl AgRotor {
    /// For a volume of `ags` AGs that is used by `cpus` CPUs; both count as at least 1.
    pub fn new(cpus: usize, ags: u32) -> Self {
        Self { rotations: PerCpu::new(cpus, |_| AtomicU32::new(0)), ags: ags.max(1).into() }
    }

    /// Sets the number of AGs.
    pub fn grow(&self, ags: u32) {
        self.ags.store(ags.max(1), Relaxed);
    }

    fn lanes(&self, ags: u32) -> u32 {
        u32::try_from(self.rotations.slots()).map_or(ags, |slots| slots.min(ags))
    }

    /// The AG order for a new directory.
    pub fn next_directory(&self) -> AgOrder {
        let (slot, rotations) = self.rotations.local();
        let ags = self.ags.load(Relaxed);
        let lanes = self.lanes(ags);
        let lane = slot as u32 % lanes; // slots are as few as CPUs
        let of_lane = (ags - lane).div_ceil(lanes);
        // A thread may move to another CPU in between: then two directories have the same order, which is harmless.
        let order = rotations.load(Relaxed);
        rotations.store(order.wrapping_add(1), Relaxed);
        AgOrder { start: lane + order % of_lane * lanes, lane, lanes, of_lane, ags }
    }

    /// The AG order for a file whose directory lies in `ag`.
    pub fn for_file(&self, ag: AgNumber) -> AgOrder {
        let ags = self.ags.load(Relaxed);
        AgOrder { start: ag.get().min(ags - 1), lane: 0, lanes: ags, of_lane: 0, ags }
    }
}

/// Order in which AGs are tried.
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
    /// The AGs of a pass, in order.
    pub fn ags(self, pass: SelectPass) -> impl Iterator<Item = AgNumber> {
        let first = (self.start - self.lane) / self.lanes;
        let lane = (0..self.of_lane).map(move |n| self.lane + (first + n) % self.of_lane * self.lanes);
        // Ascending from the start: two threads that found all AGs locked do not run in step.
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
        let ags = rotor.next_directory().ags(SelectPass::Preferred).map(AgNumber::get).collect();
        override_current(None);
        ags
    }

    #[test]
    fn each_cpu_rotates_through_its_lane() {
        let rotor = AgRotor::new(2, 5);
        assert_eq!(preferred(&rotor, 0), [0, 2, 4]);
        assert_eq!(preferred(&rotor, 1), [1, 3]);
        assert_eq!(preferred(&rotor, 0), [2, 4, 0]);
        assert_eq!(preferred(&rotor, 1), [3, 1]);
        assert_eq!(preferred(&rotor, 0), [4, 0, 2]);
        assert_eq!(preferred(&rotor, 0), [0, 2, 4]);
    }

    #[test]
    fn cpus_share_no_ag_if_there_are_enough() {
        for (cpus, ags) in [(1, 1), (2, 4), (3, 8), (8, 8), (7, 32)] {
            let rotor = AgRotor::new(cpus, ags);
            let mut seen: Vec<u32> = (0..cpus).flat_map(|cpu| preferred(&rotor, cpu)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..ags).collect::<Vec<_>>(), "{cpus} CPUs, {ags} AGs");
        }
    }

    #[test]
    fn with_more_cpus_than_ags_each_cpu_has_an_ag() {
        let rotor = AgRotor::new(32, 4);
        for cpu in 0..32 {
            assert_eq!(preferred(&rotor, cpu), [cpu as u32 % 4]);
        }
    }

    #[test]
    fn later_passes_try_every_ag_once_from_the_directorys() {
        let rotor = AgRotor::new(2, 4);
        let order = rotor.for_file(AgNumber(2));
        assert_eq!(order.ags(SelectPass::Preferred).count(), 0);
        for pass in [SelectPass::Any, SelectPass::Last] {
            assert_eq!(order.ags(pass).map(AgNumber::get).collect::<Vec<_>>(), [2, 3, 0, 1]);
        }
        assert_eq!(AgRotor::new(2, 0).for_file(AgNumber(7)).ags(SelectPass::Any).count(), 1);
    }

    #[test]
    fn an_ag_below_the_average_is_left_to_later_passes() {
        let need = InodeNeeds { chunk: 4, slack: 8, file: 1, may_grow: true };
        let offer = |free_inodes, free_blocks, longest| AgSummary { free_inodes, free_blocks, longest };
        assert!(SelectPass::Preferred.accepts(&offer(0, 900, 900), &need, 1000));
        assert!(!SelectPass::Preferred.accepts(&offer(5, 800, 800), &need, 1000));
        assert!(SelectPass::Any.accepts(&offer(5, 0, 0), &need, 1000));
        assert!(!SelectPass::Any.accepts(&offer(0, 800, 11), &need, 1000), "alignment may need more");
        assert!(SelectPass::Last.accepts(&offer(0, 5, 4), &need, 1000));
        assert!(!SelectPass::Last.accepts(&offer(0, 4, 4), &need, 1000), "no space for the file");
        assert!(!SelectPass::Last.accepts(&offer(0, 800, 3), &need, 1000));
        let full = InodeNeeds { may_grow: false, ..need };
        assert!(!SelectPass::Last.accepts(&offer(0, 800, 800), &full, 1000));
        assert!(SelectPass::Last.accepts(&offer(1, 0, 0), &full, 1000));
    }
}
