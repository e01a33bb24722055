//! Inodes: a core, the data fork and the attribute fork, in one slot of a block.
//!
//! [`Dinode`] is a verified view of a slot; [`Dinode::fork`] decodes its forks without reading other blocks.

use base::{AgNumber, FileBlock, Ino};

use crate::btree::{BmapKey, BmapRoot};
use crate::checksum;
use crate::damage::Damage;
use crate::ensure;
use crate::extent::{Extent, RawExtent};
use crate::geometry::Geometry;
use crate::ondisk::{LeU32, OnDisk, U16, U32, U64};
use crate::timestamp::Timestamp;

/// `IN`.
pub const MAGIC: u16 = 0x494e;
/// Offset of the checksum.
pub const CRC_OFFSET: usize = 100;
const NAME: &str = "inode";

crate::ondisk! {
    /// The inode core, version 3.
    pub struct RawInode("inode", 176) {
        /// `IN`.
        magic: U16 = Hex,
        /// File type and permissions.
        mode: U16 = Octal,
        /// 3.
        version: u8 = Uint,
        /// Format of the data fork.
        format: u8 = Uint,
        /// Old link count; with metadata directories, the type of a metadata inode.
        onlink: U16 = Uint,
        /// Owner (uid).
        uid: U32 = Uint,
        /// Group (gid).
        gid: U32 = Uint,
        /// Link count.
        nlink as "nlinkv2": U32 = Uint,
        /// Lower half of the project id.
        projid_lo: U16 = Uint,
        /// Upper half of the project id.
        projid_hi: U16 = Uint,
        /// Extents of the data fork with `nrext64`; otherwise zero.
        big_nextents: U64 = Uint,
        /// Access time (atime).
        atime: U64 = Time,
        /// Modification time (mtime).
        mtime: U64 = Time,
        /// Inode change time (ctime).
        ctime: U64 = Time,
        /// Size in bytes.
        size: U64 = Uint,
        /// Number of blocks, including bmbt blocks.
        nblocks: U64 = Uint,
        /// Extent size hint in blocks.
        extsize: U32 = Uint,
        /// Extents of the data fork; with `nrext64`, those of the attribute fork.
        nextents: U32 = Uint,
        /// Extents of the attribute fork; with `nrext64`, zero.
        anextents as "naextents": U16 = Uint,
        /// Offset of the attribute fork in 8-byte units; 0 for none.
        forkoff: u8 = Uint,
        /// Format of the attribute fork.
        aformat: u8 = Uint,
        /// Unused.
        dmevmask: U32 = Hex,
        /// Unused.
        dmstate: U16 = Hex,
        /// Flags.
        flags: U16 = Hex,
        /// Generation.
        generation as "gen": U32 = Uint,
        /// Next inode of the unlinked list.
        next_unlinked: U32 = Nullable,
        /// CRC32C of the inode.
        crc: LeU32 = Crc,
        /// Change counter.
        changecount as "change_count": U64 = Uint,
        /// LSN of the last write.
        lsn: U64 = Lsn,
        /// More flags.
        flags2: U64 = Hex,
        /// Extent size hint of copy-on-write, in blocks.
        cowextsize: U32 = Uint,
        /// Zero.
        pad2: [u8; 12] = Padding,
        /// Creation time (crtime).
        crtime: U64 = Time,
        /// Inode number.
        ino as "inumber": U64 = Uint,
        /// The volume's metadata UUID.
        uuid: [u8; 16] = Uuid,
    }
}

/// File type bits of `mode`.
pub const S_IFMT: u16 = 0o170_000;

/// File types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    /// Named pipe.
    Fifo,
    /// Character device.
    CharDevice,
    /// Directory.
    Directory,
    /// Block device.
    BlockDevice,
    /// Regular file.
    Regular,
    /// Symbolic link.
    Symlink,
    /// Socket.
    Socket,
}

