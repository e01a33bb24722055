//! Changes of attribute leaf blocks.
//!
//! Names and values are allocated from the end of the block downwards. If the space below them is exhausted but removed
//! names have left holes, the leaf is compacted.
//!
//! # Invariants
//! The first `freemap` region is the space between entries and names. The other two stay empty: holes between names are
//! only marked in `holes`, and Linux then compacts the leaf.

use zerocopy::{FromZeros, IntoBytes};

use crate::attr::leaf::{
    ALIGN, AttrLeaf, AttrLeafEntry, AttrLeafHeader, HEADER_SIZE, LocalName, MAGIC, NAME, REMOTE_PADDED,
    RemoteName, first_used,
};
use crate::attr::{Attr, AttrValue, flags};
use crate::dabtree::{BlkInfo, edit as dabtree};
use crate::damage::Damage;
use crate::edit::{BlockMut, part_mut, put};
use crate::ensure;
use crate::fork_block::ForkBlock;
use crate::geometry::Geometry;
use crate::ondisk::{OnDisk, U16, U32};

/// Size of a comparison unit: the granularity of the log.
const CHUNK: usize = 128;

/// An attribute in its leaf representation: the contents of its entry, and the bytes of its name and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafAttr {
    /// Hash of the name.
    pub hash: u32,
    /// Namespace, and the flags `LOCAL` and `INCOMPLETE`.
    pub flags: u8,
    /// Name and value, padded to the aligned size.
    body: Vec<u8>,
}

impl LeafAttr {
    /// Encodes an attribute; `hash` is the hash of its name.
    pub fn new(attr: &Attr<'_>, hash: u32) -> Result<Self, Damage> {
        let namelen = u8::try_from(attr.name.len())
            .map_err(|_| Damage::new(NAME, "namelen", "1 to 255", attr.name.len()))?;
        let incomplete = if attr.incomplete { flags::INCOMPLETE } else { 0 };
        let bits = attr.namespace.bits() | incomplete;
        match attr.value {
            AttrValue::Inline(value) => {
                let valuelen = u16::try_from(value.len())
                    .map_err(|_| Damage::new(NAME, "valuelen", "at most 65535", value.len()))?;
                let head = LocalName { valuelen: U16::new(valuelen), namelen };
                let mut body = [head.as_bytes(), attr.name, value].concat();
                body.resize(local_size(attr.name.len(), value.len()), 0);
                Ok(Self { hash, flags: bits | flags::LOCAL, body })
            }
            AttrValue::Remote { block, length } => {
                let valueblk = u32::try_from(block.get())
                    .map_err(|_| Damage::new(NAME, "valueblk", "a block of 32 bits", block))?;
                let head = RemoteName { valueblk: U32::new(valueblk), valuelen: U32::new(length), namelen };
                let mut body = [head.as_bytes(), attr.name].concat();
                body.resize(remote_size(attr.name.len()), 0);
                Ok(Self { hash, flags: bits, body })
            }
        }
    }

    /// Bytes it takes in a leaf, including its entry.
    pub fn size(&self) -> usize {
        AttrLeafEntry::SIZE + self.body.len()
    }

    fn entry(&self, nameidx: usize) -> AttrLeafEntry {
        AttrLeafEntry {
            hashval: U32::new(self.hash),
            nameidx: U16::new(nameidx as u16), // below 64 KiB
            flags: self.flags,
            pad2: 0,
        }
    }
}

/// Size of a local name with its value.
fn local_size(name: usize, value: usize) -> usize {
    (LocalName::SIZE + name + value).next_multiple_of(ALIGN)
}

/// Size of a remote name.
fn remote_size(name: usize) -> usize {
    (REMOTE_PADDED + name).next_multiple_of(ALIGN)
}

/// Whether a value is stored with its name, by Linux's rule: both together take less than three quarters of a block.
pub fn is_local(name: usize, value: usize, geometry: &Geometry) -> bool {
    local_size(name, value) < geometry.block_size as usize / 4 * 3
}

