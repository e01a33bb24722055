//! Directories: maps from names to inode numbers, in the four formats of XFS.
//!
//! | format | stored as | module |
//! |---|---|---|
//! | shortform | entries in the inode's data fork | `shortform` |
//! | block | one directory block: entries, and their leaf entries at its end | `block` |
//! | leaf | data blocks, and one leaf block at 32 GiB with all leaf entries and the bests | `leaf` |
//! | node | data blocks, a hash tree of leaves under nodes at 32 GiB, free blocks at 64 GiB with the bests | `node`, ... |
//!
//! A leaf entry is a pair of a name's hash and its entry's address. Leaf entries are sorted by hash; those of removed
//! names stay as stale ones until their leaf is compacted. The best of a data block is the length of its largest unused
//! region. The array of bests tells where an entry fits: it ends the leaf in leaf format, and fills the free blocks in
//! node format (see `free_index`).
//!
//! # Conversions
//! | from | to | when | function |
//! |---|---|---|---|
//! | shortform | block | an entry or inode number does not fit; the attribute fork needs the space | `shortform_to_block` |
//! | block | leaf | an entry does not fit the block | `block_to_leaf` |
//! | leaf | node | a leaf entry, or a further best, does not fit the leaf | `leaf_to_node` |
//! | node | leaf | after a removal: one leaf and one free block are left, and fit one block | `node_to_leaf` |
//! | leaf | block | after a removal: one data block is left, with room for the leaf entries | `leaf_to_block` |
//! | block | shortform | after a removal: all entries fit the inode | `block_to_shortform` |
//!
//! An entry's address is also its position, the `readdir` cookie ([`DataPtr`]). It stays the same in each conversion; a
//! shortform entry stores its future offset for that.
//!
//! # Lookup, add, remove
//! - [`Directory::lookup`] finds the format. In shortform it compares every entry. In the other formats it searches the
//!   leaf entries for the hash of the name (`search_leaf`) and compares the name at each address found. In node format
//!   the nodes lead to the first leaf with the hash; entries of one hash may go on in the next leaves (`node_search`).
//! - [`Directory::add`] is [`Directory::insert_slot`], which proves that the name is free and remembers where its leaf
//!   entry belongs, and [`Directory::add_at`]. The latter finds a data block with enough free space, or allocates one;
//!   writes the entry; inserts the leaf entry, splitting full leaves and nodes; and updates the best. Before its first
//!   change it checks that the caller has reserved all blocks that it may allocate, so that `ENOSPC` leaves the
//!   directory as it was.
//! - [`Directory::remove`] is [`Directory::entry_position`] and [`Directory::remove_at`]: the entry becomes unused
//!   space, its leaf entry stale; an empty data block is freed, small leaves and nodes are joined, and the directory
//!   takes a smaller format if it fits.
//!
//! A caller that creates or removes a file uses the two halves, so that it searches once.
//!
//! # Parts
//! | part | subject |
//! |---|---|
//! | [`fork`], [`InodeDirFork`] | what a directory needs of its fork and transaction; the same on an inode |
//! | `crate::dabtree` | the hash tree of node format: walks, splits, joins |
//! | `free_index` | the free index of node format |
//! | `data` | what the formats with data blocks share: search, data blocks, entries |
//! | [`EntryPosition`], [`InsertSlot`] | where a name is; where a new name goes |
//! | `readdir`, [`DirPart`] | iteration in the order of positions; without locks |
//! | [`collision_index`], `collision_lookup` | an index of names whose hash many others share |
//! | `recent_buffers` | recently used buffers of a directory |
//!
//! Bytes of blocks are changed by [`format::dir::edit`].
//!
//! # Caches
//! Three caches belong to the inode's state and are dropped with it: the fork's extent list, `recent_buffers`, and the
//! [`collision_index`]. Blocks themselves are cached as metadata buffers. There is no cache of names here; that is the
//! volume's.
//!
//! # Invariants
//! - Each entry has one leaf entry that is not stale. Each data block has one best, equal to its largest unused region.
//! - The root of the hash tree is the first block of the leaf space, at every height.
//! - The hash of a node entry is the highest hash below that child, stale leaf entries included.
//! - Blocks are verified when read; every offset in them is checked again before use. Walks descend strictly, and visit
//!   no more leaves than the fork has blocks, so that a damaged tree cannot loop.
//!
//! # Locking
//! The caller holds the lock of the directory's inode from the lookup to the commit. It protects all blocks of the
//! directory, so the transaction may lock their buffers in any order.

mod block;
pub mod collision_index;
mod collision_lookup;
mod data;
mod entry_position;
pub mod fork;
mod free_index;
mod inode_fork;
mod insert_slot;
mod leaf;
mod node;
mod peek;
mod readdir;
pub(crate) mod recent_buffers;
mod shortform;

#[cfg(test)]
mod collision_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod inode_fork_tests;
#[cfg(test)]
mod memory_fork;
#[cfg(test)]
mod tests;

