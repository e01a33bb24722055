//! Targets for directories, attributes, their hash trees, symlinks, quota records.

use base::{Daddr, FileBlock};
use format::attr::leaf::AttrLeaf;
use format::attr::parent::ParentPointer;
use format::attr::shortform::AttrShortform;
use format::attr::{self, Attr, AttrValue, acl, remote};
use format::dabtree::{self, DaNode, DaTree};
use format::dir::data::{DataBlock, DataRegion};
use format::dir::free::FreeBlock;
use format::dir::leaf::DirLeaf;
use format::dir::shortform::Shortform;
use format::dir::{self, DirEntry};
use format::{ForkBlock, Geometry, dquot, remote_block, symlink};

use crate::input::Input;
use crate::shape::{self, UUID};
use crate::stamp;

/// The identity of a fork's block, for all targets.
fn block_identity(geometry: &Geometry) -> ForkBlock {
    ForkBlock { ino: geometry.root, file_block: FileBlock(0), daddr: Daddr(4096) }
}

/// Stamps a directory block: magic, checksum, address, LSN, UUID, owner.
fn stamp_dir(block: &mut [u8], magic: u32, at: ForkBlock) {
    let (blkno, owner) = (at.daddr.get().to_be_bytes(), at.ino.get().to_be_bytes());
    let fields = [(0, &magic.to_be_bytes()[..]), (8, &blkno), (24, &UUID), (40, &owner)];
    stamp::fields(block, &fields, dir::CRC_OFFSET);
}

/// Stamps a hash tree block: siblings, magic, checksum, address, LSN, UUID, owner.
fn stamp_index(block: &mut [u8], magic: u16, at: ForkBlock) {
    let (blkno, owner) = (at.daddr.get().to_be_bytes(), at.ino.get().to_be_bytes());
    let fields = [(8, &magic.to_be_bytes()[..]), (16, &blkno), (32, &UUID), (48, &owner)];
    stamp::fields(block, &fields, dabtree::CRC_OFFSET);
}

/// Stamps a remote block: magic, offset, length, checksum, UUID, owner, address.
fn stamp_payload(block: &mut [u8], magic: u32, at: ForkBlock, offset: u32) {
    let (blkno, owner) = (at.daddr.get().to_be_bytes(), at.ino.get().to_be_bytes());
    let fields =
        [(0, &magic.to_be_bytes()[..]), (4, &offset.to_be_bytes()), (16, &UUID), (32, &owner), (40, &blkno)];
    stamp::fields(block, &fields, remote_block::CRC_OFFSET);
}

/// A directory block: data, leaf, node or free index.
pub fn dir_block(data: &[u8]) {
    let mut input = Input::new(data);
    let Some(geometry) = shape::geometry(&mut input) else { return };
    let at = block_identity(&geometry);
    let kind = input.u8() % 6;
    let mut block = input.block(geometry.dir_block_size as usize);
    match kind {
        0 | 1 => {
            stamp_dir(&mut block, [dir::data::BLOCK_MAGIC, dir::data::DATA_MAGIC][usize::from(kind)], at);
            dir_data(&block, &geometry, at);
        }
        2 => {
            stamp_dir(&mut block, dir::free::MAGIC, at);
            if let Ok(free) = FreeBlock::verify(&block, &geometry, at) {
                assert!(free.bests.len() <= dir::free::max_bests(&geometry));
                let _ = free.audit();
            }
        }
        3 | 4 => {
            stamp_index(
                &mut block,
                [dir::leaf::LEAF1_MAGIC, dir::leaf::LEAFN_MAGIC][usize::from(kind - 3)],
                at,
            );
            if let Ok(leaf) = DirLeaf::verify(&block, &geometry, at) {
                let _ = leaf.audit();
                let hashes = leaf.entries.iter().map(|entry| entry.hashval.get()).chain([
                    0,
                    u32::MAX,
                    leaf.last_hash(),
                ]);
                for hash in hashes.take(64) {
                    leaf.find(hash).take(4096).for_each(|pointer| {
                        pointer.split(&geometry);
                    });
                }
            }
        }
        _ => node(&mut block, DaTree::Dir, &geometry, at),
    }
}

fn dir_data(block: &[u8], geometry: &Geometry, at: ForkBlock) {
    let Ok(data) = DataBlock::verify(block, geometry, at) else { return };
    // Every region takes at least eight bytes, so iteration ends even in a damaged block.
    let max = block.len() / 8 + 1;
    let regions = data.regions().take(max + 1).inspect(|region| {
        if let Ok(DataRegion::Entry(entry)) = region {
            dir_entry(entry, geometry);
        }
    });
    assert!(regions.count() <= max);
    assert!(data.entries().count() <= max);
    for offset in [0, 8, 64, 65, block.len() / 2, block.len() - 1, block.len(), usize::MAX] {
        let _ = data.entry_at(offset);
    }
    data.best();
    let _ = data.audit();
    if let Some(leaf) = data.block_leaf {
        for entry in leaf.entries.iter().take(64) {
            let (_, offset) = entry.pointer().split(geometry);
            let _ = data.entry_at(offset);
            dir::leaf::find(leaf.entries, entry.hashval.get()).take(64).count();
        }
    }
}

