//! The offsets of checksum, LSN, UUID and address in each type of metadata block. Recovery handles blocks of any type
//! by their magic alone.

use std::mem::offset_of;

use base::{Daddr, Lsn};

use crate::agf::RawAgf;
use crate::agfl::RawAgfl;
use crate::agi::RawAgi;
use crate::attr;
use crate::btree::{self, Btree, LongHeader, ShortHeader};
use crate::checksum;
use crate::dabtree::{self, BlkInfo};
use crate::dir::{self, DirHeader};
use crate::log::buffer::BufferKind;
use crate::ondisk::{OnDisk, U16, U32, U64};
use crate::remote_block::RemoteBlockHeader;
use crate::superblock::{self, RawSuperblock};
use crate::symlink;
use crate::{agf, agfl, agi};

/// The offsets of the identity fields in one type of block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderLayout {
    /// Name of the block type.
    pub name: &'static str,
    /// Buffer type in log items.
    pub kind: BufferKind,
    magic: Magic,
    crc: usize,
    lsn: usize,
    uuid: Option<usize>,
    blkno: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Magic {
    /// The first four bytes.
    First(u32),
    /// Two bytes after the sibling pointers of a [`BlkInfo`].
    InBlkInfo(u16),
}

macro_rules! stamp {
    ($name:literal, $magic:expr, $raw:ident, [$kind:ident], blkno $blkno:ident) => {
        HeaderLayout { blkno: Some(offset_of!($raw, $blkno)), ..stamp!($name, $magic, $raw, [$kind], no blkno) }
    };
    ($name:literal, $magic:expr, $raw:ident, [$kind:ident], no blkno) => {
        HeaderLayout { uuid: Some(offset_of!($raw, uuid)), ..stamp!($name, $magic, $raw, [$kind], no uuid) }
    };
    ($name:literal, $magic:expr, $raw:ident, [$kind:ident], no uuid) => {
        HeaderLayout {
            name: $name,
            kind: BufferKind::$kind,
            magic: $magic,
            crc: offset_of!($raw, crc),
            lsn: offset_of!($raw, lsn),
            uuid: None,
            blkno: None,
        }
    };
}

/// All block types with a checksum and an LSN. Inode blocks are not included: each inode has its own.
const STAMPS: &[HeaderLayout] = &[
    // The superblock stores the user-visible UUID, which may differ from the metadata UUID.
    stamp!("superblock", Magic::First(superblock::MAGIC), RawSuperblock, [Superblock], no uuid),
    stamp!("AGF", Magic::First(agf::MAGIC), RawAgf, [Agf], no blkno),
    stamp!("AGI", Magic::First(agi::MAGIC), RawAgi, [Agi], no blkno),
    stamp!("AGFL", Magic::First(agfl::MAGIC), RawAgfl, [Agfl], no blkno),
    stamp!("bnobt block", Magic::First(btree::BnoBt::MAGIC), ShortHeader, [Btree], blkno bno),
    stamp!("cntbt block", Magic::First(btree::CntBt::MAGIC), ShortHeader, [Btree], blkno bno),
    stamp!("inobt block", Magic::First(btree::InoBt::MAGIC), ShortHeader, [Btree], blkno bno),
    stamp!("finobt block", Magic::First(btree::FinoBt::MAGIC), ShortHeader, [Btree], blkno bno),
    stamp!("rmapbt block", Magic::First(btree::RmapBt::MAGIC), ShortHeader, [Btree], blkno bno),
    stamp!("refcountbt block", Magic::First(btree::RefcountBt::MAGIC), ShortHeader, [Btree], blkno bno),
    stamp!("bmbt block", Magic::First(btree::BmBt::MAGIC), LongHeader, [Btree], blkno bno),
    stamp!("directory block", Magic::First(dir::data::BLOCK_MAGIC), DirHeader, [DirBlock], blkno blkno),
    stamp!("directory data block", Magic::First(dir::data::DATA_MAGIC), DirHeader, [DirData], blkno blkno),
    stamp!("directory free block", Magic::First(dir::free::MAGIC), DirHeader, [DirFree], blkno blkno),
    stamp!("symlink block", Magic::First(symlink::MAGIC), RemoteBlockHeader, [Symlink], blkno blkno),
    stamp!("attribute value block", Magic::First(attr::remote::MAGIC), RemoteBlockHeader, [AttrRemote], blkno blkno),
    stamp!("directory leaf", Magic::InBlkInfo(dir::leaf::LEAF1_MAGIC), BlkInfo, [DirLeaf1], blkno blkno),
    stamp!("directory leaf under a node", Magic::InBlkInfo(dir::leaf::LEAFN_MAGIC), BlkInfo, [DirLeafN], blkno blkno),
    stamp!("hash tree node", Magic::InBlkInfo(dabtree::NODE_MAGIC), BlkInfo, [DaNode], blkno blkno),
    stamp!("attribute leaf", Magic::InBlkInfo(attr::leaf::MAGIC), BlkInfo, [AttrLeaf], blkno blkno),
];

