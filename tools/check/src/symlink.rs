//! Targets of symlinks, in the inode (local) and in blocks (remote).

use base::{FileBlock, Ino};
use format::inode::{Dinode, Fork, ForkKind};
use format::ondisk::OnDisk;
use format::remote_block::RemoteBlockHeader;
use format::symlink::{self, MAX_TARGET};
use format::{Damage, Place};

use crate::block_map::{Batch, BlockMap};
use crate::volume::Volume;

const NAME: &str = "symlink target";

/// Checks the target of a symlink whose core was checked. `blocks` is the block map of its data fork.
pub(crate) fn check(volume: &Volume<'_>, ino: Ino, inode: &Dinode<'_>, blocks: &BlockMap, batch: &mut Batch) {
    let result = match inode.fork(ForkKind::Data, &volume.geometry) {
        Ok(Some(Fork::Local(target))) => symlink::verify_target(target),
        Ok(Some(Fork::Extents(_))) => return check_remote(volume, ino, inode, blocks, batch),
        _ => return,
    };
    volume.accept(Place::ino(ino), result);
}

fn check_remote(volume: &Volume<'_>, ino: Ino, inode: &Dinode<'_>, blocks: &BlockMap, batch: &mut Batch) {
    let geometry = &volume.geometry;
    let size = inode.core.size.get();
    let Ok(length) = u32::try_from(size) else { return };
    if !(1..=MAX_TARGET).contains(&length) {
        return; // reported with the core
    }
    let needed = u64::from(symlink::block_count(length, geometry));
    let mapped = blocks.count(FileBlock(0)..FileBlock(u64::MAX));
    if mapped != needed || blocks.end(FileBlock(0)..FileBlock(u64::MAX)).get() != needed {
        let expected = format_args!("{needed} blocks from block 0").to_string();
        let damage = Damage::new(NAME, "extents", expected, format_args!("{mapped} blocks"));
        return volume.error(Place::ino(ino), damage);
    }
    let (mut block, mut target) = (FileBlock(0), Vec::with_capacity(MAX_TARGET as usize));
    while block.get() < needed {
        let Some((_, count)) = blocks.locate(block) else { return };
        let log = count.min(needed).next_power_of_two().trailing_zeros() as u8;
        let size_log = if 1u64 << log == count { log } else { 0 };
        let Some(at) = blocks.read_one(volume, NAME, size_log, block, batch) else { return };
        let bytes = batch.bytes.get(..(count as usize) << geometry.block_log).unwrap_or(&batch.bytes);
        let part = symlink::verify(bytes, geometry, at, target.len() as u32, length);
        let Some(part) = volume.accept(at.place(), part) else { return };
        target.extend_from_slice(part);
        if let Some(header) = RemoteBlockHeader::view(bytes) {
            volume.check_lsn(at.place(), NAME, header.lsn.get());
        }
        block = FileBlock(block.get() + count);
    }
    if target.len() != length as usize {
        return volume.error(Place::ino(ino), Damage::new(NAME, "size", length, target.len()));
    }
    volume.accept(Place::ino(ino), symlink::verify_target(&target));
}
