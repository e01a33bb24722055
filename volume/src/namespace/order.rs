//! In which order inodes are locked.
//!
//! Ascending by number. A directory must be locked before its entry tells which inode comes next, and that one may have
//! a lower number: then its lock is only tried. Where somebody holds it, the directory is given back, both are locked
//! in order, and the entry is looked at again.

use base::Ino;
use inode::InodeRef;
use inode::dir::{DirBlock, EntryPosition};

use crate::Result;
use crate::operation::{Locked, Operation, expect_directory};

/// A directory and what one of its names stands for, both locked.
pub(super) struct Named {
    pub dir: Locked,
    /// A hold on the child, to be dropped after its lock.
    pub child_ref: InodeRef,
    pub child: Locked,
    /// Where the name stands in the directory.
    pub place: EntryPosition<DirBlock>,
}

/// Locks a directory and the inode that `name` stands for.
pub(super) fn lock_named(change: &mut Operation<'_>, dir_ref: &InodeRef, name: &[u8]) -> Result<Named> {
    let mut dir = dir_ref.lock();
    expect_directory(&dir)?;
    let mut place = change.entry_position(&mut dir, name)?;
    loop {
        let child_ref = change.named(&dir, name, place.found().ino)?;
        if let Some(child) = child_ref.try_lock() {
            return Ok(Named { dir, child_ref, child, place });
        }
        // Who waits for an inode keeps no blocks: the place is found again.
        change.tx.release_clean();
        if child_ref.ino() > dir.ino() {
            let child = child_ref.lock();
            return Ok(Named { dir, child_ref, child, place });
        }
        drop(dir);
        let child = child_ref.lock();
        dir = dir_ref.lock();
        expect_directory(&dir)?;
        place = change.entry_position(&mut dir, name)?;
        if place.found().ino == child.ino() {
            return Ok(Named { dir, child_ref, child, place });
        }
    }
}

/// Locks several inodes in order; the same inode may be named more than once. Gives them in the order of `inodes`,
/// where each is `None` from its second mention on.
pub(super) fn lock_all<const N: usize>(inodes: [Option<&InodeRef>; N]) -> [Option<Locked>; N] {
    let mut order: [usize; N] = std::array::from_fn(|n| n);
    let number = |n: usize| inodes.get(n).copied().flatten().map_or(Ino(u64::MAX), |inode| inode.ino());
    order.sort_unstable_by_key(|n| number(*n));
    let mut locked = [const { None }; N];
    let mut last = None;
    for n in order {
        let (Some(Some(inode)), Some(place)) = (inodes.get(n), locked.get_mut(n)) else { continue };
        if last != Some(inode.ino()) {
            *place = Some(inode.lock());
            last = Some(inode.ino());
        }
    }
    locked
}
