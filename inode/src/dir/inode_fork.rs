//! [`DirFork`] on the data fork of an inode: blocks come from the allocation groups, bytes from buffers of the
//! transaction.
//!
//! A directory block of several file system blocks is allocated in one extent if possible, otherwise in several, which
//! the format allows; its buffer then has several extents.

use base::lock::Rank;
use base::{Daddr, FileBlock, Ino};
use error::Error;
use format::dabtree::BlkInfo;
use format::dir::DirHeader;
use format::extent::Extent;
use format::inode::ForkKind;
use format::ondisk::OnDisk;
use format::{Damage, ForkBlock, Geometry, Place};
use journal::engine::{BufferExtents, BufferId, DiskExtent, JoinedBuffer, Transaction};

use super::Result;
use super::collision_index::CollisionIndex;
use super::fork::{DirBlockType, DirFork};
use crate::dabtree::TreeFork;
use crate::extents::ExtentList;
use crate::shared::Shared;
use crate::space::{BlockRun, SpaceAllocator};
use crate::state::{ForkFormat, InodeState};

/// A directory block in a transaction.
#[derive(Clone, Copy, Debug)]
pub struct DirBlock {
    buffer: BufferId,
    at: FileBlock,
}

impl PartialEq for DirBlock {
    fn eq(&self, other: &Self) -> bool {
        self.buffer == other.buffer
    }
}

impl Eq for DirBlock {}

/// The data fork of a locked directory, within a transaction.
pub struct InodeDirFork<'a> {
    fork: TreeFork<'a>,
}

impl std::fmt::Debug for InodeDirFork<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InodeDirFork({})", self.fork.state.ino())
    }
}

impl<'a> InodeDirFork<'a> {
    /// The data fork of a directory, which may use `reserved` of the transaction's reserved blocks:
    /// [`super::max_new_blocks`] and those of the extent map. With fewer, a change that needs more is refused before it
    /// begins.
    ///
    /// # Errors
    /// Those of [`Fork::open`](crate::fork::Fork::open).
    pub fn new(
        shared: &'a Shared,
        tx: &'a mut Transaction,
        space: &'a mut dyn SpaceAllocator,
        state: &'a mut InodeState,
        reserved: u32,
    ) -> Result<Self> {
        Ok(Self { fork: TreeFork::open(shared, tx, space, state, ForkKind::Data, reserved)? })
    }

    fn per_block(&self) -> u64 {
        1 << self.fork.shared.geometry.dir_block_log
    }

    #[cold]
    fn damaged(&self, at: FileBlock, damage: Damage) -> Error {
        Error::damaged(Place::ino(self.fork.state.ino()).at(at), damage)
    }

    /// The disk extents of a directory block.
    fn segments(&mut self, at: FileBlock) -> Result<BufferExtents> {
        let geometry = &self.fork.shared.geometry;
        let (mut fork, tx) = self.fork.lookup()?;
        let list = fork.around(Some(tx), at, 0, extents_of_block(geometry))?;
        block_extents(geometry, list, at).map_err(|hole| {
            let damage = Damage::new("directory", "extents", "a directory block", "a hole");
            self.damaged(hole, damage)
        })
    }

    /// The block from the recently used buffers.
    fn recent(&mut self, at: FileBlock, kind: DirBlockType) -> Option<DirBlock> {
        let found = self.fork.state.recent_buffers()?.get(at)?;
        let buffer = self.fork.tx.rejoin(found)?;
        let is_own = owner(self.fork.tx.bytes(buffer), kind) == Some(self.fork.state.ino().get());
        is_own.then_some(DirBlock { buffer, at })
    }
}

/// The most extents of a directory block.
pub(super) fn extents_of_block(geometry: &Geometry) -> usize {
    1 << geometry.dir_block_log
}