fn dir_entry(entry: &DirEntry<'_>, geometry: &Geometry) {
    assert!(!entry.name.is_empty() && entry.name.len() <= 255);
    entry.file_type();
    entry.pointer.split(geometry);
    format::hash::entry(entry.name, geometry);
    let _ = (entry.is_dot(), entry.is_dot_dot());
}

fn node(block: &mut [u8], tree: DaTree, geometry: &Geometry, at: ForkBlock) {
    stamp_index(block, dabtree::NODE_MAGIC, at);
    if let Ok(node) = DaNode::verify(block, geometry, tree, at, None) {
        let _ = node.audit();
        for hash in [0, 1, node.last_hash(), u32::MAX] {
            if let Some(index) = node.child_for(hash) {
                assert!(node.entries.get(index).is_some());
            }
        }
    }
}

/// A shortform directory.
pub fn dir_shortform(data: &[u8]) {
    let mut input = Input::new(data);
    let Some(geometry) = shape::geometry(&mut input) else { return };
    short_directory(input.rest(), &geometry);
}

/// Verifies and reads a shortform directory.
pub fn short_directory(bytes: &[u8], geometry: &Geometry) {
    let Ok(directory) = Shortform::verify(bytes, geometry) else { return };
    let entries =
        directory.entries().inspect(|entry| entry.iter().for_each(|entry| dir_entry(entry, geometry)));
    assert!(entries.count() <= bytes.len());
    let _ = directory.audit();
}

/// An attribute block: leaf, node or remote value.
pub fn attr_block(data: &[u8]) {
    let mut input = Input::new(data);
    let Some(geometry) = shape::geometry(&mut input) else { return };
    let at = block_identity(&geometry);
    let (kind, offset, length) = (input.u8() % 4, input.u32() % 65536, input.u32() % 65537);
    let mut block = input.block(geometry.block_size as usize);
    match kind {
        0 => node(&mut block, DaTree::Attr, &geometry, at),
        1 => {
            stamp_payload(&mut block, remote::MAGIC, at, offset);
            if let Ok(part) = remote::verify(&block, &geometry, at, offset, length) {
                assert!(part.len() <= remote::bytes_per_block(&geometry) as usize);
            }
            remote::block_count(length, &geometry);
        }
        _ => {
            stamp_index(&mut block, attr::leaf::MAGIC, at);
            attr_leaf(&block, &geometry, at);
        }
    }
}

fn attr_leaf(block: &[u8], geometry: &Geometry, at: ForkBlock) {
    let Ok(leaf) = AttrLeaf::verify(block, geometry, at) else { return };
    let count = leaf.attrs().inspect(|attr| attr.iter().for_each(|attr| attribute(attr, geometry))).count();
    assert!(count <= leaf.entries.len());
    for entry in leaf.entries.iter().take(64) {
        leaf.find(entry.hashval.get()).take(64).count();
    }
    leaf.last_hash();
    let _ = leaf.audit();
}

fn attribute(attr: &Attr<'_>, geometry: &Geometry) {
    attr.hash(geometry);
    attr.namespace.prefix();
    acl::linux_name(attr.namespace, attr.name);
    let _ = ParentPointer::verify(attr, geometry);
    if let AttrValue::Inline(value) = attr.value {
        assert_eq!(value.len(), attr.value.length());
        if let Ok(linux) = acl::to_linux(value) {
            assert!(linux.len() <= value.len());
        }
    }
}

/// Shortform attributes.
pub fn attr_shortform(data: &[u8]) {
    let mut input = Input::new(data);
    let Some(geometry) = shape::geometry(&mut input) else { return };
    short_attributes(input.rest(), &geometry);
}

/// Verifies and reads shortform attributes.
pub fn short_attributes(bytes: &[u8], geometry: &Geometry) {
    let Ok(list) = AttrShortform::verify(bytes, geometry) else { return };
    let entries = list.entries().inspect(|attr| attr.iter().for_each(|attr| attribute(attr, geometry)));
    assert!(entries.count() <= bytes.len());
    let _ = list.audit();
}

/// A remote symlink target, an ACL, or a quota record.
pub fn payloads(data: &[u8]) {
    let mut input = Input::new(data);
    let Some(geometry) = shape::geometry(&mut input) else { return };
    let at = block_identity(&geometry);
    match input.u8() % 3 {
        0 => {
            let (offset, length) = (input.u32() % 1100, input.u32() % 1100);
            let blocks = 1 + usize::from(input.u8() % 3);
            let mut run = input.block(geometry.block_size as usize * blocks);
            stamp_payload(&mut run, symlink::MAGIC, at, offset);
            if let Ok(target) = symlink::verify(&run, &geometry, at, offset, length) {
                assert!(target.len() <= run.len());
                let _ = symlink::verify_target(target);
            }
            symlink::block_count(length, &geometry);
        }
        1 => {
            let _ = acl::to_linux(input.rest());
        }
        _ => {
            let (id, kind) = (u32::from(input.u16()), 1 << (input.u8() % 3));
            let mut record = input.block(136);
            let id_bytes = id.to_be_bytes();
            stamp::fields(&mut record, &[(0, b"DQ\x01"), (4, &id_bytes), (120, &UUID)], dquot::CRC_OFFSET);
            let _ = dquot::verify(&record, &geometry, id, kind);
            dquot::first_id(FileBlock(u64::from(id) << 32), &geometry);
        }
    }
}
