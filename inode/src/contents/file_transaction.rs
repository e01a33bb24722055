//! One transaction on one file: changes of contents consist of these.

use std::ops::Range;
use std::sync::Arc;

use ag::{BlockReservation, Groups, RmapChange, RmapReservation, RmapReservations};
use base::{FileBlock, FsBlock};
use error::Result;
use format::extent::Extent;
use format::inode::{FileType, ForkKind, flags2};
use format::ondisk::U64;
use journal::engine::Transaction;
use smallvec::SmallVec;

use super::NOT_A_MAP;
use super::tuning::PIECES_AT_ONCE;
use crate::extents::ExtentOrHole;
use crate::fork::Fork;
use crate::group_space::GroupSpace;
use crate::inode::{Inode, LockedInode};
use crate::shared::Shared;
use crate::space::SpaceAllocator;
use crate::state::{ForkFormat, InodeState, InodeTime};

/// A file whose extent map is read or changed.
#[derive(Clone, Copy)]
pub struct File<'a> {
    /// The shared state of the volume's inodes.
    pub shared: &'a Shared,
    /// The allocation groups.
    pub groups: &'a Arc<Groups>,
    /// The inode of the file.
    pub inode: &'a Arc<Inode>,
}

/// A transaction with its block reservation and the locked inode.
pub(super) struct FileTransaction<'a> {
    pub file: File<'a>,
    pub tx: Transaction,
    pub blocks: BlockReservation<'a>,
    pub locked: LockedInode,
    /// A record was removed: the extent btree may have freed a block.
    pub removed_record: bool,
    /// Rmap reservations of this transaction, until it commits.
    pub rmap: SmallVec<[RmapReservation; 2]>,
    /// Rmap reservations made before, for this transaction and later ones.
    pub spare: RmapReservations,
}

/// Returns whether the file may share blocks.
pub(crate) fn shares(state: &InodeState) -> bool {
    state.core().flags2.get() & flags2::REFLINK != 0
}

/// Sets whether a file may share blocks.
pub(super) fn set_shares(state: &mut InodeState, shares: bool) {
    if self::shares(state) != shares {
        // Read after `edit`: the first edit may convert the inode to bigtime, which changes these flags.
        let core = state.edit();
        core.flags2 = U64::new(core.flags2.get() ^ flags2::REFLINK);
    }
}

/// Refuses a file whose contents are not in mapped blocks.
pub(super) fn expect_map(state: &InodeState) -> Result<()> {
    let maps = matches!(state.fork_format(ForkKind::Data), Some(ForkFormat::Extents | ForkFormat::Btree));
    let regular = FileType::from_mode(state.mode()) == Some(FileType::Regular);
    if maps && regular { Ok(()) } else { Err(NOT_A_MAP) }
}

