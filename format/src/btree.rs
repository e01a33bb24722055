//! B+trees with fixed-size records: one block layout, seven trees. (Format document, "Fixed Length Record B+trees".)
//!
//! | tree | record | scope |
//! |---|---|---|
//! | [`BnoBt`], [`CntBt`] | free extents, by block and by size | AG |
//! | [`InoBt`], [`FinoBt`] | inode chunks, and those with free inodes | AG |
//! | [`RmapBt`] | owner of each extent | AG |
//! | [`RefcountBt`] | reference counts of shared extents | AG |
//! | [`BmBt`] | extents of a fork | file |
//!
//! Each tree is a type that implements [`Btree`]; [`BtreeBlock`] is a verified block of any of them.
//!
//! # Invariants
//! The records, keys and pointers of a [`BtreeBlock`] lie within its bytes. Their *order* and their agreement with the
//! parent are not verified per block: see [`Btree::in_order`].

use base::{AgBlock, AgNumber, Daddr, FsBlock, Ino};

use crate::checksum;
use crate::damage::Damage;
use crate::ensure;
use crate::extent::RawExtent;
use crate::geometry::Geometry;
use crate::ondisk::{LeU32, OnDisk, U16, U32, U64};

/// Maximum height of any tree in any geometry, so that a walk of a damaged tree terminates.
pub const MAX_LEVELS: u32 = 12;

/// Null sibling in a short header.
pub const NULL_AG_BLOCK: u32 = u32::MAX;
/// Null sibling in a long header.
pub const NULL_FS_BLOCK: u64 = u64::MAX;

crate::ondisk! {
    /// Block header of an AG btree: 32-bit pointers.
    pub struct ShortHeader("short B+tree block", 56) {
        /// Type of the tree.
        magic: U32 = Hex,
        /// 0 for a leaf.
        level: U16 = Uint,
        /// Number of records or keys.
        numrecs: U16 = Uint,
        /// Left sibling.
        leftsib: U32 = Nullable,
        /// Right sibling.
        rightsib: U32 = Nullable,
        /// This block's own disk address.
        bno: U64 = Uint,
        /// LSN of the last write.
        lsn: U64 = Lsn,
        /// The volume's metadata UUID.
        uuid: [u8; 16] = Uuid,
        /// AG number.
        owner: U32 = Uint,
        /// CRC32C of the block.
        crc: LeU32 = Crc,
    }

    /// Block header of a fork's btree: 64-bit pointers.
    pub struct LongHeader("long B+tree block", 72) {
        /// Type of the tree.
        magic: U32 = Hex,
        /// 0 for a leaf.
        level: U16 = Uint,
        /// Number of records or keys.
        numrecs: U16 = Uint,
        /// Left sibling.
        leftsib: U64 = Nullable,
        /// Right sibling.
        rightsib: U64 = Nullable,
        /// This block's own disk address.
        bno: U64 = Uint,
        /// LSN of the last write.
        lsn: U64 = Lsn,
        /// The volume's metadata UUID.
        uuid: [u8; 16] = Uuid,
        /// Inode number.
        owner: U64 = Uint,
        /// CRC32C of the block.
        crc: LeU32 = Crc,
        /// Zero.
        pad: U32 = Padding,
    }

    /// Record and key of the bnobt and cntbt.
    pub struct FreeExtent("free extent", 8) {
        /// First block.
        startblock: U32 = Uint,
        /// Number of blocks.
        blockcount: U32 = Uint,
    }

    /// Record of the inobt and finobt.
    pub struct InodeChunk("inode chunk", 16) {
        /// First AG inode, a multiple of 64.
        startino: U32 = Uint,
        /// With sparse chunks: a bit for each four inodes that do not exist. Otherwise the upper half of the free
        /// count.
        holemask: U16 = Hex,
        /// With sparse chunks: number of inodes that exist. Otherwise the second byte of the free count.
        count: u8 = Uint,
        /// Free inodes.
        freecount: u8 = Uint,
        /// A bit for each inode that is free (or does not exist).
        free: U64 = Hex,
    }

    /// Key of the inobt and finobt.
    pub struct InodeChunkKey("inode chunk key", 4) {
        /// First AG inode.
        startino: U32 = Uint,
    }

    /// Record of the rmapbt.
    pub struct Rmap("reverse mapping", 24) {
        /// First block.
        startblock: U32 = Uint,
        /// Number of blocks.
        blockcount: U32 = Uint,
        /// Owner: an inode, or a negative number for metadata.
        owner: U64 = Int,
        /// Logical block, with flags in the upper bits: attribute fork, bmbt block, unwritten.
        offset: U64 = Hex,
    }

    /// Half a key of the rmapbt: the lowest or the highest mapping in the subtree.
    pub struct RmapKeyHalf("reverse mapping key half", 20) {
        /// First block.
        startblock: U32 = Uint,
        /// Owner.
        owner: U64 = Int,
        /// Logical block with flags.
        offset: U64 = Hex,
    }

    /// Record of the refcountbt.
    pub struct RefcountExtent("reference count", 12) {
        /// First block; the highest bit marks copy-on-write staging.
        startblock: U32 = Uint,
        /// Number of blocks.
        blockcount: U32 = Uint,
        /// Reference count.
        refcount: U32 = Uint,
    }

    /// Key of the refcountbt.
    pub struct RefcountKey("reference count key", 4) {
        /// First block.
        startblock: U32 = Uint,
    }

    /// Key of the bmbt.
    pub struct BmapKey("extent map key", 8) {
        /// First logical block.
        startoff: U64 = Uint,
    }

    /// Root of a bmbt in the inode; keys and pointers follow.
    pub struct BmapRoot("extent map root", 4) {
        /// Height of the tree minus 1: never 0.
        level: U16 = Uint,
        /// Number of keys.
        numrecs: U16 = Uint,
    }

    /// Key of the rmapbt: the lowest and the highest mapping in the subtree.
    pub struct RmapKey("reverse mapping key", 40) {
        /// `startblock` of the lowest mapping.
        startblock: U32 = Uint,
        /// Owner of the lowest mapping.
        owner: U64 = Int,
        /// Offset of the lowest mapping.
        offset: U64 = Hex,
        /// Last block of the highest mapping.
        startblock_hi: U32 = Uint,
        /// Owner of the highest mapping.
        owner_hi: U64 = Int,
        /// Offset of the highest mapping.
        offset_hi: U64 = Hex,
    }
}

