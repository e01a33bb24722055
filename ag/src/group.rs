//! In-core state of the allocation groups, and their locked headers.
//!
//! # Invariants
//! - The counters of a [`Group`] are those of its AGF and AGI after the last change under their locks. Read without
//!   these locks they are hints.
//! - `Groups::free` holds the blocks that users may still reserve: the contributions of all groups
//!   ([`contribution`](crate::space::contribution)), less what is reserved.
//!
//! # Locking
//! A [`LockedAg`] is proof that the transaction holds the AGF. Busy and claimed extents have a lock of rank `Group`,
//! which is held for a lookup.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use base::lock::{Mutex, Rank, might_lock};
use base::percpu::Counter;
use base::{AgBlock, AgNumber, AppendList, FsBlock};
use error::{Error, Result};
use format::agf::RawAgf;
use format::agfl::{self, Agfl, RawAgfl};
use format::ondisk::{OnDisk, U32};
use format::{Damage, Geometry, Place};
use journal::engine::BusyExtentHook;
use journal::engine::{BufferId, BusyExtent, DiskExtent, Transaction};

use crate::faults::Faults;
use crate::inodes::{AgInodeState, InodeOptions, VolumeInodes};
use crate::space::block_reservation::{AgReservation, BlockReservation};
use crate::space::busy::UnusableBlocks;
use crate::space::contribution::WorstCase;

/// Offset of a field of the AGF.
macro_rules! agf {
    ($field:ident) => {
        std::mem::offset_of!(format::agf::RawAgf, $field)
    };
}
pub(crate) use agf;

/// In-core state of an allocation group.
#[derive(Debug)]
pub struct Group {
    /// AG number.
    pub ag: AgNumber,
    /// Geometry of the volume.
    pub geometry: Arc<Geometry>,
    /// The volume's counter of free blocks.
    pub(crate) free: Arc<Counter>,
    pub(crate) freeblks: AtomicU32,
    pub(crate) longest: AtomicU32,
    pub(crate) flcount: AtomicU32,
    pub(crate) btreeblks: AtomicU32,
    /// In-core inode state.
    pub(crate) inodes: AgInodeState,
    /// Reservation for the finobt and refcountbt, whose blocks come from free space.
    pub(crate) metadata_reservation: AgReservation,
    /// Reservation for the rmapbt, whose blocks come from the AGFL.
    pub(crate) rmap_reservation: AgReservation,
    /// Worst-case sizes of the AG's trees.
    pub(crate) worst: WorstCase,
    /// The AG's contribution to the volume's counter, reserved blocks included. Changed only under the AGF.
    pub(crate) contributed: AtomicU32,
    /// Free blocks of a longer AG that are not yet available.
    pub(crate) withheld: AtomicU32,
    /// Blocks that left the AGFL and that a deferred operation is about to free.
    pub(crate) trimmed: AtomicU32,
    /// Busy and claimed extents.
    pub(crate) unusable: Mutex<UnusableBlocks>,
    /// Number of busy extents, readable without the lock.
    pub(crate) busy_count: AtomicU32,
    /// Number of claimed blocks, readable without the lock; never less than the claims hold.
    pub(crate) claimed: AtomicU32,
    /// Number of times that busy or claimed extents were released.
    pub(crate) released: AtomicU64,
    pub(crate) faults: Arc<Faults>,
}

/// The allocation groups of a volume.
#[derive(Debug)]
pub struct Groups {
    pub(crate) geometry: Arc<Geometry>,
    pub(crate) groups: AppendList<Arc<Group>>,
    pub(crate) free: Arc<Counter>,
    pub(crate) inodes: VolumeInodes,
    pub(crate) faults: Arc<Faults>,
}

/// An allocation group whose AGF and AGFL are locked by a transaction.
#[derive(Clone, Copy, Debug)]
pub struct LockedAg<'g> {
    /// Allocation group.
    pub group: &'g Arc<Group>,
    /// Buffer of the AGF.
    pub agf: BufferId,
    /// Buffer of the AGFL.
    pub agfl: BufferId,
}

