//! Directories. (Format document, "Directories".)
//!
//! | part | subject |
//! |---|---|
//! | [`shortform`] | shortform: entries inside the inode |
//! | [`data`] | data blocks: `XDB3` in block format, `XDD3` otherwise |
//! | [`leaf`] | leaf blocks: name hash to entry address |
//! | [`crate::dabtree`] | the nodes above the leaves in node format |
//! | [`free`] | free-index blocks: the best of each data block in node format |
//! | [`edit`] | changes of all of these |
//!
//! A directory's fork has three [`DirSpace`]s. A *directory block* consists of one or more file system blocks, which
//! need not be contiguous on disk; a [`DataPtr`] addresses an entry.

pub mod data;
pub mod edit;
pub mod free;
pub mod leaf;
pub mod shortform;

#[cfg(test)]
mod tests;

use base::{FileBlock, Ino};

use crate::damage::Damage;
use crate::ensure;
use crate::geometry::Geometry;
use crate::inode::FileType;
use crate::ondisk::{LeU32, U32, U64};

/// Offset of the checksum in data and free-index blocks.
pub const CRC_OFFSET: usize = 4;
/// First invalid file type byte (`xfs_da_format.h`): 8 is a whiteout, which Linux does not write.
pub const FTYPE_MAX: u8 = 9;

crate::ondisk! {
    /// The start of data and free-index blocks.
    pub struct DirHeader("directory block header", 48) {
        /// Type of the block.
        magic: U32 = Hex,
        /// CRC32C of the block.
        crc: LeU32 = Crc,
        /// This block's own disk address.
        blkno as "bno": U64 = Uint,
        /// LSN of the last write.
        lsn: U64 = Lsn,
        /// The volume's metadata UUID.
        uuid: [u8; 16] = Uuid,
        /// Inode number of the directory.
        owner: U64 = Uint,
    }
}

/// The address spaces of a directory's fork, each 32 GiB of logical bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DirSpace {
    /// Entries.
    Data,
    /// Leaves and nodes.
    Leaf,
    /// Free-index blocks.
    Free,
}

impl DirSpace {
    /// log2 of the size of a space in bytes.
    const LOG: u8 = 35;

    /// The first logical block of the space.
    pub fn first_block(self, geometry: &Geometry) -> FileBlock {
        FileBlock((self as u64) << (Self::LOG - geometry.block_log))
    }

    /// The first logical block after the space.
    pub fn end_block(self, geometry: &Geometry) -> FileBlock {
        FileBlock((self as u64 + 1) << (Self::LOG - geometry.block_log))
    }

    /// The space of a logical block; `None` after the last.
    pub fn of(block: FileBlock, geometry: &Geometry) -> Option<Self> {
        match block.get() >> (Self::LOG - geometry.block_log) {
            0 => Some(Self::Data),
            1 => Some(Self::Leaf),
            2 => Some(Self::Free),
            _ => None,
        }
    }
}

/// Address of an entry in the data space, in 8-byte units. Leaf entries store it, and `readdir` uses it as position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DataPtr(pub u32);

impl DataPtr {
    /// No entry: the address of a stale leaf entry.
    pub const NULL: Self = Self(0);

    /// Builds the address of a byte of the data block that begins at a logical block.
    pub fn new(block: FileBlock, offset: usize, geometry: &Geometry) -> Self {
        // A block of the data space starts below 2^35 bytes.
        Self((((block.get() << geometry.block_log) + offset as u64) >> 3) as u32)
    }

    /// The first logical block of the directory block, and the byte offset in it.
    pub fn split(self, geometry: &Geometry) -> (FileBlock, usize) {
        let bytes = u64::from(self.0) << 3;
        let offset = bytes & u64::from(geometry.dir_block_size - 1);
        (FileBlock((bytes - offset) >> geometry.block_log), offset as usize)
    }
}

/// A directory entry of any format. Its name has been verified, and its inode number lies within the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// 1 to 255 bytes without `/` and NUL.
    pub name: &'a [u8],
    /// Inode number.
    pub ino: Ino,
    /// File type byte, below [`FTYPE_MAX`]; 0 on volumes without the `ftype` feature.
    pub ftype: u8,
    /// Address; for shortform, the address that the entry would have in a data block.
    pub pointer: DataPtr,
}

impl DirEntry<'_> {
    /// File type, if the entry has a valid type byte.
    pub fn file_type(&self) -> Option<FileType> {
        FileType::from_ftype(self.ftype)
    }

    /// Whether the entry is `.`.
    pub fn is_dot(&self) -> bool {
        self.name == b"."
    }

    /// Whether the entry is `..`.
    pub fn is_dot_dot(&self) -> bool {
        self.name == b".."
    }
}

/// Size in bytes of an entry in a data block: inode number, name length, name, type, tag; rounded up to 8.
pub fn entry_size(name_length: usize, geometry: &Geometry) -> usize {
    (8 + 1 + name_length + usize::from(geometry.features.ftype()) + 2).next_multiple_of(8)
}

/// Verifies a name other than `.` and `..`.
pub fn verify_name(structure: &'static str, name: &[u8]) -> Result<(), Damage> {
    ensure!(!name.is_empty(), structure, "namelen", "1 to 255", 0);
    ensure!(
        !name.iter().any(|byte| matches!(byte, 0 | b'/')),
        structure,
        "name",
        "a name without \"/\" and NUL",
        format_args!("\"{}\"", name.escape_ascii())
    );
    Ok(())
}

/// Verifies name, inode number and file type byte of an entry.
pub(crate) fn verify_entry(
    structure: &'static str,
    entry: &DirEntry<'_>,
    geometry: &Geometry,
) -> Result<(), Damage> {
    verify_name(structure, entry.name)?;
    ensure!(
        geometry.ino_is_valid(entry.ino),
        structure,
        "inumber",
        "an inode within the volume",
        format_args!("{} (\"{}\")", entry.ino, entry.name.escape_ascii())
    );
    ensure!(
        entry.ftype < FTYPE_MAX,
        structure,
        "ftype",
        format_args!("less than {FTYPE_MAX}"),
        format_args!("{} (\"{}\")", entry.ftype, entry.name.escape_ascii())
    );
    Ok(())
}
