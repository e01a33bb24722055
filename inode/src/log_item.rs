//! The log item of an inode: format, core in the log's byte order, and the forks that changed.
//!
//! The core is always logged as a whole. If any part of a fork changed, its used part is logged as a whole: the log
//! does not record offsets within a fork, so recovery can only replace it.

use format::btree::{BmBt, BmapKey, BmapRoot, Btree, LongHeader, NULL_FS_BLOCK};
use format::extent::RawExtent;
use format::inode::{ForkKind, RawInode, flags2};
use format::log::inode::{RawInodeFormat, RawLogInode, fields};
use format::log::item::ItemType;
use format::ondisk::{LeU16, LeU32, LeU64, OnDisk, U16, U32, U64};
use journal::engine::LogRegions;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::cluster::InodeLocation;
use crate::state::{ForkFormat, InodeState};

/// The two regions at the start of every item.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct InodeLogHeader {
    format: RawInodeFormat,
    core: RawLogInode,
}

const HEAD_ENDS: [usize; 2] = [RawInodeFormat::SIZE, size_of::<InodeLogHeader>()];
/// The most bytes of padding after the regions of two forks.
const PADDING: usize = 8;

/// Writes the regions of the item: the fields in `changed` that exist in the forks' present formats. Writes every
/// field, because `out` may contain an earlier version.
pub(crate) fn write(state: &InodeState, place: &InodeLocation, changed: u32, out: &mut LogRegions) {
    // Of most inodes only the core changed.
    let forks = changed & !fields::CORE != 0;
    let (data, dsize) = if forks { fork_field(state, ForkKind::Data, changed) } else { (0, 0) };
    let (attr, asize) = if forks { fork_field(state, ForkKind::Attr, changed) } else { (0, 0) };
    let has_device =
        changed & fields::DEVICE != 0 && state.fork_format(ForkKind::Data) == Some(ForkFormat::Device);
    let device = if has_device { fields::DEVICE } else { 0 };
    // A new file is logged before its first extent exists: this leaves space for one.
    let forks_bytes = (usize::from(dsize) + usize::from(asize)).max(RawExtent::SIZE);
    let bytes = out.begin(&HEAD_ENDS, forks_bytes + PADDING);
    let Ok(InodeLogHeader { format, core }) = InodeLogHeader::mut_from_bytes(bytes) else { return };
    format.kind = LeU16::new(ItemType::Inode.code());
    format.size = LeU16::new(2 + u16::from(data != 0) + u16::from(attr != 0));
    format.fields = LeU32::new(fields::CORE | data | attr | device);
    format.asize = LeU16::new(asize);
    format.dsize = LeU16::new(dsize);
    format.ino = LeU64::new(state.ino().get());
    format.rdev = LeU32::new(if has_device { state.device().unwrap_or(0) } else { 0 });
    format.blkno = LeU64::new(place.cluster.daddr.get());
    format.len = LeU32::new(place.cluster.bytes / 512);
    format.boffset = LeU32::new(place.offset);
    put_core(state.core(), core);
    if data != 0 {
        push_fork(state, ForkKind::Data, out);
    }
    if attr != 0 {
        push_fork(state, ForkKind::Attr, out);
    }
}

/// The flag and size of a fork's region; 0 if the fork did not change in its present format, or is empty.
fn fork_field(state: &InodeState, kind: ForkKind, changed: u32) -> (u32, u16) {
    let (local, extents, root) = match kind {
        ForkKind::Data => (fields::DATA_LOCAL, fields::DATA_EXTENTS, fields::DATA_ROOT),
        ForkKind::Attr => (fields::ATTR_LOCAL, fields::ATTR_EXTENTS, fields::ATTR_ROOT),
    };
    if changed & (local | extents | root) == 0 {
        return (0, 0);
    }
    let bit = match state.fork_format(kind) {
        Some(ForkFormat::Local) => local,
        Some(ForkFormat::Extents) => extents,
        Some(ForkFormat::Btree) => root,
        Some(ForkFormat::Device) | None => 0,
    };
    if changed & bit == 0 {
        return (0, 0);
    }
    match logged_bytes(state, kind) {
        0 => (0, 0),
        bytes => (bit, bytes as u16),
    }
}

/// Size of a fork in the log, without padding. At most the area and a header: below 64 KiB.
fn logged_bytes(state: &InodeState, kind: ForkKind) -> usize {
    let area = state.fork_bytes(kind);
    match (state.fork_format(kind), kind) {
        (Some(ForkFormat::Local), ForkKind::Data) => state.local().map_or(0, <[u8]>::len),
        // The shortform header begins with its length.
        (Some(ForkFormat::Local), ForkKind::Attr) => {
            U16::view(area).map_or(0, |n| area.len().min(n.get().into()))
        }
        (Some(ForkFormat::Extents), _) => {
            let count = usize::try_from(state.extent_count(kind)).unwrap_or(usize::MAX);
            count.saturating_mul(RawExtent::SIZE).min(area.len() / RawExtent::SIZE * RawExtent::SIZE)
        }
        (Some(ForkFormat::Btree), _) => LongHeader::SIZE + root_entries(area) * (BmapKey::SIZE + 8),
        (Some(ForkFormat::Device) | None, _) => 0,
    }
}

