//! One transaction on one file: what changes of contents consist of.

use std::sync::Arc;

use ag::{BlockReservation, Groups, RmapChange, RmapReservation, RmapReservations};
use base::{FileBlock, FsBlock};
use error::Error;
use format::inode::{FileType, ForkKind, flags2};
use format::ondisk::U64;
use journal::engine::Transaction;
use smallvec::SmallVec;

use super::{NOT_A_MAP, PIECES_AT_ONCE};
use crate::extents::{ExtentList, ExtentOrHole};
use crate::fork::Fork;
use crate::group_space::GroupSpace;
use crate::inode::{Inode, LockedInode};
use crate::shared::Shared;
use crate::space::SpaceAllocator;
use crate::state::{ForkFormat, InodeState, InodeTime};

/// A file whose contents are worked on.
#[derive(Clone, Copy)]
pub(super) struct File<'a> {
    pub shared: &'a Shared,
    pub groups: &'a Arc<Groups>,
    pub inode: &'a Arc<Inode>,
}

/// A transaction with the blocks that it may take, and the file, locked.
pub(super) struct Step<'a> {
    pub file: File<'a>,
    pub tx: Transaction,
    pub blocks: BlockReservation<'a>,
    pub locked: LockedInode,
    /// A change took a record away: the tree may have given a block back.
    pub took_record: bool,
    /// For the reverse mappings that this step adds, until it is committed.
    pub rooms: SmallVec<[RmapReservation; 2]>,
    /// What was reserved before for those of this step and of later ones.
    pub spare: RmapReservations,
}

/// Whether the file may have blocks that others have, too.
pub(crate) fn shares(state: &InodeState) -> bool {
    state.core().flags2.get() & flags2::REFLINK != 0
}

/// Says that a file may share blocks, or that it shares none.
pub(super) fn set_shares(state: &mut InodeState, shares: bool) {
    if self::shares(state) != shares {
        // Looked at after the first change, which may be the one that gives the inode wide times.
        let core = state.edit();
        core.flags2 = U64::new(core.flags2.get() ^ flags2::REFLINK);
    }
}

/// A file that keeps its contents in blocks.
pub(super) fn expect_map(state: &InodeState) -> Result<(), Error> {
    let maps = matches!(state.fork_format(ForkKind::Data), Some(ForkFormat::Extents | ForkFormat::Btree));
    let regular = FileType::from_mode(state.mode()) == Some(FileType::Regular);
    if maps && regular { Ok(()) } else { Err(NOT_A_MAP) }
}

/// The extents of a file, read if they were not in memory.
pub(super) fn list<'s>(shared: &Shared, state: &'s mut InodeState) -> Result<&'s ExtentList, Error> {
    const EMPTY: &ExtentList = &ExtentList::new();
    Fork::open(shared, state, ForkKind::Data)?;
    Ok(state.list(ForkKind::Data).unwrap_or(EMPTY))
}

impl<'a> File<'a> {
    /// Begins a step that may take so many blocks.
    ///
    /// # Errors
    /// No space, with nothing changed.
    pub fn taking(self, blocks: u32) -> Result<Step<'a>, Error> {
        self.begin(self.groups.reserve_blocks(blocks)?)
    }

    /// Begins a step that changes few records of the map, and does not split any: it takes blocks for the map's tree if
    /// there are any.
    pub fn giving(self) -> Result<Step<'a>, Error> {
        let wanted = self.groups.reserve_blocks(self.shared.reservations.map_blocks);
        self.begin(wanted.or_else(|_| self.groups.reserve_blocks(0))?)
    }

    /// Begins a step with blocks that were reserved before.
    pub fn begin(self, mut blocks: BlockReservation<'a>) -> Result<Step<'a>, Error> {
        blocks.rolled();
        let tx = self.shared.begin(self.shared.reservations.contents)?;
        let mut locked = self.inode.lock();
        expect_map(&locked)?;
        // Before anything changes: reading it may fail.
        list(self.shared, &mut locked)?;
        Ok(Step::new(self, tx, blocks, locked))
    }

    /// Reserves room for the reverse mappings that a change to the extent at `start` adds.
    ///
    /// # Errors
    /// No space, with nothing changed.
    pub fn room_for_mapping(
        self,
        start: FsBlock,
        change: RmapChange,
    ) -> Result<Option<RmapReservation>, Error> {
        self.groups.reserve_rmap(&mut self.shared.reader(), start, change, 1)
    }

    /// The same, out of what was reserved before if there is some for this group.
    ///
    /// # Errors
    /// No space, with nothing changed.
    pub fn room_to_split(
        self,
        start: FsBlock,
        change: RmapChange,
        spare: &mut RmapReservations,
    ) -> Result<Option<RmapReservation>, Error> {
        match self.groups.take_rmap_reservation(spare, start)? {
            Some(room) => Ok(Some(room)),
            None => self.room_for_mapping(start, change),
        }
    }

    /// Looks at the extents.
    pub fn look<R>(self, look: impl FnOnce(&ExtentList) -> R) -> Result<R, Error> {
        let mut locked = self.inode.lock();
        expect_map(&locked)?;
        Ok(look(list(self.shared, &mut locked)?))
    }
}