impl FileType {
    /// Decodes the file type of a mode; `None` for invalid bits.
    pub fn from_mode(mode: u16) -> Option<Self> {
        Some(match mode & S_IFMT {
            0o010_000 => Self::Fifo,
            0o020_000 => Self::CharDevice,
            0o040_000 => Self::Directory,
            0o060_000 => Self::BlockDevice,
            0o100_000 => Self::Regular,
            0o120_000 => Self::Symlink,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }

    /// The file type bits of a mode.
    pub fn mode(self) -> u16 {
        match self {
            Self::Fifo => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::Regular => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }

    /// The type byte in directory entries.
    pub fn ftype(self) -> u8 {
        match self {
            Self::Regular => 1,
            Self::Directory => 2,
            Self::CharDevice => 3,
            Self::BlockDevice => 4,
            Self::Fifo => 5,
            Self::Socket => 6,
            Self::Symlink => 7,
        }
    }

    /// Decodes the type byte of a directory entry; `None` for 0 (unknown), 8 (whiteout) and invalid values.
    pub fn from_ftype(ftype: u8) -> Option<Self> {
        Some(match ftype {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::CharDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            _ => return None,
        })
    }
}

/// Bits of `flags` (`xfs_format.h`).
pub mod flags {
    /// The data is on the realtime device.
    pub const REALTIME: u16 = 1 << 0;
    /// Blocks are preallocated beyond the end of the file.
    pub const PREALLOC: u16 = 1 << 1;
    /// Realtime bitmap is new.
    pub const NEWRTBM: u16 = 1 << 2;
    /// Immutable.
    pub const IMMUTABLE: u16 = 1 << 3;
    /// Append only.
    pub const APPEND: u16 = 1 << 4;
    /// Synchronous.
    pub const SYNC: u16 = 1 << 5;
    /// Do not update the access time.
    pub const NOATIME: u16 = 1 << 6;
    /// Exclude from dumps.
    pub const NODUMP: u16 = 1 << 7;
    /// Children inherit the realtime bit.
    pub const RTINHERIT: u16 = 1 << 8;
    /// Children inherit the project id.
    pub const PROJINHERIT: u16 = 1 << 9;
    /// No symlinks may be created in this directory.
    pub const NOSYMLINKS: u16 = 1 << 10;
    /// `extsize` is in use.
    pub const EXTSIZE: u16 = 1 << 11;
    /// Children inherit `extsize`.
    pub const EXTSZINHERIT: u16 = 1 << 12;
    /// Do not defragment.
    pub const NODEFRAG: u16 = 1 << 13;
    /// Filestreams allocator.
    pub const FILESTREAM: u16 = 1 << 14;
}

/// Bits of `flags2` (`xfs_format.h`).
pub mod flags2 {
    /// DAX.
    pub const DAX: u64 = 1 << 0;
    /// May share extents.
    pub const REFLINK: u64 = 1 << 1;
    /// `cowextsize` is in use.
    pub const COWEXTSIZE: u64 = 1 << 2;
    /// 64-bit timestamps.
    pub const BIGTIME: u64 = 1 << 3;
    /// 64-bit extent counters.
    pub const NREXT64: u64 = 1 << 4;
    /// A metadata inode of the metadata directory tree.
    pub const METADATA: u64 = 1 << 5;
}

/// A fork of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ForkKind {
    /// Data fork.
    Data,
    /// Attribute fork.
    Attr,
}

/// The contents of a fork in the inode.
#[derive(Clone, Copy, Debug)]
pub enum Fork<'a> {
    /// A device number in the kernel's 32-bit sysv encoding.
    Device(u32),
    /// Inline data.
    Local(&'a [u8]),
    /// An extent list.
    Extents(&'a [RawExtent]),
    /// The root of a bmbt.
    Btree(BmapRootView<'a>),
}

/// The root of a bmbt in the inode.
#[derive(Clone, Copy, Debug)]
pub struct BmapRootView<'a> {
    /// Level of the root: at least 1.
    pub level: u16,
    /// First logical block of each subtree.
    pub keys: &'a [BmapKey],
    /// Pointers to the child blocks.
    pub pointers: &'a [U64],
}

/// A verified inode: a view of its slot.
#[derive(Clone, Copy, Debug)]
pub struct Dinode<'a> {
    /// The core.
    pub core: &'a RawInode,
    /// The bytes of the slot after the core.
    literal: &'a [u8],
}

impl<'a> Dinode<'a> {
    /// Verifies the slot of inode `ino`: identity, checksum, and that the forks fit into their areas. Accepts free
    /// inodes: see [`Dinode::is_free`].
    pub fn verify(bytes: &'a [u8], geometry: &Geometry, ino: Ino) -> Result<Self, Damage> {
        let inode = Self::identify(bytes, geometry, ino)?;
        if !inode.is_free() {
            inode.verify_core(geometry)?;
            inode.verify_forks(geometry)?;
        }
        Ok(inode)
    }

    /// Views a slot and verifies only its length. Used to print damaged inodes.
    pub fn view(bytes: &'a [u8], geometry: &Geometry) -> Option<Self> {
        let bytes = bytes.get(..geometry.inode_size as usize)?;
        Some(Self { core: RawInode::view(bytes)?, literal: bytes.get(RawInode::SIZE..)? })
    }

    /// Builds a view from the two parts of a verified slot that [`Dinode::parts`] returned.
    pub fn from_parts(core: &'a RawInode, literal: &'a [u8]) -> Self {
        Self { core, literal }
    }

    /// The core, and the rest of the slot, which holds both forks.
    pub fn parts(&self) -> (&'a RawInode, &'a [u8]) {
        (self.core, self.literal)
    }

    /// The inode number stored in the core.
    pub fn ino(&self) -> Ino {
        Ino(self.core.ino.get())
    }

    /// Verifies only the identity of inode `ino`, which free inodes have too.
    pub fn identify(bytes: &'a [u8], geometry: &Geometry, ino: Ino) -> Result<Self, Damage> {
        let size = geometry.inode_size as usize;
        let inode = Self::view(bytes, geometry).ok_or_else(|| Damage::short(NAME, size, bytes.len()))?;
        let core = inode.core;
        let magic = core.magic.get();
        ensure!(magic == MAGIC, NAME, "magic", format_args!("{MAGIC:#x}"), format_args!("{magic:#x}"));
        ensure!(core.version == 3, NAME, "version", 3, core.version);
        checksum::verify(NAME, bytes.get(..size).unwrap_or(bytes), CRC_OFFSET)?;
        ensure!(core.uuid == geometry.uuid, NAME, "uuid", "the volume's metadata UUID", "another");
        ensure!(core.ino.get() == ino.get(), NAME, "ino", ino, core.ino);
        Ok(inode)
    }

    fn verify_core(&self, geometry: &Geometry) -> Result<(), Damage> {
        let core = self.core;
        let mode = core.mode.get();
        ensure!(
            FileType::from_mode(mode).is_some(),
            NAME,
            "mode",
            "a known file type",
            format_args!("{mode:#o}")
        );
        ensure!(core.size.get() >> 63 == 0, NAME, "size", "less than 2^63", core.size);
        ensure!(
            !self.wide_counts() || geometry.features.nrext64(),
            NAME,
            "flags2",
            "no nrext64 flag without the volume's feature",
            format_args!("{:#x}", core.flags2)
        );
        ensure!(
            !self.bigtime() || geometry.features.bigtime(),
            NAME,
            "flags2",
            "no bigtime flag without the volume's feature",
            format_args!("{:#x}", core.flags2)
        );
        ensure!(
            core.nblocks.get() <= geometry.blocks(),
            NAME,
            "nblocks",
            "at most the volume's blocks",
            core.nblocks
        );
        Ok(())
    }

    fn verify_forks(&self, geometry: &Geometry) -> Result<(), Damage> {
        let room = self.literal.len();
        let offset = usize::from(self.core.forkoff) * 8;
        ensure!(offset < room, NAME, "forkoff", format_args!("less than {}", room / 8), self.core.forkoff);
        self.fork(ForkKind::Data, geometry)?;
        self.fork(ForkKind::Attr, geometry)?;
        Ok(())
    }

    /// Whether the slot is free.
    pub fn is_free(&self) -> bool {
        self.core.mode.get() == 0
    }

    /// File type; `Some` for a verified inode that is not free.
    pub fn file_type(&self) -> Option<FileType> {
        FileType::from_mode(self.core.mode.get())
    }

    /// Whether timestamps have 64 bits.
    pub fn bigtime(&self) -> bool {
        self.core.flags2.get() & flags2::BIGTIME != 0
    }

    /// Whether extent counters have 64 bits.
    pub fn wide_counts(&self) -> bool {
        self.core.flags2.get() & flags2::NREXT64 != 0
    }

    /// Project id.
    pub fn project(&self) -> u32 {
        u32::from(self.core.projid_hi.get()) << 16 | u32::from(self.core.projid_lo.get())
    }

    /// Access, modification, change and creation times.
    pub fn times(&self) -> InodeTimes {
        let decode = |raw| Timestamp::decode(raw, self.bigtime());
        let core = self.core;
        InodeTimes {
            access: decode(core.atime),
            modify: decode(core.mtime),
            change: decode(core.ctime),
            create: decode(core.crtime),
        }
    }

    /// The extent count of a fork according to the core.
    pub fn extent_count(&self, kind: ForkKind) -> u64 {
        let core = self.core;
        match (kind, self.wide_counts()) {
            (ForkKind::Data, false) => core.nextents.get().into(),
            (ForkKind::Data, true) => core.big_nextents.get(),
            (ForkKind::Attr, false) => core.anextents.get().into(),
            (ForkKind::Attr, true) => core.nextents.get().into(),
        }
    }

    /// The area of a fork in the inode; empty for a missing attribute fork.
    pub fn fork_bytes(&self, kind: ForkKind) -> &'a [u8] {
        let split = usize::from(self.core.forkoff) * 8;
        match (kind, split) {
            (ForkKind::Data, 0) => self.literal,
            (ForkKind::Data, at) => self.literal.get(..at).unwrap_or(self.literal),
            (ForkKind::Attr, 0) => &[],
            (ForkKind::Attr, at) => self.literal.get(at..).unwrap_or(&[]),
        }
    }

    /// A fork; `None` for a missing attribute fork.
    ///
    /// Extents are not verified one by one: see [`Extent::verify`].
    pub fn fork(&self, kind: ForkKind, geometry: &Geometry) -> Result<Option<Fork<'a>>, Damage> {
        let bytes = self.fork_bytes(kind);
        let (field, format) = match kind {
            ForkKind::Data => ("format", self.core.format),
            ForkKind::Attr if self.core.forkoff == 0 => return Ok(None),
            ForkKind::Attr => ("aformat", self.core.aformat),
        };
        let fork = match format {
            0 => self.device(kind, bytes)?,
            1 => Fork::Local(self.local(kind, bytes)?),
            2 => Fork::Extents(self.extents(kind, bytes)?),
            3 => Fork::Btree(bmap_root(bytes, geometry)?),
            other => return Err(Damage::new(NAME, field, "0 to 3", other)),
        };
        Ok(Some(fork))
    }

