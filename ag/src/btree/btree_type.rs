//! What a cursor must know of a kind of tree beyond its layout: how records and keys are searched, and which key
//! stands for which record.

use base::Daddr;
use format::btree::{
    self, BmapKey, Btree, BtreePointer, FreeExtent, InodeChunk, InodeChunkKey, LongHeader, NULL_AG_BLOCK,
    NULL_FS_BLOCK, RefcountExtent, RefcountKey, Rmap, RmapKey, ShortHeader, rmap,
};
use format::extent::{Extent, RawExtent};
use format::ondisk::{LeU32, U16, U32, U64};
use zerocopy::IntoBytes;

/// What a new block's header says.
#[derive(Clone, Copy, Debug)]
pub struct NewBlockHeader {
    /// The tree's magic.
    pub magic: u32,
    /// 0 for a leaf.
    pub level: u16,
    /// Where the block lies.
    pub daddr: Daddr,
    /// The volume's metadata UUID.
    pub uuid: [u8; 16],
    /// AG or inode.
    pub owner: u64,
}

/// A pointer as a number: an AG block, or a packed block. Its width goes with the shape of the header.
pub trait RawPointer: BtreePointer + Copy + IntoBytes {
    /// The number of "none".
    const NULL: u64;
    /// The pointer of a number. Numbers above the pointer's width do not occur: they come from such pointers.
    fn of(number: u64) -> Self;
    /// The number of a pointer.
    fn number(&self) -> u64;
    /// Writes the header of an empty block without siblings to bytes of its size.
    fn write_header(header: &NewBlockHeader, to: &mut [u8]);
}

impl RawPointer for U32 {
    const NULL: u64 = NULL_AG_BLOCK as u64;

    fn of(number: u64) -> Self {
        Self::new(number as u32)
    }
    fn number(&self) -> u64 {
        self.get().into()
    }
    fn write_header(header: &NewBlockHeader, to: &mut [u8]) {
        let header = ShortHeader {
            magic: Self::new(header.magic),
            level: U16::new(header.level),
            numrecs: U16::ZERO,
            leftsib: Self::of(Self::NULL),
            rightsib: Self::of(Self::NULL),
            bno: U64::new(header.daddr.get()),
            lsn: U64::ZERO,
            uuid: header.uuid,
            owner: Self::new(header.owner as u32),
            crc: LeU32::ZERO,
        };
        to.copy_from_slice(header.as_bytes());
    }
}

impl RawPointer for U64 {
    const NULL: u64 = NULL_FS_BLOCK;

    fn of(number: u64) -> Self {
        Self::new(number)
    }
    fn number(&self) -> u64 {
        self.get()
    }
    fn write_header(header: &NewBlockHeader, to: &mut [u8]) {
        let header = LongHeader {
            magic: U32::new(header.magic),
            level: U16::new(header.level),
            numrecs: U16::ZERO,
            leftsib: Self::of(Self::NULL),
            rightsib: Self::of(Self::NULL),
            bno: U64::new(header.daddr.get()),
            lsn: U64::ZERO,
            uuid: header.uuid,
            owner: Self::new(header.owner),
            crc: LeU32::ZERO,
            pad: U32::ZERO,
        };
        to.copy_from_slice(header.as_bytes());
    }
}

/// How a kind of tree is searched.
///
/// # Invariants
/// The order of [`LookupKey`](Self::LookupKey) values is the order of records and of keys, and no two records of a tree
/// have the same one.
pub trait BtreeType: Btree<Record: Copy + IntoBytes, Key: Copy + IntoBytes, Pointer: RawPointer> {
    /// What is compared in a search.
    type LookupKey: Copy + Ord + std::fmt::Debug;

    /// Records may overlap: a key tells the highest place below it, too.
    const OVERLAPPING: bool = false;

    /// Where a record stands in the order.
    fn of_record(record: &Self::Record) -> Self::LookupKey;

    /// Where the first record below a key stands in the order.
    fn of_key(key: &Self::Key) -> Self::LookupKey;

    /// The key of a block that holds this record alone.
    fn key(record: &Self::Record) -> Self::Key;