/// Reverse mappings: flags in the upper bits of `offset`, and special owners (`xfs_format.h`).
pub mod rmap {
    /// The mapping belongs to the attribute fork.
    pub const ATTR_FORK: u64 = 1 << 63;
    /// The extent holds bmbt blocks.
    pub const BMBT_BLOCK: u64 = 1 << 62;
    /// The extent is unwritten.
    pub const UNWRITTEN: u64 = 1 << 61;
    /// The logical block.
    pub const OFFSET_MASK: u64 = (1 << 54) - 1;

    /// Owner: unknown, possibly free.
    pub const OWNER_NULL: i64 = -1;
    /// Owner: unknown (growing).
    pub const OWNER_UNKNOWN: i64 = -2;
    /// Owner: the AG's headers.
    pub const OWNER_FS: i64 = -3;
    /// Owner: the log.
    pub const OWNER_LOG: i64 = -4;
    /// Owner: bnobt, cntbt, rmapbt and AGFL.
    pub const OWNER_AG: i64 = -5;
    /// Owner: inobt and finobt.
    pub const OWNER_INOBT: i64 = -6;
    /// Owner: inode chunks.
    pub const OWNER_INODES: i64 = -7;
    /// Owner: the refcountbt.
    pub const OWNER_REFC: i64 = -8;
    /// Owner: copy-on-write staging.
    pub const OWNER_COW: i64 = -9;
}

/// Marks copy-on-write staging extents in `startblock` of the refcountbt.
pub const REFCOUNT_COW: u32 = 1 << 31;

impl InodeChunk {
    /// A bit for each of the 64 inodes that exists.
    pub fn present(&self, sparse: bool) -> u64 {
        if !sparse {
            return u64::MAX;
        }
        let mask = self.holemask.get();
        (0..16).filter(|n| mask & (1 << n) == 0).fold(0, |bits, n| bits | 0xf << (n * 4))
    }

