//! Targets of symlinks: in the inode if they fit, otherwise in remote blocks.

use base::lock::Rank;
use base::rcu::Section;
use base::{FileBlock, errno};
use error::{Error, Result};
use format::damage::{Damage, Place};
use format::inode::{FileType, ForkKind};
use format::ondisk::{LeU32, OnDisk, U32, U64};
use format::remote_block::RemoteBlockHeader;
use format::symlink::{self, MAGIC, MAX_TARGET};
use format::{ForkBlock, Geometry};
use journal::engine::{DiskExtent, PeekedBuffers, Transaction};
use zerocopy::IntoBytes;

use crate::extents::ExtentList;
use crate::fork::{Fork, NOT_IN_MEMORY};
use crate::inode::Inode;
use crate::shared::Shared;
use crate::space::SpaceAllocator;
use crate::state::{ForkFormat, InodeState};

const TOO_LONG: Error = Error::Refused {
    errno: errno::ENAMETOOLONG,
    why: "a symlink's target has 1 to 1023 bytes (use a shorter path, or one relative to the link)",
};
const NOT_A_LINK: Error = Error::Refused { errno: errno::EINVAL, why: "the file is not a symlink" };

/// Maximum length of a new target in bytes. The format allows one byte more, which Linux reserves for the NUL.
const MAX_LENGTH: usize = MAX_TARGET as usize - 1;

/// The most extents that a target needs: it fits two blocks of the smallest size.
const EXTENTS_MAX: usize = 2;

/// Sets the target of a new symlink.
///
/// # Errors
/// `ENAMETOOLONG` for a target that is too long or empty; [`Error::NoSpace`].
pub fn write(
    shared: &Shared,
    tx: &mut Transaction,
    space: &mut dyn SpaceAllocator,
    state: &mut InodeState,
    target: &[u8],
) -> Result<()> {
    if target.is_empty() || target.len() > MAX_LENGTH {
        return Err(TOO_LONG);
    }
    if state.set_local(target) {
        return Ok(());
    }
    write_out(shared, tx, space, state, target)
}

/// Writes a target to blocks. The inode, which may have contained it, has space for attributes then.
///
/// # Errors
/// [`Error::NoSpace`].
pub fn write_out(
    shared: &Shared,
    tx: &mut Transaction,
    space: &mut dyn SpaceAllocator,
    state: &mut InodeState,
    target: &[u8],
) -> Result<()> {
    state.set_fork_format(ForkKind::Data, ForkFormat::Extents);
    state.set_list(ForkKind::Data, Some(ExtentList::new()));
    state.fork_bytes_mut(ForkKind::Data).fill(0);
    let geometry = &shared.geometry;
    let ino = state.ino();
    let mut left = symlink::block_count(target.len() as u32, geometry); // at most 1 KiB
    let (mut at, mut written) = (0u32, 0usize);
    while left > 0 {
        let mut fork = Fork::open(shared, state, ForkKind::Data)?;
        let extent = fork.allocate(tx, space, u64::from(at).into(), 1..=left, false)?;
        let daddr = (geometry.fs_block_offset(extent.start).unwrap_or(0) >> 9).into(); // of the volume
        let bytes = (extent.count as u32) << geometry.block_log; // at most two blocks
        let part = target.get(written..).unwrap_or(&[]);
        let part = part.get(..bytes as usize - RemoteBlockHeader::SIZE).unwrap_or(part);
        let header = RemoteBlockHeader {
            magic: U32::new(MAGIC),
            offset: U32::new(written as u32), // at most 1 KiB
            bytes: U32::new(part.len() as u32),
            crc: LeU32::ZERO,
            uuid: geometry.uuid,
            owner: U64::new(ino.get()),
            blkno: U64::new(base::Daddr::get(daddr)),
            lsn: U64::ZERO,
        };
        let id = tx.fresh(DiskExtent { daddr, bytes }, Rank::Fork)?;
        let buffer = tx.bytes_mut(id, 0..RemoteBlockHeader::SIZE + part.len());
        let (head, body) = buffer.split_at_mut(RemoteBlockHeader::SIZE);
        head.copy_from_slice(header.as_bytes());
        body.copy_from_slice(part);
        written += part.len();
        at += extent.count as u32;
        left -= (extent.count as u32).min(left);
    }
    state.set_size(target.len() as u64);
    Ok(())
}

