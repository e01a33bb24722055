//! Structures that are selected by address. The magic number gives their type, and their own header the owner that the
//! verifier expects.

use base::{Daddr, FileBlock, Ino};
use block::Device;
use format::btree::LongHeader;
use format::dabtree::{self, BlkInfo};
use format::dir::data::{self, HEADER_SIZE};
use format::dir::free::{self, FreeHeader, max_bests};
use format::dir::{DirHeader, DirSpace};
use format::inode::ForkKind;
use format::ondisk::OnDisk;
use format::remote_block::RemoteBlockHeader;
use format::superblock::RawSuperblock;
use format::{ForkBlock, Geometry, Place};
use read::{ExtentWalk, Result, Volume};

use crate::dump::{Dump, inodes};
use crate::fields::{self, Source, big_endian};
use crate::locate::{self, Located};
use crate::request::{Request, Target};
use crate::structure::Structure;
use crate::types::Type;
use crate::{attr, btree, dir, dquot, headers, logblock};

/// Decodes the structure at a sector, as `as_type` if given. Bytes of unknown type are printed up to `raw_size`.
pub fn dump(volume: &Volume, daddr: Daddr, raw_size: usize, as_type: Option<Type>) -> Result<Dump> {
    let geometry = volume.geometry();
    let sector = locate::sectors(volume, daddr, 512)?;
    let kind = as_type.unwrap_or_else(|| detect(volume, &sector));
    let size = match kind {
        Type::Superblock | Type::Agf | Type::Agi | Type::Agfl => geometry.sector_size as usize,
        Type::Dir => geometry.dir_block_size as usize,
        Type::Inode => raw_size.max(geometry.inode_size as usize),
        Type::Raw | Type::Log => raw_size,
        _ => geometry.block_size as usize,
    };
    let located = locate::sectors(volume, daddr, size)?;
    let structure = match kind {
        Type::Inode => inodes(volume, &located),
        _ => decode(kind, &located, geometry),
    };
    Ok(located.dump(structure))
}

/// Detects the type by the magic number. Nodes of directories and attributes have the same one; they are told apart by
/// the fork that contains them.
fn detect(volume: &Volume, located: &Located) -> Type {
    let kind = Type::detect(&located.bytes);
    if kind == Type::Dir && dabtree::magic(&located.bytes) == Some(dabtree::NODE_MAGIC) {
        let owner = BlkInfo::view(&located.bytes).map_or(0, |info| info.owner.get());
        if is_in_attr_fork(volume, Ino(owner), located.daddr).unwrap_or(false) {
            return Type::Attr;
        }
    }
    kind
}

