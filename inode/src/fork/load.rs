//! Reading the extents of a btree.
//!
//! The walk ends also in a damaged btree: levels fall strictly, siblings are not followed, and no more blocks are
//! visited than the inode's block count.

use base::lock::Rank;
use base::{FileBlock, FsBlock};
use error::{Error, Result};
use format::btree::{
    BmBt, Btree, BtreeBlock, BtreeBlockBody, BtreeBlockIdentity, BtreeHeader, BtreePointer, LongHeader,
};
use format::damage::{Damage, Place};
use format::extent::Extent;
use format::inode::{Fork, ForkKind, verify_extents};
use format::ondisk::{OnDisk, U64};
use journal::engine::DiskExtent;

use crate::extents::ExtentList;
use crate::shared::Shared;
use crate::state::InodeState;

struct MapTreeWalk<'a> {
    shared: &'a Shared,
    state: &'a InodeState,
    /// Number of blocks that may still be visited.
    blocks_left: u64,
    /// The extent count in the inode.
    expected: u64,
    extents: Vec<Extent>,
}

/// Reads all extents of a fork in btree format.
pub(super) fn read_tree(shared: &Shared, state: &InodeState, kind: ForkKind) -> Result<ExtentList> {
    let place = Place::ino(state.ino());
    let damaged = |damage| Error::damaged(place, damage);
    let Some(Fork::Btree(root)) = state.dinode().fork(kind, &shared.geometry).map_err(damaged)? else {
        return Ok(ExtentList::default());
    };
    let expected = state.extent_count(kind);
    let mut walk = MapTreeWalk { shared, state, blocks_left: state.nblocks(), expected, extents: Vec::new() };
    // Depth first: the number of pending blocks is at most the number of levels times the keys of a block.
    let mut pending: Vec<(U64, u16)> = root.pointers.iter().rev().map(|at| (*at, root.level - 1)).collect();
    while let Some((pointer, level)) = pending.pop() {
        walk.block(pointer, level, &mut pending)?;
    }
    if walk.extents.len() as u64 != expected {
        return Err(damaged(Damage::new("inode", "nextents", walk.extents.len(), expected)));
    }
    Ok(ExtentList::from_sorted(walk.extents))
}

impl MapTreeWalk<'_> {
    fn block(&mut self, pointer: U64, level: u16, pending: &mut Vec<(U64, u16)>) -> Result<()> {
        let geometry = &self.shared.geometry;
        let located = pointer.locate(geometry, None).filter(|_| self.blocks_left > 0);
        let Some((ag, block)) = located else {
            let wanted = "a block of the volume, and no more than the inode has";
            let damage = Damage::new(BmBt::NAME, "ptr", wanted, FsBlock(pointer.get()));
            return Err(Error::damaged(Place::ino(self.state.ino()), damage));
        };
        self.blocks_left -= 1;
        let place = Place::block(ag, block).of_inode(self.state.ino());
        let damaged = |damage| Error::damaged(place, damage);
        let identity = BtreeBlockIdentity { ag, block, ino: Some(self.state.ino()) };
        let at = DiskExtent { daddr: geometry.ag_block_daddr(ag, block), bytes: geometry.block_size };
        let verify = |bytes: &[u8]| BtreeBlock::<BmBt>::verify(bytes, geometry, identity, level).map(|_| ());
        let guard = self.shared.buffers.lock_read(&at.into(), Rank::Fork, verify)?;
        // A cached block was verified when it was read, perhaps at another place of a btree.
        let short = || Damage::short(BmBt::NAME, LongHeader::SIZE, guard.bytes().len());
        let header = LongHeader::view(guard.bytes()).ok_or_else(short).map_err(damaged)?;
        if header.magic() != BmBt::MAGIC || header.level() != level {
            return Err(damaged(Damage::new(BmBt::NAME, "level", level, header.level())));
        }
        match BtreeBlock::<BmBt>::body(guard.bytes(), geometry, header).map_err(damaged)? {
            BtreeBlockBody::Node(_, pointers) => {
                let below = level.saturating_sub(1); // a node is above 0
                pending.extend(pointers.iter().rev().map(|pointer| (*pointer, below)));
            }
            BtreeBlockBody::Leaf(records) => {
                verify_extents(records, geometry).map_err(damaged)?;
                let end = self.extents.last().map_or(FileBlock(0), Extent::end);
                let first = records.first().map(Extent::decode);
                if let Some(first) = first.filter(|first| first.offset < end) {
                    let expected = format!("at least {end}");
                    return Err(damaged(Damage::new(BmBt::NAME, "startoff", expected, first.offset)));
                }
                self.extents.extend(records.iter().map(Extent::decode));
                if self.extents.len() as u64 > self.expected {
                    return Err(damaged(Damage::new("inode", "nextents", self.extents.len(), self.expected)));
                }
            }
        }
        Ok(())
    }
}
