//! Log space and blocks that operations reserve.
//!
//! Each reservation is an upper bound, computed from the bounds of the layers below. What is not used is returned at
//! the commit; an operation that needs more than it reserved shuts the volume down.

use ag::{AgLogCosts, Groups};
use format::Geometry;
use inode::attr::remote::USUAL_EXTENTS;
use inode::attr::{max_changed_blocks, max_new_blocks as max_new_attr_blocks};
use inode::dir::{MAX_FREED_BLOCKS, max_new_blocks};
use inode::fork::MAX_MAP_TREE_BLOCKS;
use journal::engine::LogReservation;

use crate::new_file::{NewFile, NewFileType};

/// Reservations of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reservations {
    /// Change of one inode.
    pub inode: LogReservation,
    /// Change of the superblock.
    pub superblock: LogReservation,
    /// Grow or shrink: headers and free space of the last AG, superblock.
    pub resize: LogReservation,
    /// Finishing a recovered intent.
    pub intent: LogReservation,
    /// Create: an inode and an entry.
    pub create: LogReservation,
    /// Log space to create a file, in bytes, without that of deferred operations.
    create_alone: u32,
    /// Log space for each further file in the same transaction, in bytes.
    created_after: u32,
    /// Create with two attributes.
    pub create_with_attributes: LogReservation,
    /// Link: an entry.
    pub link: LogReservation,
    /// Unlink or rmdir.
    pub remove: LogReservation,
    /// Rename: two entries, and a whiteout.
    pub rename: LogReservation,
    /// Setting or removing an attribute.
    pub attribute: LogReservation,
    /// Maximum number of extents of a remote attribute value, by half of the log size.
    pub value_extents_max: usize,
    /// Log space that each extent of a value adds to `attribute`, in bytes.
    value_extent_bytes: u32,
    /// Blocks to set an attribute, without those of a remote value.
    pub attribute_blocks: u32,
    /// Blocks to add an entry to a directory.
    pub name_blocks: u32,
    /// Blocks to add or remove a parent pointer.
    pub parent_blocks: u32,
    /// Blocks for a rename.
    pub rename_blocks: u32,
    /// Blocks to allocate an inode chunk, with its btrees.
    chunk_blocks: u32,
    /// Blocks for the longest target of a symbolic link.
    target_blocks: u32,
}

/// Bytes that an inode item adds to the inode in the log.
const INODE_EXTRA: u32 = 256;
/// Longest target of a symbolic link in bytes, with the header of each of its blocks.
const TARGET_BYTES: u32 = 2048;
/// Bytes of the intents (rmap and free) for the longest value, if each block is an extent.
const VALUE_ITEMS: u32 = 70 * 2 * 64;
/// Transactions of an operation that sets an attribute, with its deferred operations.
const ATTRIBUTE_TRANSACTIONS: u32 = 3;
/// Blocks of the longest value, with the smallest block size.
const MAX_VALUE_BLOCKS: usize = 70;
/// Levels of a bmap btree that one operation changes.
const EXTENT_LEVELS: u32 = 3;
/// Maximum number of files that one transaction creates. They are all locked until it is committed, and more files save
/// little more.
pub(crate) const BATCH_MAX: usize = 16;
/// The part of the log that a transaction of several files may reserve, as a divisor, unless one file needs more.
const LOG_SHARE: u64 = 16;

