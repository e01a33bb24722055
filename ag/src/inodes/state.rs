//! What is kept in memory about inodes: per AG, and per volume.
//!
//! # Invariants
//! The counts of an AG are those of its AGI, as of the last holder of the AGI's lock; the volume's are the sums of all
//! AGs while nobody changes them. Both change together with the AGI's bytes, before the commit: a change that is given
//! up afterwards shuts the volume down.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use base::lock::{Rank, SpinLock};
use base::percpu::{self, Counter, PerCpu};
use base::random::Random;
use format::Damage;
use format::checksum::ChecksummedField;
use format::geometry::Geometry;
use format::superblock::RawSuperblock;
use journal::engine::Buffer;

use super::cached_chunk::CachedChunk;
use super::geometry::{InodeGeometry, most_inodes};
use super::init::number_field;
use super::search::SearchResume;
use super::select_ag::AgRotor;
use crate::btree::RecordHint;
use crate::log_costs::MaxBtreeSizes;

/// How inodes are allocated and freed.
#[derive(Clone, Debug)]
pub struct InodeOptions {
    /// The share of the volume that inodes may take, in percent; 0 for all of it.
    pub percent: u8,
    /// The stripe unit in blocks; 0 without one.
    pub stripe_unit: u32,
    /// InodeBtreeCursor stay when their last inode is freed: the option `ikeep`.
    pub keep_chunks: bool,
    /// How many CPUs are told apart.
    pub cpus: usize,
    /// Where generations come from.
    pub random: Arc<Random>,
}

impl InodeOptions {
    /// What the superblock says; the rest as by default.
    pub fn of(superblock: &RawSuperblock) -> Self {
        Self { percent: superblock.imax_pct, stripe_unit: superblock.unit.get(), ..Self::default() }
    }
}

impl Default for InodeOptions {
    fn default() -> Self {
        Self {
            percent: 0,
            stripe_unit: 0,
            keep_chunks: false,
            cpus: percpu::available(),
            random: Arc::new(Random::from_machine()),
        }
    }
}

/// One AG's inodes. Lies on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub struct AgInodeState {
    count: AtomicU32,
    free: AtomicU32,
    /// Where the last search without a free inode tree gave up. Taken by who holds the AGI.
    memory: SpinLock<Option<SearchResume>>,
    /// The chunk that gave the last inode.
    current: SpinLock<Option<CachedChunk>>,
    /// Where the last chunk that was searched for stands in the inode tree: the next mostly stands in the same leaf.
    /// Taken by who holds the AGI.
    leaf: SpinLock<RecordHint>,
    /// The AGI's buffer, as it was last found.
    header: SpinLock<Weak<Buffer>>,
}

impl Default for AgInodeState {
    /// As before the AGI was read.
    fn default() -> Self {
        Self {
            count: AtomicU32::new(0),
            free: AtomicU32::new(0),
            memory: SpinLock::new(Rank::Leaf, None),
            current: SpinLock::new(Rank::Leaf, None),
            leaf: SpinLock::new(Rank::Leaf, RecordHint::default()),
            header: SpinLock::new(Rank::Leaf, Weak::new()),
        }
    }
}

impl AgInodeState {
    /// Inodes that exist, free or in use.
    pub fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// Free inodes.
    pub fn free(&self) -> u32 {
        self.free.load(Relaxed)
    }

    /// Takes over what the AGI says now; the caller holds its lock.
    pub(crate) fn set(&self, count: u32, free: u32) {
        self.count.store(count, Relaxed);
        self.free.store(free, Relaxed);
    }

    pub(super) fn memory(&self) -> Option<SearchResume> {
        *self.memory.lock()
    }

    pub(super) fn remember(&self, memory: Option<SearchResume>) {
        *self.memory.lock() = memory;
    }

    /// Takes the current chunk out: it is forgotten unless it is put back.
    pub(super) fn take_current(&self) -> Option<CachedChunk> {
        self.current.lock().take()
    }

    /// Another chunk may be the one that a search finds.
    pub(super) fn forget_current(&self) {
        self.take_current();
    }

    pub(super) fn put_current(&self, current: CachedChunk) {
        *self.current.lock() = Some(current);
    }

