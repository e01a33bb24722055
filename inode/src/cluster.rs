//! The location of inodes in cluster buffers.
//!
//! Inodes are read and written in clusters. The log identifies an inode's buffer by address and length, so clusters
//! must have the same bounds as Linux's.

use base::{AgBlock, Ino};
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
    let (ag, ag_ino) = geometry.split_ino(ino)?;
    let (block, blocks) = (geometry.ag_ino_block(ag_ino), geometry.inode_cluster_blocks());
    // The first block of an AG holds the AG headers.
    if block.get() == 0 {
        return None;
    }
    let in_cluster = block.get() % blocks;
    let daddr = geometry.ag_block_daddr(ag, AgBlock(block.get() - in_cluster));
    Some(InodeLocation {
        cluster: DiskExtent { daddr, bytes: blocks << geometry.block_log },
        offset: (in_cluster << geometry.block_log) + geometry.ino_offset_in_block(ag_ino) as u32, // in a cluster
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