/// Bytes of a leaf for entries, names and values.
pub fn capacity(geometry: &Geometry) -> usize {
    (geometry.block_size as usize).saturating_sub(HEADER_SIZE)
}

/// Initializes an empty leaf.
pub fn init<B: BlockMut + ?Sized>(block: &mut B, geometry: &Geometry, at: ForkBlock) -> Result<(), Damage> {
    dabtree::put_info(block, NAME, geometry, at, MAGIC)?;
    put_attributes(block, geometry, &[])
}

/// All attributes in the order of their hashes.
pub fn attributes(bytes: &[u8], geometry: &Geometry) -> Result<Vec<LeafAttr>, Damage> {
    let leaf = AttrLeaf::of(bytes, geometry)?;
    leaf.entries.iter().map(|entry| item(&leaf, bytes, entry)).collect()
}

fn item(leaf: &AttrLeaf<'_>, bytes: &[u8], entry: &AttrLeafEntry) -> Result<LeafAttr, Damage> {
    let (size, _) = leaf.extent_and_attr(entry)?;
    let offset = usize::from(entry.nameidx.get());
    let body =
        bytes.get(offset..offset + size).ok_or_else(|| Damage::short(NAME, offset + size, bytes.len()))?;
    Ok(LeafAttr { hash: entry.hashval.get(), flags: entry.flags, body: body.to_vec() })
}

/// Bytes that entries, names and values take, without the header.
pub fn used(bytes: &[u8], geometry: &Geometry) -> Result<usize, Damage> {
    let leaf = AttrLeaf::of(bytes, geometry)?;
    Ok(usize::from(leaf.header.usedbytes.get()) + leaf.entries.len() * AttrLeafEntry::SIZE)
}

/// The highest hash; `None` in an empty leaf.
pub fn last_hash(bytes: &[u8], geometry: &Geometry) -> Result<Option<u32>, Damage> {
    Ok(AttrLeaf::of(bytes, geometry)?.entries.last().map(|entry| entry.hashval.get()))
}

/// Replaces all attributes in compacted form; siblings and identity stay. Only bytes that differ are written.
pub fn put_attributes<B: BlockMut + ?Sized>(
    block: &mut B,
    geometry: &Geometry,
    items: &[LeafAttr],
) -> Result<(), Damage> {
    let old = block.bytes();
    let size = geometry.block_size as usize;
    let need: usize = items.iter().map(LeafAttr::size).sum();
    ensure!(
        old.len() == size && need <= capacity(geometry),
        NAME,
        "count",
        "attributes that fit",
        items.len()
    );
    let info = old.get(..BlkInfo::SIZE).unwrap_or_default();
    let (mut entries, mut names) = (Vec::with_capacity(items.len()), Vec::with_capacity(need));
    let mut at = size;
    for item in items {
        at -= item.body.len();
        entries.push(item.entry(at));
    }
    for item in items.iter().rev() {
        names.extend_from_slice(&item.body);
    }
    let header = header(geometry, items.len(), names.len(), at);
    let mut new = Vec::with_capacity(size);
    new.extend_from_slice(info);
    new.extend_from_slice(header.as_bytes());
    new.extend_from_slice(entries.as_bytes());
    new.resize(at, 0);
    new.extend_from_slice(&names);
    put_differing(block, &new)
}

fn put_differing<B: BlockMut + ?Sized>(block: &mut B, new: &[u8]) -> Result<(), Damage> {
    for (at, chunk) in (0..).step_by(CHUNK).zip(new.chunks(CHUNK)) {
        if block.bytes().get(at..at + chunk.len()) != Some(chunk) {
            put(block, NAME, at, chunk)?;
        }
    }
    Ok(())
}