impl HeaderLayout {
    /// The layout that matches the magic of a block; `None` if there is none.
    pub fn of(block: &[u8]) -> Option<&'static Self> {
        STAMPS.iter().find(|stamp| stamp.is_of(block))
    }

    /// Whether the magic of a block matches.
    #[inline]
    pub fn is_of(&self, block: &[u8]) -> bool {
        match self.magic {
            Magic::First(magic) => U32::view(block).is_some_and(|first| first.get() == magic),
            Magic::InBlkInfo(magic) => {
                let found = block.get(offset_of!(BlkInfo, magic)..).and_then(U16::view);
                found.is_some_and(|found| found.get() == magic)
            }
        }
    }

    /// Whether the checksum of `block` is valid.
    pub fn checksum_holds(&self, block: &[u8]) -> bool {
        checksum::verify(self.name, block, self.crc).is_ok()
    }

    /// Whether the block carries this metadata UUID; `true` for types without a UUID.
    pub fn belongs_to(&self, block: &[u8], uuid: &[u8; 16]) -> bool {
        self.uuid.is_none_or(|at| block.get(at..at + 16).is_some_and(|found| found == uuid))
    }

    /// Whether the block carries this address; `true` for types without an address.
    pub fn lies_at(&self, block: &[u8], daddr: Daddr) -> bool {
        self.blkno.is_none_or(|at| word(block, at) == Some(daddr.get()))
    }

    /// LSN of the last write; `None` if none was stored, as in blocks that are not logged.
    pub fn lsn(&self, block: &[u8]) -> Option<Lsn> {
        word(block, self.lsn).filter(|lsn| *lsn != 0 && *lsn != u64::MAX).map(Lsn)
    }

    /// Stores the LSN and then the checksum of `block`. Returns `false`, with an invalid checksum, if the block is too
    /// short.
    pub fn seal(&self, block: &mut [u8], lsn: Lsn) -> bool {
        let Some(field) = block.get_mut(self.lsn..self.lsn + 8) else { return false };
        field.copy_from_slice(&lsn.get().to_be_bytes());
        checksum::store(block, self.crc)
    }
}

fn word(block: &[u8], at: usize) -> Option<u64> {
    block.get(at..).and_then(U64::view).map(|word| word.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(stamp: &HeaderLayout) -> Vec<u8> {
        let mut block = vec![0; 512];
        match stamp.magic {
            Magic::First(magic) => block[..4].copy_from_slice(&magic.to_be_bytes()),
            Magic::InBlkInfo(magic) => block[8..10].copy_from_slice(&magic.to_be_bytes()),
        }
        block
    }

    #[test]
    fn every_layout_matches_its_magic_and_can_be_sealed() {
        for stamp in STAMPS {
            let mut block = block(stamp);
            assert_eq!(HeaderLayout::of(&block), Some(stamp));
            assert_eq!(stamp.lsn(&block), None);
            assert!(stamp.seal(&mut block, Lsn::new(3, 9)), "{}", stamp.name);
            assert!(stamp.checksum_holds(&block), "{}", stamp.name);
            assert_eq!(stamp.lsn(&block), Some(Lsn::new(3, 9)));
            block[511] ^= 1;
            assert!(!stamp.checksum_holds(&block), "{}", stamp.name);
        }
    }

    #[test]
    fn short_blocks_match_no_layout() {
        assert_eq!(HeaderLayout::of(&[]), None);
        for stamp in STAMPS {
            let mut block = block(stamp);
            block.truncate(12);
            assert!(!stamp.seal(&mut block, Lsn(1)));
            assert!(!stamp.checksum_holds(&block));
        }
    }
}
