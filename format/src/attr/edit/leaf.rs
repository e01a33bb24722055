//! Leaves of attributes.
//!
//! Names with their values are taken from the end of the block downwards. Where the room in front of them is used up,
//! but removed names have left some between, the leaf is packed anew.
//!
//! # Invariants
//! The first free region is what lies between entries and names. What lies between names is not told by the others,
//! which stay empty: `holes` says that there is some, and Linux then packs the leaf itself.

use base::FileBlock;
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

/// Bytes that are compared and written together: those that the log tells apart.
const CHUNK: usize = 128;

/// An attribute as a leaf holds it: what its entry says, and the bytes of its name with its value or where that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafAttr {
    /// Of the name.
    pub hash: u32,
    /// Namespace, whether the value lies here, whether it is incomplete.
    pub flags: u8,
    /// Padded to its whole size.
    body: Vec<u8>,
}

impl LeafAttr {
    /// An attribute; `hash` is that of its name.
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

    /// Bytes of a leaf that it takes, its entry included.
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

/// Bytes that a name with its value beside it takes.
fn local_size(name: usize, value: usize) -> usize {
    (LocalName::SIZE + name + value).next_multiple_of(ALIGN)
}

/// Bytes that a name takes whose value lies elsewhere.
fn remote_size(name: usize) -> usize {
    (REMOTE_PADDED + name).next_multiple_of(ALIGN)
}

/// Whether a value lies beside its name, as Linux decides: where both take less than three quarters of a block.
pub fn is_local(name: usize, value: usize, geometry: &Geometry) -> bool {
    local_size(name, value) < geometry.block_size as usize / 4 * 3
}

/// Bytes of a leaf for entries, names and values.
pub fn capacity(geometry: &Geometry) -> usize {
    (geometry.block_size as usize).saturating_sub(HEADER_SIZE)
}

/// Makes a fresh block a leaf without attributes.
pub fn init<B: BlockMut + ?Sized>(block: &mut B, geometry: &Geometry, at: ForkBlock) -> Result<(), Damage> {
    dabtree::put_info(block, NAME, geometry, at, MAGIC)?;
    put_attributes(block, geometry, &[])
}

/// All attributes, in the order of their hashes.
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

/// Bytes that entries, names and values take, without those of the header.
pub fn used(bytes: &[u8], geometry: &Geometry) -> Result<usize, Damage> {
    let leaf = AttrLeaf::of(bytes, geometry)?;
    Ok(usize::from(leaf.header.usedbytes.get()) + leaf.entries.len() * AttrLeafEntry::SIZE)
}

/// The highest hash; `None` in an empty leaf.
pub fn last_hash(bytes: &[u8], geometry: &Geometry) -> Result<Option<u32>, Damage> {
    Ok(AttrLeaf::of(bytes, geometry)?.entries.last().map(|entry| entry.hashval.get()))
}

/// Replaces all attributes, packed; siblings and identity stay. Only what differs is written.
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

/// A header without anything in the free map but what lies between entries and names.
fn header(geometry: &Geometry, count: usize, usedbytes: usize, first_used: usize) -> AttrLeafHeader {
    let end = HEADER_SIZE + count * AttrLeafEntry::SIZE;
    let free = first_used.saturating_sub(end);
    // All below 64 KiB, but for the end of an empty block of that size, which is told as 0.
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

/// Inserts an attribute in front of the entry at `index`. `false`, with nothing changed, where it does not fit.
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

/// The value's block of a remote attribute and its length, from the bytes of an item.
pub fn remote_of(item: &LeafAttr) -> Option<(FileBlock, u32)> {
    let head = RemoteName::view(&item.body).filter(|_| item.flags & flags::LOCAL == 0)?;
    Some((FileBlock(head.valueblk.get().into()), head.valuelen.get()))
}