impl Reservations {
    pub fn of(geometry: &Geometry, groups: &Groups) -> Self {
        let costs = AgLogCosts::derive(geometry);
        let block = AgLogCosts::buffer(geometry.block_size);
        let dir_block = AgLogCosts::buffer(geometry.dir_block_size);
        let inode = geometry.inode_size + INODE_EXTRA;
        // Each block of the path may split or join; extents are allocated from the same leaves of the space btrees.
        let name = (MAX_FREED_BLOCKS + 3) * dir_block + EXTENT_LEVELS * block + costs.extent_alloc();
        // Mapping or unmapping a value changes at most as many leaves of the bmap btree as its blocks need.
        let attribute_blocks =
            max_new_attr_blocks(geometry) + 2 * MAX_MAP_TREE_BLOCKS + (1 << geometry.dir_block_log);
        let attribute = max_changed_blocks(geometry) * block + 4 * EXTENT_LEVELS * block + VALUE_ITEMS;
        // Change of a parent pointer.
        let parent = match geometry.features.parent() {
            true => max_changed_blocks(geometry) * block + 2 * EXTENT_LEVELS * block + costs.extent_alloc(),
            false => 0,
        };
        let parent_blocks = if geometry.features.parent() { attribute_blocks } else { 0 };
        let create_extra = costs.extent_alloc() + parent;
        let unlinked = 2 * AgLogCosts::header(geometry.block_size) + AgLogCosts::buffer(geometry.sector_size);
        let alloc_inode = costs.inode_take() + name + 2 * inode;
        let chain =
            |bytes: u32, transactions| LogReservation { bytes: bytes.max(costs.largest()), transactions };
        let name_blocks = max_new_blocks(geometry) + EXTENT_LEVELS;
        let chunk_blocks = groups.blocks_for_inode();
        let attribute_alone = chain(
            attribute + dir_block + costs.extent_free() + costs.extent_alloc() + 2 * inode,
            ATTRIBUTE_TRANSACTIONS,
        );
        let value_extent_bytes = costs.extent_alloc();
        let log_bytes = u64::from(geometry.log_blocks) << geometry.block_log;
        let value_bytes =
            (log_bytes / 2 / u64::from(ATTRIBUTE_TRANSACTIONS)).saturating_sub(attribute_alone.bytes.into());
        // Blocks of the bmap btree that maps them count as extents.
        let value_extents_max =
            (value_bytes / u64::from(value_extent_bytes)).saturating_sub(MAX_MAP_TREE_BLOCKS.into()) as usize;
        let create_alone = alloc_inode + create_extra + unlinked;
        let create = chain(create_alone, 2);
        Self {
            create_alone,
            // An entry that needs no new block changes as many blocks as the removal of one may free.
            created_after: MAX_FREED_BLOCKS * dir_block + inode,
            inode: LogReservation { bytes: inode, transactions: 1 },
            superblock: LogReservation { bytes: AgLogCosts::buffer(geometry.sector_size), transactions: 1 },
            resize: chain(2 * costs.extent_alloc() + 4 * AgLogCosts::buffer(geometry.sector_size), 2),
            intent: chain(
                costs
                    .extent_free()
                    .max(costs.owners())
                    .max(inode::reservation::Reservations::of(geometry).map.bytes),
                1,
            ),
            create,
            create_with_attributes: chain(alloc_inode + create_extra + unlinked + 2 * attribute, 2),
            link: chain(name + 2 * inode + unlinked + parent, 2),
            remove: chain(name + 2 * inode + unlinked + parent, 2),
            // Both inodes lose a name and may get another one; the whiteout gets one. The target enters an unlinked
            // list, the whiteout leaves one.
            rename: chain(2 * name + 5 * inode + 2 * unlinked + 4 * parent, 2),
            attribute: attribute_alone,
            value_extents_max: value_extents_max.clamp(USUAL_EXTENTS, MAX_VALUE_BLOCKS),
            value_extent_bytes,
            attribute_blocks,
            name_blocks,
            parent_blocks,
            rename_blocks: 2 * name_blocks + 3 * parent_blocks,
            chunk_blocks,
            target_blocks: TARGET_BYTES.div_ceil(geometry.block_size),
        }
    }

    /// Setting an attribute with a remote value of at most [`value_extents_max`](Self::value_extents_max) extents.
    pub fn attribute_with_value(&self, extents: usize) -> LogReservation {
        if extents <= USUAL_EXTENTS {
            return self.attribute;
        }
        let bytes = (extents as u32 + MAX_MAP_TREE_BLOCKS) * self.value_extent_bytes;
        LogReservation { bytes: self.attribute.bytes + bytes, ..self.attribute }
    }

    /// Blocks to add or remove a name.
    pub fn link_blocks(&self) -> u32 {
        self.name_blocks + self.parent_blocks
    }

    /// Maximum number of files that one transaction creates.
    pub fn batch_max(&self, geometry: &Geometry) -> usize {
        if geometry.features.parent() {
            return 1;
        }
        let log_bytes = u64::from(geometry.log_blocks) << geometry.block_log;
        let share = log_bytes / LOG_SHARE / u64::from(self.create.transactions);
        let left = share.max(self.create.bytes.into()).saturating_sub(self.create_alone.into());
        (1 + left / u64::from(self.created_after)).min(BATCH_MAX as u64) as usize
    }

    /// Creating a file, and others after it that need no block: together at most [`batch_max`](Self::batch_max).
    pub fn create_many(&self, files: usize) -> LogReservation {
        let bytes = self.create_alone + files.saturating_sub(1) as u32 * self.created_after;
        LogReservation { bytes: bytes.max(self.create.bytes), ..self.create }
    }

    /// Blocks to create a file.
    pub fn create_blocks(&self, new: &NewFile<'_>) -> u32 {
        let target_blocks =
            if matches!(new.file_type, NewFileType::Symlink(_)) { self.target_blocks } else { 0 };
        self.name_blocks + self.parent_blocks + self.chunk_blocks + target_blocks
    }
}
