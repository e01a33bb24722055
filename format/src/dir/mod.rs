//! Directories. (Format document, "Directories".)
//!
//! | part | subject |
//! |---|---|
//! | [`shortform`] | a directory within its inode |
//! | [`data`] | blocks of entries: alone with their own index (`XDB3`), or with the index elsewhere (`XDD3`) |
//! | [`leaf`] | hash to entry |
//! | [`crate::dabtree`] | the nodes above many leaves |
//! | [`free`] | the room in each data block, where one leaf cannot hold that too |
//! | [`edit`] | changes of all of these |
//!
//! A directory's fork has three [`DirSpace`]s. A *directory block* is one or more file system blocks, which need not
//! lie together; an entry is known by its [`DataPtr`].

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

/// Where the checksum lies in data and free blocks.
pub const CRC_OFFSET: usize = 4;
/// Type bytes of entries lie below this (`xfs_da_format.h`): 8 is a whiteout, which Linux does not write.
pub const FTYPE_MAX: u8 = 9;

crate::ondisk! {
    /// What data and free blocks begin with.
    pub struct DirHeader("directory block header", 48) {
        /// What kind of block.
        magic: U32 = Hex,
        /// CRC32C of the block.
        crc: LeU32 = Crc,
        /// This block's own disk address.
        blkno as "bno": U64 = Uint,
        /// LSN of the last write.
        lsn: U64 = Lsn,
        /// The volume's metadata UUID.
        uuid: [u8; 16] = Uuid,
        /// The directory's inode.
        owner: U64 = Uint,
    }
}

/// The parts of a directory's fork: each 32 GiB of logical bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DirSpace {
    /// Entries.
    Data,
    /// Leaves and nodes.
    Leaf,
    /// Free blocks.
    Free,
}

impl DirSpace {
    /// log2 of the bytes of a space.
    const LOG: u8 = 35;

    /// The first logical block of the space.
    pub fn first_block(self, geometry: &Geometry) -> FileBlock {
        FileBlock((self as u64) << (Self::LOG - geometry.block_log))
    }

    /// The logical block behind the space.
    pub fn end_block(self, geometry: &Geometry) -> FileBlock {
        FileBlock((self as u64 + 1) << (Self::LOG - geometry.block_log))
    }

    /// The space of a logical block; `None` behind all of them.
    pub fn of(block: FileBlock, geometry: &Geometry) -> Option<Self> {
        match block.get() >> (Self::LOG - geometry.block_log) {
            0 => Some(Self::Data),
            1 => Some(Self::Leaf),
            2 => Some(Self::Free),
            _ => None,
        }
    }
}

/// Address of an entry in the data space, in 8-byte units: what leaves hold and what `readdir` takes for a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DataPtr(pub u32);

impl DataPtr {
    /// No entry: marks stale entries of leaves.
    pub const NULL: Self = Self(0);

    /// The address of a byte of a data block, which begins at a logical block of the data space.
    pub fn new(block: FileBlock, offset: usize, geometry: &Geometry) -> Self {
        // A block of the data space starts below 2^35 bytes.
        Self((((block.get() << geometry.block_log) + offset as u64) >> 3) as u32)
    }

    /// The first logical block of its directory block, and the byte within that.
    pub fn split(self, geometry: &Geometry) -> (FileBlock, usize) {
        let bytes = u64::from(self.0) << 3;
        let offset = bytes & u64::from(geometry.dir_block_size - 1);
        (FileBlock((bytes - offset) >> geometry.block_log), offset as usize)
    }
}

/// An entry of a directory, whatever its form. Its name has been verified, and its inode number lies in the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// 1 to 255 bytes without `/` and NUL.
    pub name: &'a [u8],
    /// The inode.
    pub ino: Ino,
    /// The type byte, below [`FTYPE_MAX`]; 0 on volumes without them.
    pub ftype: u8,
    /// Its address; that of a short-form entry is where it would lie in a block.
    pub pointer: DataPtr,
}

impl DirEntry<'_> {
    /// The file type, where the entry tells it.
    pub fn file_type(&self) -> Option<FileType> {
        FileType::from_ftype(self.ftype)
    }

    /// The directory itself.
    pub fn is_dot(&self) -> bool {
        self.name == b"."
    }

    /// Its parent.
    pub fn is_dot_dot(&self) -> bool {
        self.name == b".."
    }
}

/// Bytes of an entry in a data block: inode, name length, name, type, tag; a multiple of 8.
pub fn entry_size(name_length: usize, geometry: &Geometry) -> usize {
    (8 + 1 + name_length + usize::from(geometry.features.ftype()) + 2).next_multiple_of(8)
}

/// A name that may stand in a directory, `.` and `..` apart.
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

/// What every entry must satisfy: its name, its inode number and its type byte.
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