/// A header whose free map lists only the space between entries and names.
fn header(geometry: &Geometry, count: usize, usedbytes: usize, first_used: usize) -> AttrLeafHeader {
    let end = HEADER_SIZE + count * AttrLeafEntry::SIZE;
    let free = first_used.saturating_sub(end);
    // All values are below 64 KiB except the end of an empty 64 KiB block, which is stored as 0.
    AttrLeafHeader {
        count: U16::new(count as u16),
        usedbytes: U16::new(usedbytes as u16),
        firstused: U16::new(first_used as u16),
        holes: u8::from(first_used + usedbytes != geometry.block_size as usize),
        base0: U16::new(end as u16),
        size0: U16::new(free as u16),
        ..AttrLeafHeader::new_zeroed()
    }
}

/// Inserts an attribute before the entry at `index`. Returns `false`, and changes nothing, if it does not fit.
pub fn insert<B: BlockMut + ?Sized>(
    block: &mut B,
    geometry: &Geometry,
    index: usize,
    new: &LeafAttr,
) -> Result<bool, Damage> {
    let leaf = AttrLeaf::of(block.bytes(), geometry)?;
    let (count, used) = (leaf.entries.len(), usize::from(leaf.header.usedbytes.get()));
    let first = first_used(leaf.header);
    ensure!(index <= count, NAME, "count", format_args!("at least {index}"), count);
    if used + count * AttrLeafEntry::SIZE + new.size() > capacity(geometry) {
        return Ok(false);
    }
    let end = HEADER_SIZE + count * AttrLeafEntry::SIZE;
    if first < end + new.size() {
        let mut all = attributes(block.bytes(), geometry)?;
        all.insert(index, new.clone());
        put_attributes(block, geometry, &all)?;
        return Ok(true);
    }
    let at = first - new.body.len();
    put(block, NAME, at, &new.body)?;
    let from = HEADER_SIZE + index * AttrLeafEntry::SIZE;
    let moved = part_mut(block, NAME, from..end + AttrLeafEntry::SIZE)?;
    let kept = moved.len().saturating_sub(AttrLeafEntry::SIZE);
    moved.copy_within(..kept, AttrLeafEntry::SIZE);
    put(block, NAME, from, new.entry(at).as_bytes())?;
    let header = header(geometry, count + 1, used + new.body.len(), at);
    put(block, NAME, BlkInfo::SIZE, header.as_bytes())?;
    Ok(true)
}

/// Removes the attribute at `index`.
pub fn remove<B: BlockMut + ?Sized>(block: &mut B, geometry: &Geometry, index: usize) -> Result<(), Damage> {
    let leaf = AttrLeaf::of(block.bytes(), geometry)?;
    let count = leaf.entries.len();
    let Some(entry) = leaf.entries.get(index) else {
        return Err(Damage::new(NAME, "count", format_args!("more than {index}"), count));
    };
    let (size, _) = leaf.extent_and_attr(entry)?;
    let offset = usize::from(entry.nameidx.get());
    let used = usize::from(leaf.header.usedbytes.get());
    ensure!(size <= used, NAME, "usedbytes", format_args!("at least {size}"), used);
    let others = leaf.entries.iter().enumerate().filter(|(n, _)| *n != index);
    let lowest = others.map(|(_, entry)| usize::from(entry.nameidx.get())).min();
    let first = lowest.unwrap_or(geometry.block_size as usize);
    part_mut(block, NAME, offset..offset + size)?.fill(0);
    let end = HEADER_SIZE + count * AttrLeafEntry::SIZE;
    let from = HEADER_SIZE + index * AttrLeafEntry::SIZE;
    let moved = part_mut(block, NAME, from..end)?;
    moved.copy_within(AttrLeafEntry::SIZE.., 0);
    put(block, NAME, end - AttrLeafEntry::SIZE, &[0; AttrLeafEntry::SIZE])?;
    let header = header(geometry, count - 1, used - size, first);
    put(block, NAME, BlkInfo::SIZE, header.as_bytes())
}
