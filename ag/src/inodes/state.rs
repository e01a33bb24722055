//! In-core inode counts, per AG and per volume.
//!
//! # Invariants
//! The counts of an AG are those of its AGI, as of the last holder of the AGI's lock; the volume's are the sums over
//! all AGs while nothing changes. Both change together with the AGI's bytes, before the commit: cancelling the change
//! afterwards shuts the volume down.

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

/// Options of inode allocation.
#[derive(Clone, Debug)]
pub struct InodeOptions {
    /// Maximum share of the volume for inodes, in percent (`imax_pct`); 0 for all of it.
    pub percent: u8,
    /// Stripe unit in blocks; 0 without one.
    pub stripe_unit: u32,
    /// Number of CPUs for per-CPU state.
    pub cpus: usize,
    /// Random source of inode generations.
    pub random: Arc<Random>,
}

impl InodeOptions {
    /// The superblock's options; the rest are defaults.
    pub fn of(superblock: &RawSuperblock) -> Self {
        Self { percent: superblock.imax_pct, stripe_unit: superblock.unit.get(), ..Self::default() }
    }
}

impl Default for InodeOptions {
    fn default() -> Self {
        Self {
            percent: 0,
            stripe_unit: 0,
            cpus: percpu::available(),
            random: Arc::new(Random::from_machine()),
        }
    }
}

/// In-core inode state of one AG, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub struct AgInodeState {
    count: AtomicU32,
    free: AtomicU32,
    /// Where the last search without a finobt gave up. Used by the holder of the AGI.
    memory: SpinLock<Option<SearchResume>>,
    /// The chunk of the last inode.
    current: SpinLock<Option<CachedChunk>>,
    /// Location of the last record that a search found in the inobt: the next is usually in the same leaf. Used by the
    /// holder of the AGI.
    leaf: SpinLock<RecordHint>,
    /// The AGI's buffer.
    header: SpinLock<Weak<Buffer>>,
}

impl Default for AgInodeState {
    /// The state before the AGI is read.
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
    /// Allocated inodes, free or in use.
    pub fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// Free inodes.
    pub fn free(&self) -> u32 {
        self.free.load(Relaxed)
    }

    /// Copies the AGI's counts; the caller holds its lock.
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

    /// Takes the cached chunk out; it is dropped unless it is put back.
    pub(super) fn take_cached_chunk(&self) -> Option<CachedChunk> {
        self.current.lock().take()
    }

    /// Drops the cached chunk: a search may find another one.
    pub(super) fn forget_cached_chunk(&self) {
        self.take_cached_chunk();
    }

