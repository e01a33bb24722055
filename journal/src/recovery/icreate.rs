//! Inode creation: a run of free inodes is initialised.

use base::{AgIno, Daddr};
use format::damage::Place;
use format::inode::{CRC_OFFSET, MAGIC, RawInode};
use format::log::icreate::InodeCreate;
use format::ondisk::{U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::order;
use super::replay::{
    AtPlace, ReplayContext, ReplayFailure, ReplayItem, ReplayOutcome, ReplayResult, ReplayTarget,
};
use crate::assemble::RawLogItem;

/// Replay of inode creation.
pub struct InodeCreateReplay;

/// Bytes of an inode buffer as Linux reads it for the smallest inodes; larger inodes have larger buffers. Only a hint
/// which parts of the run to cache together.
const CLUSTER_BYTES: usize = 16 << 10;

impl ReplayItem for InodeCreateReplay {
    fn order(&self, item: &RawLogItem<'_>) -> order::ReplayOrder {
        order::order_of(item.kind, 0)
    }

    fn second_pass(&self, item: &RawLogItem<'_>, context: &mut ReplayContext<'_>) -> ReplayResult {
        let create = InodeCreate::parse(item.region(0))?;
        let place = Place::block(create.ag, create.block);
        create.verify(&context.geometry).at(place)?;
        let geometry = &context.geometry;
        let start = geometry.ag_block_daddr(create.ag, create.block);
        let bytes = (create.blocks as usize) << geometry.block_log; // one chunk: at most 128 KiB
        if context.cancelled.touches(start, (bytes / 512) as u64) {
            return Ok(ReplayOutcome::Cancelled);
        }
        let Some(first) = geometry.first_ag_ino(create.block) else {
            let damage = format::Damage::new(
                "inode create log item",
                "agbno",
                "a block that can hold inodes",
                create.block,
            );
            return Err(ReplayFailure::Damage(place, damage));
        };
        let run = inodes(&create, first, context);
        let piece = CLUSTER_BYTES.max(context.geometry.block_size as usize);
        for (n, piece) in (0u64..).zip(run.chunks(piece).map(|chunk| (chunk, piece as u64))) {
            let (bytes, step) = piece;
            let daddr = Daddr(start.get() + n * step / 512);
            context.buffers.get_mut(daddr, bytes.len())?.copy_from_slice(bytes);
        }
        Ok(ReplayOutcome::Replayed)
    }
}

/// The bytes of the run. Earlier contents of these inodes are obsolete.
fn inodes(create: &InodeCreate, first: AgIno, context: &mut ReplayContext<'_>) -> Vec<u8> {
    let size = context.geometry.inode_size as usize;
    let mut run = vec![0; create.count as usize * size];
    for (n, slot) in (0u32..).zip(run.chunks_exact_mut(size)) {
        let ino = context.geometry.ino(create.ag, AgIno(first.get().saturating_add(n)));
        let core = RawInode {
            magic: U16::new(MAGIC),
            version: 3,
            generation: U32::new(create.generation),
            next_unlinked: U32::new(u32::MAX),
            ino: U64::new(ino.get()),
            uuid: context.geometry.uuid,
            ..RawInode::new_zeroed()
        };
        if let Some(head) = slot.get_mut(..size_of::<RawInode>()) {
            head.copy_from_slice(core.as_bytes());
        }
        format::checksum::store(slot, CRC_OFFSET);
        context.made_new(ReplayTarget::Inode(ino));
    }
    run
}