    /// Number of free inodes, for either layout of the record.
    pub fn free_count(&self, sparse: bool) -> u32 {
        if sparse {
            self.freecount.into()
        } else {
            u32::from(self.holemask.get()) << 16 | u32::from(self.count) << 8 | u32::from(self.freecount)
        }
    }
}

/// Pointers of a tree: AG blocks or file system blocks.
pub trait BtreePointer: OnDisk {
    /// Decodes a pointer of a tree in `ag`, or of a fork's tree if `None`. Returns `None` if it lies outside the
    /// volume.
    fn locate(&self, geometry: &Geometry, ag: Option<AgNumber>) -> Option<(AgNumber, AgBlock)>;
}

impl BtreePointer for U32 {
    fn locate(&self, geometry: &Geometry, ag: Option<AgNumber>) -> Option<(AgNumber, AgBlock)> {
        let (ag, block) = (ag?, AgBlock(self.get()));
        geometry.ag_block_is_usable(ag, block).then_some((ag, block))
    }
}

impl BtreePointer for U64 {
    fn locate(&self, geometry: &Geometry, _: Option<AgNumber>) -> Option<(AgNumber, AgBlock)> {
        let (ag, block) = geometry.split_fs_block(FsBlock(self.get()))?;
        geometry.ag_block_is_usable(ag, block).then_some((ag, block))
    }
}

/// The identity that a block header must carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BtreeBlockIdentity {
    /// AG number.
    pub ag: AgNumber,
    /// Block in the AG.
    pub block: AgBlock,
    /// The owning inode of a bmbt.
    pub ino: Option<Ino>,
}

/// Short and long block headers.
pub trait BtreeHeader: OnDisk {
    /// The tree's magic.
    fn magic(&self) -> u32;
    /// 0 for a leaf.
    fn level(&self) -> u16;
    /// Number of records or keys.
    fn numrecs(&self) -> u16;
    /// Disk address of this block.
    fn daddr(&self) -> Daddr;
    /// The metadata UUID.
    fn uuid(&self) -> &[u8; 16];
    /// LSN of the last write.
    fn lsn(&self) -> u64;
    /// AG number or inode number.
    fn owner(&self) -> u64;
    /// Left and right sibling, widened to 64 bits.
    fn siblings(&self) -> (Option<u64>, Option<u64>);
    /// Offset of the checksum.
    const CRC_OFFSET: usize;
}

macro_rules! header {
    ($name:ident, $null:expr, $crc:literal) => {
        impl BtreeHeader for $name {
            fn magic(&self) -> u32 {
                self.magic.get()
            }
            fn level(&self) -> u16 {
                self.level.get()
            }
            fn numrecs(&self) -> u16 {
                self.numrecs.get()
            }
            fn daddr(&self) -> Daddr {
                Daddr(self.bno.get())
            }
            fn uuid(&self) -> &[u8; 16] {
                &self.uuid
            }
            fn lsn(&self) -> u64 {
                self.lsn.get()
            }
            fn owner(&self) -> u64 {
                self.owner.get().into()
            }
            fn siblings(&self) -> (Option<u64>, Option<u64>) {
                let some = |n| if n == $null { None } else { Some(u64::from(n)) };
                (some(self.leftsib.get()), some(self.rightsib.get()))
            }
            const CRC_OFFSET: usize = $crc;
        }
    };
}
header!(ShortHeader, NULL_AG_BLOCK, 52);
header!(LongHeader, NULL_FS_BLOCK, 64);

/// A type of btree.
pub trait Btree {
    /// Name in messages.
    const NAME: &'static str;
    /// The magic of its blocks.
    const MAGIC: u32;
    /// Short or long header.
    type Header: BtreeHeader;
    /// Leaf record.
    type Record: OnDisk;
    /// Node key.
    type Key: OnDisk;
    /// Pointer to a child block.
    type Pointer: BtreePointer;

    /// Whether `right` may follow `left` in a leaf.
    fn in_order(left: &Self::Record, right: &Self::Record) -> bool;
    /// Whether `right` may follow `left` in a node.
    fn keys_in_order(left: &Self::Key, right: &Self::Key) -> bool;
    /// Whether `key` is the key of a child block whose first record is `first`.
    fn key_matches(key: &Self::Key, first: &Self::Record) -> bool;

