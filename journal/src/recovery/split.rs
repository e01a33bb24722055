//! Directory blocks in several extents. A directory block can be larger than a file system block, and in fragmented
//! space it lies in several extents. Each extent is logged as a buffer of its own, but the checksum, in the header of
//! the first, covers all of them.
//!
//! So the pieces are replayed without a checksum, which is set when all transactions are replayed: a change of a
//! directory block also logs its inode, whose extents show which pieces form a block. (Linux 6.18 does not mount such a
//! volume: its recovery takes each piece for a complete block, and fails.)

use std::collections::{BTreeMap, BTreeSet};

use base::{Daddr, FsBlock, Ino, Lsn};
use format::Geometry;
use format::btree::{BmBt, BtreeBlock, BtreeBlockBody, BtreeBlockIdentity, BtreePointer};
use format::dabtree::BlkInfo;
use format::damage::{Damage, Place};
use format::dir::DirHeader;
use format::extent::{Extent, RawExtent};
use format::inode::{BmapRootView, Dinode, FileType, Fork, ForkKind};
use format::log::buffer::BufferKind;
use format::metadata_header::HeaderLayout;
use format::ondisk::{OnDisk, U64};

use super::replay::{AtPlace, ReplayContext, ReplayFailure};

/// Pieces without a checksum, and directories that may contain them.
#[derive(Debug, Default)]
pub struct SplitBlocks {
    /// Pieces by address: sectors, and LSN of the last transaction.
    pieces: BTreeMap<Daddr, (u16, Lsn)>,
    /// Directories whose inodes are in the log.
    directories: BTreeSet<Ino>,
}

/// Whether a buffer of this type and size is only a piece of a directory block.
pub fn is_piece(kind: BufferKind, bytes: usize, geometry: &Geometry) -> bool {
    use BufferKind::{DaNode, DirBlock, DirData, DirFree, DirLeaf1, DirLeafN};
    let (block, dir_block) = (geometry.block_size as usize, geometry.dir_block_size as usize);
    match kind {
        DirBlock | DirData | DirFree | DirLeaf1 | DirLeafN => bytes < dir_block,
        // A node of an attribute tree has the size of a file system block.
        DaNode => bytes < dir_block && bytes != block,
        _ => false,
    }
}

impl SplitBlocks {
    /// A piece was replayed.
    pub fn add_piece(&mut self, daddr: Daddr, sectors: u16, lsn: Lsn) {
        self.pieces.insert(daddr, (sectors, lsn));
    }

    /// A directory's inode is in the log.
    pub fn add_directory(&mut self, ino: Ino) {
        self.directories.insert(ino);
    }
}

/// Seals the blocks whose pieces were replayed. Blocks that are not found stay unsealed, and are reported.
pub fn seal(context: &mut ReplayContext<'_>) -> Result<(), ReplayFailure> {
    let SplitBlocks { mut pieces, directories } = std::mem::take(&mut context.split);
    if pieces.is_empty() {
        return Ok(());
    }
    for ino in directories {
        match split_blocks(ino, context) {
            Ok(blocks) => seal_directory(ino, &blocks, &mut pieces, context)?,
            Err(ReplayFailure::Device(error)) => return Err(ReplayFailure::Device(error)),
            // Its parts remain, and are reported.
            Err(ReplayFailure::Damage(..)) => {}
        }
    }
    context.report.unsealed = pieces.into_iter().map(|(daddr, (sectors, _))| (daddr, sectors)).collect();
    Ok(())
}

/// One piece of a directory block, from the directory's extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockPiece {
    daddr: Daddr,
    bytes: usize,
}

/// Finds the directory blocks in several pieces in the sequence of extents.
struct SplitBlockFinder<'g> {
    geometry: &'g Geometry,
    /// Complete blocks.
    found: Vec<Vec<BlockPiece>>,
    /// The current block: its number, and its pieces so far.
    open: (u64, Vec<BlockPiece>),
    /// Lowest offset of the next extent.
    next: u64,
}

impl SplitBlockFinder<'_> {
    /// Takes the next extent. Only its first and last blocks can be pieces.
    fn take(&mut self, raw: &RawExtent) -> Result<(), Damage> {
        let extent = Extent::decode(raw);
        extent.verify(self.geometry)?;
        let (start, end) = (extent.offset.get(), extent.end().get());
        format::ensure!(
            start >= self.next,
            "extent",
            "startoff",
            format_args!("at least {}", self.next),
            start
        );
        self.next = end;
        let per_block = 1u64 << self.geometry.dir_block_log;
        let head_end = start.next_multiple_of(per_block).min(end);
        let tail_start = (end - end % per_block).max(head_end);
        for (from, to) in [(start, head_end), (tail_start, end)] {
            let at = FsBlock(extent.start.get() + (from - start));
            let Some(at) = self.geometry.fs_block_offset(at).filter(|_| from < to) else { continue };
            let piece = BlockPiece {
                daddr: Daddr(at >> 9),
                bytes: ((to - from) as usize) << self.geometry.block_log,
            };
            if self.open.0 != from / per_block {
                self.close();
                self.open.0 = from / per_block;
            }
            self.open.1.push(piece);
        }
        Ok(())
    }

    fn close(&mut self) {
        let pieces = std::mem::take(&mut self.open.1);
        let bytes: usize = pieces.iter().map(|piece| piece.bytes).sum();
        if bytes == self.geometry.dir_block_size as usize {
            self.found.push(pieces);
        }
    }
}

