//! Directories: names to inodes, through all the forms that a directory can have.
//!
//! | part | form or subject |
//! |---|---|
//! | [`blocks`] | what a directory needs of its fork and its transaction |
//! | [`InodeDirFork`] | the same from a real fork |
//! | `inside` | within the inode |
//! | `single` | one block with its own leaf |
//! | `alone` | data blocks and one leaf, which also tells the room of each data block |
//! | `tree`, `split`, `join` | leaves under nodes |
//! | `table` | the room of each data block, in free blocks |
//! | `data` | what all forms with data blocks share |
//! | [`EntryPosition`], [`InsertSlot`] | where a name stands; where it would go that is not there |
//! | [`collisions`], `collision_lookup` | names that share their hash with many others |
//! | `recent` | buffers that were used lately |
//! | `read` | entries in the order of the disk |
//!
//! A directory takes the next form when an entry does not fit into the one it has, and goes back as soon as what is
//! left fits. Bytes are changed by [`format::dir::edit`].
//!
//! # Invariants
//! - Every entry has one leaf entry, every data block one element in the tables of room, and that is the length of its
//!   largest unused region.
//! - The root of the tree is at the first block of the leaf space, whatever its level.
//! - A node's hash is the highest below the child, stale leaf entries included.
//! - Blocks were verified when they were read; every offset in them is checked again before it is used. Walks go
//!   strictly down, and forward no further than there are blocks.
//!
//! # Locking
//! The caller holds the lock of the directory's inode; blocks are locked by the transaction, in any order, since
//! whoever wants one holds that lock.

mod block;
pub mod collision_index;
mod collision_lookup;
mod data;
mod entry_position;
mod error;
pub mod fork;
mod free_index;
mod inode_fork;
mod insert_slot;
mod join;
mod leaf;
mod node;
mod readdir;
pub(crate) mod recent_buffers;
mod shortform;
mod split;

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
use format::dir::leaf::{LEAF1_MAGIC, LEAFN_MAGIC};
use format::dir::{DataPtr, DirEntry, DirSpace};
use format::{Damage, Geometry, Place, dabtree};

use collision_lookup::CollisionLookup;
pub use entry_position::EntryPosition;
pub use error::{Error, Result};
pub use fork::{DirBlockType, DirFork};
pub use format::dir::edit::entry::NewEntry;
pub use inode_fork::{DirBlock, InodeDirFork};
pub use insert_slot::InsertSlot;

/// The type byte of directories, which `.` and `..` have.
const FTYPE_DIRECTORY: u8 = 2;

/// What an entry says of the name that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundEntry {
    /// The inode.
    pub ino: Ino,
    /// The type byte; 0 on volumes without them.
    pub ftype: u8,
    /// Its position, as `readdir` counts.
    pub pointer: DataPtr,
}

impl From<DirEntry<'_>> for FoundEntry {
    fn from(entry: DirEntry<'_>) -> Self {
        Self { ino: entry.ino, ftype: entry.ftype, pointer: entry.pointer }
    }
}

/// The form of a directory, with the block that it was told by.
enum DirFormat<Id> {
    Shortform,
    Block(Id),
    Leaf(Id),
    Node(Id),
}

/// A directory in a transaction.
pub struct Directory<'d, F: DirFork> {
    geometry: &'d Geometry,
    fork: &'d mut F,
}

/// Blocks of the file system that adding one name takes at most, without those of the tree of extents: a data block, a
/// free block, and one for each level of the tree and a new root; or what a change of form takes, which is fewer.
pub fn max_new_blocks(geometry: &Geometry) -> u32 {
    (2 + u32::from(dabtree::MAX_DEPTH) + 1) << geometry.dir_block_log
}

/// Directory blocks that removing one name frees at most, each at another place of the fork: data, free block, a block
/// for each level; or those of a change of form.
pub const MAX_FREED_BLOCKS: u32 = 2 + dabtree::MAX_DEPTH as u32;