/// The disk extents of a directory block, or a file block in it that is not mapped. The list has the extents around the
/// block, as many as it may have.
pub(super) fn block_extents(
    geometry: &Geometry,
    list: &ExtentList,
    at: FileBlock,
) -> std::result::Result<BufferExtents, FileBlock> {
    let per_block = 1 << geometry.dir_block_log;
    if let Some((start, count)) = list.map(at)
        && count >= per_block
        && let Some(offset) = geometry.fs_block_offset(start)
    {
        let whole = DiskExtent { daddr: Daddr(offset >> 9), bytes: geometry.dir_block_size };
        return Ok(whole.into());
    }
    let end = at.get().saturating_add(per_block);
    let mut extents: Vec<DiskExtent> = Vec::new();
    let mut next = at.get();
    while next < end {
        let mapped = list.map(FileBlock(next));
        let offset = mapped.and_then(|(start, count)| Some((geometry.fs_block_offset(start)?, count)));
        let (offset, count) = offset.ok_or(FileBlock(next))?;
        let count = count.min(end - next);
        let extent = DiskExtent { daddr: Daddr(offset >> 9), bytes: (count << geometry.block_log) as u32 };
        match extents.last_mut() {
            Some(last) if last.daddr.get() + u64::from(last.bytes >> 9) == extent.daddr.get() => {
                last.bytes += extent.bytes;
            }
            _ => extents.push(extent),
        }
        next += count.max(1);
    }
    BufferExtents::new(&extents).ok_or(at)
}

/// The owner field of a block.
pub(super) fn owner(bytes: &[u8], kind: DirBlockType) -> Option<u64> {
    match kind {
        DirBlockType::LeafOrNode => BlkInfo::view(bytes).map(|info| info.owner.get()),
        DirBlockType::Data | DirBlockType::Free => DirHeader::view(bytes).map(|header| header.owner.get()),
    }
}