impl<'a> Step<'a> {
    pub fn new(file: File<'a>, tx: Transaction, blocks: BlockReservation<'a>, locked: LockedInode) -> Self {
        Self {
            file,
            tx,
            blocks,
            locked,
            took_record: false,
            rooms: SmallVec::new(),
            spare: RmapReservations::default(),
        }
    }

    /// Asked before the first change of a step that unmaps these pieces, or, where they `stay`, marks or moves them:
    /// room for the reverse mappings that are cut by that. Shared blocks have one for each owner, and so the tree may
    /// hold more than one for each block.
    ///
    /// # Errors
    /// No space, with nothing changed.
    pub fn expect_room_to_cut(
        &mut self,
        pieces: &[(FileBlock, ExtentOrHole)],
        stay: bool,
    ) -> Result<(), Error> {
        let file = self.file;
        let change = if stay { RmapChange::Convert } else { RmapChange::Unmap };
        for start in cut(self.list()?, pieces, stay) {
            self.rooms.extend(file.room_to_split(start, change, &mut self.spare)?);
        }
        Ok(())
    }

    /// The extents.
    pub fn list(&mut self) -> Result<&ExtentList, Error> {
        list(self.file.shared, &mut self.locked)
    }

    /// Changes the map.
    pub fn edit<R>(
        &mut self,
        work: impl FnOnce(&mut Fork<'_>, &mut Transaction, &mut dyn SpaceAllocator) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut space = GroupSpace::for_data(self.file.groups, &mut self.blocks);
        let mut fork = Fork::open(self.file.shared, &mut self.locked, ForkKind::Data)?;
        let before = fork.list().len();
        let done = work(&mut fork, &mut self.tx, &mut space);
        self.took_record |= fork.list().len() < before;
        self.tx.settle(done, &self.locked)
    }

    /// What a user asked for changes the contents: the times move, and nobody runs the file as somebody else.
    pub fn modified(&mut self) {
        self.touch();
        super::drop_set_id(&mut self.locked);
    }

    /// The contents change: the times move.
    pub fn touch(&mut self) {
        let now = self.file.shared.now();
        self.locked.set_times(&[InodeTime::Modify, InodeTime::Change], now);
    }

    /// Unmaps the last pieces of a range and gives their blocks back; whether there are more.
    pub fn unmap(&mut self, from: FileBlock, to: FileBlock) -> Result<bool, Error> {
        let shared = shares(&self.locked);
        for _ in 0..PIECES_AT_ONCE {
            let Some(last) = self.list()?.last_in(from, to) else { return Ok(false) };
            self.edit(|fork, tx, space| fork.free(tx, space, (last.offset, last.end()), shared))?;
        }
        if shared && self.list()?.is_empty() {
            set_shares(&mut self.locked, false);
        }
        Ok(self.list()?.last_in(from, to).is_some())
    }

    /// Ends it; gives what is left of the blocks.
    pub fn commit(mut self) -> Result<BlockReservation<'a>, Error> {
        self.tx.commit(&mut [&mut self.locked])?;
        Ok(self.blocks)
    }
}

/// The pieces of a range from its beginning on, as many as have no more than `most` mapped ones among them; and the
/// block behind them.
pub(super) fn pieces(
    list: &ExtentList,
    (from, to): (FileBlock, FileBlock),
    most: usize,
) -> (Vec<(FileBlock, ExtentOrHole)>, FileBlock) {
    let (mut found, mut at, mut mapped) = (Vec::new(), from, 0);
    while at < to {
        let piece = list.piece(at, to);
        mapped += usize::from(piece.mapping.is_some());
        if mapped > most || piece.count == 0 {
            break;
        }
        found.push((at, piece));
        at = FileBlock(at.get() + piece.count);
    }
    (found, at)
}

/// Where those of the pieces begin on the disk whose reverse mappings are cut in two when they go; or where they
/// `stay`, and become otherwise than what is beside them.
pub(super) fn cut(
    list: &ExtentList,
    pieces: &[(FileBlock, ExtentOrHole)],
    stay: bool,
) -> SmallVec<[FsBlock; PIECES_AT_ONCE]> {
    let is_cut = |(at, piece): &&(FileBlock, ExtentOrHole)| {
        let (left, right) = (goes_on(list, *at), goes_on(list, FileBlock(at.get() + piece.count)));
        if stay { left || right } else { left && right }
    };
    pieces.iter().filter(is_cut).filter_map(|(_, piece)| Some(piece.mapping?.0)).collect()
}

/// Whether the blocks before and at this one lie side by side, and are alike: then one reverse mapping has both,
/// however many extents there are.
fn goes_on(list: &ExtentList, at: FileBlock) -> bool {
    let place = |at: FileBlock| {
        let extent = list.find(at)?;
        Some((extent.start.get() + (at.get() - extent.offset.get()), extent.unwritten))
    };
    let before = at.get().checked_sub(1).and_then(|before| place(FileBlock(before)));
    before.is_some_and(|(block, unwritten)| place(at) == Some((block + 1, unwritten)))
}
