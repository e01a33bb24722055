//! Contents of new inodes: a whole cluster is initialized at once, each inode free.

use std::mem::offset_of;

use base::{AgBlock, AgNumber, Ino};
use format::checksum::ChecksummedField;
use format::geometry::Geometry;
use format::inode::{CRC_OFFSET, MAGIC, RawInode};
use format::log::icreate::RawInodeCreate;
use format::log::item::ItemType;
use format::ondisk::{LeU16, U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

/// The lower half of an inode's own number: the only field in which the inodes of a new cluster differ.
pub fn number_field(geometry: &Geometry) -> ChecksummedField {
    ChecksummedField::new(geometry.inode_size as usize, offset_of!(RawInode, ino) + 4, CRC_OFFSET)
}

/// Writes free inodes into `bytes`, which are zero: the whole slots of a cluster, of which the first is for inode
/// `first`.
pub fn write_free_inodes(
    bytes: &mut [u8],
    geometry: &Geometry,
    numbers: &ChecksummedField,
    first: Ino,
    generation: u32,
) {
    let core = RawInode {
        magic: U16::new(MAGIC),
        version: 3,
        generation: U32::new(generation),
        next_unlinked: U32::new(u32::MAX),
        ino: U64::new(first.get()),
        uuid: geometry.uuid,
        ..RawInode::new_zeroed()
    };
    const HEAD: usize = size_of::<RawInode>();
    let size = geometry.inode_size as usize;
    let (model, rest) = bytes.split_at_mut(size.min(bytes.len()));
    if let Some(head) = model.get_mut(..HEAD) {
        head.copy_from_slice(core.as_bytes());
    }
    format::checksum::store(model, CRC_OFFSET);
    let head = model.get(..HEAD).unwrap_or_default();
    // A cluster is aligned, so the upper half of its inode numbers is the same.
    let mut numbered = numbers.counting(head);
    for (ino, slot) in (first.get() + 1..).zip(rest.chunks_exact_mut(size)) {
        if let Some(place) = slot.get_mut(..head.len()) {
            place.copy_from_slice(head);
        }
        numbered.store(slot, ino as u32);
    }
}

/// The inode creation log item, from which recovery can write the same inodes: its only region.
pub fn create_item(
    geometry: &Geometry,
    ag: AgNumber,
    block: AgBlock,
    blocks: u32,
    generation: u32,
) -> RawInodeCreate {
    RawInodeCreate {
        kind: LeU16::new(ItemType::InodeCreate.code()),
        size: LeU16::new(1),
        ag: U32::new(ag.get()),
        agbno: U32::new(block.get()),
        count: U32::new(blocks << geometry.inodes_per_block_log),
        isize: U32::new(geometry.inode_size),
        length: U32::new(blocks),
        generation: U32::new(generation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inodes::testing;
    use base::AgIno;
    use format::inode::Dinode;
    use format::log::icreate::InodeCreate;

    #[test]
    fn every_slot_is_a_free_inode_with_its_own_number() {
        let geometry = testing::geometry();
        let first = geometry.ino(AgNumber(1), AgIno(64));
        let mut bytes = vec![0; 8 * geometry.inode_size as usize];
        write_free_inodes(&mut bytes, &geometry, &number_field(&geometry), first, 77);
        for (n, slot) in (0..8).zip(bytes.chunks(geometry.inode_size as usize)) {
            let inode = Dinode::verify(slot, &geometry, Ino(first.get() + n)).unwrap();
            assert!(inode.is_free());
            let core = inode.core;
            assert_eq!((core.generation.get(), core.next_unlinked.get(), core.format), (77, u32::MAX, 0));
            assert!(slot[size_of::<RawInode>()..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn recovery_parses_the_create_item() {
        let geometry = testing::geometry();
        let item = create_item(&geometry, AgNumber(1), AgBlock(8), 8, 5);
        let read = InodeCreate::parse(item.as_bytes()).unwrap();
        read.verify(&geometry).unwrap();
        assert_eq!((read.block, read.blocks, read.count, read.generation), (AgBlock(8), 8, 64, 5));
    }
}
