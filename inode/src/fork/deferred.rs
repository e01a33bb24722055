//! Extent maps changed after the transaction that asked for it: behind an intent (BUI) with its done item (BUD).
//!
//! So blocks move between files, or within one: a range is unmapped here and mapped there, and whenever the machine
//! stops, what was begun is finished. The blocks stay allocated; their reverse mappings follow the maps.
//!
//! # Locking
//! Whoever defers such an operation keeps the inode locked and hands it to the commit, where the operation finds it.

use std::sync::Arc;

use base::{FileBlock, Ino};
use error::Error;
use format::damage::{Damage, Place};
use format::extent::{Extent, MAX_EXTENT_BLOCKS, MAX_FILE_BLOCKS};
use format::inode::ForkKind;
use format::log::intent::{MapTarget, bmap};
use format::log::item::ItemType;
use journal::engine::{DeferredOperation, DeferredProgress, Loggable, Transaction};

use super::Fork;
use crate::inode::LockedInode;
use crate::shared::Shared;
use crate::space::SpaceAllocator;
use crate::state::ForkFormat;

const NAME: &str = "mapping to change";

/// What is done to a range of a fork. The numbers are those of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapChange {
    /// A hole is mapped to blocks that nobody else maps, or that are shared and counted already.
    Map = bmap::MAP as isize,
    /// A range is unmapped; its blocks stay allocated.
    Unmap = bmap::UNMAP as isize,
}

/// A change of one range of one fork.
#[derive(Debug)]
struct DeferredMapping {
    shared: Arc<Shared>,
    /// As the log has it.
    target: MapTarget,
    /// Blocks that were set aside for the fork's tree.
    promised: u32,
}

/// Changes a fork of a locked inode after this transaction. `space` gives what the fork's tree may take of blocks:
/// [`Reservations::map_blocks`](crate::reservation::Reservations).
///
/// # Errors
/// Damage: the extent cannot be one.
pub fn map_later(
    shared: &Arc<Shared>,
    tx: &mut Transaction,
    space: &mut dyn SpaceAllocator,
    change: MapChange,
    (ino, kind, extent): (Ino, ForkKind, &Extent),
) -> Result<(), Error> {
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

/// The operation that an intent asks for which recovery found unanswered. The inode must be locked at the commit.
///
/// # Errors
/// Damage: the mapping cannot be one, or nobody knows such an operation.
pub fn recovered(shared: &Arc<Shared>, target: &MapTarget) -> Result<Box<dyn DeferredOperation>, Error> {
    verify(shared, target)?;
    Ok(Box::new(DeferredMapping { shared: Arc::clone(shared), target: *target, promised: 0 }))
}

/// Verifies that a mapping can be one.
fn verify(shared: &Shared, target: &MapTarget) -> Result<(), Error> {
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

    fn change(&mut self, tx: &mut Transaction, inode: &mut LockedInode) -> Result<DeferredProgress, Error> {
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
            if fork.list().last_in(extent.offset, extent.end()).is_some() {
                let damage = Damage::new(NAME, "startoff", "a hole", "blocks that are mapped");
                return Err(Error::damaged(place.at(extent.offset), damage));
            }
            fork.map(tx, &mut *space, extent)?;
            return Ok(DeferredProgress::Done);
        }
        let gone = fork.unmap(tx, &mut *space, (extent.offset, extent.end()))?;
        let left = gone.map_or(0, |gone| gone.offset.get() - extent.offset.get());
        self.target.blocks = left as u32; // less than it was
        let more = fork.list().last_in(extent.offset, FileBlock(extent.offset.get() + left)).is_some();
        Ok(if more { DeferredProgress::Again } else { DeferredProgress::Done })
    }
}

impl DeferredOperation for DeferredMapping {
    fn intent(&self) -> ItemType {
        ItemType::Bui
    }

    fn done(&self) -> ItemType {
        ItemType::Bud
    }

    fn batch(&self) -> usize {
        1
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.target.write(out);
    }

    fn perform(
        &mut self,
        tx: &mut Transaction,
        locked: &mut [&mut dyn Loggable],
    ) -> Result<DeferredProgress, Error> {
        let inode = LockedInode::among(locked, Ino(self.target.owner)).ok_or(super::NOT_LOCKED)?;
        self.change(tx, inode)
    }
}