    /// Makes a key tell of what `other` tells, which stands behind it. Nothing to do but where records overlap.
    fn widen(_key: &mut Self::Key, _other: &Self::Key) {}
}

impl BtreeType for btree::BnoBt {
    type LookupKey = u32;

    fn of_record(record: &FreeExtent) -> u32 {
        record.startblock.get()
    }
    fn of_key(key: &FreeExtent) -> u32 {
        key.startblock.get()
    }
    fn key(record: &FreeExtent) -> FreeExtent {
        *record
    }
}

impl BtreeType for btree::CntBt {
    /// Blocks, first block.
    type LookupKey = (u32, u32);

    fn of_record(record: &FreeExtent) -> (u32, u32) {
        (record.blockcount.get(), record.startblock.get())
    }
    fn of_key(key: &FreeExtent) -> (u32, u32) {
        Self::of_record(key)
    }
    fn key(record: &FreeExtent) -> FreeExtent {
        *record
    }
}

macro_rules! inode_trees {
    ($($tree:ident),*) => {$(
        impl BtreeType for btree::$tree {
            /// First AG inode.
            type LookupKey = u32;

            fn of_record(record: &InodeChunk) -> u32 {
                record.startino.get()
            }
            fn of_key(key: &InodeChunkKey) -> u32 {
                key.startino.get()
            }
            fn key(record: &InodeChunk) -> InodeChunkKey {
                InodeChunkKey { startino: record.startino }
            }
        }
    )*};
}
inode_trees!(InoBt, FinoBt);

impl BtreeType for btree::RefcountBt {
    /// First block; the highest bit marks staging, so that those stand behind all others.
    type LookupKey = u32;

    fn of_record(record: &RefcountExtent) -> u32 {
        record.startblock.get()
    }
    fn of_key(key: &RefcountKey) -> u32 {
        key.startblock.get()
    }
    fn key(record: &RefcountExtent) -> RefcountKey {
        RefcountKey { startblock: record.startblock }
    }
}

impl BtreeType for btree::BmBt {
    /// First logical block.
    type LookupKey = u64;

    fn of_record(record: &RawExtent) -> u64 {
        Extent::decode(record).offset.get()
    }
    fn of_key(key: &BmapKey) -> u64 {
        key.startoff.get()
    }
    fn key(record: &RawExtent) -> BmapKey {
        BmapKey { startoff: U64::new(Self::of_record(record)) }
    }
}

/// Where a reverse mapping stands: block, owner, offset with its fork bits but without the unwritten one.
pub type RmapLookupKey = (u32, u64, u64);

impl BtreeType for btree::RmapBt {
    type LookupKey = RmapLookupKey;

    const OVERLAPPING: bool = true;

    fn of_record(record: &Rmap) -> RmapLookupKey {
        (record.startblock.get(), record.owner.get(), record.offset.get() & !rmap::UNWRITTEN)
    }
    fn of_key(key: &RmapKey) -> RmapLookupKey {
        (key.startblock.get(), key.owner.get(), key.offset.get() & !rmap::UNWRITTEN)
    }
    fn key(record: &Rmap) -> RmapKey {
        let last = record.blockcount.get().saturating_sub(1);
        let (owner, offset) = (record.owner.get(), record.offset.get() & !rmap::UNWRITTEN);
        // Only a file's own blocks have offsets that run along with the blocks.
        let runs = owner >> 63 == 0 && offset & rmap::BMBT_BLOCK == 0;
        let offset_hi = if runs { offset.saturating_add(last.into()) } else { offset };
        RmapKey {
            startblock: record.startblock,
            owner: record.owner,
            offset: U64::new(offset),
            startblock_hi: U32::new(record.startblock.get().saturating_add(last)),
            owner_hi: record.owner,
            offset_hi: U64::new(offset_hi),
        }
    }
    fn widen(key: &mut RmapKey, other: &RmapKey) {
        let high = |key: &RmapKey| (key.startblock_hi.get(), key.owner_hi.get(), key.offset_hi.get());
        if high(other) > high(key) {
            (key.startblock_hi, key.owner_hi, key.offset_hi) =
                (other.startblock_hi, other.owner_hi, other.offset_hi);
        }
    }
}
