//! What is kept in memory of each allocation group, and its locked headers.
//!
//! # Invariants
//! - The counters of a [`Group`] are those of its AGF and AGI as of the last change under their locks. Read without
//!   those locks they are hints.
//! - `Groups::free` is what users may still reserve: what all groups promise ([`promise`](crate::space::promise)), less
//!   what is reserved already.
//!
//! # Locking
//! An [`LockedAg`] is proof that the transaction holds the AGF. BusyExtents and claimed blocks have a lock of their
//! own, of rank `Group`, held for a lookup.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use base::lock::{Mutex, Rank, might_lock};
use base::percpu::Counter;
use base::{AgBlock, AgNumber, AppendList, FsBlock};
use format::agf::RawAgf;
use format::agfl::{self, Agfl, RawAgfl};
use format::ondisk::{OnDisk, U32};
use format::{Damage, Geometry, Place};
use journal::engine::BusyExtentHook;
use journal::engine::{BufferId, BusyExtent, DiskExtent, Error, Transaction};

use crate::faults::Faults;
use crate::inodes::{AgInodeState, InodeOptions, VolumeInodes};
use crate::space::block_reservation::{AgReservation, BlockReservation};
use crate::space::busy::UnusableBlocks;
use crate::space::contribution::WorstCase;

/// The offset of a field of the AGF.
macro_rules! agf {
    ($field:ident) => {
        std::mem::offset_of!(format::agf::RawAgf, $field)
    };
}
pub(crate) use agf;

/// One allocation group.
#[derive(Debug)]
pub struct Group {
    /// Its number.
    pub ag: AgNumber,
    /// The volume's shape.
    pub geometry: Arc<Geometry>,
    /// The volume's free blocks.
    pub(crate) free: Arc<Counter>,
    pub(crate) freeblks: AtomicU32,
    pub(crate) longest: AtomicU32,
    pub(crate) flcount: AtomicU32,
    pub(crate) btreeblks: AtomicU32,
    /// Its inodes.
    pub(crate) inodes: AgInodeState,
    /// For trees whose blocks come from free space: free inodes and reference counts.
    pub(crate) metadata: AgReservation,
    /// For the reverse-mapping tree, whose blocks come from the AGFL.
    pub(crate) mappings: AgReservation,
    /// What its trees may come to need.
    pub(crate) worst: WorstCase,
    /// Blocks that the volume's counter has of this group, or that are reserved. Changed under the AGF alone.
    pub(crate) promised: AtomicU32,
    /// Free blocks that came with a new length of the group and are for nobody yet.
    pub(crate) withheld: AtomicU32,
    /// Blocks that left the AGFL, and that a deferred operation is about to free.
    pub(crate) trimmed: AtomicU32,
    /// BusyExtents and claimed blocks.
    pub(crate) unusable: Mutex<UnusableBlocks>,
    /// How many busy extents there are: a look without the lock.
    pub(crate) busy_count: AtomicU32,
    /// How many blocks are claimed: the same. It is no smaller than what the claims hold.
    pub(crate) claimed: AtomicU32,
    /// How often some of either ceased to be.
    pub(crate) released: AtomicU64,
    pub(crate) faults: Arc<Faults>,
}

/// Every allocation group of a volume.
#[derive(Debug)]
pub struct Groups {
    pub(crate) geometry: Arc<Geometry>,
    pub(crate) groups: AppendList<Arc<Group>>,
    pub(crate) free: Arc<Counter>,
    pub(crate) inodes: VolumeInodes,
    pub(crate) faults: Arc<Faults>,
}

/// An allocation group whose AGF and AGFL a transaction has locked.
#[derive(Clone, Copy, Debug)]
pub struct LockedAg<'g> {
    /// The group.
    pub group: &'g Arc<Group>,
    /// The AGF's buffer.
    pub agf: BufferId,
    /// The AGFL's buffer.
    pub agfl: BufferId,
}

impl Groups {
    /// Reads the headers of every group. The transaction changes nothing and holds no buffer afterwards.
    ///
    /// # Errors
    /// What reading meets, and damaged headers.
    pub fn open(tx: &mut Transaction, geometry: &Geometry) -> Result<Self, Error> {
        Self::open_with(tx, geometry, &InodeOptions::default())
    }