    fn device(&self, kind: ForkKind, bytes: &[u8]) -> Result<Fork<'a>, Damage> {
        use FileType::{BlockDevice, CharDevice, Fifo, Socket};
        let special = matches!(self.file_type(), Some(BlockDevice | CharDevice | Fifo | Socket));
        ensure!(kind == ForkKind::Data && special, NAME, "format", "not a device", "a device");
        let number = U32::view(bytes).ok_or_else(|| Damage::short(NAME, 4, bytes.len()))?;
        Ok(Fork::Device(number.get()))
    }

    fn local(&self, kind: ForkKind, bytes: &'a [u8]) -> Result<&'a [u8], Damage> {
        if kind == ForkKind::Attr {
            return Ok(bytes);
        }
        let local_types = matches!(self.file_type(), Some(FileType::Directory | FileType::Symlink));
        ensure!(local_types, NAME, "format", "inline only in directories and symlinks", "inline");
        let size = self.core.size.get();
        usize::try_from(size).ok().and_then(|size| bytes.get(..size)).ok_or_else(|| {
            Damage::new(NAME, "size", format_args!("at most {} inline bytes", bytes.len()), size)
        })
    }

    fn extents(&self, kind: ForkKind, bytes: &'a [u8]) -> Result<&'a [RawExtent], Damage> {
        let count = self.extent_count(kind);
        let most = bytes.len() / RawExtent::SIZE;
        usize::try_from(count)
            .ok()
            .filter(|count| *count <= most)
            .and_then(|n| RawExtent::view_array(bytes, n))
            .ok_or_else(|| {
                let field = if kind == ForkKind::Data { "nextents" } else { "anextents" };
                Damage::new(NAME, field, format_args!("at most {most} in the inode"), count)
            })
    }
}

/// The four times of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeTimes {
    /// Access time (atime).
    pub access: Timestamp,
    /// Modification time (mtime).
    pub modify: Timestamp,
    /// Inode change time (ctime).
    pub change: Timestamp,
    /// Creation time (crtime).
    pub create: Timestamp,
}