use base::{FileBlock, Ino, errno};
use format::dir::edit;
use format::dir::leaf::LEAF1_MAGIC;
use format::dir::{DataPtr, DirEntry};
use format::{Damage, Geometry, Place, dabtree};

use collision_lookup::CollisionLookup;
pub use entry_position::EntryPosition;
pub use error::{Error, Result};
pub use fork::{DirBlockType, DirFork};
pub use format::dir::edit::entry::NewEntry;
pub use inode_fork::{DirBlock, InodeDirFork};
pub use insert_slot::InsertSlot;
pub use peek::DirPart;

use crate::dabtree::TreeReader;

/// The file type byte of `.` and `..`.
const FTYPE_DIRECTORY: u8 = 2;

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundEntry {
    /// Inode number.
    pub ino: Ino,
    /// File type byte; 0 on volumes without the ftype feature.
    pub ftype: u8,
    /// Position of the entry: the `readdir` cookie.
    pub pointer: DataPtr,
}

impl From<DirEntry<'_>> for FoundEntry {
    fn from(entry: DirEntry<'_>) -> Self {
        Self { ino: entry.ino, ftype: entry.ftype, pointer: entry.pointer }
    }
}

/// The format of a directory; with the data block (block), the leaf (leaf), or the root of the hash tree (node).
enum DirFormat<Id> {
    Shortform,
    Block(Id),
    Leaf(Id),
    Node(Id),
}

/// A directory, within one transaction.
pub struct Directory<'d, F: DirFork> {
    geometry: &'d Geometry,
    fork: &'d mut F,
}

/// The most file system blocks that adding one name allocates, without those of the extent map: a data block, a free
/// block, a block for each level of the hash tree, and a new root. A conversion of the format takes fewer.
pub fn max_new_blocks(geometry: &Geometry) -> u32 {
    (2 + u32::from(dabtree::MAX_DEPTH) + 1) << geometry.dir_block_log
}

/// The most directory blocks that removing one name frees, each in another extent: a data block, a free block, and a
/// block for each level of the hash tree. A conversion of the format frees fewer.
pub const MAX_FREED_BLOCKS: u32 = 2 + dabtree::MAX_DEPTH as u32;

impl<'d, F: DirFork> Directory<'d, F> {
    /// The directory in `fork`, whose inode is locked.
    pub fn new(geometry: &'d Geometry, fork: &'d mut F) -> Self {
        Self { geometry, fork }
    }

    /// Makes a new inode an empty directory, in shortform.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the inode's data fork is too small.
    pub fn init(&mut self, parent: Ino) -> Result<()> {
        self.fork.set_local(&edit::shortform::init(parent))
    }

    /// Looks up a name, which may be `.` or `..`.
    ///
    /// # Errors
    /// `ENAMETOOLONG`; damage; I/O errors.
    pub fn lookup(&mut self, name: &[u8]) -> Result<Option<FoundEntry>> {
        if name == b"." {
            let pointer = DataPtr::new(FileBlock(0), format::dir::data::HEADER_SIZE, self.geometry);
            return Ok(Some(FoundEntry { ino: self.fork.ino(), ftype: FTYPE_DIRECTORY, pointer }));
        }
        if name == b".." && self.fork.local().is_some() {
            return self.shortform_parent().map(Some);
        }
        if self.fork.collision_index().is_some() {
            verify_length(name)?;
            match self.lookup_in_index(self.hashed(name))? {
                CollisionLookup::NotIndexed => {}
                CollisionLookup::Absent => return Ok(None),
                CollisionLookup::Present(entry) => return Ok(Some(entry.found)),
            }
        }
        Ok(self.entry_position(name)?.map(|entry| entry.found()))
    }

    /// Adds a name.
    ///
    /// # Errors
    /// Those of [`insert_slot`](Self::insert_slot) and [`add_at`](Self::add_at).
    pub fn add(&mut self, name: &[u8], ino: Ino, ftype: u8) -> Result<()> {
        let insert_slot = self.insert_slot(name)?;
        self.add_at(insert_slot, NewEntry { name, ino, ftype })
    }

    /// Removes a name and returns its entry.
    ///
    /// # Errors
    /// `ENOENT`; `EINVAL` for `.` and `..`; damage; I/O errors.
    pub fn remove(&mut self, name: &[u8]) -> Result<FoundEntry> {
        verify_name(name)?;
        let entry = self.entry_position(name)?.ok_or(NO_SUCH_NAME)?;
        self.remove_at(entry, name)
    }

