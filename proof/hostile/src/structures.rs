//! Targets for structures of one block or less. A structure that verifies is then used.

use base::{AgBlock, AgNumber, Ino};
use format::Geometry;
use format::agf::RawAgf;
use format::agfl::Agfl;
use format::agi::RawAgi;
use format::btree::{
    BmBt, BnoBt, Btree, BtreeBlock, BtreeBlockBody, BtreeBlockIdentity, BtreeHeader, BtreePointer, CntBt,
    FinoBt, InoBt, RefcountBt, RmapBt,
};
use format::extent::{Extent, RawExtent};
use format::inode::{self, Dinode, FileType, Fork, ForkKind};
use format::ondisk::OnDisk;
use format::superblock::{CRC_OFFSET, Superblock};

use crate::input::Input;
use crate::names;
use crate::shape::{self, UUID};
use crate::stamp;

/// A valid superblock with some bytes replaced, and its geometry.
pub fn superblock(data: &[u8]) {
    let mut input = Input::new(data);
    let mut sector = shape::superblock(&mut input);
    while !input.is_empty() {
        let offset = input.below(sector.len());
        let length = usize::from(input.u8() % 9);
        stamp::put(&mut sector, offset, input.bytes(length));
    }
    // The sector size, which the checksum covers, may have been replaced.
    let covered = usize::from(u16::from_be_bytes([sector[102], sector[103]])).min(sector.len());
    if let Some(whole) = sector.get_mut(..covered) {
        format::checksum::store(whole, CRC_OFFSET);
    }
    if let Ok(superblock) = Superblock::parse(&sector) {
        probe(&superblock.geometry);
        assert!(superblock.raw.label().len() <= 12);
        assert_eq!(superblock.raw.uuid_text().to_string().len(), 36);
    }
}

/// Converts boundary values by a geometry.
fn probe(geometry: &Geometry) {
    let edges = [
        0,
        1,
        63,
        64,
        geometry.blocks() - 1,
        geometry.blocks(),
        u64::from(u32::MAX),
        u64::MAX >> 1,
        u64::MAX,
    ];
    for edge in edges {
        let block = base::FsBlock(edge);
        if let Some((ag, within)) = geometry.split_fs_block(block) {
            assert_eq!(geometry.fs_block(ag, within), block);
            assert!(geometry.ag_block_offset(ag, within) < geometry.bytes());
        }
        geometry.fs_block_range_is_valid(block, edge);
        geometry.fs_block_offset(block);
        if let Some((ag, within)) = geometry.split_ino(Ino(edge)) {
            assert_eq!(geometry.ino(ag, within), Ino(edge));
            assert!(geometry.ino_offset_in_block(within) < geometry.block_size as usize);
        }
        geometry.ino_is_valid(Ino(edge));
        geometry.split_daddr(base::Daddr(edge));
        let ag = AgNumber(edge as u32);
        geometry.ag_length(ag);
        geometry.ag_block_is_usable(ag, AgBlock((edge >> 32) as u32));
        geometry.first_ag_ino(AgBlock(edge as u32));
    }
    let lengths: u64 = geometry.ags().take(1024).map(|ag| u64::from(geometry.ag_length(ag))).sum();
    assert!(geometry.ag_count() > 1024 || lengths == geometry.blocks());
}

/// The shape, the AG, and the sector of one of an AG's headers, whose first fields are right.
fn header_sector(data: &[u8], magic: &[u8; 4]) -> Option<(Geometry, AgNumber, Vec<u8>)> {
    let mut input = Input::new(data);
    let geometry = shape::geometry(&mut input)?;
    let ag = AgNumber(u32::from(input.u8()) % geometry.ag_count());
    let mut sector = input.block(geometry.sector_size as usize);
    stamp::put(&mut sector, 0, magic);
    Some((geometry, ag, sector))
}

/// Stamps what an AGF and an AGI have in common: version, AG, length.
fn stamp_counted(sector: &mut [u8], geometry: &Geometry, ag: AgNumber, uuid: usize, crc: usize) {
    let (seqno, length) = (ag.get().to_be_bytes(), geometry.ag_length(ag).to_be_bytes());
    stamp::fields(sector, &[(4, &[0, 0, 0, 1]), (8, &seqno), (12, &length), (uuid, &UUID)], crc);
}

/// An AGF.
pub fn agf(data: &[u8]) {
    let Some((geometry, ag, mut sector)) = header_sector(data, b"XAGF") else { return };
    stamp_counted(&mut sector, &geometry, ag, 64, 216);
    let Ok(agf) = RawAgf::verify(&sector, &geometry, ag) else { return };
    let mut list = vec![0xff; geometry.sector_size as usize];
    stamp_agfl(&mut list, ag);
    if let Ok(agfl) = Agfl::verify(&list, &geometry, ag) {
        assert_eq!(agfl.blocks(agf).count(), agf.flcount.get() as usize);
    }
}

/// An AGI.
pub fn agi(data: &[u8]) {
    let Some((geometry, ag, mut sector)) = header_sector(data, b"XAGI") else { return };
    stamp_counted(&mut sector, &geometry, ag, 296, 312);
    let _ = RawAgi::verify(&sector, &geometry, ag);
}