    pub(super) fn take_leaf(&self) -> RecordHint {
        std::mem::take(&mut *self.leaf.lock())
    }

    pub(super) fn put_leaf(&self, leaf: RecordHint) {
        *self.leaf.lock() = leaf;
    }

    pub(super) fn header(&self) -> Option<Arc<Buffer>> {
        self.header.lock().upgrade()
    }

    pub(super) fn set_header(&self, buffer: &Arc<Buffer>) {
        *self.header.lock() = Arc::downgrade(buffer);
    }
}

/// The inodes of a volume.
#[derive(Debug)]
pub struct VolumeInodes {
    pub(super) shape: InodeGeometry,
    pub(super) rotor: AgRotor,
    pub(super) random: Arc<Random>,
    pub(super) keep_chunks: bool,
    pub(super) numbers: ChecksummedField,
    /// The most levels of an inode tree.
    tree_levels: u32,
    /// The share of the volume that inodes may take, in percent; 0 for all of it.
    percent: u8,
    /// The most that there may be; more, if there were more when the volume was opened.
    most: AtomicU64,
    /// Inodes that may still come into being. Kept instead of those that exist, so that a CPU that makes a chunk need
    /// not ask all others how many there are.
    room: Counter,
    free: Counter,
    /// What an AG has of free blocks on average, as each CPU last found it.
    averages: PerCpu<AverageFree>,
}

#[derive(Debug, Default)]
struct AverageFree {
    blocks: AtomicU32,
    /// How often it may still be used.
    uses: AtomicU32,
}

/// An average is found anew after so many directories: finding it looks at every AG.
const AVERAGE_USES: u32 = 64;

/// The inodes of a volume in numbers: for `statfs` and people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeCounts {
    /// Inodes that exist, free or in use.
    pub allocated: u64,
    /// Free inodes.
    pub free: u64,
    /// The most there may be.
    pub most: u64,
}

impl InodeCounts {
    /// How many files the volume could hold with `free_blocks` free blocks: `f_files` of `statfs`.
    pub fn files(&self, geometry: &Geometry, free_blocks: u64) -> u64 {
        let possible = free_blocks << geometry.inodes_per_block_log;
        self.allocated.saturating_add(possible).min(self.most).max(self.allocated)
    }

    /// How many of these are still free: `f_ffree` of `statfs`.
    pub fn files_free(&self, geometry: &Geometry, free_blocks: u64) -> u64 {
        self.files(geometry, free_blocks) - self.allocated.saturating_sub(self.free)
    }
}

