//! B+trees: one shape of block, seven trees. (Format document, "Fixed Length Record B+trees".)
//!
//! | tree | record | in |
//! |---|---|---|
//! | [`BnoBt`], [`CntBt`] | free extents, by block and by size | an AG |
//! | [`InoBt`], [`FinoBt`] | inode chunks, and those with free inodes | an AG |
//! | [`RmapBt`] | who owns each block | an AG |
//! | [`RefcountBt`] | how often blocks are shared | an AG |
//! | [`BmBt`] | the extents of one fork | a file |
//!
//! A tree is a type with a [`Btree`] implementation; [`BtreeBlock`] is a verified block of any of them.
//!
//! # Invariants
//! A [`BtreeBlock`]'s records, keys and pointers lie within the block's bytes. Their *order* and their agreement with
//! the parent are not a block's own business: see [`Btree::in_order`].

use base::{AgBlock, AgNumber, Daddr, FsBlock, Ino};

use crate::checksum;
use crate::damage::Damage;
use crate::ensure;
use crate::extent::RawExtent;
use crate::geometry::Geometry;
use crate::ondisk::{LeU32, OnDisk, U16, U32, U64};

/// No tree has more levels: an upper bound for all geometries, so that a walk ends whatever the disk says.
pub const MAX_LEVELS: u32 = 12;

/// "No sibling" in a short header.
pub const NULL_AG_BLOCK: u32 = u32::MAX;
/// "No sibling" in a long header.
pub const NULL_FS_BLOCK: u64 = u64::MAX;

crate::ondisk! {
    /// Header of a block of a tree inside an AG: 32-bit pointers.
    pub struct ShortHeader("short B+tree block", 56) {
        /// Which tree.
        magic: U32 = Hex,
        /// 0 for a leaf.
        level: U16 = Uint,
        /// Records or keys in use.
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
        /// The AG.
        owner: U32 = Uint,
        /// CRC32C of the block.
        crc: LeU32 = Crc,
    }

    /// Header of a block of a tree that spans AGs: 64-bit pointers.
    pub struct LongHeader("long B+tree block", 72) {
        /// Which tree.
        magic: U32 = Hex,
        /// 0 for a leaf.
        level: U16 = Uint,
        /// Records or keys in use.
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
        /// The inode.
        owner: U64 = Uint,
        /// CRC32C of the block.
        crc: LeU32 = Crc,
        /// Zero.
        pad: U32 = Padding,
    }

    /// Record and key of both free space trees.
    pub struct FreeExtent("free extent", 8) {
        /// First block.
        startblock: U32 = Uint,
        /// Blocks.
        blockcount: U32 = Uint,
    }

    /// Record of both inode trees.
    pub struct InodeChunk("inode chunk", 16) {
        /// First AG inode, a multiple of 64.
        startino: U32 = Uint,
        /// With sparse chunks: a bit for each four inodes that do not exist. Else the upper half of the free count.
        holemask: U16 = Hex,
        /// With sparse chunks: inodes that exist. Else the upper byte of the free count's lower half.
        count: u8 = Uint,
        /// Free inodes.
        freecount: u8 = Uint,
        /// A bit for each inode that is free (or does not exist).
        free: U64 = Hex,
    }

    /// Key of both inode trees.
    pub struct InodeChunkKey("inode chunk key", 4) {
        /// First AG inode.
        startino: U32 = Uint,
    }

    /// Record of the reverse-mapping tree.
    pub struct Rmap("reverse mapping", 24) {
        /// First block.
        startblock: U32 = Uint,
        /// Blocks.
        blockcount: U32 = Uint,
        /// Owner: an inode, or a negative number for metadata.
        owner: U64 = Int,
        /// Logical block, with flags above: attribute fork, extent-map block, unwritten.
        offset: U64 = Hex,
    }

    /// Half a key of the reverse-mapping tree: the lowest or the highest mapping below.
    pub struct RmapKeyHalf("reverse mapping key half", 20) {
        /// First block.
        startblock: U32 = Uint,
        /// Owner.
        owner: U64 = Int,
        /// Logical block with flags.
        offset: U64 = Hex,
    }

    /// Record of the reference-count tree.
    pub struct RefcountExtent("reference count", 12) {
        /// First block; the highest bit marks copy-on-write staging.
        startblock: U32 = Uint,
        /// Blocks.
        blockcount: U32 = Uint,
        /// Owners.
        refcount: U32 = Uint,
    }

    /// Key of the reference-count tree.
    pub struct RefcountKey("reference count key", 4) {
        /// First block.
        startblock: U32 = Uint,
    }

    /// Key of a fork's tree.
    pub struct BmapKey("extent map key", 8) {
        /// First logical block.
        startoff: U64 = Uint,
    }

    /// Root of a fork's tree, in the inode: keys and pointers follow.
    pub struct BmapRoot("extent map root", 4) {
        /// Levels below plus one: never 0.
        level: U16 = Uint,
        /// Keys in use.
        numrecs: U16 = Uint,
    }

    /// Key of the reverse-mapping tree, which stores the lowest and the highest mapping below a block.
    pub struct RmapKey("reverse mapping key", 40) {
        /// Lowest `startblock` below.
        startblock: U32 = Uint,
        /// Lowest owner below, among equal blocks.
        owner: U64 = Int,
        /// Lowest offset below, among equal owners.
        offset: U64 = Hex,
        /// Highest last block below.
        startblock_hi: U32 = Uint,
        /// Its owner.
        owner_hi: U64 = Int,
        /// Its offset.
        offset_hi: U64 = Hex,
    }
}

