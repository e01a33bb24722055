//! Per-AG structures that a feature needs before the superblock may set its flag.

use std::marker::PhantomData;
use std::mem::offset_of;

use base::AgNumber;
use base::lock::Rank;
use error::{Error, Result};
use format::Geometry;
use format::agf::RawAgf;
use format::agi::RawAgi;
use format::btree::{FinoBt, InoBt, RefcountBt};
use format::new_ag::empty_root;
use format::ondisk::OnDisk;
use journal::engine::{DiskExtent, Transaction};

use crate::btree::{BtreeCursor, BtreeOps, BtreeOwner, BtreeRoot, BtreeType};
use crate::group::{Group, Groups};
use crate::owner::ExtentOwner;
use crate::space::alloc::{AllocRequest, AllocTarget};
use crate::space::block_reservation::BlockReservation;

impl Groups {
    /// Stores the block counts of an AG's inode trees in its AGI, for the feature `inobtcount`.
    ///
    /// # Errors
    /// I/O errors; damage.
    pub fn count_inode_trees(&self, tx: &mut Transaction, ag: AgNumber) -> Result<()> {
        let Some(group) = self.get(ag) else { return Ok(()) };
        let agi = tx.read(group.sector(2), Rank::Agi(ag.get()), |bytes| {
            RawAgi::verify(bytes, &self.geometry, ag).map(drop)
        })?;
        let Some(raw) = RawAgi::view(tx.bytes(agi)).copied() else { return Ok(()) };
        let root = BtreeRoot::Block { block: raw.root.get().into(), levels: raw.level.get() };
        let all = ReadOnlyBtree::<InoBt>::of(group, root).count(tx)?;
        let mut free = 0;
        if self.geometry.features.finobt() {
            let root = BtreeRoot::Block { block: raw.free_root.get().into(), levels: raw.free_level.get() };
            free = ReadOnlyBtree::<FinoBt>::of(group, root).count(tx)?;
        }
        for (field, count) in [(offset_of!(RawAgi, iblocks), all), (offset_of!(RawAgi, fblocks), free)] {
            tx.bytes_mut(agi, field..field + 4).copy_from_slice(&count.to_be_bytes());
        }
        Ok(())
    }

    /// Creates an empty refcountbt in an AG, for the feature `reflink`. The transaction holds only AGFs of lower AGs,
    /// all locked through `reservation`.
    ///
    /// # Errors
    /// No space in the AG; damage; I/O errors.
    pub fn plant_refcounts(
        &self,
        tx: &mut Transaction,
        reservation: &mut BlockReservation<'_>,
        ag: AgNumber,
    ) -> Result<()> {
        let request = AllocRequest {
            target: AllocTarget::OnlyAg(ag),
            min: 1,
            max: 1,
            align: 1,
            owner: ExtentOwner::RefcountTree,
            data: false,
        };
        let (block, _) = self.alloc_extent(tx, reservation, &request)?;
        let (group, at) = self.of_block(block, 1)?;
        let extent =
            DiskExtent { daddr: self.geometry.ag_block_daddr(ag, at), bytes: self.geometry.block_size };
        let id = tx.fresh(extent, Rank::Fork)?;
        let root = empty_root::<RefcountBt>(&self.geometry, ag, at);
        tx.bytes_mut(id, 0..root.len()).copy_from_slice(&root);
        let locked = group.lock(tx)?;
        locked.set(tx, offset_of!(RawAgf, refcntroot), at.get());
        locked.set(tx, offset_of!(RawAgf, refcntlevel), 1);
        locked.set(tx, offset_of!(RawAgf, refcntblocks), 1);
        Ok(())
    }
}

/// A tree that is only read, whatever the volume's features are.
#[derive(Debug)]
pub(crate) struct ReadOnlyBtree<'g, K> {
    group: &'g Group,
    root: BtreeRoot,
    btree: PhantomData<K>,
}

impl<'g, K: BtreeType> ReadOnlyBtree<'g, K> {
    /// The tree with this root.
    pub fn of(group: &'g Group, root: BtreeRoot) -> Self {
        Self { group, root, btree: PhantomData }
    }

    /// Counts the tree's blocks.
    pub fn count(self, tx: &mut Transaction) -> Result<u32> {
        BtreeCursor::new(self).count_blocks(tx)
    }
}

impl<K: BtreeType> BtreeOps for ReadOnlyBtree<'_, K> {
    type Type = K;

    fn geometry(&self) -> &Geometry {
        &self.group.geometry
    }
    fn owner(&self) -> BtreeOwner {
        BtreeOwner::Ag(self.group.ag)
    }
    fn root(&self, _: &Transaction) -> BtreeRoot {
        self.root
    }
    fn set_root(&mut self, _: &mut Transaction, block: u64, levels: u32) {
        self.root = BtreeRoot::Block { block, levels };
    }
    fn alloc_block(&mut self, _: &mut Transaction, _: u64) -> Result<u64> {
        Err(Error::NoSpace { what: "a tree that is only read" })
    }
    fn free_block(&mut self, _: &mut Transaction, _: u64) -> Result<()> {
        Ok(())
    }
}
