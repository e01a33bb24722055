//! Inodes: the core is replaced, and forks that were logged; then LSN and checksum are set.

use base::{Ino, Lsn};
use format::damage::{Damage, Place};
use format::inode::{CRC_OFFSET, FileType, MAGIC, RawInode};
use format::log::inode::{InodeFormat, RawLogInode, fields, root_to_disk};
use format::ondisk::OnDisk;
use zerocopy::IntoBytes;

use super::lsn_check::DiskState;
use super::owner;
use super::replay::{
    AtPlace, ReplayContext, ReplayFailure, ReplayItem, ReplayOutcome, ReplayResult, ReplayTarget,
};
use crate::assemble::RawLogItem;

const NAME: &str = "inode log item";

/// Replay of an inode.
pub struct InodeReplay;

impl ReplayItem for InodeReplay {
    fn second_pass(&self, item: &RawLogItem<'_>, context: &mut ReplayContext<'_>) -> ReplayResult {
        let format = InodeFormat::parse(item.region(0))?;
        if context.cancelled.contains(format.daddr, format.sectors) {
            return Ok(ReplayOutcome::Cancelled);
        }
        let place = Place::ino(format.ino);
        check_address(&format, context).at(place)?;
        let mut slot = read_slot(&format, context)?;
        let mode = RawLogInode::view(item.region(1)).map_or(0, |core| core.mode.get());
        if FileType::from_mode(mode) == Some(FileType::Directory) {
            context.split.add_directory(format.ino);
        }
        let found = DiskState::inode(&slot, &context.geometry, format.ino);
        let replayed = context.judge(ReplayTarget::Inode(format.ino), found).is_replayed();
        if replayed {
            rebuild(&mut slot, item, &format, context.lsn).at(place)?;
            write_slot(&format, context, &slot)?;
        }
        // The inode may be newer, but the blocks of its trees need not be.
        if format.fields & (fields::DATA_OWNER | fields::ATTR_OWNER) != 0 {
            owner::change(&slot, &format, context)?;
        }
        Ok(if replayed { ReplayOutcome::Replayed } else { ReplayOutcome::Newer })
    }
}

/// Checks that the item's address is that of its inode number.
fn check_address(format: &InodeFormat, context: &ReplayContext<'_>) -> Result<(), Damage> {
    let geometry = &context.geometry;
    let expected_offset = geometry.split_ino(format.ino).map(|(ag, within)| {
        geometry.ag_block_offset(ag, geometry.ag_ino_block(within))
            + geometry.ino_offset_in_block(within) as u64
    });
    let logged_offset =
        format.daddr.checked_bytes().and_then(|bytes| bytes.checked_add(format.offset.into()));
    if expected_offset.is_some() && expected_offset == logged_offset {
        return Ok(());
    }
    let expected = expected_offset
        .map_or("an inode of this volume".to_string(), |expected_offset| format!("byte {expected_offset}"));
    Err(Damage::new(
        NAME,
        "blkno",
        expected,
        format_args!("sector {:#x} and {} bytes", format.daddr, format.offset),
    ))
}

fn read_slot(format: &InodeFormat, context: &mut ReplayContext<'_>) -> Result<Vec<u8>, ReplayFailure> {
    let size = context.geometry.inode_size as usize;
    let (start, bytes) = (format.offset as usize, usize::from(format.sectors) * 512);
    let buffer = context.buffers.get(format.daddr, bytes)?;
    let slot = buffer.get(start..start + size);
    let short = || Damage::new(NAME, "boffset", format_args!("an inode within {bytes} bytes"), start);
    slot.map(<[u8]>::to_vec).ok_or_else(short).at(Place::ino(format.ino))
}

fn write_slot(
    format: &InodeFormat,
    context: &mut ReplayContext<'_>,
    slot: &[u8],
) -> Result<(), ReplayFailure> {
    let start = format.offset as usize;
    let buffer = context.buffers.get_mut(format.daddr, usize::from(format.sectors) * 512)?;
    if let Some(target) = buffer.get_mut(start..start + slot.len()) {
        target.copy_from_slice(slot);
    }
    Ok(())
}

/// Applies the item to the inode.
fn rebuild(slot: &mut [u8], item: &RawLogItem<'_>, format: &InodeFormat, lsn: Lsn) -> Result<(), Damage> {
    let region = item.region(1);
    let logged =
        RawLogInode::view(region).ok_or_else(|| Damage::short(NAME, RawLogInode::SIZE, region.len()))?;
    let old = *RawInode::view(slot).ok_or_else(|| Damage::short("inode", RawInode::SIZE, slot.len()))?;
    let magic = |found: u16| match found {
        MAGIC => Ok(()),
        _ => Err(Damage::new("inode", "magic", format_args!("{MAGIC:#x}"), format_args!("{found:#x}"))),
    };
    magic(old.magic.get())?;
    magic(logged.magic.get())?;
    check_logged(logged, format.ino, slot.len())?;
    let core = logged.to_disk(&old, lsn);
    let (head, literal) = slot.split_at_mut(RawInode::SIZE); // viewed above, so long enough
    head.copy_from_slice(core.as_bytes());
    let split = match usize::from(core.forkoff) * 8 {
        0 => literal.len(),
        at => at.min(literal.len()), // checked against it already
    };
    let (data, attr) = literal.split_at_mut(split);
    if format.fields & fields::DEVICE != 0 {
        put(data, &format.rdev.to_be_bytes())?;
    }
    if let Some(n) = format.data_region() {
        put_fork(data, item.region(n), format.fields & fields::DATA_ROOT != 0)?;
    }
    if let Some(n) = format.attr_region() {
        put_fork(attr, item.region(n), format.fields & fields::ATTR_ROOT != 0)?;
    }
    format::checksum::store(slot, CRC_OFFSET);
    Ok(())
}

/// Checks the fields of a logged core that determine where bytes go. Readers verify the rest.
fn check_logged(logged: &RawLogInode, ino: Ino, size: usize) -> Result<(), Damage> {
    const CORE: &str = "logged inode core";
    let room = (size - RawInode::SIZE) / 8;
    format::ensure!(logged.version == 3, CORE, "version", 3, logged.version);
    format::ensure!(logged.ino.get() == ino.get(), CORE, "ino", ino, logged.ino);
    format::ensure!(
        usize::from(logged.forkoff) < room,
        CORE,
        "forkoff",
        format_args!("less than {room}"),
        logged.forkoff
    );
    Ok(())
}

fn put_fork(fork: &mut [u8], logged: &[u8], is_root: bool) -> Result<(), Damage> {
    if is_root { root_to_disk(logged, fork) } else { put(fork, logged) }
}

/// The log pads data to four bytes; the padding fits, as a fork's area is padded to eight.
fn put(fork: &mut [u8], logged: &[u8]) -> Result<(), Damage> {
    let room = fork.len();
    let target = fork.get_mut(..logged.len());
    target.map(|target| target.copy_from_slice(logged)).ok_or_else(|| {
        Damage::new(
            NAME,
            "fork",
            format_args!("at most {room} bytes"),
            format_args!("{} bytes", logged.len()),
        )
    })
}