    /// The same, with options for inodes.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(
        tx: &mut Transaction,
        geometry: &Geometry,
        options: &InodeOptions,
    ) -> Result<Self, Error> {
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

    /// The volume's shape.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// A group by its number.
    pub fn get(&self, ag: AgNumber) -> Option<&Arc<Group>> {
        self.groups.get(ag.get() as usize)
    }

    /// Every group, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Group>> {
        self.groups.iter()
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.groups.len() as u32 // AGs have 32 bits
    }

    /// The group of a packed block, and the block within.
    ///
    /// # Errors
    /// Damage: the block lies outside of the volume, or in a group's headers.
    pub fn of_block(&self, block: FsBlock, count: u32) -> Result<(&Arc<Group>, AgBlock), Error> {
        let found = self.geometry.split_fs_block(block).and_then(|(ag, at)| Some((self.get(ag)?, at)));
        let usable = |(group, at): &(&Arc<Group>, AgBlock)| group.holds(*at, count);
        found.filter(usable).ok_or_else(|| {
            let expected = "blocks within one AG, behind its header";
            let found = format_args!("{block:#x} for {count} blocks");
            Error::damaged(Place::default(), Damage::new("extent", "startblock", expected, found))
        })
    }

    /// Reserves blocks of the volume, wherever they may lie.
    ///
    /// # Errors
    /// No space.
    pub fn reserve_blocks(&self, count: u32) -> Result<BlockReservation<'_>, Error> {
        BlockReservation::take(&self.free, count)
    }

    /// A reservation of blocks that another one has given.
    pub fn given_blocks(&self, count: u32) -> BlockReservation<'_> {
        BlockReservation::of_given(&self.free, count)
    }

    /// Blocks that users may still reserve.
    pub fn available(&self) -> u64 {
        self.free.sum()
    }

    /// Free blocks as the superblock counts them (`fdblocks`): those of the AGFLs and of the trees of free space are
    /// among them. Exact while nobody changes the volume.
    pub fn free_blocks(&self) -> u64 {
        self.groups.iter().map(|group| group.free_blocks()).sum()
    }

    /// Allocated inodes and free ones among them, as the superblock counts them.
    pub fn inode_counts(&self) -> (u64, u64) {
        let sum =
            |of: fn(&AgInodeState) -> u32| self.groups.iter().map(|group| u64::from(of(&group.inodes))).sum();
        (sum(AgInodeState::count), sum(AgInodeState::free))
    }

    /// Which allocation fails, for tests.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The volume's inodes: their counts, and the shape of chunks.
    pub fn inodes(&self) -> &VolumeInodes {
        &self.inodes
    }
}