impl Groups {
    /// Reads the headers of every AG. The transaction changes nothing and holds no buffer afterwards.
    ///
    /// # Errors
    /// I/O errors; damaged headers.
    pub fn open(tx: &mut Transaction, geometry: &Geometry, options: &InodeOptions) -> Result<Self> {
        let geometry = Arc::new(geometry.clone());
        let (free, faults) = (Arc::new(Counter::new(0)), Arc::default());
        let new = |ag| Arc::new(Group::new(ag, &geometry, (&free, &faults)));
        let groups: Box<[_]> = geometry.ags().map(new).collect();
        let mut usable = 0u64;
        for group in &groups {
            usable += group.load(tx)?;
        }
        free.add(usable);
        let inodes = VolumeInodes::new(&geometry, options, groups.iter().map(|group| &group.inodes))
            .map_err(|damage| Error::damaged(Place::default(), damage))?;
        Ok(Self { groups: AppendList::new(groups), geometry, free, inodes, faults })
    }

    /// Geometry of the volume.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The group of an AG number.
    pub fn get(&self, ag: AgNumber) -> Option<&Arc<Group>> {
        self.groups.get(ag.get() as usize)
    }

    /// All groups, in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Group>> {
        self.groups.iter()
    }

    /// Number of groups.
    pub fn count(&self) -> u32 {
        self.groups.len() as u32 // AGs have 32 bits
    }

    /// The group of a file system block, and the block's number in the AG.
    ///
    /// # Errors
    /// Damage: the extent is outside of the volume, or overlaps an AG's headers.
    pub fn of_block(&self, block: FsBlock, count: u32) -> Result<(&Arc<Group>, AgBlock)> {
        let found = self.geometry.split_fs_block(block).and_then(|(ag, at)| Some((self.get(ag)?, at)));
        let usable = |(group, at): &(&Arc<Group>, AgBlock)| group.holds(*at, count);
        found.filter(usable).ok_or_else(|| {
            let expected = "blocks within one AG, after its headers";
            let found = format_args!("{block:#x} for {count} blocks");
            Error::damaged(Place::default(), Damage::new("extent", "startblock", expected, found))
        })
    }

    /// Reserves blocks of the volume, in any AG.
    ///
    /// # Errors
    /// No space.
    pub fn reserve_blocks(&self, count: u32) -> Result<BlockReservation<'_>> {
        BlockReservation::take(&self.free, count)
    }

    /// A reservation of blocks that were detached from another one with [`BlockReservation::detach`].
    pub fn attach_blocks(&self, count: u32) -> BlockReservation<'_> {
        BlockReservation::of_detached(&self.free, count)
    }

    /// Blocks that users may still reserve.
    pub fn available(&self) -> u64 {
        self.free.sum()
    }

    /// Free blocks as the superblock counts them (`fdblocks`): they include the AGFLs and the blocks of the free-space
    /// trees. Exact while the volume does not change.
    pub fn free_blocks(&self) -> u64 {
        self.groups.iter().map(|group| group.free_blocks()).sum()
    }

    /// Allocated inodes, and the free ones among them, as the superblock counts them.
    pub fn inode_counts(&self) -> (u64, u64) {
        let sum =
            |of: fn(&AgInodeState) -> u32| self.groups.iter().map(|group| u64::from(of(&group.inodes))).sum();
        (sum(AgInodeState::count), sum(AgInodeState::free))
    }

    /// Injected allocation failures, for tests.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Inode counts and inode geometry of the volume.
    pub fn inodes(&self) -> &VolumeInodes {
        &self.inodes
    }
}

impl BusyExtentHook for Groups {
    fn clear_busy(&self, extents: &[BusyExtent]) {
        for extent in extents {
            if let Ok((group, at)) = self.of_block(extent.start, extent.blocks) {
                group.clear_busy(at, extent.blocks);
            }
        }
    }
}

