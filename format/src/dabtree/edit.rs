//! Changes of nodes, and of the header that nodes and leaves share.

use std::mem::offset_of;

use base::FileBlock;
use zerocopy::IntoBytes;

use super::{BlkInfo, MAX_DEPTH, NAME, NODE_MAGIC, NodeEntry, NodeHeader};
use crate::damage::Damage;
use crate::edit::{BlockMut, part_mut, put, word16};
use crate::ensure;
use crate::fork_block::ForkBlock;
use crate::geometry::Geometry;
use crate::ondisk::{LeU32, OnDisk, U16, U32, U64};

const HEADER_SIZE: usize = BlkInfo::SIZE + NodeHeader::SIZE;
const SIZE: usize = NodeEntry::SIZE;

/// Initializes the header of a new block without siblings. LSN and checksum are set at metadata writeback.
pub fn put_info<B: BlockMut + ?Sized>(
    block: &mut B,
    structure: &'static str,
    geometry: &Geometry,
    at: ForkBlock,
    magic: u16,
) -> Result<(), Damage> {
    let info = BlkInfo {
        forw: U32::new(0),
        back: U32::new(0),
        magic: U16::new(magic),
        pad: U16::new(0),
        crc: LeU32::new(0),
        blkno: U64::new(at.daddr.get()),
        lsn: U64::new(0),
        uuid: geometry.uuid,
        owner: U64::new(at.ino.get()),
    };
    put(block, structure, 0, info.as_bytes())
}

/// The header that nodes and leaves share.
pub fn info(bytes: &[u8]) -> Result<&BlkInfo, Damage> {
    BlkInfo::view(bytes).ok_or_else(|| Damage::short(NAME, BlkInfo::SIZE, bytes.len()))
}

/// Right sibling of a node or leaf.
pub fn forw(bytes: &[u8]) -> Result<Option<FileBlock>, Damage> {
    sibling(info(bytes)?.forw.get())
}

/// Left sibling of a node or leaf.
pub fn back(bytes: &[u8]) -> Result<Option<FileBlock>, Damage> {
    sibling(info(bytes)?.back.get())
}

fn sibling(block: u32) -> Result<Option<FileBlock>, Damage> {
    Ok((block != 0).then(|| FileBlock(block.into())))
}

/// Sets the right sibling.
pub fn set_forw<B: BlockMut + ?Sized>(block: &mut B, sibling: Option<FileBlock>) -> Result<(), Damage> {
    put_sibling(block, offset_of!(BlkInfo, forw), sibling)
}

/// Sets the left sibling.
pub fn set_back<B: BlockMut + ?Sized>(block: &mut B, sibling: Option<FileBlock>) -> Result<(), Damage> {
    put_sibling(block, offset_of!(BlkInfo, back), sibling)
}

fn put_sibling<B: BlockMut + ?Sized>(
    block: &mut B,
    at: usize,
    sibling: Option<FileBlock>,
) -> Result<(), Damage> {
    put(block, NAME, at, &number(sibling.unwrap_or(FileBlock(0)))?.to_be_bytes())
}

/// Converts a logical block to its on-disk form.
fn number(block: FileBlock) -> Result<u32, Damage> {
    u32::try_from(block.get()).map_err(|_| Damage::new(NAME, "before", "a logical block of 32 bits", block))
}

/// The decoded header of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeShape {
    /// Number of entries.
    pub count: usize,
    /// Level: 1 directly above the leaves.
    pub level: u16,
    /// Maximum number of entries.
    pub most: usize,
}

impl NodeShape {
    /// Decodes the header of a node.
    #[inline]
    pub fn of(bytes: &[u8]) -> Result<Self, Damage> {
        let magic = word16(bytes, NAME, offset_of!(BlkInfo, magic))?;
        ensure!(
            magic == NODE_MAGIC,
            NAME,
            "magic",
            format_args!("{NODE_MAGIC:#06x}"),
            format_args!("{magic:#06x}")
        );
        let count = usize::from(word16(bytes, NAME, BlkInfo::SIZE)?);
        let level = word16(bytes, NAME, BlkInfo::SIZE + offset_of!(NodeHeader, level))?;
        let most = max_entries(bytes.len());
        ensure!(count <= most, NAME, "count", format_args!("at most {most}"), count);
        let known = (1..=MAX_DEPTH).contains(&level);
        ensure!(known, NAME, "level", format_args!("1 to {MAX_DEPTH}"), level);
        Ok(Self { count, level, most })
    }
}

