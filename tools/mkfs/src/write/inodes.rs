//! The first inodes: the root directory, the realtime bitmap and summary (which exist on every volume), and free ones.

use block::{Device, Durability};
use format::dir::shortform::ShortformHeader;
use format::inode::{CRC_OFFSET, MAGIC, RawInode, flags, flags2};
use format::new_ag::{put, seal};
use format::ondisk::{OnDisk, U16, U32, U64};
use format::timestamp::Timestamp;
use zerocopy::FromZeros;

use crate::error::MkfsError;
use crate::plan::Plan;
use crate::random::Random;

/// Fork formats.
const LOCAL: u8 = 1;
const EXTENTS: u8 = 2;

pub fn write(device: &dyn Device, plan: &Plan) -> Result<(), MkfsError> {
    let size = plan.shape.inode_size as usize;
    let count = plan.first_inodes() as usize;
    let mut random = Random::new(plan.seed);
    let mut chunk = vec![0; count * size];
    let generation = random.next_u32();
    for (slot, number) in chunk.chunks_mut(size).zip(plan.root_inode()..) {
        put(slot, 0, &free(plan, number, generation));
    }
    let used = [root(plan), bitmap(plan, random.next_u32()), summary(plan, random.next_u32())];
    for ((slot, number), inode) in chunk.chunks_mut(size).zip(plan.root_inode()..).zip(used) {
        put(slot, 0, &RawInode { ino: U64::new(number), ..inode });
    }
    if let Some(slot) = chunk.get_mut(..size) {
        put_empty_directory(slot, plan);
    }
    for slot in 0..count {
        seal(&mut chunk, slot * size, size, CRC_OFFSET);
    }
    let offset = u64::from(plan.first_chunk) * u64::from(plan.shape.block_size);
    device.write_at(offset, &chunk, Durability::Buffered)?;
    Ok(())
}

/// A free inode.
fn free(plan: &Plan, number: u64, generation: u32) -> RawInode {
    let mut inode = RawInode::new_zeroed();
    inode.magic = U16::new(MAGIC);
    inode.version = 3;
    inode.next_unlinked = U32::MAX_VALUE;
    inode.generation = U32::new(generation);
    inode.ino = U64::new(number);
    inode.uuid = plan.uuid;
    inode
}

/// The common fields of inodes in use.
fn used(plan: &Plan, generation: u32) -> RawInode {
    let features = plan.shape.features;
    let now = plan.time.encode(features.bigtime());
    let mut inode = free(plan, 0, generation);
    inode.aformat = EXTENTS;
    inode.atime = now;
    inode.mtime = now;
    inode.ctime = now;
    inode.crtime = now;
    // mkfs.xfs creates an inode and changes it once.
    inode.changecount = U64::new(2);
    let bigtime = if features.bigtime() { flags2::BIGTIME } else { 0 };
    let nrext64 = if features.nrext64() { flags2::NREXT64 } else { 0 };
    inode.flags2 = U64::new(bigtime | nrext64);
    inode
}

fn root(plan: &Plan) -> RawInode {
    let mut inode = used(plan, 0);
    inode.mode = U16::new(0o040_755);
    let (uid, gid) = plan.root_owner;
    (inode.uid, inode.gid) = (U32::new(uid), U32::new(gid));
    inode.format = LOCAL;
    inode.nlink = U32::new(2);
    inode.size = U64::new(EMPTY_DIRECTORY as u64);
    inode
}

fn bitmap(plan: &Plan, generation: u32) -> RawInode {
    let mut inode = summary(plan, generation);
    inode.flags = U16::new(flags::NEWRTBM);
    // The realtime allocator uses the access time as a counter.
    inode.atime = Timestamp::default().encode(plan.shape.features.bigtime());
    inode
}

fn summary(plan: &Plan, generation: u32) -> RawInode {
    let mut inode = used(plan, generation);
    inode.mode = U16::new(0o100_000);
    inode.format = EXTENTS;
    inode.nlink = U32::new(1);
    inode
}

/// Bytes of an empty shortform directory: its header and the parent in four bytes.
const EMPTY_DIRECTORY: usize = ShortformHeader::SIZE + 4;

/// Writes the data fork of the root directory, whose parent is itself. Its inode number is below 2^32.
fn put_empty_directory(slot: &mut [u8], plan: &Plan) {
    put(slot, RawInode::SIZE, &ShortformHeader { count: 0, i8count: 0 });
    put(slot, RawInode::SIZE + ShortformHeader::SIZE, &U32::new(plan.root_inode() as u32));
}
