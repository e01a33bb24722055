//! Deferred changes of extent maps, with an intent (BUI) and a done item (BUD).
//!
//! They move blocks between files, or within one: one range is unmapped and another one mapped, and log recovery
//! completes the move after a crash. The blocks stay allocated; their reverse mappings are updated.
//!
//! # Locking
//! The inode must stay locked from the deferral on, and be passed to the commit.

use std::sync::Arc;

use base::{FileBlock, Ino};
use error::{Error, Result};
use format::damage::{Damage, Place};
use format::extent::{Extent, MAX_EXTENT_BLOCKS, MAX_FILE_BLOCKS};
use format::inode::ForkKind;
use format::log::intent::{MapTarget, bmap};
use format::log::item::ItemType;
use journal::engine::{DeferredKind, DeferredOperation, DeferredProgress, Loggable, Transaction};

use super::Fork;
use crate::inode::LockedInode;
use crate::shared::Shared;
use crate::space::SpaceAllocator;
use crate::state::ForkFormat;

const NAME: &str = "mapping to change";

/// A change of a range of a fork. The numbers are those of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapChange {
    /// Map a hole to blocks that are not mapped elsewhere, or whose reference count already includes this mapping.
    Map = bmap::MAP as isize,
    /// Unmap a range. Its blocks stay allocated.
    Unmap = bmap::UNMAP as isize,
}

/// A deferred change of one range of a fork.
#[derive(Debug)]
struct DeferredMapping {
    shared: Arc<Shared>,
    /// The change in the form of the log.
    target: MapTarget,
    /// Reserved blocks for the fork's btree.
    promised: u32,
}

/// Defers a change of a fork of a locked inode. Takes the blocks that the btree may need from the reservation of
/// `space`: [`Reservations::map_blocks`](crate::reservation::Reservations).
///
/// # Errors
/// Damage: the extent is not valid.
pub fn map_later(
    shared: &Arc<Shared>,
    tx: &mut Transaction,
    space: &mut dyn SpaceAllocator,
    change: MapChange,
    ino: Ino,
    kind: ForkKind,
    extent: &Extent,
) -> Result<()> {
    let flag = |set: bool, bit: u32| if set { bit } else { 0 };
    let target = MapTarget {
        owner: ino.get(),
        start: extent.start,
        offset: extent.offset,
        blocks: extent.count as u32, // 21 bits, or it is refused
        flags: change as u32
            | flag(kind == ForkKind::Attr, bmap::ATTR_FORK)
            | flag(extent.unwritten, bmap::UNWRITTEN),
    };
    verify(shared, &target)?;
    let promised = space.promise(shared.reservations.map_blocks);
    tx.defer(Box::new(DeferredMapping { shared: Arc::clone(shared), target, promised }));
    Ok(())
}

/// Returns the deferred operation of a recovered intent. The inode must be locked at the commit.
///
/// # Errors
/// Damage: the mapping is not valid, or the operation is unknown.
pub fn recovered(shared: &Arc<Shared>, target: &MapTarget) -> Result<Box<dyn DeferredOperation>> {
    verify(shared, target)?;
    Ok(Box::new(DeferredMapping { shared: Arc::clone(shared), target: *target, promised: 0 }))
}

/// Verifies a mapping.
fn verify(shared: &Shared, target: &MapTarget) -> Result<()> {
    let place = Place::ino(Ino(target.owner));
    let wrong = |field, expected, found: &dyn std::fmt::Display| {
        Err(Error::damaged(place, Damage::new(NAME, field, expected, found)))
    };
    if !shared.geometry.ino_is_valid(Ino(target.owner)) {
        return wrong("owner", "an inode of the volume", &target.owner);
    }
    let known = bmap::ATTR_FORK | bmap::UNWRITTEN;
    let operation = target.operation();
    if bmap::operation(operation).is_none() || target.flags & !(known | operation) != 0 {
        return wrong(
            "flags",
            "to map or to unmap blocks of this device",
            &format_args!("{:#x}", target.flags),
        );
    }
    let blocks = u64::from(target.blocks);
    if blocks > MAX_EXTENT_BLOCKS || target.offset.get() >= MAX_FILE_BLOCKS {
        return wrong("startoff", "a possible extent", &format_args!("{blocks} at {}", target.offset));
    }
    extent_of(target).verify(&shared.geometry).map_err(|damage| Error::damaged(place, damage))
}

fn extent_of(target: &MapTarget) -> Extent {
    let (offset, start) = (target.offset, target.start);
    Extent { offset, start, count: target.blocks.into(), unwritten: target.flags & bmap::UNWRITTEN != 0 }
}

impl DeferredMapping {
    fn kind(&self) -> ForkKind {
        if self.target.flags & bmap::ATTR_FORK != 0 { ForkKind::Attr } else { ForkKind::Data }
    }

    fn change(&mut self, tx: &mut Transaction, inode: &mut LockedInode) -> Result<DeferredProgress> {
        let shared = Arc::clone(&self.shared);
        let place = Place::ino(inode.ino());
        let kind = self.kind();
        if !matches!(inode.fork_format(kind), Some(ForkFormat::Extents | ForkFormat::Btree)) {
            let damage = Damage::new(NAME, "owner", "a fork that maps blocks", "one that does not");
            return Err(Error::damaged(place, damage));
        }
        let mut space = match std::mem::take(&mut self.promised) {
            0 => shared.groups.space(shared.reservations.map_blocks).or_else(|_| shared.groups.space(0))?,
            promised => shared.groups.promised(promised),
        };
        let extent = extent_of(&self.target);
        let mut fork = Fork::open(&shared, inode, kind)?;
        if self.target.operation() == bmap::MAP {
            if fork.last_in(Some(tx), extent.offset, extent.end())?.is_some() {
                let damage = Damage::new(NAME, "startoff", "a hole", "blocks that are mapped");
                return Err(Error::damaged(place.at(extent.offset), damage));
            }
            fork.map(tx, &mut *space, extent)?;
            return Ok(DeferredProgress::Done);
        }
        let unmapped = fork.unmap(tx, &mut *space, extent.offset..extent.end())?;
        let left = unmapped.map_or(0, |unmapped| unmapped.offset.get() - extent.offset.get());
        self.target.blocks = left as u32; // less than it was
        let more = fork.last_in(Some(tx), extent.offset, FileBlock(extent.offset.get() + left))?.is_some();
        Ok(if more { DeferredProgress::Again } else { DeferredProgress::Done })
    }
}

impl DeferredOperation for DeferredMapping {
    fn kind(&self) -> DeferredKind {
        DeferredKind::new(ItemType::Bui, ItemType::Bud, 1)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.target.write(out);
    }

    fn perform(
        &mut self,
        tx: &mut Transaction,
        locked: &mut [&mut dyn Loggable],
    ) -> Result<DeferredProgress> {
        let inode = LockedInode::among(locked, Ino(self.target.owner)).ok_or(super::NOT_LOCKED)?;
        self.change(tx, inode)
    }
}