/// Reverse mappings: bits above the logical block in `offset`, and special owners (`xfs_format.h`).
pub mod rmap {
    /// The mapping belongs to the attribute fork.
    pub const ATTR_FORK: u64 = 1 << 63;
    /// The blocks hold the fork's extent map.
    pub const BMBT_BLOCK: u64 = 1 << 62;
    /// The extent is unwritten.
    pub const UNWRITTEN: u64 = 1 << 61;
    /// The logical block itself.
    pub const OFFSET_MASK: u64 = (1 << 54) - 1;

    /// Owner: unknown, possibly free.
    pub const OWNER_NULL: i64 = -1;
    /// Owner: unknown (growing).
    pub const OWNER_UNKNOWN: i64 = -2;
    /// Owner: the AG's headers.
    pub const OWNER_FS: i64 = -3;
    /// Owner: the log.
    pub const OWNER_LOG: i64 = -4;
    /// Owner: free space and reverse-mapping trees, and the AGFL.
    pub const OWNER_AG: i64 = -5;
    /// Owner: inode trees.
    pub const OWNER_INOBT: i64 = -6;
    /// Owner: inode chunks.
    pub const OWNER_INODES: i64 = -7;
    /// Owner: the reference-count tree.
    pub const OWNER_REFC: i64 = -8;
    /// Owner: copy-on-write staging.
    pub const OWNER_COW: i64 = -9;
}

/// Marks copy-on-write staging extents in the reference-count tree's `startblock`.
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

    /// Free inodes, whichever form the record has.
    pub fn free_count(&self, sparse: bool) -> u32 {
        if sparse {
            self.freecount.into()
        } else {
            u32::from(self.holemask.get()) << 16 | u32::from(self.count) << 8 | u32::from(self.freecount)
        }
    }
}

/// What all pointers of a tree are: AG blocks or packed blocks.
pub trait BtreePointer: OnDisk {
    /// Takes a pointer apart for a tree whose blocks lie in `ag`, or anywhere; `None` outside of the volume.
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

/// Which block a header must say it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BtreeBlockIdentity {
    /// The AG it lies in.
    pub ag: AgNumber,
    /// The block within.
    pub block: AgBlock,
    /// The inode that owns it, for a fork's tree.
    pub ino: Option<Ino>,
}

/// The two shapes of headers.
pub trait BtreeHeader: OnDisk {
    /// The tree's magic.
    fn magic(&self) -> u32;
    /// 0 for a leaf.
    fn level(&self) -> u16;
    /// Records or keys in use.
    fn numrecs(&self) -> u16;
    /// This block's own address.
    fn daddr(&self) -> Daddr;
    /// The metadata UUID.
    fn uuid(&self) -> &[u8; 16];
    /// LSN of the last write.
    fn lsn(&self) -> u64;
    /// AG or inode.
    fn owner(&self) -> u64;
    /// Siblings, widened; `None` where there is none.
    fn siblings(&self) -> (Option<u64>, Option<u64>);
    /// Where the checksum lies.
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

/// One kind of tree.
pub trait Btree {
    /// The field's name of the tree.
    const NAME: &'static str;
    /// The magic of its blocks.
    const MAGIC: u32;
    /// The shape of its headers.
    type Header: BtreeHeader;
    /// What leaves hold.
    type Record: OnDisk;
    /// What nodes hold, beside pointers.
    type Key: OnDisk;
    /// Pointers to blocks below.
    type Pointer: BtreePointer;

    /// Whether `right` may follow `left` in a leaf.
    fn in_order(left: &Self::Record, right: &Self::Record) -> bool;
    /// Whether `right` may follow `left` in a node.
    fn keys_in_order(left: &Self::Key, right: &Self::Key) -> bool;
    /// Whether `key` is what a node must say of a block below that starts with `record`.
    fn key_matches(key: &Self::Key, first: &Self::Record) -> bool;

    /// Most records of a leaf.
    fn max_records(geometry: &Geometry) -> usize {
        (geometry.block_size as usize - Self::Header::SIZE) / Self::Record::SIZE
    }
    /// Most keys of a node.
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

/// End of a run, without overflow.
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

/// The order of reverse mappings: block, owner, offset with its fork bits but not the unwritten one.
fn rmap_order(r: &Rmap) -> (u32, u64, u64) {
    (r.startblock.get(), r.owner.get(), r.offset.get() & !rmap::UNWRITTEN)
}

/// A verified block: a leaf with records, or a node with keys and pointers.
#[derive(Debug)]
pub struct BtreeBlock<'a, T: Btree> {
    /// Its header.
    pub header: &'a T::Header,
    /// What follows it.
    pub body: BtreeBlockBody<'a, T>,
}

/// What a block holds.
#[derive(Debug)]
pub enum BtreeBlockBody<'a, T: Btree> {
    /// Level 0.
    Leaf(&'a [T::Record]),
    /// Any level above: as many pointers as keys.
    Node(&'a [T::Key], &'a [T::Pointer]),
}

impl<'a, T: Btree> BtreeBlock<'a, T> {
    /// Verifies one block of the tree: identity, checksum, owner, and that its records fit.
    ///
    /// `level` is what the parent promised; a wrong level would let a damaged tree lead a walk in circles.
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

    /// Lays records or keys and pointers out, without any verification but that they fit: for showing damaged blocks.
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
