//! What a cursor needs to know about a btree type besides its layout: how records and keys compare, and which key
//! describes a record.

use base::Daddr;
use format::btree::{
    self, BmapKey, Btree, BtreePointer, FreeExtent, InodeChunk, InodeChunkKey, LongHeader, NULL_AG_BLOCK,
    NULL_FS_BLOCK, RefcountExtent, RefcountKey, Rmap, RmapKey, ShortHeader, rmap,
};
use format::extent::{Extent, RawExtent};
use format::ondisk::{LeU32, U16, U32, U64};
use zerocopy::IntoBytes;

/// Header fields of a new block.
#[derive(Clone, Copy, Debug)]
pub struct NewBlockHeader {
    /// Magic number of the btree type.
    pub magic: u32,
    /// Level; 0 for a leaf.
    pub level: u16,
    /// Disk address of the block.
    pub daddr: Daddr,
    /// Metadata UUID of the volume.
    pub uuid: [u8; 16],
    /// AG number or inode number.
    pub owner: u64,
}

/// A block pointer: an AG block number (short form) or a file system block number (long form).
pub trait RawPointer: BtreePointer + Copy + IntoBytes {
    /// The null pointer.
    const NULL: u64;
    /// Encodes a block number. Callers pass numbers that were decoded from pointers of the same width, so none is
    /// truncated.
    fn of(number: u64) -> Self;
    /// The block number.
    fn number(&self) -> u64;
    /// Writes the header of an empty block without siblings; `to` has the header's size.
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

/// Order and keys of a btree type.
///
/// # Invariants
/// [`LookupKey`](Self::LookupKey) values order records and keys, and no two records of a tree have equal ones.
pub trait BtreeType: Btree<Record: Copy + IntoBytes, Key: Copy + IntoBytes, Pointer: RawPointer> {
    /// The part of a record or key that lookups compare.
    type LookupKey: Copy + Ord + std::fmt::Debug;

    /// Records may overlap, so keys also hold the highest key of the subtree.
    const OVERLAPPING: bool = false;

    /// The lookup key of a record.
    fn record_lookup_key(record: &Self::Record) -> Self::LookupKey;

    /// The lookup key of a node key: that of the first record below it.
    fn key_lookup_key(key: &Self::Key) -> Self::LookupKey;

    /// The key of a block with this single record.
    fn init_key(record: &Self::Record) -> Self::Key;

    /// Extends a key to cover `other`, which follows it in order. Only overlapping trees need it.
    fn widen_key(_key: &mut Self::Key, _other: &Self::Key) {}
}

impl BtreeType for btree::BnoBt {
    type LookupKey = u32;

    fn record_lookup_key(record: &FreeExtent) -> u32 {
        record.startblock.get()
    }
    fn key_lookup_key(key: &FreeExtent) -> u32 {
        key.startblock.get()
    }
    fn init_key(record: &FreeExtent) -> FreeExtent {
        *record
    }
}

impl BtreeType for btree::CntBt {
    /// Block count, first block.
    type LookupKey = (u32, u32);

    fn record_lookup_key(record: &FreeExtent) -> (u32, u32) {
        (record.blockcount.get(), record.startblock.get())
    }
    fn key_lookup_key(key: &FreeExtent) -> (u32, u32) {
        Self::record_lookup_key(key)
    }
    fn init_key(record: &FreeExtent) -> FreeExtent {
        *record
    }
}

macro_rules! inode_trees {
    ($($tree:ident),*) => {$(
        impl BtreeType for btree::$tree {
            /// First inode of the chunk, relative to the AG.
            type LookupKey = u32;

            fn record_lookup_key(record: &InodeChunk) -> u32 {
                record.startino.get()
            }
            fn key_lookup_key(key: &InodeChunkKey) -> u32 {
                key.startino.get()
            }
            fn init_key(record: &InodeChunk) -> InodeChunkKey {
                InodeChunkKey { startino: record.startino }
            }
        }
    )*};
}
inode_trees!(InoBt, FinoBt);

impl BtreeType for btree::RefcountBt {
    /// First block. CoW staging extents have the highest bit set, so they follow all others.
    type LookupKey = u32;

    fn record_lookup_key(record: &RefcountExtent) -> u32 {
        record.startblock.get()
    }
    fn key_lookup_key(key: &RefcountKey) -> u32 {
        key.startblock.get()
    }
    fn init_key(record: &RefcountExtent) -> RefcountKey {
        RefcountKey { startblock: record.startblock }
    }
}

impl BtreeType for btree::BmBt {
    /// First logical block.
    type LookupKey = u64;

    fn record_lookup_key(record: &RawExtent) -> u64 {
        Extent::decode(record).offset.get()
    }
    fn key_lookup_key(key: &BmapKey) -> u64 {
        key.startoff.get()
    }
    fn init_key(record: &RawExtent) -> BmapKey {
        BmapKey { startoff: U64::new(Self::record_lookup_key(record)) }
    }
}

/// Lookup key of a reverse mapping: first block, owner, offset with the fork flags but without the unwritten flag.
pub type RmapLookupKey = (u32, u64, u64);

impl BtreeType for btree::RmapBt {
    type LookupKey = RmapLookupKey;

    const OVERLAPPING: bool = true;

    fn record_lookup_key(record: &Rmap) -> RmapLookupKey {
        (record.startblock.get(), record.owner.get(), record.offset.get() & !rmap::UNWRITTEN)
    }
    fn key_lookup_key(key: &RmapKey) -> RmapLookupKey {
        (key.startblock.get(), key.owner.get(), key.offset.get() & !rmap::UNWRITTEN)
    }
    fn init_key(record: &Rmap) -> RmapKey {
        let last = record.blockcount.get().saturating_sub(1);
        let (owner, offset) = (record.owner.get(), record.offset.get() & !rmap::UNWRITTEN);
        // Only the offsets of file data advance with the blocks.
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
    fn widen_key(key: &mut RmapKey, other: &RmapKey) {
        let high = |key: &RmapKey| (key.startblock_hi.get(), key.owner_hi.get(), key.offset_hi.get());
        if high(other) > high(key) {
            (key.startblock_hi, key.owner_hi, key.offset_hi) =
                (other.startblock_hi, other.owner_hi, other.offset_hi);
        }
    }
}