impl DirFork for InodeDirFork<'_> {
    type BlockId = DirBlock;
    type Buffer = JoinedBuffer;

    fn ino(&self) -> Ino {
        self.fork.state.ino()
    }

    fn local(&self) -> Option<&[u8]> {
        self.fork.state.local()
    }

    fn local_capacity(&self) -> usize {
        self.fork.state.fork_capacity(ForkKind::Data)
    }

    fn set_local(&mut self, contents: &[u8]) -> Result<()> {
        self.fork.state.set_list(ForkKind::Data, None);
        if self.fork.state.set_local(contents) {
            return Ok(());
        }
        Err(Error::NoSpace { what: "a directory within its inode" })
    }

    fn leave_local(&mut self) -> Result<()> {
        self.fork.state.set_fork_format(ForkKind::Data, ForkFormat::Extents);
        self.fork.state.set_list(ForkKind::Data, Some(ExtentList::new()));
        self.fork.state.set_size(0);
        Ok(())
    }

    fn size(&self) -> u64 {
        self.fork.state.size()
    }

    fn set_size(&mut self, size: u64) {
        self.fork.state.set_size(size);
    }

    fn end(&mut self) -> Result<FileBlock> {
        let (mut fork, tx) = self.fork.lookup()?;
        fork.end(Some(tx))
    }

    fn next_mapped(&mut self, from: FileBlock) -> Result<Option<FileBlock>> {
        let (mut fork, tx) = self.fork.lookup()?;
        Ok(fork.next(Some(tx), from)?.map(|extent| extent.offset.max(from)))
    }

    fn mapped_end(&mut self, below: FileBlock) -> Result<FileBlock> {
        let (mut fork, tx) = self.fork.lookup()?;
        let last = fork.last_in(Some(tx), FileBlock(0), below)?;
        Ok(last.map_or(FileBlock(0), |last| last.end()))
    }

    fn first_hole(&mut self, from: FileBlock) -> Result<FileBlock> {
        let per_block = self.per_block();
        let (mut fork, tx) = self.fork.lookup()?;
        fork.first_hole(Some(tx), from, per_block)
    }

    fn read(&mut self, at: FileBlock, kind: DirBlockType) -> Result<DirBlock> {
        if let Some(block) = self.recent(at, kind) {
            return Ok(block);
        }
        let segments = self.segments(at)?;
        let ino = self.fork.state.ino();
        let at = ForkBlock { ino, file_block: at, daddr: segments.daddr() };
        let geometry = &self.fork.shared.geometry;
        let buffer = self.fork.tx.read(segments, Rank::Fork, |bytes| kind.verify(bytes, geometry, at))?;
        // A cached buffer may belong to another directory, if both map the block.
        let owner = owner(self.fork.tx.bytes(buffer), kind);
        if owner != Some(ino.get()) {
            let found = owner.map_or_else(|| "none".to_owned(), |owner| owner.to_string());
            return Err(Error::damaged(at.place(), Damage::new("directory block", "owner", ino, found)));
        }
        self.fork.state.recent_buffers_mut().insert(at.file_block, self.fork.tx.buffer_mut(buffer).buffer());
        Ok(DirBlock { buffer, at: at.file_block })
    }

    fn ensure_blocks(&mut self, blocks: u32) -> Result<()> {
        if blocks == 0 {
            return Ok(());
        }
        let tree = if self.fork.state.fork_format(ForkKind::Data) == Some(ForkFormat::Btree) { 2 } else { 1 };
        let blocks = blocks << self.fork.shared.geometry.dir_block_log;
        if blocks + tree > self.fork.reserved {
            return Err(Error::NoSpace { what: "a directory block" });
        }
        // In the worst case each block is an extent.
        self.fork.state.check_extent_count(ForkKind::Data, blocks as usize)
    }

    fn allocate(&mut self, at: FileBlock) -> Result<DirBlock> {
        let per_block = self.per_block() as u32; // at most 64
        let before = self.fork.state.nblocks();
        let (mut fork, tx, space) = self.fork.map()?;
        // Only the allocation of one extent may fail: once a part of the block is mapped, an error aborts the
        // transaction.
        match fork.take(tx, space, at, per_block..=per_block) {
            Err(Error::NoSpace { .. }) if per_block > 1 => {
                let mut left = per_block;
                while left > 0 {
                    let next = FileBlock(at.get() + u64::from(per_block - left));
                    let extent = fork.allocate(tx, space, next, 1..=left, false)?;
                    left -= (extent.count as u32).clamp(1, left);
                }
            }
            run => {
                let BlockRun { start, count } = run?;
                let extent = Extent { offset: at, start, count: count.into(), unwritten: false };
                fork.map(tx, space, extent)?;
            }
        }
        self.fork.count_taken(before);
        let segments = self.segments(at)?;
        Ok(DirBlock { buffer: self.fork.tx.fresh(segments, Rank::Fork)?, at })
    }

    fn can_free(&mut self, at: FileBlock, earlier: usize) -> Result<bool> {
        let range = at..FileBlock(at.get() + self.per_block());
        self.fork.can_unmap(range, earlier)
    }

    fn free(&mut self, at: FileBlock, id: DirBlock) -> Result<()> {
        self.fork.tx.invalidate(id.buffer);
        let end = FileBlock(at.get() + self.per_block());
        self.fork.unmap(at..end)
    }

    fn identity(&self, id: DirBlock) -> ForkBlock {
        ForkBlock {
            ino: self.fork.state.ino(),
            file_block: id.at,
            daddr: self.fork.tx.buffer(id.buffer).daddr(),
        }
    }

    #[inline]
    fn bytes(&self, id: DirBlock) -> &[u8] {
        self.fork.tx.bytes(id.buffer)
    }

    #[inline]
    fn block_mut(&mut self, id: DirBlock) -> &mut JoinedBuffer {
        self.fork.tx.buffer_mut(id.buffer)
    }

    fn release(&mut self, id: DirBlock) {
        self.fork.tx.release(id.buffer);
    }

    #[inline]
    fn collision_index(&mut self) -> &mut Option<Box<CollisionIndex>> {
        self.fork.state.collision_index()
    }

    fn epoch(&self) -> u32 {
        self.fork.tx.epoch()
    }
}