impl VolumeInodes {
    /// The inodes of a volume with these AGs.
    ///
    /// # Errors
    /// Damage, where no inode could be found with the alignments in the superblock.
    pub fn new<'a>(
        geometry: &Geometry,
        options: &InodeOptions,
        ags: impl Iterator<Item = &'a AgInodeState>,
    ) -> Result<Self, Damage> {
        let (allocated, free) = ags.fold((0, 0), |(allocated, free), ag| {
            (allocated + u64::from(ag.count()), free + u64::from(ag.free()))
        });
        let most = most_inodes(geometry, options.percent).max(allocated);
        Ok(Self {
            shape: InodeGeometry::derive(geometry)?.on_stripe(options.stripe_unit),
            rotor: AgRotor::new(options.cpus, geometry.ag_count()),
            random: Arc::clone(&options.random),
            keep_chunks: options.keep_chunks,
            numbers: number_field(geometry),
            tree_levels: MaxBtreeSizes::derive(geometry).inodes.levels,
            percent: options.percent,
            most: most.into(),
            room: Counter::new(most - allocated),
            free: Counter::new(free),
            averages: PerCpu::new(options.cpus, |_| AverageFree::default()),
        })
    }

    /// The shape of chunks and clusters.
    pub fn shape(&self) -> &InodeGeometry {
        &self.shape
    }

    /// The most levels that an inode tree can have.
    pub(super) fn tree_levels(&self) -> u32 {
        self.tree_levels
    }

    /// The volume's counts now; exact while nobody changes them.
    pub fn counts(&self) -> InodeCounts {
        let most = self.most.load(Relaxed);
        InodeCounts { allocated: most - self.room.sum().min(most), free: self.free.sum(), most }
    }

    /// The volume has the size now that `geometry` says, and AGs as many as `ag_count`; one caller at a time.
    pub(crate) fn resize(&self, geometry: &Geometry, ag_count: u32) {
        let (before, now) = (self.most.load(Relaxed), most_inodes(geometry, self.percent));
        // What there is already may be more than there should be: then there is no room, as when a volume is opened.
        if let Some(more) = now.checked_sub(before) {
            self.most.store(now, Relaxed);
            self.room.add(more);
        } else {
            let less = (before - now).min(self.room.sum());
            if self.room.try_sub(less) {
                self.most.store(before - less, Relaxed);
            }
        }
        self.rotor.grow(ag_count);
    }

    /// Takes from the number of inodes that may still come into being, if it is so large.
    pub(super) fn claim(&self, count: u32) -> bool {
        self.room.try_sub(count.into())
    }

    /// Inodes went, or did not come into being.
    pub(super) fn unclaim(&self, count: u32) {
        self.room.add(count.into());
    }

    /// More inodes are free.
    pub(super) fn add_free(&self, count: u32) {
        self.free.add(count.into());
    }

    /// Fewer inodes are free. An AGI had them, and the counter is the sum of all AGIs: so it has them, too.
    pub(super) fn sub_free(&self, count: u32) {
        let had = self.free.try_sub(count.into());
        debug_assert!(had, "more inodes taken than were free");
    }

    /// The free blocks of an AG on average: as this CPU knows it, or by `find`.
    pub(super) fn average(&self, find: impl FnOnce() -> u32) -> u32 {
        let (_, average) = self.averages.local();
        match average.uses.load(Relaxed).checked_sub(1) {
            Some(left) => average.uses.store(left, Relaxed),
            None => {
                average.blocks.store(find(), Relaxed);
                average.uses.store(AVERAGE_USES, Relaxed);
            }
        }
        average.blocks.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inodes::testing;

    fn ag(count: u32, free: u32) -> AgInodeState {
        let ag = AgInodeState::default();
        ag.set(count, free);
        ag
    }

    #[test]
    fn counts_follow_changes_and_know_the_limit() {
        let geometry = testing::geometry();
        let options = InodeOptions { percent: 50, ..InodeOptions::default() };
        let volume = VolumeInodes::new(&geometry, &options, [ag(64, 10), ag(128, 5)].iter()).unwrap();
        assert_eq!(volume.counts(), InodeCounts { allocated: 192, free: 15, most: 4096 * 8 });
        assert!(volume.claim(64));
        volume.add_free(64);
        volume.sub_free(1);
        assert_eq!(volume.counts(), InodeCounts { allocated: 256, free: 78, most: 4096 * 8 });
        volume.unclaim(64);
        assert!(!volume.claim(4096 * 8 - 191));
        assert!(volume.claim(4096 * 8 - 192));
        assert_eq!(volume.counts().allocated, 4096 * 8);
    }

    #[test]
    fn a_volume_that_has_more_than_it_may_has_no_room() {
        let geometry = testing::geometry();
        let options = InodeOptions { percent: 1, ..InodeOptions::default() };
        let volume = VolumeInodes::new(&geometry, &options, [ag(6400, 1)].iter()).unwrap();
        assert!(!volume.claim(1));
        assert_eq!(volume.counts().allocated, 6400);
    }

    #[test]
    fn statfs_counts_what_could_be_but_never_less_than_what_is() {
        let geometry = testing::geometry();
        let counts = InodeCounts { allocated: 640, free: 40, most: 1000 };
        assert_eq!(counts.files(&geometry, 10), 720);
        assert_eq!(counts.files_free(&geometry, 10), 120);
        assert_eq!(counts.files(&geometry, 1000), 1000);
        assert_eq!(InodeCounts { most: 64, ..counts }.files(&geometry, 1000), 640);
    }

    #[test]
    fn an_average_is_kept_for_a_while() {
        let geometry = testing::geometry();
        let volume =
            VolumeInodes::new(&geometry, &InodeOptions { cpus: 1, ..Default::default() }, [].iter()).unwrap();
        assert_eq!(volume.average(|| 7), 7);
        for _ in 0..AVERAGE_USES {
            assert_eq!(volume.average(|| 8), 7);
        }
        assert_eq!(volume.average(|| 8), 8);
    }
}
