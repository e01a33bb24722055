//! The step before the blocks of an unlinked file's attribute fork are freed.
//!
//! The blocks are freed in several transactions, from the end of the fork. After a power failure in between, Linux may
//! continue: it walks the tree from the root before it frees anything, and must not meet a child that is gone. So the
//! root becomes an empty leaf first; the blocks after it are then freed without being read.

use std::sync::Arc;

use base::lock::Rank;
use base::{Daddr, FileBlock};
use error::{Error, Result};
use format::ForkBlock;
use format::attr::edit::leaf;
use format::damage::Place;
use format::inode::ForkKind;
use journal::engine::DiskExtent;

use crate::fork::Fork;
use crate::inactive::{STEP_BUFFERS, STEP_EXTENTS};
use crate::inode::Inode;
use crate::shared::Shared;

/// Makes the root an empty leaf, unless one step frees all blocks of the fork.
///
/// # Errors
/// Damage; I/O errors; a shut down volume.
pub(crate) fn empty_root(shared: &Shared, inode: &Arc<Inode>) -> Result<()> {
    if !needs_several_steps(shared, inode)? {
        return Ok(());
    }
    let mut tx = shared.begin(shared.reservations.unmap)?;
    let mut locked = inode.lock();
    let geometry = &shared.geometry;
    let root = FileBlock(0);
    let mapped = Fork::open(shared, &mut locked, ForkKind::Attr)?.locate(Some(&mut tx), root)?;
    let Some(offset) = mapped.and_then(|(start, _)| geometry.fs_block_offset(start)) else { return Ok(()) };
    let at = ForkBlock { ino: inode.ino(), file_block: root, daddr: Daddr(offset >> 9) };
    // Not read: its old contents do not matter, even if damaged.
    let id = tx.fresh(DiskExtent { daddr: at.daddr, bytes: geometry.block_size }, Rank::Fork)?;
    let damaged = |damage| Error::damaged(Place::ino(inode.ino()), damage);
    leaf::init(tx.buffer_mut(id), geometry, at).map_err(damaged)?;
    tx.commit(&mut [&mut locked])
}

fn needs_several_steps(shared: &Shared, inode: &Arc<Inode>) -> Result<bool> {
    let mut locked = inode.lock();
    let mut fork = Fork::open(shared, &mut locked, ForkKind::Attr)?;
    if fork.extent_count() > STEP_EXTENTS as u64 {
        return Ok(true);
    }
    let step_blocks = STEP_BUFFERS / STEP_EXTENTS as u64;
    let mut at = FileBlock(0);
    while let Some(extent) = fork.next(None, at)? {
        if extent.count > step_blocks {
            return Ok(true);
        }
        at = extent.end();
    }
    Ok(false)
}
