//! Changing the owner of a fork's tree: an old way of exchanging the data of two files moves the root of a tree to the
//! other inode, and the blocks of the tree must then have the new owner.
//!
//! These blocks are not logged: replay walks the tree. The walk ends whatever the disk contains, as levels must fall
//! strictly, siblings are not followed, and no more blocks are visited than the inode has.

use base::{AgBlock, AgNumber, Ino};
use format::btree::{BmBt, Btree, BtreeBlock, BtreeBlockBody, LongHeader, MAX_LEVELS};
use format::damage::{Damage, Place};
use format::inode::{BmapRootView, Dinode, Fork, ForkKind};
use format::log::inode::{InodeFormat, fields};
use format::metadata_header::HeaderLayout;
use format::ondisk::{OnDisk, U64};

use super::replay::{AtPlace, ReplayContext, ReplayFailure};

/// Makes the inode the owner of the tree blocks of the forks that the item names.
pub fn change(
    slot: &[u8],
    format: &InodeFormat,
    context: &mut ReplayContext<'_>,
) -> Result<(), ReplayFailure> {
    let geometry = context.geometry.clone();
    let inode = Dinode::verify(slot, &geometry, format.ino).at(Place::ino(format.ino))?;
    if inode.is_free() {
        return Ok(());
    }
    for (flag, kind) in [(fields::DATA_OWNER, ForkKind::Data), (fields::ATTR_OWNER, ForkKind::Attr)] {
        if format.fields & flag == 0 {
            continue;
        }
        if let Some(Fork::Btree(root)) = inode.fork(kind, &geometry).at(Place::ino(format.ino))? {
            OwnerChange { ino: format.ino, left: inode.core.nblocks.get(), context: &mut *context }
                .root(root)?;
        }
    }
    Ok(())
}

struct OwnerChange<'c, 'a> {
    ino: Ino,
    /// Blocks that may still be visited.
    left: u64,
    context: &'c mut ReplayContext<'a>,
}

impl OwnerChange<'_, '_> {
    fn root(&mut self, root: BmapRootView<'_>) -> Result<(), ReplayFailure> {
        let mut pending: Vec<(U64, u16)> = root.pointers.iter().map(|at| (*at, root.level - 1)).collect();
        // Depth first, so that the pending pointers are bounded by levels times the pointers of a block.
        while let Some((pointer, level)) = pending.pop() {
            let below = self.block(pointer, level)?;
            if let Some(level) = level.checked_sub(1) {
                pending.extend(below.into_iter().map(|pointer| (pointer, level)));
            }
        }
        Ok(())
    }

    /// Changes the owner of one block; returns its pointers.
    fn block(&mut self, pointer: U64, level: u16) -> Result<Vec<U64>, ReplayFailure> {
        const NAME: &str = "extent map tree";
        let geometry = &self.context.geometry;
        let located: Option<(AgNumber, AgBlock)> =
            format::btree::BtreePointer::locate(&pointer, geometry, None);
        let Some((ag, block)) = located.filter(|_| self.left > 0 && u32::from(level) < MAX_LEVELS) else {
            let damage =
                Damage::new(NAME, "ptr", "a block of the volume, and no more than the inode has", pointer);
            return Err(ReplayFailure::Damage(Place::ino(self.ino), damage));
        };
        self.left -= 1;
        let (daddr, size, place) = (
            geometry.ag_block_daddr(ag, block),
            geometry.block_size as usize,
            Place::block(ag, block).of_inode(self.ino),
        );
        let mut bytes = self.context.buffers.get(daddr, size)?.to_vec();
        let header =
            *LongHeader::view(&bytes).ok_or_else(|| Damage::short(NAME, size, bytes.len())).at(place)?;
        if header.magic.get() != BmBt::MAGIC || header.level.get() != level {
            let damage = Damage::new(NAME, "level", level, header.level);
            return Err(ReplayFailure::Damage(place, damage));
        }
        let pointers = match BtreeBlock::<BmBt>::body(&bytes, &self.context.geometry, &header).at(place)? {
            BtreeBlockBody::Leaf(_) => Vec::new(),
            BtreeBlockBody::Node(_, pointers) => pointers.to_vec(),
        };
        if header.owner.get() != self.ino.get() {
            const OWNER: usize = std::mem::offset_of!(LongHeader, owner);
            if let Some(owner) = bytes.get_mut(OWNER..OWNER + 8) {
                owner.copy_from_slice(&self.ino.get().to_be_bytes());
            }
            // The LSN stays: only the owner changes.
            if let Some(stamp) = HeaderLayout::of(&bytes) {
                stamp.seal(&mut bytes, base::Lsn(header.lsn.get()));
            }
            self.context.buffers.get_mut(daddr, size)?.copy_from_slice(&bytes);
        }
        Ok(pointers)
    }
}
