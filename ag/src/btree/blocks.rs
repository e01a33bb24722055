//! Btree blocks: reading and verifying, initializing, editing.

use base::lock::Rank;
use base::{AgBlock, AgNumber, FsBlock};
use error::{Error, Result};
use format::btree::{Btree, BtreeBlock, BtreeBlockIdentity, BtreeHeader, BtreePointer};
use format::ondisk::OnDisk;
use format::{Damage, Place};
use journal::engine::{BufferId, DiskExtent, Transaction};

use super::block::EditBytes;
use super::btree_type::NewBlockHeader;
use super::cursor::{LookupKeyOf, PathLevel, PtrOf};
use super::{BtreeCursor, BtreeOps, BtreeOwner, RawPointer};

impl<T: BtreeOps> BtreeCursor<T> {
    /// Reads a block of the tree and verifies it, with this level.
    pub(super) fn read(&self, tx: &mut Transaction, level: usize, block: u64) -> Result<BufferId> {
        let geometry = self.tree.geometry();
        let (ag, ino) = match self.tree.owner() {
            BtreeOwner::Ag(ag) => (Some(ag), None),
            BtreeOwner::Inode(ino) => (None, Some(ino)),
        };
        let Some((ag, at)) = PtrOf::<T>::of(block).locate(geometry, ag) else {
            return Err(self.damage(block, "ptr", "a block that can hold one", format_args!("{block:#x}")));
        };
        let identity = BtreeBlockIdentity { ag, block: at, ino };
        let level = level as u16;
        let extent = DiskExtent { daddr: geometry.ag_block_daddr(ag, at), bytes: geometry.block_size };
        let id = tx.read(extent, Rank::Fork, |bytes| {
            BtreeBlock::<T::Type>::verify(bytes, geometry, identity, level).map(drop)
        })?;
        // The buffer may have been verified as another type of block: check magic, level and owner again.
        let Some(header) = <T::Type as Btree>::Header::view(tx.bytes(id)) else {
            return Err(self.damage(block, "length", "a header", "less"));
        };
        let owner = ino.map_or(ag.get().into(), |ino| ino.get());
        let found = (header.magic(), header.level(), header.owner());
        if found != (T::Type::MAGIC, level, owner) {
            let expected = format_args!("magic {:#x}, level {level}, owner {owner}", T::Type::MAGIC);
            let found = format_args!("magic {:#x}, level {}, owner {}", found.0, found.1, found.2);
            return Err(self.damage(block, "level", expected, found));
        }
        Ok(id)
    }

    /// Allocates and initializes an empty block.
    pub(super) fn new_block(&mut self, tx: &mut Transaction, level: usize, near: u64) -> Result<PathLevel> {
        let block = self.tree.alloc_block(tx, near)?;
        let geometry = self.tree.geometry();
        let (ag, owner) = match self.tree.owner() {
            BtreeOwner::Ag(ag) => (Some(ag), ag.get().into()),
            BtreeOwner::Inode(ino) => (None, ino.get()),
        };
        let Some((ag, at)) = PtrOf::<T>::of(block).locate(geometry, ag) else {
            return Err(self.damage(block, "ptr", "a block that can hold one", format_args!("{block:#x}")));
        };
        if self.path.iter().take(self.levels).any(|step| step.id.is_some() && step.block == block) {
            return Err(self.damage(block, "ptr", "a free block", "a block of this tree"));
        }
        let daddr = geometry.ag_block_daddr(ag, at);
        let id = tx.fresh(DiskExtent { daddr, bytes: geometry.block_size }, Rank::Fork)?;
        let header =
            NewBlockHeader { magic: T::Type::MAGIC, level: level as u16, daddr, uuid: geometry.uuid, owner };
        let bytes = tx.bytes_mut(id, 0..<T::Type as Btree>::Header::SIZE);
        <T::Type as Btree>::Pointer::write_header(&header, bytes);
        Ok(PathLevel { id: Some(id), block, slot: 0 })
    }

    /// An error for damage in a block of this tree.
    #[cold]
    pub(super) fn damage(
        &self,
        block: u64,
        field: &'static str,
        expected: impl std::fmt::Display,
        found: impl std::fmt::Display,
    ) -> Error {
        let place = match self.tree.owner() {
            BtreeOwner::Ag(ag) => Place::block(ag, AgBlock(block as u32)),
            BtreeOwner::Inode(ino) => {
                let at = self.tree.geometry().split_fs_block(FsBlock(block));
                at.map_or(Place::default(), |(ag, at): (AgNumber, AgBlock)| Place::block(ag, at))
                    .of_inode(ino)
            }
        };
        Error::Damaged { place, damage: Damage::new(T::Type::NAME, field, expected, found) }
    }

    /// An error for a record that is out of order at the cursor's position.
    #[cold]
    pub(super) fn out_of_order(&self, at: LookupKeyOf<T>) -> Error {
        let expected = format_args!("a record in order at {at:?}");
        self.damage(
            self.path_level(0).block,
            "record",
            expected,
            "an equal record, or neighbours out of order",
        )
    }
}

/// Edits two different blocks at once.
pub(super) fn edit_pair<R>(
    tx: &mut Transaction,
    left: PathLevel,
    right: PathLevel,
    change: impl FnOnce(&mut dyn EditBytes, &mut dyn EditBytes) -> R,
) -> Option<R> {
    let (left, right) = (left.id?, right.id?);
    let (left, right) = tx.pair(left, right);
    Some(change(left, right))
}

/// Edits one buffer.
pub(super) struct BufferEdit<'a> {
    pub tx: &'a mut Transaction,
    pub id: BufferId,
}

impl EditBytes for BufferEdit<'_> {
    fn bytes(&self) -> &[u8] {
        self.tx.bytes(self.id)
    }
    fn bytes_mut(&mut self, range: std::ops::Range<usize>) -> &mut [u8] {
        self.tx.bytes_mut(self.id, range)
    }
}

/// Edits the root in an inode.
pub(super) struct InlineRootEdit<'a, T: BtreeOps>(pub &'a mut T);

impl<T: BtreeOps> EditBytes for InlineRootEdit<'_, T> {
    fn bytes(&self) -> &[u8] {
        self.0.inline()
    }
    fn bytes_mut(&mut self, range: std::ops::Range<usize>) -> &mut [u8] {
        self.0.inline_mut().get_mut(range).unwrap_or_default()
    }
}