    pub(super) fn put_cached_chunk(&self, current: CachedChunk) {
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

/// Inode state of a volume.
#[derive(Debug)]
pub struct VolumeInodes {
    pub(super) shape: InodeGeometry,
    pub(super) rotor: AgRotor,
    pub(super) random: Arc<Random>,
    pub(super) numbers: ChecksummedField,
    /// Maximum levels of an inode tree.
    tree_levels: u32,
    /// Maximum share of the volume for inodes, in percent (`imax_pct`); 0 for all of it.
    percent: u8,
    /// Maximum number of inodes; more if there were more when the volume was opened.
    most: AtomicU64,
    /// Inodes that may still be created. Counted instead of the existing ones, so that a CPU that allocates a chunk
    /// need not sum over all others.
    creatable: Counter,
    free: Counter,
    /// Average number of free blocks per AG, as cached by each CPU.
    averages: PerCpu<AverageFree>,
}

#[derive(Debug, Default)]
struct AverageFree {
    blocks: AtomicU32,
    /// Remaining uses.
    uses: AtomicU32,
}

/// Number of directories after which the average is computed again: that reads every AG.
const AVERAGE_USES: u32 = 64;

/// Inode counts of a volume, for `statfs` and display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeCounts {
    /// Allocated inodes, free or in use.
    pub allocated: u64,
    /// Free inodes.
    pub free: u64,
    /// Maximum number of inodes.
    pub most: u64,
}

impl InodeCounts {
    /// Number of files that the volume can hold with `free_blocks` free blocks: `f_files` of `statfs`.
    pub fn files(&self, geometry: &Geometry, free_blocks: u64) -> u64 {
        let possible = free_blocks << geometry.inodes_per_block_log;
        self.allocated.saturating_add(possible).min(self.most).max(self.allocated)
    }
}

impl VolumeInodes {
    /// Inode state of a volume with these AGs.
    ///
    /// # Errors
    /// Damage: the alignments in the superblock are invalid.
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
            numbers: number_field(geometry),
            tree_levels: MaxBtreeSizes::derive(geometry).inodes.levels,
            percent: options.percent,
            most: most.into(),
            creatable: Counter::new(most - allocated),
            free: Counter::new(free),
            averages: PerCpu::new(options.cpus, |_| AverageFree::default()),
        })
    }

    /// Inode geometry.
    pub fn geometry(&self) -> &InodeGeometry {
        &self.shape
    }

    /// Maximum levels of an inode tree.
    pub(super) fn tree_levels(&self) -> u32 {
        self.tree_levels
    }

    /// Current counts; exact while nothing changes.
    pub fn counts(&self) -> InodeCounts {
        let most = self.most.load(Relaxed);
        InodeCounts { allocated: most - self.creatable.sum().min(most), free: self.free.sum(), most }
    }

    /// Adjusts to the size in `geometry` and to `ag_count` AGs; one caller at a time.
    pub(crate) fn resize(&self, geometry: &Geometry, ag_count: u32) {
        let (before, now) = (self.most.load(Relaxed), most_inodes(geometry, self.percent));
        // There may be more inodes than the new maximum: then no more can be created, as when such a volume is opened.
        if let Some(more) = now.checked_sub(before) {
            self.most.store(now, Relaxed);
            self.creatable.add(more);
        } else {
            let less = (before - now).min(self.creatable.sum());
            if self.creatable.try_sub(less) {
                self.most.store(before - less, Relaxed);
            }
        }
        self.rotor.grow(ag_count);
    }

    /// Claims `count` of the inodes that may still be created; `false` if there are fewer.
    pub(super) fn claim(&self, count: u32) -> bool {
        self.creatable.try_sub(count.into())
    }

    /// Returns claimed inodes that were not created, or were removed.
    pub(super) fn unclaim(&self, count: u32) {
        self.creatable.add(count.into());
    }

    /// Adds free inodes.
    pub(super) fn add_free(&self, count: u32) {
        self.free.add(count.into());
    }

    /// Subtracts free inodes. An AGI had them, and the counter is the sum over all AGIs, so it has them too.
    pub(super) fn sub_free(&self, count: u32) {
        let had = self.free.try_sub(count.into());
        debug_assert!(had, "more inodes taken than were free");
    }

    /// Average number of free blocks per AG: this CPU's cached value, or computed by `find`.
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
    fn counts_follow_changes_up_to_the_limit() {
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
    fn a_volume_above_its_maximum_can_create_none() {
        let geometry = testing::geometry();
        let options = InodeOptions { percent: 1, ..InodeOptions::default() };
        let volume = VolumeInodes::new(&geometry, &options, [ag(6400, 1)].iter()).unwrap();
        assert!(!volume.claim(1));
        assert_eq!(volume.counts().allocated, 6400);
    }

    #[test]
    fn statfs_counts_possible_inodes_and_at_least_existing_ones() {
        let geometry = testing::geometry();
        let counts = InodeCounts { allocated: 640, free: 40, most: 1000 };
        assert_eq!(counts.files(&geometry, 10), 720);
        assert_eq!(counts.files(&geometry, 1000), 1000);
        assert_eq!(InodeCounts { most: 64, ..counts }.files(&geometry, 1000), 640);
    }

    #[test]
    fn an_average_is_cached_for_a_number_of_uses() {
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