fn stamp_agfl(sector: &mut [u8], ag: AgNumber) {
    stamp::fields(sector, &[(0, b"XAFL"), (4, &ag.get().to_be_bytes()), (8, &UUID)], 32);
}

/// An AGFL, with an AGF whose indexes the input chooses.
pub fn agfl(data: &[u8]) {
    let Some((geometry, ag, mut sector)) = header_sector(data, b"XAFL") else { return };
    stamp_agfl(&mut sector, ag);
    let Ok(agfl) = Agfl::verify(&sector, &geometry, ag) else { return };
    for block in agfl.slots {
        geometry.ag_block_is_usable(ag, AgBlock(block.get()));
    }
    // The same bytes as an AGF: iteration by an unverified AGF must end.
    if let Some(agf) = RawAgf::view(&sector) {
        let count = agfl.blocks(agf).take(4096).count();
        assert!(count <= 4096);
    }
}

/// A block of any of the seven btrees.
pub fn btree(data: &[u8]) {
    let mut input = Input::new(data);
    let Some(geometry) = shape::geometry(&mut input) else { return };
    match input.u8() % 7 {
        0 => block_of::<BnoBt>(input, &geometry),
        1 => block_of::<CntBt>(input, &geometry),
        2 => block_of::<InoBt>(input, &geometry),
        3 => block_of::<FinoBt>(input, &geometry),
        4 => block_of::<RmapBt>(input, &geometry),
        5 => block_of::<RefcountBt>(input, &geometry),
        _ => block_of::<BmBt>(input, &geometry),
    }
}

fn block_of<T: Btree>(mut input: Input<'_>, geometry: &Geometry) {
    let ag = AgNumber(u32::from(input.u8()) % geometry.ag_count());
    let block = AgBlock(u32::from(input.u16()) % geometry.ag_length(ag));
    let long = T::Header::SIZE == 72;
    let ino = long.then(|| geometry.ino(ag, base::AgIno(block.get())));
    let level = u16::from(input.u8() % 3);
    let mut bytes = input.block(geometry.block_size as usize);
    let daddr = (geometry.ag_block_offset(ag, block) >> 9).to_be_bytes();
    let (magic, level_bytes) = (T::MAGIC.to_be_bytes(), level.to_be_bytes());
    let (short_owner, long_owner) = (ag.get().to_be_bytes(), ino.map_or(0, Ino::get).to_be_bytes());
    let (at, owner): ([usize; 3], &[u8]) =
        if long { ([24, 40, 56], &long_owner) } else { ([16, 32, 48], &short_owner) };
    let identity = [(0, &magic[..]), (4, &level_bytes), (at[0], &daddr), (at[1], &UUID), (at[2], owner)];
    stamp::fields(&mut bytes, &identity, T::Header::CRC_OFFSET);
    let identity = BtreeBlockIdentity { ag, block, ino };
    let Ok(verified) = BtreeBlock::<T>::verify(&bytes, geometry, identity, level) else { return };
    verified.header.siblings();
    match verified.body {
        BtreeBlockBody::Leaf(records) => {
            assert!(records.len() <= T::max_records(geometry));
            for (left, right) in records.iter().zip(records.iter().skip(1)) {
                T::in_order(left, right);
            }
        }
        BtreeBlockBody::Node(keys, pointers) => {
            assert_eq!(keys.len(), pointers.len());
            for (left, right) in keys.iter().zip(keys.iter().skip(1)) {
                T::keys_in_order(left, right);
            }
            for pointer in pointers {
                pointer.locate(geometry, ino.is_none().then_some(ag));
            }
        }
    }
}

/// An on-disk inode with its forks.
pub fn inode(data: &[u8]) {
    let mut input = Input::new(data);
    let Some(geometry) = shape::geometry(&mut input) else { return };
    let ino = geometry.root;
    let mut slot = input.block(geometry.inode_size as usize);
    let number = ino.get().to_be_bytes();
    stamp::fields(&mut slot, &[(0, b"IN"), (4, &[3]), (152, &number), (160, &UUID)], inode::CRC_OFFSET);
    let Ok(dinode) = Dinode::verify(&slot, &geometry, ino) else { return };
    dinode.times();
    dinode.project();
    for kind in [ForkKind::Data, ForkKind::Attr] {
        dinode.extent_count(kind);
        match dinode.fork(kind, &geometry) {
            Ok(Some(Fork::Extents(extents))) => extents.iter().for_each(|raw| extent(raw, &geometry)),
            Ok(Some(Fork::Btree(root))) => {
                assert!(root.level > 0 && root.keys.len() == root.pointers.len());
                for pointer in root.pointers {
                    pointer.locate(&geometry, None);
                }
            }
            Ok(Some(Fork::Local(bytes))) if kind == ForkKind::Attr => {
                names::short_attributes(bytes, &geometry)
            }
            Ok(Some(Fork::Local(bytes))) if dinode.file_type() == Some(FileType::Directory) => {
                names::short_directory(bytes, &geometry);
            }
            _ => {}
        }
    }
}

fn extent(raw: &RawExtent, geometry: &Geometry) {
    let extent = Extent::decode(raw);
    let again = Extent::decode(&extent.encode());
    assert_eq!(again, extent);
    if extent.verify(geometry).is_ok() {
        assert!(geometry.fs_block_offset(extent.start).is_some());
    }
}
