//! The implementation of [`crate::space`] by the allocation groups of a volume.

use std::borrow::BorrowMut;

use ag::rmap::deferred::{FileExtent, RmapIntentType};
use ag::{AllocRequest, AllocTarget, BlockReservation, Claim, Groups};
use base::{FsBlock, Ino};
use error::Result;
use format::Geometry;
use format::extent::Extent;
use format::inode::{ForkKind, ag_of};
use journal::engine::Transaction;
use smallvec::SmallVec;

use crate::contents::tuning::FINISHED_AT_ONCE;
use crate::space::{self, BlockRequest, BlockRun, ForkOwner, SpaceAllocator};

/// The allocation groups, with the blocks that one transaction has reserved.
#[derive(Debug)]
pub struct GroupSpace<'g, R> {
    groups: &'g Groups,
    reserved: R,
    /// The forks map file data, which is written past the log.
    data: bool,
    /// Blocks claimed for the change, sorted.
    claims: Vec<Claim>,
    /// Extents that were mapped, if their reverse mappings are added together in the same transaction.
    mapped: Option<MappedExtents>,
}

type MappedExtents = SmallVec<[FileExtent; FINISHED_AT_ONCE]>;

impl<'g, R: BorrowMut<BlockReservation<'g>>> GroupSpace<'g, R> {
    /// Space for metadata: directories, symlinks, attributes.
    pub fn for_metadata(groups: &'g Groups, reserved: R) -> Self {
        Self { groups, reserved, data: false, claims: Vec::new(), mapped: None }
    }

    /// Space for file contents.
    pub fn for_data(groups: &'g Groups, reserved: R) -> Self {
        Self { groups, reserved, data: true, claims: Vec::new(), mapped: None }
    }

    /// Adds blocks that were claimed for the change, in any order.
    #[must_use]
    pub fn with_claims(self, mut claims: Vec<Claim>) -> Self {
        claims.sort_by_key(Claim::start);
        Self { claims, ..self }
    }

    /// Space for contents of several files, for blocks that are allocated in the same transaction. The reverse mappings
    /// are added by [`map_owners`](Self::map_owners).
    pub fn for_files(groups: &'g Groups, reserved: R) -> Self {
        Self { mapped: Some(SmallVec::new()), ..Self::for_data(groups, reserved) }
    }

    /// Adds the reverse mappings of all extents mapped so far, which lie in one AG.
    pub fn map_owners(self, tx: &mut Transaction) -> Result<()> {
        self.groups.map_allocated(tx, &self.mapped.unwrap_or_default())
    }

    fn mapping(owner: ForkOwner, extent: &Extent) -> FileExtent {
        FileExtent {
            ino: owner.ino,
            attr: owner.fork == ForkKind::Attr,
            offset: extent.offset,
            start: extent.start,
            count: extent.count as u32, // 21 bits
            unwritten: extent.unwritten,
        }
    }
}

fn home(geometry: &Geometry, ino: Ino) -> AllocTarget {
    AllocTarget::Ag(ag_of(ino, geometry).unwrap_or_default())
}

impl ForkOwner {
    /// The owner in reverse mappings.
    fn of_blocks(self) -> ag::ExtentOwner {
        match self.tree {
            true => ag::ExtentOwner::BmapBlock { ino: self.ino, attr: self.fork == ForkKind::Attr },
            false => ag::ExtentOwner::Mapped,
        }
    }
}

impl<'g, R: BorrowMut<BlockReservation<'g>>> SpaceAllocator for GroupSpace<'g, R> {
    fn allocate(&mut self, tx: &mut Transaction, owner: ForkOwner, wanted: BlockRequest) -> Result<BlockRun> {
        let near = wanted.near.filter(|near| self.groups.of_block(*near, 1).is_ok());
        let request = AllocRequest {
            target: near.map_or_else(|| home(self.groups.geometry(), owner.ino), AllocTarget::Block),
            min: wanted.min,
            max: wanted.max,
            align: wanted.align,
            owner: owner.of_blocks(),
            data: self.data && !owner.tree,
        };
        let (start, count) = self.groups.alloc_extent(tx, self.reserved.borrow_mut(), &request)?;
        Ok(BlockRun { start, count })
    }

    fn mapped(&mut self, tx: &mut Transaction, owner: ForkOwner, extent: &Extent) -> Result<()> {
        let extent = Self::mapping(owner, extent);
        match &mut self.mapped {
            Some(mapped) => mapped.push(extent),
            None => self.groups.rmap_later(tx, RmapIntentType::Map, &extent)?,
        }
        Ok(())
    }

    fn marked(&mut self, tx: &mut Transaction, owner: ForkOwner, extent: &Extent) -> Result<()> {
        self.groups.rmap_later(tx, RmapIntentType::Convert, &Self::mapping(owner, extent))
    }

    fn unmapped(&mut self, tx: &mut Transaction, owner: ForkOwner, extent: &Extent) -> Result<()> {
        self.groups.rmap_later(tx, RmapIntentType::Unmap, &Self::mapping(owner, extent))
    }

    fn promise(&mut self, blocks: u32) -> u32 {
        self.reserved.borrow_mut().detach(blocks)
    }

    fn release(
        &mut self,
        tx: &mut Transaction,
        owner: ForkOwner,
        extent: &Extent,
        shared: bool,
    ) -> Result<()> {
        self.unmapped(tx, owner, extent)?;
        let count = extent.count as u32; // 21 bits
        if shared {
            self.groups.release_extent_later(tx, extent.start, count)
        } else {
            self.groups.free_extent_later(tx, extent.start, count, owner.of_blocks())
        }
    }

    fn take_claimed(&mut self, tx: &mut Transaction) -> Result<()> {
        let claims = std::mem::take(&mut self.claims);
        self.groups.take_claimed(tx, self.reserved.borrow_mut(), claims, ag::ExtentOwner::Mapped)
    }

    fn free_tree_block(&mut self, tx: &mut Transaction, owner: ForkOwner, block: FsBlock) -> Result<()> {
        self.groups.free_extent_later(tx, block, 1, owner.of_blocks())
    }
}

impl space::GroupOperations for Groups {
    fn space(&self, blocks: u32) -> Result<Box<dyn SpaceAllocator + '_>> {
        Ok(Box::new(GroupSpace::for_metadata(self, self.reserve_blocks(blocks)?)))
    }

    fn promised(&self, blocks: u32) -> Box<dyn SpaceAllocator + '_> {
        Box::new(GroupSpace::for_metadata(self, self.attach_blocks(blocks)))
    }

    fn free_inodes(&self, tx: &mut Transaction, inos: &[Ino]) -> Result<space::FreedInodes> {
        Self::free_inodes(self, tx, inos)
    }

    fn chunk_inodes(&self, tx: &mut Transaction, ino: Ino) -> Result<Option<space::ChunkInodes>> {
        Self::chunk_inodes(self, tx, ino)
    }
}