impl BusyExtentHook for Groups {
    fn clear_busy(&self, extents: &[BusyExtent]) {
        for extent in extents {
            if let Ok((group, at)) = self.of_block(extent.start, extent.blocks) {
                group.not_busy(at, extent.blocks);
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
            metadata: AgReservation::default(),
            mappings: AgReservation::default(),
            worst: WorstCase::of(geometry),
            promised: AtomicU32::new(0),
            withheld: AtomicU32::new(0),
            trimmed: AtomicU32::new(0),
            unusable: Mutex::new(Rank::Group, UnusableBlocks::default()),
            busy_count: AtomicU32::new(0),
            claimed: AtomicU32::new(0),
            released: AtomicU64::new(0),
            faults: Arc::clone(faults),
        }
    }

    /// Whether blocks lie within this group, behind its header.
    pub fn holds(&self, at: AgBlock, count: u32) -> bool {
        let end = u64::from(at.get()) + u64::from(count);
        self.geometry.ag_block_is_usable(self.ag, at) && end <= u64::from(self.geometry.ag_length(self.ag))
    }

    /// Free blocks as the superblock counts them.
    pub fn free_blocks(&self) -> u64 {
        [&self.freeblks, &self.flcount, &self.btreeblks].iter().map(|n| u64::from(n.load(Relaxed))).sum()
    }

    /// The packed form of a block of this group.
    pub fn fs_block(&self, at: AgBlock) -> FsBlock {
        self.geometry.fs_block(self.ag, at)
    }

    /// Locks AGF and AGFL; waits for them. The transaction holds no AGF of this or a higher number.
    ///
    /// # Errors
    /// What reading meets, and damage of either.
    #[track_caller]
    pub fn lock<'g>(self: &'g Arc<Self>, tx: &mut Transaction) -> Result<LockedAg<'g>, Error> {
        let geometry = &*self.geometry;
        let agf = tx.read(self.sector(1), Rank::Agf(self.ag.get()), |bytes| {
            RawAgf::verify(bytes, geometry, self.ag).map(drop)
        })?;
        self.open(tx, agf)
    }

    /// The same if nobody else holds the AGF.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn try_lock<'g>(self: &'g Arc<Self>, tx: &mut Transaction) -> Result<Option<LockedAg<'g>>, Error> {
        let geometry = &*self.geometry;
        let agf = tx.try_read(self.sector(1), Rank::Agf(self.ag.get()), |bytes| {
            RawAgf::verify(bytes, geometry, self.ag).map(drop)
        })?;
        agf.map(|agf| self.open(tx, agf)).transpose()
    }

    /// The same for a deferred operation. In its first turn it only tries, as operations before it may hold the AGF of
    /// a higher group; where that is in vain, its second turn is the first in a transaction of its own, and `waits`.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    #[track_caller]
    pub fn lock_in_turn<'g>(
        self: &'g Arc<Self>,
        tx: &mut Transaction,
        waits: bool,
    ) -> Result<Option<LockedAg<'g>>, Error> {
        if waits {
            return self.lock(tx).map(Some);
        }
        if tx.buffers() == 0 {
            // As it will be in the second turn.
            might_lock(Rank::Agf(self.ag.get()));
        }
        self.try_lock(tx)
    }

    fn open<'g>(self: &'g Arc<Self>, tx: &mut Transaction, agf: BufferId) -> Result<LockedAg<'g>, Error> {
        let geometry = &*self.geometry;
        let agfl =
            tx.read(self.sector(3), Rank::Fork, |bytes| Agfl::verify(bytes, geometry, self.ag).map(drop))?;
        Ok(LockedAg { group: self, agf, agfl })
    }

    /// Where a sector of the header lies: 1 AGF, 2 AGI, 3 AGFL.
    pub fn sector(&self, sector: u32) -> DiskExtent {
        DiskExtent { daddr: self.geometry.ag_header_daddr(self.ag, sector), bytes: self.geometry.sector_size }
    }

    /// Damage in this group.
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
    /// A 32-bit field of the AGF, by its offset.
    #[inline]
    pub(crate) fn get(&self, tx: &Transaction, field: usize) -> u32 {
        tx.bytes(self.agf).get(field..).and_then(U32::view).map_or(0, |number| number.get())
    }

    /// Stores a 32-bit field of the AGF.
    #[inline]
    pub(crate) fn set(&self, tx: &mut Transaction, field: usize, value: u32) {
        tx.bytes_mut(self.agf, field..field + 4).copy_from_slice(&value.to_be_bytes());
    }

    /// Adds to a counter of the AGF, and to the same in memory.
    pub(crate) fn count(&self, tx: &mut Transaction, field: usize, by: i64) {
        let value = i64::from(self.get(tx, field)) + by;
        // A damaged counter stops at its ends; the checker tells.
        self.set(tx, field, value.clamp(0, u32::MAX.into()) as u32);
        self.note(tx);
    }

    /// Brings what memory holds up to date with the AGF.
    pub(crate) fn note(&self, tx: &Transaction) {
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

    /// Unlocks what was not changed of this group, and of all others that were locked since; `kept`, the last one,
    /// stays locked. Blocks of the trees go with the headers: a transaction that has one of them and not its AGF would
    /// wait for an AGF whose holder waits for the block.
    ///
    /// Since this group was locked the transaction has joined nothing but blocks of groups.
    pub(crate) fn release(&self, tx: &mut Transaction, kept: Option<&Self>) {
        tx.release_joined(self.agf, kept.map(|kept| kept.agf));
    }

    /// Slots of the AGFL.
    pub(crate) fn slots(&self) -> u32 {
        agfl::slots(&self.group.geometry).max(1)
    }

    /// The block in a slot of the AGFL.
    pub(crate) fn slot(&self, tx: &Transaction, slot: u32) -> u32 {
        let at = RawAgfl::SIZE + 4 * slot as usize;
        tx.bytes(self.agfl).get(at..).and_then(U32::view).map_or(u32::MAX, |block| block.get())
    }

    /// Stores a block in a slot of the AGFL.
    pub(crate) fn set_slot(&self, tx: &mut Transaction, slot: u32, block: u32) {
        let at = RawAgfl::SIZE + 4 * (slot % self.slots()) as usize;
        tx.bytes_mut(self.agfl, at..at + 4).copy_from_slice(&block.to_be_bytes());
    }
}

const _: () = assert!(offset_of!(RawAgf, flfirst) + 8 == offset_of!(RawAgf, flcount));