/// Number of entries of a btree root, at most as many as fit the area.
fn root_entries(area: &[u8]) -> usize {
    let count = BmapRoot::view(area).map_or(0, |root| root.numrecs.get().into());
    root_entries_max(area).min(count)
}

fn root_entries_max(area: &[u8]) -> usize {
    area.len().saturating_sub(BmapRoot::SIZE) / (BmapKey::SIZE + 8)
}

fn push_fork(state: &InodeState, kind: ForkKind, out: &mut LogRegions) {
    let area = state.fork_bytes(kind);
    if state.fork_format(kind) == Some(ForkFormat::Btree) {
        return push_root(state, area, out);
    }
    out.push(area.get(..logged_bytes(state, kind)).unwrap_or(&[]));
}

/// A root is logged as a btree block: with a long header, and the pointers directly after the keys.
fn push_root(state: &InodeState, area: &[u8], out: &mut LogRegions) {
    let (count, max) = (root_entries(area), root_entries_max(area));
    let keys_at = BmapRoot::SIZE;
    let pointers_at = keys_at + max * BmapKey::SIZE;
    let header = LongHeader {
        magic: U32::new(BmBt::MAGIC),
        level: BmapRoot::view(area).map_or(U16::ZERO, |root| root.level),
        numrecs: U16::new(count as u16), // read from 16 bits
        leftsib: U64::new(NULL_FS_BLOCK),
        rightsib: U64::new(NULL_FS_BLOCK),
        bno: U64::new(u64::MAX),
        uuid: state.core().uuid,
        owner: U64::new(state.ino().get()),
        ..LongHeader::new_zeroed()
    };
    out.push_with(|bytes| {
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(area.get(keys_at..keys_at + count * BmapKey::SIZE).unwrap_or(&[]));
        bytes.extend_from_slice(area.get(pointers_at..pointers_at + count * 8).unwrap_or(&[]));
    });
}

/// Writes the core in the log's format. Fields that recovery must not replay (`di_next_unlinked`, LSN, checksum) are
/// zero.
///
/// Not inlined, so that each field is copied through one register.
#[inline(never)]
fn put_core(core: &RawInode, log: &mut RawLogInode) {
    let flags = core.flags2.get();
    log.magic = LeU16::new(core.magic.get());
    log.mode = LeU16::new(core.mode.get());
    log.version = core.version;
    log.format = core.format;
    log.metatype = LeU16::new(core.onlink.get());
    log.uid = LeU32::new(core.uid.get());
    log.gid = LeU32::new(core.gid.get());
    log.nlink = LeU32::new(core.nlink.get());
    log.projid_lo = LeU16::new(core.projid_lo.get());
    log.projid_hi = LeU16::new(core.projid_hi.get());
    let is_wide = flags & flags2::NREXT64 != 0;
    log.big_nextents = LeU64::new(if is_wide { core.big_nextents.get() } else { 0 });
    // A timestamp without bigtime is two 32-bit numbers, seconds first, each in the log's byte order.
    let turn = if flags & flags2::BIGTIME != 0 { 0 } else { 32 };
    let time = |raw: U64| LeU64::new(raw.get().rotate_left(turn));
    log.atime = time(core.atime);
    log.mtime = time(core.mtime);
    log.ctime = time(core.ctime);
    log.size = LeU64::new(core.size.get());
    log.nblocks = LeU64::new(core.nblocks.get());
    log.extsize = LeU32::new(core.extsize.get());
    log.nextents = LeU32::new(core.nextents.get());
    log.anextents = LeU16::new(core.anextents.get());
    log.forkoff = core.forkoff;
    log.aformat = core.aformat;
    log.dmevmask = LeU32::new(core.dmevmask.get());
    log.dmstate = LeU16::new(core.dmstate.get());
    log.flags = LeU16::new(core.flags.get());
    log.generation = LeU32::new(core.generation.get());
    log.next_unlinked = LeU32::new(format::agi::NULL_AG_INO);
    log.changecount = LeU64::new(core.changecount.get());
    log.flags2 = LeU64::new(flags);
    log.cowextsize = LeU32::new(core.cowextsize.get());
    log.crtime = time(core.crtime);
    log.ino = LeU64::new(core.ino.get());
    log.uuid = core.uuid;
}

#[cfg(test)]
mod tests;