    /// Maximum number of records of a leaf.
    fn max_records(geometry: &Geometry) -> usize {
        (geometry.block_size as usize - Self::Header::SIZE) / Self::Record::SIZE
    }
    /// Maximum number of keys of a node.
    fn max_keys(geometry: &Geometry) -> usize {
        (geometry.block_size as usize - Self::Header::SIZE) / (Self::Key::SIZE + Self::Pointer::SIZE)
    }
}

macro_rules! tree {
    ($(
        $(#[$doc:meta])*
        $tree:ident = $magic:literal $name:literal, $header:ty, $record:ty, $key:ty, $pointer:ty,
        order |$l:ident, $r:ident| $order:expr, keys |$kl:ident, $kr:ident| $keys:expr,
        matches |$k:ident, $f:ident| $matches:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $tree {}
        impl Btree for $tree {
            const NAME: &'static str = $name;
            const MAGIC: u32 = u32::from_be_bytes(*$magic);
            type Header = $header;
            type Record = $record;
            type Key = $key;
            type Pointer = $pointer;
            fn in_order($l: &$record, $r: &$record) -> bool { $order }
            fn keys_in_order($kl: &$key, $kr: &$key) -> bool { $keys }
            fn key_matches($k: &$key, $f: &$record) -> bool { $matches }
        }
    )*};
}

/// End of an extent, without overflow.
fn end(start: U32, count: U32) -> u64 {
    u64::from(start.get()) + u64::from(count.get())
}

tree! {
    /// Free space by block.
    BnoBt = b"AB3B" "free space by block (bnobt)", ShortHeader, FreeExtent, FreeExtent, U32,
        order |l, r| end(l.startblock, l.blockcount) < u64::from(r.startblock.get()),
        keys |l, r| l.startblock < r.startblock,
        matches |k, f| k.startblock == f.startblock;
    /// Free space by size.
    CntBt = b"AB3C" "free space by size (cntbt)", ShortHeader, FreeExtent, FreeExtent, U32,
        order |l, r| (l.blockcount, l.startblock) < (r.blockcount, r.startblock),
        keys |l, r| (l.blockcount, l.startblock) < (r.blockcount, r.startblock),
        matches |k, f| (k.blockcount, k.startblock) == (f.blockcount, f.startblock);
    /// Inode chunks.
    InoBt = b"IAB3" "inode (inobt)", ShortHeader, InodeChunk, InodeChunkKey, U32,
        order |l, r| u64::from(l.startino.get()) + 64 <= u64::from(r.startino.get()),
        keys |l, r| l.startino < r.startino,
        matches |k, f| k.startino == f.startino;
    /// Inode chunks with free inodes.
    FinoBt = b"FIB3" "free inode (finobt)", ShortHeader, InodeChunk, InodeChunkKey, U32,
        order |l, r| u64::from(l.startino.get()) + 64 <= u64::from(r.startino.get()),
        keys |l, r| l.startino < r.startino,
        matches |k, f| k.startino == f.startino;
    /// Reverse mappings.
    RmapBt = b"RMB3" "reverse-mapping (rmapbt)", ShortHeader, Rmap, RmapKey, U32,
        order |l, r| rmap_order(l) < rmap_order(r),
        keys |l, r| (l.startblock.get(), l.owner.get(), l.offset.get() & !rmap::UNWRITTEN)
            <= (r.startblock.get(), r.owner.get(), r.offset.get() & !rmap::UNWRITTEN),
        matches |k, f| (k.startblock, k.owner, k.offset.get() & !rmap::UNWRITTEN)
            == (f.startblock, f.owner, f.offset.get() & !rmap::UNWRITTEN);
    /// Reference counts.
    RefcountBt = b"R3FC" "reference-count (refcountbt)", ShortHeader, RefcountExtent, RefcountKey, U32,
        order |l, r| end(l.startblock, l.blockcount) <= u64::from(r.startblock.get()),
        keys |l, r| l.startblock < r.startblock,
        matches |k, f| k.startblock == f.startblock;
    /// Extents of a fork.
    BmBt = b"BMA3" "extent map (bmbt)", LongHeader, RawExtent, BmapKey, U64,
        order |l, r| {
            let (l, r) = (crate::extent::Extent::decode(l), crate::extent::Extent::decode(r));
            l.end() <= r.offset
        },
        keys |l, r| l.startoff < r.startoff,
        matches |k, f| k.startoff.get() == crate::extent::Extent::decode(f).offset.get();
}

/// Sort key of reverse mappings: block, owner, offset with its fork flags but without the unwritten flag.
fn rmap_order(r: &Rmap) -> (u32, u64, u64) {
    (r.startblock.get(), r.owner.get(), r.offset.get() & !rmap::UNWRITTEN)
}

/// A verified block: a leaf with records, or a node with keys and pointers.
#[derive(Debug)]
pub struct BtreeBlock<'a, T: Btree> {
    /// The header.
    pub header: &'a T::Header,
    /// Records, or keys and pointers.
    pub body: BtreeBlockBody<'a, T>,
}