fn is_in_attr_fork(volume: &Volume, ino: Ino, daddr: Daddr) -> Result<bool> {
    let geometry = volume.geometry();
    let Some((ag, block)) = geometry.split_daddr(daddr) else { return Ok(false) };
    let block = geometry.fs_block(ag, block).get();
    let slot = locate::inode(volume, ino)?;
    let view = locate::view(volume, &slot)?;
    for extent in ExtentWalk::new(volume, &view, ForkKind::Attr, FileBlock(0))? {
        let extent = extent?;
        if (extent.start.get()..extent.start.get() + extent.count).contains(&block) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn decode(kind: Type, located: &Located, geometry: &Geometry) -> Structure {
    let bytes = located.bytes.as_slice();
    let ag = located.place.ag.unwrap_or_default();
    match kind {
        Type::Superblock if located.daddr == Daddr(0) => headers::superblock(bytes),
        Type::Superblock => headers::secondary(bytes, geometry),
        Type::Agf => headers::agf(bytes, geometry, ag),
        Type::Agi => headers::agi(bytes, geometry, ag),
        Type::Agfl => headers::agfl(bytes, geometry, ag),
        Type::Dir => dir::block(bytes, geometry, dir_identity(bytes, geometry, located.daddr)),
        Type::Attr => attr::block(bytes, geometry, own_identity(bytes, located.daddr)),
        Type::Symlink => attr::symlink_block(bytes, geometry, own_identity(bytes, located.daddr)),
        Type::Dquot => dquot::block(bytes, geometry),
        Type::Log => logblock::record(bytes, None),
        Type::Bmbt => {
            let owner = LongHeader::view(bytes).map(|header| Ino(header.owner.get()));
            let identity = locate::identity(geometry, located.daddr, owner);
            btree::block(kind, bytes, geometry, identity, None)
        }
        Type::Bnobt | Type::Cntbt | Type::Inobt | Type::Finobt | Type::Rmapbt | Type::Refcountbt => {
            let identity = locate::identity(geometry, located.daddr, None);
            btree::block(kind, bytes, geometry, identity, None)
        }
        Type::Inode | Type::Raw => headers::raw(bytes),
    }
}

/// The identity of a block of a fork, with the owner from its own header.
fn own_identity(bytes: &[u8], daddr: Daddr) -> ForkBlock {
    let owner = match Type::detect(bytes) {
        Type::Symlink => RemoteBlockHeader::view(bytes).map(|header| header.owner),
        Type::Attr
            if RemoteBlockHeader::view(bytes)
                .is_some_and(|raw| raw.magic.get() == format::attr::remote::MAGIC) =>
        {
            RemoteBlockHeader::view(bytes).map(|header| header.owner)
        }
        _ => BlkInfo::view(bytes).map(|info| info.owner),
    };
    ForkBlock { ino: Ino(owner.map_or(0, |owner| owner.get())), file_block: FileBlock(0), daddr }
}

/// The identity of a directory block. Its verifier also needs the logical block: the first data block is the one that
/// begins with `.`, and a free block says which data blocks it describes.
fn dir_identity(bytes: &[u8], geometry: &Geometry, daddr: Daddr) -> ForkBlock {
    let magic = DirHeader::view(bytes).map_or(0, |header| header.magic.get());
    if !matches!(magic, data::BLOCK_MAGIC | data::DATA_MAGIC | free::MAGIC) {
        return own_identity(bytes, daddr);
    }
    let owner = DirHeader::view(bytes).map_or(0, |header| header.owner.get());
    let blocks_per_dir_block = 1 << geometry.dir_block_log;
    let file_block = if magic == free::MAGIC {
        let first =
            bytes.get(DirHeader::SIZE..).and_then(FreeHeader::view).map_or(0, |raw| raw.firstdb.get());
        let index = u64::from(first) / max_bests(geometry).max(1) as u64;
        DirSpace::Free.first_block(geometry).get() + index * blocks_per_dir_block
    } else {
        let has_dot = bytes.get(HEADER_SIZE + 8..HEADER_SIZE + 10) == Some(b"\x01.");
        if magic == data::BLOCK_MAGIC || has_dot { 0 } else { blocks_per_dir_block }
    };
    ForkBlock { ino: Ino(owner), file_block: FileBlock(file_block), daddr }
}

/// Decodes a superblock or a sector of a device without a usable volume. Returns `None` for other requests.
pub fn without_volume(device: &dyn Device, request: &Request) -> Option<Result<Dump>> {
    let (daddr, size) = match request.target {
        Target::Superblock(ag) if ag.get() == 0 => (Daddr(0), 32768),
        Target::Daddr(daddr) => (daddr, 512),
        _ => return None,
    };
    let start = daddr.checked_bytes()?;
    let left = device.size().checked_sub(start).filter(|left| *left > 0)?;
    let mut bytes = vec![0; usize::try_from(left).unwrap_or(size).min(size)];
    if let Err(error) = device.read_at(start, &mut bytes) {
        return Some(Err(error.into()));
    }
    let as_superblock =
        matches!(request.target, Target::Superblock(_)) || request.as_type == Some(Type::Superblock);
    let structure = match Type::detect(&bytes) {
        Type::Superblock => headers::superblock(&bytes),
        _ if as_superblock => {
            let fields = fields::decode::<RawSuperblock>(Source::new(&bytes));
            Structure::new(Type::Superblock, fields).with_check(format::superblock::Superblock::parse(&bytes))
        }
        _ => headers::raw(bytes.get(..512).unwrap_or(&bytes)),
    };
    let located = Located { bytes, place: Place::daddr(daddr), daddr };
    Some(Ok(located.dump(structure)))
}

/// The magic number in the first four bytes.
pub fn magic(bytes: &[u8]) -> u32 {
    bytes.get(..4).map_or(0, |bytes| big_endian(bytes) as u32)
}
