//! The fork of a hash tree: what directories and attributes need of their inode to read, map and free blocks.

use std::ops::Range;

use base::FileBlock;
use error::Result;
use format::inode::ForkKind;
use journal::engine::Transaction;

use crate::fork::{self, Fork};
use crate::shared::Shared;
use crate::space::SpaceAllocator;
use crate::state::InodeState;

/// A fork of a locked inode, within a transaction, and the blocks that are reserved for it.
pub(crate) struct TreeFork<'a> {
    pub shared: &'a Shared,
    pub tx: &'a mut Transaction,
    pub space: &'a mut dyn SpaceAllocator,
    pub state: &'a mut InodeState,
    kind: ForkKind,
    /// Reserved blocks that are not used yet.
    pub reserved: u32,
}

impl<'a> TreeFork<'a> {
    /// Opens a fork, which may use `reserved` of the transaction's reserved blocks.
    ///
    /// # Errors
    /// Those of [`Fork::open`].
    pub fn open(
        shared: &'a Shared,
        tx: &'a mut Transaction,
        space: &'a mut dyn SpaceAllocator,
        state: &'a mut InodeState,
        kind: ForkKind,
        reserved: u32,
    ) -> Result<Self> {
        Fork::open(shared, state, kind)?;
        Ok(Self { shared, tx, space, state, kind, reserved })
    }

    /// The extent map, and what its changes take.
    pub fn map(&mut self) -> Result<(Fork<'_>, &mut Transaction, &mut dyn SpaceAllocator)> {
        Ok((Fork::open(self.shared, self.state, self.kind)?, self.tx, self.space))
    }

    /// The extent map, and the transaction, for lookups.
    pub fn lookup(&mut self) -> Result<(Fork<'_>, &mut Transaction)> {
        Ok((Fork::open(self.shared, self.state, self.kind)?, self.tx))
    }

    /// Subtracts the blocks allocated since the inode had `before` from the reserved ones.
    pub fn count_taken(&mut self, before: u64) {
        self.reserved = fork::reserved_left(self.reserved, before, self.state);
    }

    /// Whether unmapping a range stays within what is reserved, after `earlier` other ranges.
    pub fn can_unmap(&mut self, range: Range<FileBlock>, earlier: usize) -> Result<bool> {
        let reserved = self.reserved;
        let (mut fork, tx) = self.lookup()?;
        fork.can_unmap(Some(tx), range, reserved, earlier)
    }

    /// Unmaps and frees what is mapped in a range.
    pub fn unmap(&mut self, range: Range<FileBlock>) -> Result<()> {
        let (mut fork, tx, space) = self.map()?;
        let mut next = range.start;
        while next < range.end {
            let Some(extent) = fork.next(Some(tx), next)?.filter(|extent| extent.offset < range.end) else {
                break;
            };
            let end = extent.end().min(range.end);
            fork.free(tx, space, extent.offset.max(next)..end, false)?;
            next = end;
        }
        Ok(())
    }
}