impl<'d, F: DirFork> Directory<'d, F> {
    /// A directory whose inode is locked.
    pub fn new(geometry: &'d Geometry, fork: &'d mut F) -> Self {
        Self { geometry, fork }
    }

    /// Makes a new inode an empty directory.
    ///
    /// # Errors
    /// What the fork reports.
    pub fn init(&mut self, parent: Ino) -> Result<()> {
        self.fork.set_local(&edit::shortform::init(parent))
    }

    /// Looks a name up; `.` and `..` too.
    ///
    /// # Errors
    /// `ENAMETOOLONG`, damage, and what the device reports.
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
                CollisionLookup::Present(spot) => return Ok(Some(spot.found)),
            }
        }
        Ok(self.entry_position(name)?.map(|place| place.found()))
    }

    /// Adds a name.
    ///
    /// # Errors
    /// As [`insert_slot`](Self::insert_slot) and [`add_at`](Self::add_at).
    pub fn add(&mut self, name: &[u8], ino: Ino, ftype: u8) -> Result<()> {
        let insert_slot = self.insert_slot(name)?;
        self.add_at(insert_slot, NewEntry { name, ino, ftype })
    }

    /// Removes a name, and says what it was.
    ///
    /// # Errors
    /// `ENOENT`, `EINVAL` for `.` and `..`, damage.
    pub fn remove(&mut self, name: &[u8]) -> Result<FoundEntry> {
        verify_name(name)?;
        let place = self.entry_position(name)?.ok_or(NO_SUCH_NAME)?;
        self.remove_at(place, name)
    }

    /// Gives a name, which may be `..`, another inode, and says what it was.
    ///
    /// # Errors
    /// `ENOENT`; `ENOSPC` where a wider inode number needs a block that cannot be had; damage.
    pub fn replace(&mut self, name: &[u8], ino: Ino, ftype: u8) -> Result<FoundEntry> {
        if name != b".." {
            verify_name(name)?;
        }
        let hit = match self.format()? {
            DirFormat::Shortform => {
                if let Some(found) = self.shortform_replace(name, (ino, ftype))? {
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

    /// Makes a directory that lies in its inode one of a block, so that there is room for something else.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn convert_to_block(&mut self) -> Result<()> {
        if self.fork.local().is_some() {
            self.fork.ensure_blocks(1)?;
            self.shortform_to_block()?;
        }
        Ok(())
    }

    /// Whether there is nothing but `.` and `..`.
    ///
    /// # Errors
    /// Damage, and what the device reports.
    pub fn is_empty(&mut self) -> Result<bool> {
        if let Some(bytes) = self.fork.local() {
            let head = edit::shortform::ShortformCounts::of(bytes).map_err(|damage| self.damaged(damage))?;
            return Ok(head.count == 0);
        }
        let mut empty = true;
        self.read(DataPtr(0), |entry| {
            empty = entry.is_dot() || entry.is_dot_dot();
            if empty { std::ops::ControlFlow::Continue(()) } else { std::ops::ControlFlow::Break(()) }
        })?;
        Ok(empty)
    }

    /// The form that the directory has.
    fn format(&mut self) -> Result<DirFormat<F::BlockId>> {
        if self.fork.local().is_some() {
            return Ok(DirFormat::Shortform);
        }
        let root = self.root();
        let end = self.fork.end();
        if end <= root {
            return self.fork.read(FileBlock(0), DirBlockType::Data).map(DirFormat::Block);
        }
        let id = self.fork.read(root, DirBlockType::LeafOrNode)?;
        if dabtree::magic(self.fork.bytes(id)) != Some(LEAF1_MAGIC) {
            return Ok(DirFormat::Node(id));
        }
        // Blocks behind it would be lost with a change of form.
        if end.get() <= root.get() + self.per_block() {
            return Ok(DirFormat::Leaf(id));
        }
        let found = format_args!("blocks up to {end}");
        let damage = Damage::new("directory", "extents", "one leaf block and no free block", found);
        Err(self.damaged_at(id, damage))
    }

    /// The root of the tree, or the leaf alone.
    fn root(&self) -> FileBlock {
        DirSpace::Leaf.first_block(self.geometry)
    }

    /// Whether what was a tree is but one leaf now.
    fn root_is_leaf(&self, root: F::BlockId) -> bool {
        dabtree::magic(self.fork.bytes(root)) == Some(LEAFN_MAGIC)
    }

    /// Logical blocks of a directory block.
    fn per_block(&self) -> u64 {
        1 << self.geometry.dir_block_log
    }

    /// The first logical block of a directory block by its number in the data space.
    fn data_block(&self, index: usize) -> FileBlock {
        FileBlock((index as u64) << self.geometry.dir_block_log)
    }

    /// The number of a directory block in the data space.
    fn data_index(&self, block: FileBlock) -> usize {
        (block.get() >> self.geometry.dir_block_log) as usize
    }

    /// Runs a change of one block's bytes; damage gets the block's place.
    fn edit<T>(
        &mut self,
        id: F::BlockId,
        change: impl FnOnce(&mut F::Edit<'_>, &Geometry) -> std::result::Result<T, Damage>,
    ) -> Result<T> {
        let result = change(&mut self.fork.block(id), self.geometry);
        result.map_err(|damage| self.damaged_at(id, damage))
    }

    /// Looks at one block's bytes; damage gets the block's place.
    fn view<T>(
        &self,
        id: F::BlockId,
        work: impl FnOnce(&[u8]) -> std::result::Result<T, Damage>,
    ) -> Result<T> {
        work(self.fork.bytes(id)).map_err(|damage| self.damaged_at(id, damage))
    }

    #[cold]
    fn damaged_at(&self, id: F::BlockId, damage: Damage) -> Error {
        Error::damaged(self.fork.identity(id).place(), damage)
    }

    #[cold]
    fn damaged(&self, damage: Damage) -> Error {
        Error::damaged(Place::ino(self.fork.ino()), damage)
    }

    /// The shape of a leaf.
    fn leaf_shape(&self, id: F::BlockId) -> Result<edit::leaf::LeafShape> {
        self.view(id, edit::leaf::LeafShape::of)
    }
}

const NO_SUCH_NAME: Error =
    Error::Refused { errno: errno::ENOENT, why: "there is no such name in the directory" };
const NAME_EXISTS: Error =
    Error::Refused { errno: errno::EEXIST, why: "the directory has that name already" };

/// Looks at eight bytes at a time, each of which shows in its highest bit whether it is zero.
fn has_nul_or_slash(name: &[u8]) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    let zero_in = |word: u64| word.wrapping_sub(ONES) & !word & (ONES << 7) != 0;
    let (words, rest) = name.as_chunks::<8>();
    words.iter().any(|word| {
        let word = u64::from_ne_bytes(*word);
        zero_in(word) || zero_in(word ^ (ONES * u64::from(b'/')))
    }) || rest.iter().any(|byte| matches!(byte, 0 | b'/'))
}

/// Refuses what is longer than any name.
fn verify_length(name: &[u8]) -> Result<()> {
    if name.len() > 255 {
        return Err(Error::Refused { errno: errno::ENAMETOOLONG, why: "the name is longer than 255 bytes" });
    }
    Ok(())
}

/// Refuses what cannot be the name of an entry that is added or removed.
///
/// # Errors
/// `ENAMETOOLONG`, `EINVAL`.
pub fn verify_name(name: &[u8]) -> Result<()> {
    verify_length(name)?;
    if name.is_empty() || name == b"." || name == b".." || has_nul_or_slash(name) {
        let why = "a name is not empty, not \".\" or \"..\", and has no \"/\" and no NUL";
        return Err(Error::Refused { errno: errno::EINVAL, why });
    }
    Ok(())
}