impl Group {
    pub(crate) fn new(
        ag: AgNumber,
        geometry: &Arc<Geometry>,
        (free, faults): (&Arc<Counter>, &Arc<Faults>),
    ) -> Self {
        Self {
            ag,
            geometry: Arc::clone(geometry),
            free: Arc::clone(free),
            freeblks: AtomicU32::new(0),
            longest: AtomicU32::new(0),
            flcount: AtomicU32::new(0),
            btreeblks: AtomicU32::new(0),
            inodes: AgInodeState::default(),
            metadata_reservation: AgReservation::default(),
            rmap_reservation: AgReservation::default(),
            worst: WorstCase::of(geometry),
            contributed: AtomicU32::new(0),
            withheld: AtomicU32::new(0),
            trimmed: AtomicU32::new(0),
            unusable: Mutex::new(Rank::Group, UnusableBlocks::default()),
            busy_count: AtomicU32::new(0),
            claimed: AtomicU32::new(0),
            released: AtomicU64::new(0),
            faults: Arc::clone(faults),
        }
    }

    /// Whether an extent lies within this AG, after its headers.
    pub fn holds(&self, at: AgBlock, count: u32) -> bool {
        let end = u64::from(at.get()) + u64::from(count);
        self.geometry.ag_block_is_usable(self.ag, at) && end <= u64::from(self.geometry.ag_length(self.ag))
    }

    /// Free blocks as the superblock counts them.
    pub fn free_blocks(&self) -> u64 {
        [&self.freeblks, &self.flcount, &self.btreeblks].iter().map(|n| u64::from(n.load(Relaxed))).sum()
    }

    /// The file system block number of a block in this AG.
    pub fn fs_block(&self, at: AgBlock) -> FsBlock {
        self.geometry.fs_block(self.ag, at)
    }

    /// Locks the AGF and AGFL, and waits for them. The transaction holds no AGF of this or a higher AG.
    ///
    /// # Errors
    /// I/O errors; damage of either header.
    #[track_caller]
    pub fn lock<'g>(self: &'g Arc<Self>, tx: &mut Transaction) -> Result<LockedAg<'g>> {
        let geometry = &*self.geometry;
        let agf = tx.read(self.sector(1), Rank::Agf(self.ag.get()), |bytes| {
            RawAgf::verify(bytes, geometry, self.ag).map(drop)
        })?;
        self.open(tx, agf)
    }

    /// Locks the AGF and AGFL; `None` if another transaction holds the AGF.
    ///
    /// # Errors
    /// See [`lock`](Self::lock).
    pub fn try_lock<'g>(self: &'g Arc<Self>, tx: &mut Transaction) -> Result<Option<LockedAg<'g>>> {
        let geometry = &*self.geometry;
        let agf = tx.try_read(self.sector(1), Rank::Agf(self.ag.get()), |bytes| {
            RawAgf::verify(bytes, geometry, self.ag).map(drop)
        })?;
        agf.map(|agf| self.open(tx, agf)).transpose()
    }

    /// Locks the AGF and AGFL for a deferred operation. The first attempt is a trylock, as earlier operations may hold
    /// the AGF of a higher AG. Later ones come first in a new transaction, and wait: the call sets `waits`.
    ///
    /// # Errors
    /// See [`lock`](Self::lock).
    #[track_caller]
    pub fn lock_for_deferred<'g>(
        self: &'g Arc<Self>,
        tx: &mut Transaction,
        waits: &mut bool,
    ) -> Result<Option<LockedAg<'g>>> {
        if std::mem::replace(waits, true) {
            return self.lock(tx).map(Some);
        }
        if tx.buffers() == 0 {
            // The second attempt may wait here.
            might_lock(Rank::Agf(self.ag.get()));
        }
        self.try_lock(tx)
    }

    fn open<'g>(self: &'g Arc<Self>, tx: &mut Transaction, agf: BufferId) -> Result<LockedAg<'g>> {
        let geometry = &*self.geometry;
        let agfl =
            tx.read(self.sector(3), Rank::Fork, |bytes| Agfl::verify(bytes, geometry, self.ag).map(drop))?;
        Ok(LockedAg { group: self, agf, agfl })
    }

    /// Disk extent of a header sector: 1 AGF, 2 AGI, 3 AGFL.
    pub fn sector(&self, sector: u32) -> DiskExtent {
        DiskExtent { daddr: self.geometry.ag_header_daddr(self.ag, sector), bytes: self.geometry.sector_size }
    }

    /// An error for damage in this AG.
    #[cold]
    pub(crate) fn damage(
        &self,
        at: AgBlock,
        (structure, field): (&'static str, &'static str),
        expected: impl std::fmt::Display,
        found: impl std::fmt::Display,
    ) -> Error {
        Error::damaged(Place::block(self.ag, at), Damage::new(structure, field, expected, found))
    }
}