    /// Sets the inode number and file type of an existing name, which may be `..`; returns the old entry.
    ///
    /// # Errors
    /// `ENOENT`; `ENOSPC` if a wider inode number forces a conversion to block format and no block is free; damage.
    pub fn replace(&mut self, name: &[u8], ino: Ino, ftype: u8) -> Result<FoundEntry> {
        if name != b".." {
            verify_name(name)?;
        }
        let hit = match self.format()? {
            DirFormat::Shortform => {
                if let Some(found) = self.shortform_replace(name, ino, ftype)? {
                    return Ok(found);
                }
                self.fork.ensure_blocks(1)?;
                let id = self.shortform_to_block()?;
                self.block_find(id, name)?
            }
            DirFormat::Block(id) => self.block_find(id, name)?,
            DirFormat::Leaf(id) => self.leaf_find(id, name)?,
            DirFormat::Node(root) => self.node_find(root, name)?.hit,
        };
        let hit = hit.ok_or(NO_SUCH_NAME)?;
        self.retarget(hit, ino, ftype)?;
        Ok(hit.found)
    }

    /// Converts a shortform directory to block format, which frees bytes of the inode for its attribute fork.
    ///
    /// # Errors
    /// Those of [`add_at`](Self::add_at).
    pub fn convert_to_block(&mut self) -> Result<()> {
        if self.fork.local().is_some() {
            self.fork.ensure_blocks(1)?;
            self.shortform_to_block()?;
        }
        Ok(())
    }

    /// Whether the directory has no entries but `.` and `..`.
    ///
    /// # Errors
    /// Damage; I/O errors.
    pub fn is_empty(&mut self) -> Result<bool> {
        if self.fork.local().is_some() {
            return Ok(self.shortform_counts()?.count == 0);
        }
        let mut empty = true;
        self.read(DataPtr(0), |entry| {
            empty = entry.is_dot() || entry.is_dot_dot();
            if empty { std::ops::ControlFlow::Continue(()) } else { std::ops::ControlFlow::Break(()) }
        })?;
        Ok(empty)
    }

    /// Reads the format: from the fork format and, where a leaf block exists, from that block's magic number.
    fn format(&mut self) -> Result<DirFormat<F::BlockId>> {
        if self.fork.local().is_some() {
            return Ok(DirFormat::Shortform);
        }
        let root = self.root();
        let end = self.fork.end()?;
        if end <= root {
            return self.fork.read(FileBlock(0), DirBlockType::Data).map(DirFormat::Block);
        }
        let id = self.fork.read(root, DirBlockType::LeafOrNode)?;
        if dabtree::magic(self.fork.bytes(id)) != Some(LEAF1_MAGIC) {
            return Ok(DirFormat::Node(id));
        }
        // A conversion would leak blocks beyond the leaf.
        if end.get() <= root.get() + self.per_block() {
            return Ok(DirFormat::Leaf(id));
        }
        let found = format_args!("blocks up to {end}");
        let damage = Damage::new("directory", "extents", "one leaf block and no free block", found);
        Err(self.damaged_at(id, damage))
    }

    /// File system blocks in one directory block.
    fn per_block(&self) -> u64 {
        1 << self.geometry.dir_block_log
    }

    /// The file block of data block number `index`.
    fn data_block(&self, index: usize) -> FileBlock {
        FileBlock((index as u64) << self.geometry.dir_block_log)
    }

    /// The number of a data block, from its file block.
    fn data_index(&self, block: FileBlock) -> usize {
        (block.get() >> self.geometry.dir_block_log) as usize
    }

    #[cold]
    fn damaged(&self, damage: Damage) -> Error {
        Error::damaged(Place::ino(self.fork.ino()), damage)
    }

    fn leaf_shape(&self, id: F::BlockId) -> Result<edit::leaf::LeafShape> {
        self.view(id, edit::leaf::LeafShape::of)
    }
}

const NO_SUCH_NAME: Error = Error::Refused { errno: errno::ENOENT, why: "the directory has no such name" };
const NAME_EXISTS: Error =
    Error::Refused { errno: errno::EEXIST, why: "the directory already has this name" };

/// Tests eight bytes at a time: the subtraction sets the highest bit of each byte that is zero.
fn has_nul_or_slash(name: &[u8]) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    let zero_in = |word: u64| word.wrapping_sub(ONES) & !word & (ONES << 7) != 0;
    let (words, rest) = name.as_chunks::<8>();
    words.iter().any(|word| {
        let word = u64::from_ne_bytes(*word);
        zero_in(word) || zero_in(word ^ (ONES * u64::from(b'/')))
    }) || rest.iter().any(|byte| matches!(byte, 0 | b'/'))
}

fn verify_length(name: &[u8]) -> Result<()> {
    if name.len() > 255 {
        return Err(Error::Refused { errno: errno::ENAMETOOLONG, why: "the name is longer than 255 bytes" });
    }
    Ok(())
}

/// Checks that a name can be added or removed.
///
/// # Errors
/// `ENAMETOOLONG`; `EINVAL` for an empty name, `.`, `..`, and names with `/` or NUL.
pub fn verify_name(name: &[u8]) -> Result<()> {
    verify_length(name)?;
    if name.is_empty() || name == b"." || name == b".." || has_nul_or_slash(name) {
        let why = "invalid name: a name is not empty, is not \".\" or \"..\", and contains no \"/\" or NUL";
        return Err(Error::Refused { errno: errno::EINVAL, why });
    }
    Ok(())
}