/// Reads the target of a symlink.
///
/// # Errors
/// `EINVAL` for other files; [`Error::Damaged`], [`Error::Device`].
pub fn read(shared: &Shared, state: &mut InodeState) -> Result<Vec<u8>> {
    if state.local().is_none() {
        Fork::open(shared, state, ForkKind::Data)?.around(None, FileBlock(0), 0, EXTENTS_MAX)?;
    }
    target_of(&shared.geometry, state, |at, target, verify, room| {
        let guard = shared.buffers.lock_read(&at.into(), Rank::Fork, verify)?;
        add_part(target, guard.bytes(), room);
        Ok(())
    })
}

/// Like [`read`], without a lock; `None` if the link must be locked.
#[track_caller]
pub fn peek(shared: &Shared, link: &Inode) -> Option<Vec<u8>> {
    shared.peek(link, |state, buffers| target_in_memory(shared, state, buffers))
}

/// Like [`peek`], for a caller in a read section.
pub fn peek_in(shared: &Shared, section: &Section, link: &Inode) -> Option<Vec<u8>> {
    shared.peek_in(section, link, |state, buffers| target_in_memory(shared, state, buffers))
}

fn target_in_memory(shared: &Shared, state: &InodeState, buffers: &PeekedBuffers<'_>) -> Option<Vec<u8>> {
    let target = target_of(&shared.geometry, state, |at, target, _, room| {
        let bytes = buffers.bytes(&at.into()).ok_or(NOT_IN_MEMORY)?;
        add_part(target, &bytes, room);
        Ok(())
    });
    target.ok()
}

/// Adds the part of a target that is in a block. The checksum of a changed buffer is not up to date.
fn add_part(target: &mut Vec<u8>, block: &[u8], room: usize) {
    target.extend(block.get(RemoteBlockHeader::SIZE..).unwrap_or(&[]).iter().take(room));
}

/// The target of a symlink. Its blocks are read by `add`, which gets the place of a block, the target so far, what
/// verifies a block that comes from the device, and the most bytes to add.
fn target_of(
    geometry: &Geometry,
    state: &InodeState,
    add: impl Fn(DiskExtent, &mut Vec<u8>, &dyn Fn(&[u8]) -> std::result::Result<(), Damage>, usize) -> Result<()>,
) -> Result<Vec<u8>> {
    if state.dinode().file_type() != Some(FileType::Symlink) {
        return Err(NOT_A_LINK);
    }
    let ino = state.ino();
    let size = u32::try_from(state.size()).unwrap_or(u32::MAX).min(MAX_TARGET + 1);
    let mut target = Vec::new();
    if let Some(local) = state.local() {
        target.extend_from_slice(local);
    } else {
        let list = state.extents_around(ForkKind::Data, FileBlock(0), 0, EXTENTS_MAX).ok_or(NOT_IN_MEMORY)?;
        for extent in list.as_slice().iter().take(EXTENTS_MAX) {
            let offset = target.len() as u32; // below the size
            if offset >= size {
                break;
            }
            // The extent may be longer than any target needs.
            let count = extent.count.min(symlink::block_count(size, geometry).into());
            let daddr = (geometry.fs_block_offset(extent.start).unwrap_or(0) >> 9).into(); // verified when loaded
            let at = DiskExtent { daddr, bytes: (count as u32) << geometry.block_log };
            let block = ForkBlock { ino, file_block: extent.offset, daddr };
            let verify = |bytes: &[u8]| symlink::verify(bytes, geometry, block, offset, size).map(|_| ());
            add(at, &mut target, &verify, (size - offset) as usize)?;
        }
    }
    symlink::verify_target(&target).map_err(|damage| Error::damaged(Place::ino(ino), damage))?;
    Ok(target)
}