impl LockedAg<'_> {
    /// Reads a 32-bit field of the AGF.
    #[inline]
    pub(crate) fn get(&self, tx: &Transaction, field: usize) -> u32 {
        tx.bytes(self.agf).get(field..).and_then(U32::view).map_or(0, |number| number.get())
    }

    /// Stores a 32-bit field of the AGF.
    #[inline]
    pub(crate) fn set(&self, tx: &mut Transaction, field: usize, value: u32) {
        tx.bytes_mut(self.agf, field..field + 4).copy_from_slice(&value.to_be_bytes());
    }

    /// Adds to a counter of the AGF, in memory too.
    pub(crate) fn adjust_counter(&self, tx: &mut Transaction, field: usize, by: i64) {
        let value = i64::from(self.get(tx, field)) + by;
        // A damaged counter saturates; the checker reports it.
        self.set(tx, field, value.clamp(0, u32::MAX.into()) as u32);
        self.refresh_counters(tx);
    }

    /// Updates the in-core counters from the AGF.
    pub(crate) fn refresh_counters(&self, tx: &Transaction) {
        let fields = [
            (&self.group.freeblks, agf!(freeblks)),
            (&self.group.longest, agf!(longest)),
            (&self.group.flcount, agf!(flcount)),
            (&self.group.btreeblks, agf!(btreeblks)),
        ];
        for (counter, field) in fields {
            counter.store(self.get(tx, field), Relaxed);
        }
    }

    /// Unlocks the unchanged buffers of this AG and of all AGs locked after it, except `kept`, the last one. Tree
    /// blocks are unlocked with their headers: a transaction that holds a tree block without its AGF would wait for an
    /// AGF whose holder waits for the block.
    ///
    /// Since this AG was locked, the transaction has joined only blocks of AGs.
    pub(crate) fn release(&self, tx: &mut Transaction, kept: Option<&Self>) {
        tx.release_joined(self.agf, kept.map(|kept| kept.agf));
    }

    /// Number of slots of the AGFL.
    pub(crate) fn slots(&self) -> u32 {
        agfl::slots(&self.group.geometry).max(1)
    }

    /// Reads a slot of the AGFL.
    pub(crate) fn slot(&self, tx: &Transaction, slot: u32) -> u32 {
        let at = RawAgfl::SIZE + 4 * slot as usize;
        tx.bytes(self.agfl).get(at..).and_then(U32::view).map_or(u32::MAX, |block| block.get())
    }

    /// Stores a slot of the AGFL.
    pub(crate) fn set_slot(&self, tx: &mut Transaction, slot: u32, block: u32) {
        let at = RawAgfl::SIZE + 4 * (slot % self.slots()) as usize;
        tx.bytes_mut(self.agfl, at..at + 4).copy_from_slice(&block.to_be_bytes());
    }
}

const _: () = assert!(offset_of!(RawAgf, flfirst) + 8 == offset_of!(RawAgf, flcount));
