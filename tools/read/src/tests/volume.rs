//! Builds a volume in memory: one AG of 4096 blocks of 1 KiB, inodes of 512 bytes from block 32 (the root is inode 64),
//! directory blocks of 2 KiB. It contains only what a test writes, and no btrees of free space or inodes.

use std::sync::{Arc, Mutex};

use base::{FileBlock, FsBlock};
use block::{Device, Durability, MemoryDevice};
use format::checksum;
use format::dir::data::{DATA_MAGIC, FREE_TAG, HEADER_SIZE};
use format::dir::{DirHeader, DirSpace};
use format::extent::Extent;
use format::inode::RawInode;
use format::ondisk::{Field, OnDisk};
use format::superblock::RawSuperblock;
use format::{Geometry, dabtree, features};

use crate::Volume;

pub(crate) const UUID: [u8; 16] = *b"made by hand....";
pub(crate) const ROOT: u64 = 64;
const BLOCK: usize = 1024;
pub(crate) const DIR: u16 = 0o040_755;
pub(crate) const FILE: u16 = 0o100_644;
pub(crate) const LINK: u16 = 0o120_777;

/// Sets a field by its name, big-endian.
pub(crate) fn set(bytes: &mut [u8], fields: &[Field], name: &str, value: u64) {
    let field = fields.iter().find(|field| field.name == name).expect("a field of that name");
    bytes[field.offset..field.offset + field.size].copy_from_slice(&value.to_be_bytes()[8 - field.size..]);
}

fn set_bytes(bytes: &mut [u8], fields: &[Field], name: &str, value: &[u8]) {
    let field = fields.iter().find(|field| field.name == name).expect("a field of that name");
    bytes[field.offset..field.offset + field.size].copy_from_slice(value);
}

/// A structure with a checksum.
#[derive(Clone)]
pub(crate) struct Structure {
    pub offset: u64,
    pub bytes: Vec<u8>,
    pub crc_offset: usize,
}

/// Builds the volume.
pub(crate) struct VolumeBuilder {
    device: Arc<MemoryDevice>,
    pub structures: Mutex<Vec<Structure>>,
    geometry: Geometry,
}

/// An attribute fork.
pub(crate) struct AttrFork {
    pub format: u8,
    pub extents: u16,
    pub bytes: Vec<u8>,
}

impl VolumeBuilder {
    pub(crate) fn new() -> Self {
        let device = Arc::new(MemoryDevice::new(4096 * BLOCK as u64));
        let mut sb = vec![0; 512];
        let f = RawSuperblock::FIELDS;
        for (name, value) in [
            ("magicnum", u64::from(format::superblock::MAGIC)),
            ("blocksize", 1024),
            ("dblocks", 4096),
            ("rootino", ROOT),
            ("agblocks", 4096),
            ("agcount", 1),
            ("logblocks", 1024),
            ("logstart", 2048),
            ("versionnum", 0xb4a5),
            ("sectsize", 512),
            ("inodesize", 512),
            ("inopblock", 2),
            ("blocklog", 10),
            ("sectlog", 9),
            ("inodelog", 9),
            ("inopblog", 1),
            ("agblklog", 12),
            ("dirblklog", 1),
            ("features_incompat", features::incompat::FTYPE.into()),
        ] {
            set(&mut sb, f, name, value);
        }
        set_bytes(&mut sb, f, "uuid", &UUID);
        checksum::store(&mut sb, format::superblock::CRC_OFFSET);
        device.write_at(0, &sb, Durability::Buffered).expect("room");
        let geometry =
            Volume::open(Arc::clone(&device) as Arc<dyn Device>).expect("a volume").geometry().clone();
        Self { device, structures: Mutex::default(), geometry }
    }

