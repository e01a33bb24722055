//! The location of inodes in cluster buffers.
//!
//! Inodes are read and written in clusters. The log identifies an inode's buffer by address and length, so clusters
//! must have the same bounds as Linux's.

use base::{AgBlock, Daddr, Ino};
use format::Geometry;
use format::damage::Damage;
use format::ensure;
use format::inode::{MAGIC, RawInode};
use format::ondisk::OnDisk;
use journal::engine::DiskExtent;

/// The location of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeLocation {
    /// Disk extent of the cluster buffer.
    pub cluster: DiskExtent,
    /// Byte offset of the inode in the cluster.
    pub offset: u32,
}

/// The location of an inode; `None` for a number outside the volume.
pub fn locate(geometry: &Geometry, ino: Ino) -> Option<InodeLocation> {
    let (ag, within) = geometry.split_ino(ino)?;
    let (block, blocks) = (geometry.ag_ino_block(within), geometry.inode_cluster_blocks());
    // The first block of an AG holds the AG headers.
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

/// Verifies that all slots of a cluster buffer hold inodes.
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
