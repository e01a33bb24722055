//! How much log space and how many blocks changes of names need, at most.
//!
//! What is not used is given back at the commit; what is too little shuts the volume down. So each is an upper bound,
//! put together from the bounds of the layers below.

use ag::{AgLogCosts, Groups};
use format::Geometry;
use inode::attr::remote::USUAL_EXTENTS;
use inode::attr::{MAX_MAP_TREE_BLOCKS, max_changed_blocks, max_new_blocks as max_new_attr_blocks};
use inode::dir::{MAX_FREED_BLOCKS, max_new_blocks};
use journal::engine::LogReservation;

use crate::new_file::{NewFile, NewFileType};

/// For one volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reservations {
    /// One inode alone.
    pub inode: LogReservation,
    /// The superblock's counters.
    pub superblock: LogReservation,
    /// Another size: the headers and free space of the last AG, and the superblock.
    pub resize: LogReservation,
    /// Doing what an intent in the log asks for.
    pub intent: LogReservation,
    /// An inode and a name.
    pub create: LogReservation,
    /// The same, and two attributes that the inode begins with.
    pub create_with_attributes: LogReservation,
    /// A name.
    pub link: LogReservation,
    /// Taking a name away.
    pub remove: LogReservation,
    /// Two names, of which one may get a whiteout.
    pub rename: LogReservation,
    /// An attribute.
    pub attribute: LogReservation,
    /// Pieces in which the value of an attribute may lie at most: what half of the log has room for.
    pub most_pieces: usize,
    /// What each piece adds to setting an attribute, in bytes of the log.
    piece: u32,
    /// Blocks that setting an attribute takes, without those of its value.
    pub attribute_blocks: u32,
    /// Blocks that one more name takes.
    pub name_blocks: u32,
    /// Blocks that its parent pointer takes, or the end of one.
    pub parent_blocks: u32,
    /// Blocks that a rename takes: two names.
    pub rename_blocks: u32,
    /// Blocks that a chunk of inodes takes, with its trees.
    chunk_blocks: u32,
    /// Blocks of the longest target of a symbolic link.
    target_blocks: u32,
}

/// Inodes of one change, each with its item and what surrounds it.
const INODE_EXTRA: u32 = 256;
/// Longest target of a symbolic link, with the header of each of its blocks.
const TARGET_BYTES: u32 = 2048;
/// Intents for the blocks of the longest value, each a piece of its own: reverse mappings and frees.
const VALUE_ITEMS: u32 = 70 * 2 * 64;
/// Transactions of the chain that sets an attribute.
const ATTRIBUTE_CHAIN: u32 = 3;
/// Blocks that the longest value takes, on a volume with the smallest blocks.
const MOST_VALUE_BLOCKS: usize = 70;
/// Levels of a directory's tree of extents that are ever changed at once.
const EXTENT_LEVELS: u32 = 3;

impl Reservations {
    pub fn of(geometry: &Geometry, groups: &Groups) -> Self {
        let costs = AgLogCosts::derive(geometry);
        let block = AgLogCosts::buffer(geometry.block_size);
        let dir_block = AgLogCosts::buffer(geometry.dir_block_size);
        let inode = geometry.inode_size + INODE_EXTRA;
        // Every block of the way down may split or join; extents come from the same leaves of the space trees.
        let name = (MAX_FREED_BLOCKS + 3) * dir_block + EXTENT_LEVELS * block + costs.extent_alloc();
        // The value is mapped by, or gone from, at most as many leaves of the tree of extents as its blocks need.
        let attribute_blocks =
            max_new_attr_blocks(geometry) + 2 * MAX_MAP_TREE_BLOCKS + (1 << geometry.dir_block_log);
        let attribute = max_changed_blocks(geometry) * block + 4 * EXTENT_LEVELS * block + VALUE_ITEMS;
        // What a change of a name does to the attributes of the file.
        let parent = match geometry.features.parent() {
            true => max_changed_blocks(geometry) * block + 2 * EXTENT_LEVELS * block + costs.extent_alloc(),
            false => 0,
        };
        let parent_blocks = if geometry.features.parent() { attribute_blocks } else { 0 };
        let create_extra = costs.extent_alloc() + parent;
        let unlinked = 2 * AgLogCosts::header(geometry.block_size) + AgLogCosts::buffer(geometry.sector_size);
        let taking = costs.inode_take() + name + 2 * inode;
        let chain =
            |bytes: u32, transactions| LogReservation { bytes: bytes.max(costs.largest()), transactions };
        let new_name = max_new_blocks(geometry) + EXTENT_LEVELS;
        let chunk_blocks = groups.blocks_for_inode();
        let alone = chain(
            attribute + dir_block + costs.extent_free() + costs.extent_alloc() + 2 * inode,
            ATTRIBUTE_CHAIN,
        );
        let piece = costs.extent_alloc();
        let log_bytes = u64::from(geometry.log_blocks) << geometry.block_log;
        let room = (log_bytes / 2 / u64::from(ATTRIBUTE_CHAIN)).saturating_sub(alone.bytes.into());
        // Those of the tree that maps them are pieces, too.
        let most_pieces = (room / u64::from(piece)).saturating_sub(MAX_MAP_TREE_BLOCKS.into()) as usize;
        Self {
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
            create: chain(taking + create_extra + unlinked, 2),
            create_with_attributes: chain(taking + create_extra + unlinked + 2 * attribute, 2),
            link: chain(name + 2 * inode + unlinked + parent, 2),
            remove: chain(name + 2 * inode + unlinked + parent, 2),
            // Of both inodes, a name goes and another may come; the whiteout has room for its own. One comes on a list
            // of unlinked inodes, the whiteout leaves one.
            rename: chain(2 * name + 5 * inode + 2 * unlinked + 4 * parent, 2),
            attribute: alone,
            most_pieces: most_pieces.clamp(USUAL_EXTENTS, MOST_VALUE_BLOCKS),
            piece,
            attribute_blocks,
            name_blocks: new_name,
            parent_blocks,
            rename_blocks: 2 * new_name + 3 * parent_blocks,
            chunk_blocks,
            target_blocks: TARGET_BYTES.div_ceil(geometry.block_size),
        }
    }

    /// An attribute whose value lies in so many pieces, at most [`most_pieces`](Self::most_pieces).
    pub fn attribute_in_pieces(&self, pieces: usize) -> LogReservation {
        if pieces <= USUAL_EXTENTS {
            return self.attribute;
        }
        let bytes = (pieces as u32 + MAX_MAP_TREE_BLOCKS) * self.piece;
        LogReservation { bytes: self.attribute.bytes + bytes, ..self.attribute }
    }

    /// Blocks that a name takes, or its end.
    pub fn link_blocks(&self) -> u32 {
        self.name_blocks + self.parent_blocks
    }

    /// Blocks that making this file may take.
    pub fn create_blocks(&self, new: &NewFile<'_>) -> u32 {
        let contents = if matches!(new.file_type, NewFileType::Symlink(_)) { self.target_blocks } else { 0 };
        self.name_blocks + self.parent_blocks + self.chunk_blocks + contents
    }
}
