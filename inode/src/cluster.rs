//! The location of inodes in cluster buffers.
//!
//! Inodes are read and written in clusters. The log identifies an inode's buffer by address and length, so clusters
//! must have the same bounds as Linux's.

use std::ops::Range;

use base::{AgBlock, Ino, Lsn};
use format::Geometry;
use format::checksum::{self, ZeroRun};
use format::damage::Damage;
use format::ensure;
use format::inode::{CRC_OFFSET, MAGIC, RawInode};
use format::ondisk::{OnDisk, U64};
use journal::engine::DiskExtent;
use zerocopy::IntoBytes;

use crate::state::InodeState;

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

/// Copies an inode to its cluster, and updates the checksum. Returns where it is; `None` if another
/// structure is there: the cluster, and the inode with it, were freed.
pub(crate) fn write_back(
    bytes: &mut [u8],
    state: &InodeState,
    location: &InodeLocation,
    lsn: Lsn,
    zero_literal_area: &ZeroRun,
) -> Option<Range<usize>> {
    let (core, literal) = state.parts();
    let start = location.offset as usize;
    let end = start + RawInode::SIZE + literal.len();
    let is_cluster = bytes.len() == location.cluster.bytes as usize;
    let slot = bytes.get_mut(start..end).filter(|_| is_cluster)?;
    let old = RawInode::view(slot)?;
    if old.magic.get() != MAGIC || old.ino != core.ino {
        return None;
    }
    let core = RawInode { next_unlinked: old.next_unlinked, lsn: U64::new(lsn.get()), ..*core };
    let (head, tail) = slot.split_at_mut(RawInode::SIZE);
    head.copy_from_slice(core.as_bytes());
    tail.copy_from_slice(literal);
    let is_sealed = if state.has_literal_data() {
        checksum::store(slot, CRC_OFFSET)
    } else {
        // After the core there are only zeros.
        checksum::store_before(head, CRC_OFFSET, zero_literal_area)
    };
    is_sealed.then_some(start..end)
}
