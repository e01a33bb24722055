//! The extent btree of a fork, with its root in the inode.

use ag::btree::{BtreeCursor, BtreeOps, BtreeOwner, BtreeRoot};
use base::FsBlock;
use base::lock::Rank;
use error::{Error, Result};
use format::Geometry;
use format::btree::{
    BmBt, BmapKey, Btree, BtreeBlock, BtreeBlockIdentity, BtreePointer, LongHeader, NULL_FS_BLOCK,
};
use format::damage::{Damage, Place};
use format::extent::{Extent, RawExtent};
use format::inode::{Fork as RawFork, ForkKind};
use format::log::inode::fields;
use format::ondisk::{OnDisk, U16, U32, U64};
use journal::engine::{DiskExtent, Transaction};
use zerocopy::{FromZeros, IntoBytes};

use super::root::{self, InlineRoot};
use super::{Fork, NOT_LOADED};
use crate::extents::Splice;
use crate::space::{BlockRequest, ForkOwner, SpaceAllocator};
use crate::state::{ForkFormat, InodeState};

/// What a btree cursor needs of the fork: the root, and allocation of blocks.
struct ForkTree<'a> {
    geometry: &'a Geometry,
    state: &'a mut InodeState,
    kind: ForkKind,
    space: &'a mut dyn SpaceAllocator,
}

const fn root_field(kind: ForkKind) -> u32 {
    match kind {
        ForkKind::Data => fields::DATA_ROOT,
        ForkKind::Attr => fields::ATTR_ROOT,
    }
}

impl ForkTree<'_> {
    fn owner(&self) -> ForkOwner {
        ForkOwner { ino: self.state.ino(), fork: self.kind, tree: true }
    }
}

impl BtreeOps for ForkTree<'_> {
    type Type = BmBt;

    fn geometry(&self) -> &Geometry {
        self.geometry
    }

    fn owner(&self) -> BtreeOwner {
        BtreeOwner::Inode(self.state.ino())
    }

    fn root(&self, _: &Transaction) -> BtreeRoot {
        BtreeRoot::Inline
    }

    fn set_root(&mut self, _: &mut Transaction, _: u64, _: u32) {}

    fn inline(&self) -> &[u8] {
        self.state.fork_bytes(self.kind)
    }

    fn inline_mut(&mut self) -> &mut [u8] {
        self.state.mark(root_field(self.kind));
        self.state.fork_bytes_mut(self.kind)
    }

    fn alloc_block(&mut self, tx: &mut Transaction, near: u64) -> Result<u64> {
        let near = Some(FsBlock(near)).filter(|near| self.geometry.split_fs_block(*near).is_some());
        let run = self.space.allocate(tx, self.owner(), BlockRequest { near, max: 1, min: 1, align: 1 })?;
        self.state.change_nblocks(1);
        Ok(run.start.get())
    }

    fn free_block(&mut self, tx: &mut Transaction, block: u64) -> Result<()> {
        self.space.free_tree_block(tx, self.owner(), FsBlock(block))?;
        self.state.change_nblocks(-1);
        Ok(())
    }
}

