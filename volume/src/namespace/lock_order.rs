//! Locking several inodes: in ascending order of their numbers.
//!
//! A directory must be locked before its entry gives the next inode, which may have a lower number. Then that lock is
//! only tried. If another thread holds it, the directory is unlocked, both are locked in order, and the entry is looked
//! up again.

use base::Ino;
use inode::dir::{DirBlock, EntryPosition};
use inode::{InodeRef, LockedInode};

use crate::Result;
use crate::operation::{Operation, expect_directory};

/// A directory and the inode of one of its entries, both locked.
pub(super) struct LockedEntry {
    pub dir: LockedInode,
    /// A reference to the child, to be dropped after its lock.
    pub child_ref: InodeRef,
    pub child: LockedInode,
    /// Position of the entry in the directory.
    pub position: EntryPosition<DirBlock>,
}

/// Locks a directory and the inode of its entry `name`.
pub(super) fn lock_entry(
    operation: &mut Operation<'_>,
    dir_ref: &InodeRef,
    name: &[u8],
) -> Result<LockedEntry> {
    let mut dir = dir_ref.lock();
    expect_directory(&dir)?;
    let mut position = operation.entry_position(&mut dir, name)?;
    loop {
        let child_ref = operation.entry_inode(&dir, name, position.found().ino)?;
        if let Some(child) = child_ref.try_lock() {
            return Ok(LockedEntry { dir, child_ref, child, position });
        }
        // A thread that waits for an inode holds no buffers of a directory: the position locks them again when it is
        // used.
        operation.tx.release_clean();
        if child_ref.ino() > dir.ino() {
            let child = child_ref.lock();
            return Ok(LockedEntry { dir, child_ref, child, position });
        }
        drop(dir);
        let child = child_ref.lock();
        dir = dir_ref.lock();
        expect_directory(&dir)?;
        position = operation.entry_position(&mut dir, name)?;
        if position.found().ino == child.ino() {
            return Ok(LockedEntry { dir, child_ref, child, position });
        }
    }
}

/// Locks several inodes in order. Returns the locks in the order of `inodes`, with `None` for an inode that was listed
/// before.
pub(super) fn lock_all<const N: usize>(inodes: [Option<&InodeRef>; N]) -> [Option<LockedInode>; N] {
    let mut order: [usize; N] = std::array::from_fn(|n| n);
    let number = |n: usize| inodes.get(n).copied().flatten().map_or(Ino(u64::MAX), |inode| inode.ino());
    order.sort_unstable_by_key(|n| number(*n));
    let mut locked = [const { None }; N];
    let mut last = None;
    for n in order {
        let (Some(Some(inode)), Some(slot)) = (inodes.get(n), locked.get_mut(n)) else { continue };
        if last != Some(inode.ino()) {
            *slot = Some(inode.lock());
            last = Some(inode.ino());
        }
    }
    locked
}