    pub(crate) fn volume(&self) -> Volume {
        Volume::open(Arc::clone(&self.device) as Arc<dyn Device>).expect("a volume")
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Writes a structure with a correct checksum.
    pub(crate) fn put(&self, mut structure: Structure) {
        checksum::store(&mut structure.bytes, structure.crc_offset);
        self.device.write_at(structure.offset, &structure.bytes, Durability::Buffered).expect("room");
        self.structures.lock().expect("a lock").push(structure);
    }

    /// Writes one or more blocks at a disk block.
    pub(crate) fn block(&self, block: u64, bytes: Vec<u8>, crc_offset: usize) {
        self.put(Structure { offset: block * BLOCK as u64, bytes, crc_offset });
    }

    /// Writes an inode in format 1 (local) or 2 (extents).
    pub(crate) fn inode(
        &self,
        ino: u64,
        mode: u16,
        (format, size, extents): (u8, u64, u64),
        data: &[u8],
        attr: Option<AttrFork>,
    ) {
        let mut bytes = vec![0; 512];
        let f = RawInode::FIELDS;
        for (name, value) in [
            ("magic", u64::from(format::inode::MAGIC)),
            ("mode", mode.into()),
            ("version", 3),
            ("format", format.into()),
            ("nlinkv2", 1),
            ("size", size),
            ("nextents", extents),
            ("aformat", 2),
            ("inumber", ino),
        ] {
            set(&mut bytes, f, name, value);
        }
        set_bytes(&mut bytes, f, "uuid", &UUID);
        bytes[176..176 + data.len()].copy_from_slice(data);
        if let Some(attr) = attr {
            let at = 128;
            assert!(data.len() <= at);
            set(&mut bytes, f, "forkoff", at as u64 / 8);
            set(&mut bytes, f, "aformat", attr.format.into());
            set(&mut bytes, f, "naextents", attr.extents.into());
            bytes[176 + at..176 + at + attr.bytes.len()].copy_from_slice(&attr.bytes);
        }
        self.put(Structure { offset: ino * 512, bytes, crc_offset: format::inode::CRC_OFFSET });
    }

    pub(crate) fn symlink(&self, ino: u64, target: &[u8]) {
        self.inode(ino, LINK, (1, target.len() as u64, 0), target, None);
    }

    /// Writes a shortform directory. Entries are name, file type and inode number.
    pub(crate) fn shortform(&self, ino: u64, parent: u64, entries: &[(&[u8], u8, u64)]) {
        let mut bytes = vec![entries.len() as u8, 0];
        bytes.extend((parent as u32).to_be_bytes());
        for (n, (name, ftype, ino)) in entries.iter().enumerate() {
            bytes.push(name.len() as u8);
            bytes.extend((96 + n as u16 * 24).to_be_bytes());
            bytes.extend_from_slice(name);
            bytes.push(*ftype);
            bytes.extend((*ino as u32).to_be_bytes());
        }
        self.inode(ino, DIR, (1, bytes.len() as u64, 0), &bytes, None);
    }

    /// Writes a directory data block (`XDD3`) at a disk block. Returns the address of each entry.
    pub(crate) fn dir_data(
        &self,
        owner: u64,
        file_block: u64,
        block: u64,
        entries: &[(&[u8], u8, u64)],
    ) -> Vec<u32> {
        let size = self.geometry.dir_block_size as usize;
        let mut bytes = vec![0; size];
        self.dir_header(&mut bytes, DATA_MAGIC, owner, block);
        let mut at = HEADER_SIZE;
        let mut addresses = Vec::new();
        for (name, ftype, ino) in entries {
            let end = at + format::dir::entry_size(name.len(), &self.geometry);
            bytes[at..at + 8].copy_from_slice(&ino.to_be_bytes());
            bytes[at + 8] = name.len() as u8;
            bytes[at + 9..at + 9 + name.len()].copy_from_slice(name);
            bytes[at + 9 + name.len()] = *ftype;
            bytes[end - 2..end].copy_from_slice(&(at as u16).to_be_bytes());
            addresses.push(((file_block * BLOCK as u64) as usize + at) as u32 / 8);
            at = end;
        }
        bytes[at..at + 2].copy_from_slice(&FREE_TAG.to_be_bytes());
        bytes[at + 2..at + 4].copy_from_slice(&((size - at) as u16).to_be_bytes());
        bytes[size - 2..].copy_from_slice(&(at as u16).to_be_bytes());
        bytes[48..50].copy_from_slice(&(at as u16).to_be_bytes());
        bytes[50..52].copy_from_slice(&((size - at) as u16).to_be_bytes());
        self.block(block, bytes, format::dir::CRC_OFFSET);
        addresses
    }

    fn dir_header(&self, bytes: &mut [u8], magic: u32, owner: u64, block: u64) {
        let f = DirHeader::FIELDS;
        set(bytes, f, "magic", magic.into());
        set(bytes, f, "bno", block * 2);
        set(bytes, f, "owner", owner);
        set_bytes(bytes, f, "uuid", &UUID);
    }

    /// Writes a block of a hash btree of `size` bytes. `rest` follows its header.
    pub(crate) fn tree_block(
        &self,
        size: usize,
        (magic, owner, block): (u16, u64, u64),
        (back, forw): (u64, u64),
        rest: &[u8],
    ) {
        let mut bytes = vec![0; size];
        let f = dabtree::BlkInfo::FIELDS;
        for (name, value) in
            [("forw", forw), ("back", back), ("magic", magic.into()), ("bno", block * 2), ("owner", owner)]
        {
            set(&mut bytes, f, name, value);
        }
        set_bytes(&mut bytes, f, "uuid", &UUID);
        bytes[56..56 + rest.len()].copy_from_slice(rest);
        self.block(block, bytes, dabtree::CRC_OFFSET);
    }
}

/// Encodes extents: logical block, disk block, count.
pub(crate) fn extents(list: &[(u64, u64, u64)]) -> Vec<u8> {
    list.iter()
        .flat_map(|(offset, start, count)| {
            let extent = Extent {
                offset: FileBlock(*offset),
                start: FsBlock(*start),
                count: *count,
                unwritten: false,
            };
            let raw = extent.encode();
            [raw.l0.get().to_be_bytes(), raw.l1.get().to_be_bytes()].concat()
        })
        .collect()
}

/// The part of a leaf or node after the common header: its counts, then pairs of numbers.
pub(crate) fn pairs(counts: (u16, u16), list: &[(u32, u32)]) -> Vec<u8> {
    let mut bytes = [counts.0.to_be_bytes(), counts.1.to_be_bytes()].concat();
    bytes.extend([0; 4]);
    for (left, right) in list {
        bytes.extend(left.to_be_bytes());
        bytes.extend(right.to_be_bytes());
    }
    bytes
}

/// The first logical block of a directory's leaves.
pub(crate) fn leaf_space(builder: &VolumeBuilder) -> u64 {
    DirSpace::Leaf.first_block(builder.geometry()).get()
}
