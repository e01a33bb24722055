//! Symlink targets.

use base::{FileBlock, FsBlock, errno};
use format::inode::{Dinode, FileType, Fork, ForkKind};
use format::symlink::{self, MAX_TARGET};
use format::{Damage, Place};

use crate::error::{Error, Result};
use crate::extents::ExtentWalk;
use crate::fork;
use crate::volume::Volume;

/// The target of a symlink: 1 to 1024 bytes without NUL.
///
/// # Errors
/// `EINVAL` for an inode that is not a symlink, damage, and what the device reports.
pub fn read_link(volume: &Volume, inode: &Dinode<'_>) -> Result<Vec<u8>> {
    if inode.file_type() != Some(FileType::Symlink) {
        return Err(Error::unfit(errno::EINVAL, format!("inode {} is not a symbolic link", inode.ino())));
    }
    let damaged = |damage| Error::damaged(Place::ino(inode.ino()), damage);
    let target = match inode.fork(ForkKind::Data, volume.geometry()).map_err(damaged)? {
        Some(Fork::Local(bytes)) => bytes.to_vec(),
        _ => remote(volume, inode)?,
    };
    symlink::verify_target(&target).map_err(damaged)?;
    Ok(target)
}

fn remote(volume: &Volume, inode: &Dinode<'_>) -> Result<Vec<u8>> {
    let geometry = volume.geometry();
    let damaged = |damage| Error::damaged(Place::ino(inode.ino()), damage);
    let length = u32::try_from(inode.core.size.get())
        .ok()
        .filter(|length| (1..=MAX_TARGET).contains(length))
        .ok_or_else(|| {
            let expected = format!("1 to {MAX_TARGET}");
            damaged(Damage::new("symlink target", "size", expected, inode.core.size))
        })?;
    let mut target = Vec::with_capacity(length as usize);
    let mut at = FileBlock(0);
    let end = FileBlock(symlink::block_count(length, geometry).into());
    let mut extents = ExtentWalk::new(volume, inode, ForkKind::Data, at)?;
    while at < end && target.len() < length as usize {
        let extent = extents.next().transpose()?.filter(|extent| extent.offset == at).ok_or_else(|| {
            damaged(Damage::new("symlink target", "extents", "no holes", format!("one at block {at}")))
        })?;
        let count = extent.count.min(end.get() - at.get());
        let mut bytes = vec![0; (count as usize) << geometry.block_log];
        volume.read_blocks(FsBlock(extent.start.get()), &mut bytes)?;
        let block = fork::identity(volume, inode, at, extent.start);
        let part =
            symlink::verify(&bytes, geometry, block, target.len() as u32, length).map_err(fork::at(block))?;
        target.extend_from_slice(part);
        at = FileBlock(at.get() + count);
    }
    if target.len() != length as usize {
        return Err(damaged(Damage::new("symlink target", "size", length, target.len())));
    }
    Ok(target)
}