/// The contents of a block after its header.
#[derive(Debug)]
pub enum BtreeBlockBody<'a, T: Btree> {
    /// Level 0.
    Leaf(&'a [T::Record]),
    /// Any higher level: as many pointers as keys.
    Node(&'a [T::Key], &'a [T::Pointer]),
}

impl<'a, T: Btree> BtreeBlock<'a, T> {
    /// Verifies a block of the tree: identity, checksum, owner, and that its records fit.
    ///
    /// `level` is the level expected by the parent; without this check a damaged tree could lead a walk in circles.
    pub fn verify(
        bytes: &'a [u8],
        geometry: &Geometry,
        identity: BtreeBlockIdentity,
        level: u16,
    ) -> Result<Self, Damage> {
        let short = || Damage::short(T::NAME, geometry.block_size as usize, bytes.len());
        let bytes = bytes.get(..geometry.block_size as usize).ok_or_else(short)?;
        let header = T::Header::view(bytes).ok_or_else(short)?;
        let magic = header.magic();
        ensure!(
            magic == T::MAGIC,
            T::NAME,
            "magic",
            format_args!("{:#x}", T::MAGIC),
            format_args!("{magic:#x}")
        );
        checksum::verify(T::NAME, bytes, T::Header::CRC_OFFSET)?;
        ensure!(*header.uuid() == geometry.uuid, T::NAME, "uuid", "the volume's metadata UUID", "another");
        let daddr = geometry.ag_block_daddr(identity.ag, identity.block);
        ensure!(header.daddr() == daddr, T::NAME, "bno", daddr, header.daddr());
        let owner = identity.ino.map_or(identity.ag.get().into(), Ino::get);
        ensure!(header.owner() == owner, T::NAME, "owner", owner, header.owner());
        ensure!(header.level() == level, T::NAME, "level", level, header.level());
        let body = Self::body(bytes, geometry, header)?;
        Ok(Self { header, body })
    }

    /// Views records, or keys and pointers, and verifies only that they fit. Used to print damaged blocks.
    pub fn body(
        bytes: &'a [u8],
        geometry: &Geometry,
        header: &T::Header,
    ) -> Result<BtreeBlockBody<'a, T>, Damage> {
        let short = || Damage::short(T::NAME, geometry.block_size as usize, bytes.len());
        let rest = bytes.get(T::Header::SIZE..).ok_or_else(short)?;
        let count = usize::from(header.numrecs());
        if header.level() == 0 {
            let most = T::max_records(geometry);
            ensure!(count <= most, T::NAME, "numrecs", format_args!("at most {most}"), count);
            return Ok(BtreeBlockBody::Leaf(T::Record::view_array(rest, count).ok_or_else(short)?));
        }
        let most = T::max_keys(geometry);
        ensure!((1..=most).contains(&count), T::NAME, "numrecs", format_args!("1 to {most}"), count);
        let keys = T::Key::view_array(rest, count).ok_or_else(short)?;
        // Pointers begin where the last possible key would end.
        let pointers = rest.get(most * T::Key::SIZE..).ok_or_else(short)?;
        Ok(BtreeBlockBody::Node(keys, T::Pointer::view_array(pointers, count).ok_or_else(short)?))
    }
}