fn bmap_root<'a>(bytes: &'a [u8], _: &Geometry) -> Result<BmapRootView<'a>, Damage> {
    const ROOT: &str = "extent map root";
    let short = || Damage::short(ROOT, BmapRoot::SIZE + BmapKey::SIZE + 8, bytes.len());
    let root = BmapRoot::view(bytes).ok_or_else(short)?;
    let (level, count) = (root.level.get(), usize::from(root.numrecs.get()));
    let most_levels = crate::btree::MAX_LEVELS;
    ensure!(
        (1..most_levels).contains(&level.into()),
        ROOT,
        "level",
        format_args!("1 to {}", most_levels - 1),
        level
    );
    let rest = bytes.get(BmapRoot::SIZE..).ok_or_else(short)?;
    let most = rest.len() / (BmapKey::SIZE + 8);
    ensure!((1..=most).contains(&count), ROOT, "numrecs", format_args!("1 to {most}"), count);
    let keys = BmapKey::view_array(rest, count).ok_or_else(short)?;
    let pointers =
        rest.get(most * BmapKey::SIZE..).and_then(|rest| U64::view_array(rest, count)).ok_or_else(short)?;
    Ok(BmapRootView { level, keys, pointers })
}

/// Splits a device number in sysv encoding into major (14 bits) and minor (18 bits).
pub fn device_numbers(raw: u32) -> (u32, u32) {
    (raw >> 18, raw & 0x3_ffff)
}

/// The permission bits of a mode.
pub fn permissions(mode: u16) -> u16 {
    mode & !S_IFMT
}

/// Verifies each extent of a fork, and that extents are in ascending order and do not overlap.
pub fn verify_extents(extents: &[RawExtent], geometry: &Geometry) -> Result<(), Damage> {
    let mut end = FileBlock(0);
    for raw in extents {
        let extent = Extent::decode(raw);
        extent.verify(geometry)?;
        ensure!(extent.offset >= end, "extent", "startoff", format_args!("at least {end}"), extent.offset);
        end = extent.end();
    }
    Ok(())
}

/// The AG of a valid inode number.
pub fn ag_of(ino: Ino, geometry: &Geometry) -> Option<AgNumber> {
    geometry.split_ino(ino).map(|(ag, _)| ag)
}
