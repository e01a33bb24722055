//! Which buffer holds an inode, and where in it.
//!
//! Inodes are read and written in clusters. The log names an inode's buffer by address and length, so a cluster must
//! begin and end where the kernel's does.

use base::{AgBlock, Daddr, Ino};
use format::Geometry;
use format::damage::Damage;
use format::ensure;
use format::inode::{MAGIC, RawInode};
use format::ondisk::OnDisk;
use journal::engine::DiskExtent;

/// Where an inode lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeLocation {
    /// The cluster's buffer.
    pub cluster: DiskExtent,
    /// Bytes from its start to the inode.
    pub offset: u32,
}

/// The place of an inode; `None` where the number lies outside of the volume.
pub fn locate(geometry: &Geometry, ino: Ino) -> Option<InodeLocation> {
    let (ag, within) = geometry.split_ino(ino)?;
    let (block, blocks) = (geometry.ag_ino_block(within), geometry.inode_cluster_blocks());
    // The first block of an AG holds its headers.
    if block.get() == 0 {
        return None;
    }
    let first = AgBlock(block.get() - block.get() % blocks);
    let skip = (block.get() - first.get()) << geometry.block_log;
    let daddr: Daddr = geometry.ag_block_daddr(ag, first);
    Some(InodeLocation {
        cluster: DiskExtent { daddr, bytes: blocks << geometry.block_log },
        offset: skip + geometry.ino_offset_in_block(within) as u32, // within a cluster
    })
}

/// Verifies that a cluster's buffer holds inodes, whatever they are.
pub fn verify(bytes: &[u8], geometry: &Geometry) -> Result<(), Damage> {
    const NAME: &str = "inode cluster";
    for slot in bytes.chunks_exact(geometry.inode_size as usize) {
        let raw = RawInode::view(slot).ok_or_else(|| Damage::short(NAME, RawInode::SIZE, slot.len()))?;
        let magic = raw.magic.get();
        ensure!(magic == MAGIC, NAME, "magic", format_args!("{MAGIC:#x}"), format_args!("{magic:#x}"));
        ensure!(raw.version == 3, NAME, "version", 3, raw.version);
    }
    Ok(())
}