impl<'a> File<'a> {
    /// Begins a transaction that may allocate `blocks` blocks.
    ///
    /// # Errors
    /// No space, with nothing changed.
    pub(super) fn begin_alloc(self, blocks: u32) -> Result<FileTransaction<'a>> {
        self.begin(self.groups.reserve_blocks(blocks)?)
    }

    /// Begins a transaction that mostly frees blocks: it changes few records of the map and splits none. It reserves
    /// blocks for the extent btree if the volume has any.
    pub(super) fn begin_free(self) -> Result<FileTransaction<'a>> {
        let wanted = self.groups.reserve_blocks(self.shared.reservations.map_blocks);
        self.begin(wanted.or_else(|_| self.groups.reserve_blocks(0))?)
    }

    /// Begins a transaction with an existing reservation.
    pub(super) fn begin(self, blocks: BlockReservation<'a>) -> Result<FileTransaction<'a>> {
        let (tx, locked) = self.lock_for_change()?;
        Ok(FileTransaction::new(self, tx, blocks, locked))
    }

    /// Begins a transaction, then locks the file.
    pub(super) fn lock_for_change(self) -> Result<(Transaction, LockedInode)> {
        let tx = self.shared.begin(self.shared.reservations.contents)?;
        let locked = self.inode.lock();
        expect_map(&locked)?;
        Ok((tx, locked))
    }

    /// Reserves the rmap records that a change to the extent at `start` adds.
    ///
    /// # Errors
    /// No space, with nothing changed.
    pub(super) fn reserve_rmap(self, start: FsBlock, change: RmapChange) -> Result<Option<RmapReservation>> {
        self.groups.reserve_rmap(&mut self.shared.reader(), start, change, 1)
    }

    /// Takes the reservation out of `spare` if it has one for this AG; otherwise reserves.
    ///
    /// # Errors
    /// No space, with nothing changed.
    pub(super) fn rmap_to_split(
        self,
        start: FsBlock,
        change: RmapChange,
        spare: &mut RmapReservations,
    ) -> Result<Option<RmapReservation>> {
        match self.groups.take_rmap_reservation(spare, start)? {
            Some(reservation) => Ok(Some(reservation)),
            None => self.reserve_rmap(start, change),
        }
    }

    /// Calls `work` with the map, without a transaction.
    pub(super) fn with_map<R>(self, work: impl FnOnce(&mut Fork<'_>) -> Result<R>) -> Result<R> {
        let mut locked = self.inode.lock();
        expect_map(&locked)?;
        work(&mut Fork::open(self.shared, &mut locked, ForkKind::Data)?)
    }
}

impl<'a> FileTransaction<'a> {
    pub fn new(
        file: File<'a>,
        tx: Transaction,
        mut blocks: BlockReservation<'a>,
        locked: LockedInode,
    ) -> Self {
        blocks.rolled();
        Self {
            file,
            tx,
            blocks,
            locked,
            removed_record: false,
            rmap: SmallVec::new(),
            spare: RmapReservations::default(),
        }
    }

    /// Reserves the rmap records that are split when these pieces are unmapped, or, with `stay`, marked or moved.
    /// Called before the first change. Shared blocks have a record for each owner, so that the rmapbt may hold more
    /// than one record for each block.
    ///
    /// # Errors
    /// No space, with nothing changed.
    pub fn reserve_rmap_to_cut(&mut self, pieces: &[ExtentOrHole], stay: bool) -> Result<()> {
        let file = self.file;
        let change = if stay { RmapChange::Convert } else { RmapChange::Unmap };
        let (mut fork, tx) = self.map()?;
        for start in cut(&mut fork, tx, pieces, stay)? {
            self.rmap.extend(file.rmap_to_split(start, change, &mut self.spare)?);
        }
        Ok(())
    }

    /// The map, and the transaction, for lookups.
    pub fn map(&mut self) -> Result<(Fork<'_>, &mut Transaction)> {
        Ok((Fork::open(self.file.shared, &mut self.locked, ForkKind::Data)?, &mut self.tx))
    }

    /// The last extent in a range, clipped to it.
    pub fn last_in(&mut self, from: FileBlock, to: FileBlock) -> Result<Option<Extent>> {
        let (mut fork, tx) = self.map()?;
        fork.last_in(Some(tx), from, to)
    }

    /// The first pieces of a range, at most [`PIECES_AT_ONCE`] of them mapped, and the block after them.
    pub fn pieces(&mut self, range: Range<FileBlock>) -> Result<(Vec<ExtentOrHole>, FileBlock)> {
        let (mut fork, tx) = self.map()?;
        fork.pieces(Some(tx), range, PIECES_AT_ONCE)
    }

    /// Changes the map.
    pub fn edit<R>(
        &mut self,
        work: impl FnOnce(&mut Fork<'_>, &mut Transaction, &mut dyn SpaceAllocator) -> Result<R>,
    ) -> Result<R> {
        let mut space = GroupSpace::for_data(self.file.groups, &mut self.blocks);
        let mut fork = Fork::open(self.file.shared, &mut self.locked, ForkKind::Data)?;
        let before = fork.extent_count();
        let done = work(&mut fork, &mut self.tx, &mut space);
        self.removed_record |= fork.extent_count() < before;
        self.tx.settle(done, &self.locked)
    }

    /// Marks a user's change of the contents: updates the times, and clears the set-user-ID bits.
    pub fn modified(&mut self) {
        self.touch();
        super::drop_set_id(&mut self.locked);
    }

    /// Updates mtime and ctime.
    pub fn touch(&mut self) {
        let now = self.file.shared.now();
        self.locked.set_times(&[InodeTime::Modify, InodeTime::Change], now);
    }

    /// Unmaps and frees the last pieces of a range. Returns whether there are more.
    pub fn unmap(&mut self, from: FileBlock, to: FileBlock) -> Result<bool> {
        let shared = shares(&self.locked);
        let (mut map, tx) = self.map()?;
        map.load(Some(tx), to)?;
        for _ in 0..PIECES_AT_ONCE {
            let Some(last) = self.last_in(from, to)? else { return Ok(false) };
            self.edit(|fork, tx, space| fork.free(tx, space, last.offset..last.end(), shared))?;
        }
        if shared && self.locked.extent_count(ForkKind::Data) == 0 {
            set_shares(&mut self.locked, false);
        }
        Ok(self.last_in(from, to)?.is_some())
    }

    /// Commits. Returns the rest of the block reservation.
    pub fn commit(mut self) -> Result<BlockReservation<'a>> {
        self.tx.commit(&mut [&mut self.locked])?;
        Ok(self.blocks)
    }
}

/// Returns the first blocks of the pieces whose rmap records are split if the pieces are unmapped; with `stay`, if
/// their state becomes different from that of their neighbours.
pub(super) fn cut(
    fork: &mut Fork<'_>,
    tx: &mut Transaction,
    pieces: &[ExtentOrHole],
    stay: bool,
) -> Result<SmallVec<[FsBlock; PIECES_AT_ONCE]>> {
    let mut found = SmallVec::new();
    for piece in pieces {
        let Some((start, _)) = piece.mapping else { continue };
        let left = is_joined(fork, tx, piece.offset)?;
        let right = is_joined(fork, tx, piece.range().end)?;
        if if stay { left || right } else { left && right } {
            found.push(start);
        }
    }
    Ok(found)
}

/// Returns whether this block and the one before it are contiguous and in the same state: then one rmap record covers
/// both, even if they are in different extents.
fn is_joined(fork: &mut Fork<'_>, tx: &mut Transaction, at: FileBlock) -> Result<bool> {
    let Some(before) = at.get().checked_sub(1) else { return Ok(false) };
    // The extent before that of `at` has the block before it, or that is not mapped.
    let list = fork.around(Some(tx), at, 1, 0)?;
    let place = |at: FileBlock| {
        let extent = list.find(at)?;
        Some((extent.start.get() + (at.get() - extent.offset.get()), extent.unwritten))
    };
    let before = place(FileBlock(before));
    Ok(before.is_some_and(|(block, unwritten)| place(at) == Some((block + 1, unwritten))))
}