/// The directory blocks in several pieces, by the replayed inode.
fn split_blocks(ino: Ino, context: &mut ReplayContext<'_>) -> Result<Vec<Vec<BlockPiece>>, ReplayFailure> {
    let geometry = context.geometry.clone();
    let place = Place::ino(ino);
    let outside = || Damage::new("inode", "ino", "an inode of the volume", ino);
    let (ag, within) = geometry.split_ino(ino).ok_or_else(outside).at(place)?;
    let daddr = geometry.ag_block_daddr(ag, geometry.ag_ino_block(within));
    let block = context.buffers.get(daddr, geometry.block_size as usize)?.to_vec();
    let slot = block.get(geometry.ino_offset_in_block(within)..).unwrap_or(&[]);
    let slot = slot.get(..geometry.inode_size as usize).unwrap_or(slot);
    let inode = Dinode::verify(slot, &geometry, ino).at(place)?;
    let mut blocks =
        SplitBlockFinder { geometry: &geometry, found: Vec::new(), open: (0, Vec::new()), next: 0 };
    if inode.file_type() == Some(FileType::Directory) {
        match inode.fork(ForkKind::Data, &geometry).at(place)? {
            Some(Fork::Extents(raw)) => raw.iter().try_for_each(|raw| blocks.take(raw)).at(place)?,
            Some(Fork::Btree(root)) => walk(ino, root, &mut blocks, context)?,
            _ => {}
        }
    }
    blocks.close();
    Ok(blocks.found)
}

/// Walks a fork's tree in key order. It ends whatever the disk contains: levels fall strictly, and the extents of a
/// leaf that was visited before do not lie behind the last.
fn walk(
    ino: Ino,
    root: BmapRootView<'_>,
    blocks: &mut SplitBlockFinder<'_>,
    context: &mut ReplayContext<'_>,
) -> Result<(), ReplayFailure> {
    let geometry = blocks.geometry;
    let mut pending: Vec<(U64, u16)> = root.pointers.iter().rev().map(|at| (*at, root.level - 1)).collect();
    while let Some((pointer, level)) = pending.pop() {
        let outside = || Damage::new("extent map tree", "ptr", "a block of the volume", pointer);
        let (ag, block) = pointer.locate(geometry, None).ok_or_else(outside).at(Place::ino(ino))?;
        let bytes = context.buffers.get(geometry.ag_block_daddr(ag, block), geometry.block_size as usize)?;
        let place = Place::block(ag, block).of_inode(ino);
        let identity = BtreeBlockIdentity { ag, block, ino: Some(ino) };
        match BtreeBlock::<BmBt>::verify(bytes, geometry, identity, level).at(place)?.body {
            BtreeBlockBody::Leaf([]) => {
                return Err(ReplayFailure::Damage(
                    place,
                    Damage::new("extent map tree", "numrecs", "at least 1", 0),
                ));
            }
            BtreeBlockBody::Leaf(raw) => raw.iter().try_for_each(|raw| blocks.take(raw)).at(place)?,
            // A verified level is never 0.
            BtreeBlockBody::Node(_, below) => pending.extend(below.iter().rev().map(|at| (*at, level - 1))),
        }
    }
    Ok(())
}

/// Seals the blocks of one directory that have a replayed piece.
fn seal_directory(
    ino: Ino,
    blocks: &[Vec<BlockPiece>],
    pieces: &mut BTreeMap<Daddr, (u16, Lsn)>,
    context: &mut ReplayContext<'_>,
) -> Result<(), ReplayFailure> {
    for block in blocks {
        let replayed = block.iter().filter_map(|piece| pieces.get(&piece.daddr)).map(|(_, lsn)| *lsn).max();
        let Some(lsn) = replayed else { continue };
        let mut bytes = Vec::new();
        for piece in block {
            bytes.extend_from_slice(context.buffers.get(piece.daddr, piece.bytes)?);
        }
        if !seal_block(ino, &mut bytes, block, lsn, context) {
            continue;
        }
        let mut rest = bytes.as_slice();
        for piece in block {
            let (head, behind) = rest.split_at(piece.bytes.min(rest.len()));
            context.buffers.get_mut(piece.daddr, piece.bytes)?.copy_from_slice(head);
            rest = behind;
            pieces.remove(&piece.daddr);
        }
    }
    Ok(())
}

/// Seals a block whose header names this directory and this address.
fn seal_block(
    ino: Ino,
    bytes: &mut [u8],
    block: &[BlockPiece],
    lsn: Lsn,
    context: &ReplayContext<'_>,
) -> bool {
    let (Some(stamp), Some(first)) = (HeaderLayout::of(bytes), block.first()) else { return false };
    let owner = match stamp.kind {
        BufferKind::DirBlock | BufferKind::DirData | BufferKind::DirFree => {
            DirHeader::view(bytes).map(|h| h.owner)
        }
        BufferKind::DirLeaf1 | BufferKind::DirLeafN | BufferKind::DaNode => {
            BlkInfo::view(bytes).map(|h| h.owner)
        }
        _ => None,
    };
    owner.is_some_and(|owner| owner.get() == ino.get())
        && stamp.belongs_to(bytes, &context.geometry.uuid)
        && stamp.lies_at(bytes, first.daddr)
        && stamp.seal(bytes, lsn)
}