/// Maximum number of entries of a node in a block of `block_size` bytes.
pub fn max_entries(block_size: usize) -> usize {
    block_size.saturating_sub(HEADER_SIZE) / SIZE
}

/// The entries of a node.
#[inline]
pub fn entries(bytes: &[u8]) -> Result<&[NodeEntry], Damage> {
    let shape = NodeShape::of(bytes)?;
    let entries = bytes.get(HEADER_SIZE..).and_then(|rest| NodeEntry::view_array(rest, shape.count));
    entries.ok_or_else(|| Damage::short(NAME, HEADER_SIZE + shape.count * SIZE, bytes.len()))
}

/// Initializes a node without entries.
pub fn init<B: BlockMut + ?Sized>(
    block: &mut B,
    geometry: &Geometry,
    at: ForkBlock,
    level: u16,
) -> Result<(), Damage> {
    put_info(block, NAME, geometry, at, NODE_MAGIC)?;
    put_header(block, 0, level)
}

fn put_header<B: BlockMut + ?Sized>(block: &mut B, count: usize, level: u16) -> Result<(), Damage> {
    // The count of a 64 KiB block fits into 16 bits.
    let header = NodeHeader { count: U16::new(count as u16), level: U16::new(level), pad32: 0.into() };
    put(block, NAME, BlkInfo::SIZE, header.as_bytes())
}

/// Builds a node entry.
pub fn entry(hash: u32, child: FileBlock) -> Result<NodeEntry, Damage> {
    Ok(NodeEntry { hashval: U32::new(hash), before: U32::new(number(child)?) })
}

/// Replaces all entries.
pub fn put_entries<B: BlockMut + ?Sized>(block: &mut B, entries: &[NodeEntry]) -> Result<(), Damage> {
    let shape = NodeShape::of(block.bytes())?;
    let most = shape.most;
    ensure!(entries.len() <= most, NAME, "count", format_args!("at most {most}"), entries.len());
    put(block, NAME, HEADER_SIZE, entries.as_bytes())?;
    put_header(block, entries.len(), shape.level)
}

/// Inserts an entry before `index`.
pub fn insert<B: BlockMut + ?Sized>(block: &mut B, index: usize, new: NodeEntry) -> Result<(), Damage> {
    let shape = NodeShape::of(block.bytes())?;
    ensure!(
        index <= shape.count && shape.count < shape.most,
        NAME,
        "count",
        format_args!("space for one more at {index}"),
        shape.count
    );
    let range = HEADER_SIZE + index * SIZE..HEADER_SIZE + (shape.count + 1) * SIZE;
    let bytes = part_mut(block, NAME, range)?;
    let kept = bytes.len().saturating_sub(SIZE);
    bytes.copy_within(..kept, SIZE.min(bytes.len()));
    if let Some(place) = bytes.first_chunk_mut::<SIZE>() {
        place.copy_from_slice(new.as_bytes());
    }
    put_header(block, shape.count + 1, shape.level)
}

/// Removes the entry at `index`.
pub fn remove<B: BlockMut + ?Sized>(block: &mut B, index: usize) -> Result<(), Damage> {
    let shape = NodeShape::of(block.bytes())?;
    ensure!(index < shape.count, NAME, "count", format_args!("more than {index}"), shape.count);
    let range = HEADER_SIZE + index * SIZE..HEADER_SIZE + shape.count * SIZE;
    let bytes = part_mut(block, NAME, range)?;
    bytes.copy_within(SIZE.min(bytes.len()).., 0);
    put_header(block, shape.count - 1, shape.level)
}

/// Sets the hash of the entry at `index`. Returns whether it changed.
pub fn set_hash<B: BlockMut + ?Sized>(block: &mut B, index: usize, hash: u32) -> Result<bool, Damage> {
    let entry = entries(block.bytes())?.get(index);
    let found = entry.map(|entry| entry.hashval.get());
    ensure!(found.is_some(), NAME, "count", format_args!("more than {index}"), "fewer");
    if found == Some(hash) {
        return Ok(false);
    }
    put(block, NAME, HEADER_SIZE + index * SIZE, &hash.to_be_bytes())?;
    Ok(true)
}