impl Fork<'_> {
    /// Applies a splice to the btree.
    pub(super) fn splice_tree(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        splice: &Splice,
    ) -> Result<()> {
        let place = Place::ino(self.state.ino());
        let missing = |extent: &Extent| {
            let expected = format!("an extent at file block {}", extent.offset);
            Error::damaged(place.at(extent.offset), Damage::new(BmBt::NAME, "startoff", expected, "none"))
        };
        let tree = ForkTree { geometry: self.geometry(), state: &mut *self.state, kind: self.kind, space };
        let mut cursor = BtreeCursor::new(tree);
        let both = splice.old.len().min(splice.new.len());
        // Delete, then update, then insert, so that the records are in order at any time.
        for old in splice.old.iter().skip(both).rev() {
            cursor.lookup_eq(tx, old.offset.get())?.ok_or_else(|| missing(old))?;
            cursor.delete(tx)?;
        }
        for (old, new) in splice.old.iter().zip(splice.new.iter()) {
            cursor.lookup_eq(tx, old.offset.get())?.ok_or_else(|| missing(old))?;
            cursor.update(tx, &new.encode())?;
        }
        for new in splice.new.iter().skip(both) {
            if cursor.lookup_eq(tx, new.offset.get())?.is_some() {
                let damage = Damage::new(BmBt::NAME, "startoff", "a hole", new.offset);
                return Err(Error::damaged(place.at(new.offset), damage));
            }
            cursor.insert(tx, &new.encode())?;
        }
        Ok(())
    }

    /// Converts a list of extents that no longer fits the inode to a btree: one leaf, and a root with one pointer.
    pub(super) fn list_to_tree(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
    ) -> Result<()> {
        let list = self.state.list(self.kind).ok_or(NOT_LOADED)?;
        let first = list.get(0).ok_or(NOT_LOADED)?;
        let records: Vec<RawExtent> = list.as_slice().iter().map(Extent::encode).collect();
        // A block is at least twice as large as an inode, so one leaf has space for all records.
        debug_assert!(records.len() <= BmBt::max_records(self.geometry()));
        let request = BlockRequest { near: Some(first.start), max: 1, min: 1, align: 1 };
        let run = space.allocate(tx, self.owner(true), request)?;
        let at = self.geometry().fs_block_offset(run.start).unwrap_or(0); // the allocator gives blocks of the volume
        let extent = DiskExtent { daddr: (at >> 9).into(), bytes: self.geometry().block_size };
        let leaf = tx.fresh(extent, Rank::Fork)?;
        // At most the records of a block.
        let header = LongHeader { numrecs: U16::new(records.len() as u16), ..self.header(extent) };
        let records = records.as_bytes();
        let bytes = tx.bytes_mut(leaf, 0..LongHeader::SIZE + records.len());
        let (head, body) = bytes.split_at_mut(LongHeader::SIZE);
        head.copy_from_slice(header.as_bytes());
        body.copy_from_slice(records);
        self.put_first_root(first, run.start);
        Ok(())
    }

    fn put_first_root(&mut self, first: Extent, leaf: FsBlock) {
        self.state.set_fork_format(self.kind, ForkFormat::Btree);
        self.state.mark(root_field(self.kind));
        self.state.change_nblocks(1);
        InlineRoot::single(1, first.offset.get(), leaf.get()).put(self.state.fork_bytes_mut(self.kind));
    }

    /// Moves the entries of the root to a new block below it, if they do not fit `bytes` bytes.
    pub(super) fn push_root_down(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        bytes: usize,
    ) -> Result<()> {
        let old = InlineRoot::take(self.state.fork_bytes(self.kind));
        if old.len() <= root::max_entries(bytes) {
            return Ok(());
        }
        let key = U64::view(&old.keys).map_or(0, |key| key.get());
        let near = U64::view(&old.pointers).map(|pointer| FsBlock(pointer.get()));
        let request = BlockRequest { near, max: 1, min: 1, align: 1 };
        let run = space.allocate(tx, self.owner(true), request)?;
        let at = self.geometry().fs_block_offset(run.start).unwrap_or(0); // the allocator gives blocks of the volume
        let extent = DiskExtent { daddr: (at >> 9).into(), bytes: self.geometry().block_size };
        let node = tx.fresh(extent, Rank::Fork)?;
        let header = LongHeader {
            level: U16::new(old.level),
            numrecs: U16::new(old.len() as u16), // at most what an inode holds
            ..self.header(extent)
        };
        let pointers_at = LongHeader::SIZE + BmBt::max_keys(self.geometry()) * BmapKey::SIZE;
        for (at, part) in
            [(0, header.as_bytes()), (LongHeader::SIZE, &*old.keys), (pointers_at, &*old.pointers)]
        {
            tx.bytes_mut(node, at..at + part.len()).copy_from_slice(part);
        }
        self.state.mark(root_field(self.kind));
        self.state.change_nblocks(1);
        InlineRoot::single(old.level + 1, key, run.start.get()).put(self.state.fork_bytes_mut(self.kind));
        Ok(())
    }

    /// The header of a block without siblings.
    fn header(&self, extent: DiskExtent) -> LongHeader {
        LongHeader {
            magic: U32::new(BmBt::MAGIC),
            leftsib: U64::new(NULL_FS_BLOCK),
            rightsib: U64::new(NULL_FS_BLOCK),
            bno: U64::new(extent.daddr.get()),
            uuid: self.geometry().uuid,
            owner: U64::new(self.state.ino().get()),
            ..LongHeader::new_zeroed()
        }
    }

    /// Converts a btree whose extents fit the inode to a list, and frees the last leaf.
    pub(super) fn tree_to_list(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
    ) -> Result<()> {
        let geometry = self.geometry();
        let ino = self.state.ino();
        let damaged = |damage| Error::damaged(Place::ino(ino), damage);
        let count = self.extent_count();
        if self.state.list(self.kind).is_none_or(|list| list.len() as u64 != count) {
            return Err(NOT_LOADED);
        }
        let leaf = match self.state.dinode().fork(self.kind, geometry).map_err(damaged)? {
            Some(RawFork::Btree(root)) if root.level == 1 && root.pointers.len() == 1 => {
                root.pointers.first().copied()
            }
            _ => None,
        };
        let located = leaf.and_then(|leaf| Some((leaf, leaf.locate(geometry, None)?)));
        let Some((leaf, (ag, block))) = located else {
            // The blocks of a btree are at least half full, so these few extents are in one leaf.
            return Err(damaged(Damage::new(
                BmBt::NAME,
                "level",
                "a root above a single leaf",
                "another tree",
            )));
        };
        let at = DiskExtent { daddr: geometry.ag_block_daddr(ag, block), bytes: geometry.block_size };
        let identity = BtreeBlockIdentity { ag, block, ino: Some(ino) };
        let verify = |bytes: &[u8]| BtreeBlock::<BmBt>::verify(bytes, geometry, identity, 0).map(|_| ());
        let id = tx.read(at, Rank::Fork, verify)?;
        tx.invalidate(id);
        space.free_tree_block(tx, self.owner(true), FsBlock(leaf.get()))?;
        self.state.change_nblocks(-1);
        self.state.set_fork_format(self.kind, ForkFormat::Extents);
        self.state.fork_bytes_mut(self.kind).fill(0);
        self.state.store_inline_extents(self.kind, 0);
        Ok(())
    }
}
