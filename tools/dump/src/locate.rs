//! Locates and reads the bytes of a structure, and gives the identity that it must have.

use base::{AgBlock, AgNumber, Daddr, FileBlock, FsBlock, Ino, errno};
use format::btree::BtreeBlockIdentity;
use format::inode::{Dinode, ForkKind};
use format::{ForkBlock, Geometry, Place};
use read::{Error, ExtentWalk, Result, Volume};

use crate::request::FileSelector;

/// The bytes of a structure, and their place.
#[derive(Clone, Debug)]
pub struct Located {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The place for messages.
    pub place: Place,
    /// Address of the first byte.
    pub daddr: Daddr,
}

/// Refuses an AG that does not exist.
pub fn check_ag(volume: &Volume, ag: AgNumber) -> Result<()> {
    let count = volume.geometry().ag_count();
    if ag.get() < count {
        return Ok(());
    }
    let last = count.saturating_sub(1);
    Err(Error::unfit(errno::EINVAL, format!("AG {ag}: the volume has AGs 0 to {last}")))
}

/// A header sector of an AG: 0 superblock, 1 AGF, 2 AGI, 3 AGFL.
pub fn header(volume: &Volume, ag: AgNumber, sector: u32) -> Result<Located> {
    check_ag(volume, ag)?;
    let daddr = volume.geometry().ag_header_daddr(ag, sector);
    Ok(Located { bytes: volume.read_ag_header(ag, sector)?, place: Place::ag(ag), daddr })
}

/// A block of an AG.
pub fn ag_block(volume: &Volume, ag: AgNumber, block: AgBlock) -> Result<Located> {
    check_ag(volume, ag)?;
    let geometry = volume.geometry();
    let length = geometry.ag_length(ag);
    if block.get() >= length {
        let message = format!("AG {ag}, block {block}: the AG has {length} blocks");
        return Err(Error::unfit(errno::EINVAL, message));
    }
    let mut bytes = vec![0; geometry.block_size as usize];
    volume.read_ag_block(ag, block, &mut bytes)?;
    Ok(Located { bytes, place: Place::block(ag, block), daddr: geometry.ag_block_daddr(ag, block) })
}

/// At most `max` bytes from a sector; fewer at the end of the volume.
pub fn sectors(volume: &Volume, daddr: Daddr, max: usize) -> Result<Located> {
    let end = volume.geometry().bytes().min(volume.device().size());
    let outside = || {
        let message = format!("sector {daddr}: the volume has {} sectors of 512 bytes", end >> 9);
        Error::unfit(errno::EINVAL, message)
    };
    let start = daddr.checked_bytes().filter(|start| *start < end).ok_or_else(outside)?;
    let mut bytes = vec![0; usize::try_from(end - start).unwrap_or(max).min(max)];
    volume.device().read_at(start, &mut bytes)?;
    let place = match volume.geometry().split_daddr(daddr) {
        Some((ag, block)) => Place { daddr: Some(daddr), ..Place::block(ag, block) },
        None => Place::daddr(daddr),
    };
    Ok(Located { bytes, place, daddr })
}

/// The identity of the btree block at a sector.
pub fn identity(geometry: &Geometry, daddr: Daddr, ino: Option<Ino>) -> BtreeBlockIdentity {
    let (ag, block) = geometry.split_daddr(daddr).unwrap_or_default();
    BtreeBlockIdentity { ag, block, ino }
}

/// The inode number of a file.
pub fn ino(volume: &Volume, file: &FileSelector) -> Result<Ino> {
    match file {
        FileSelector::Ino(ino) => Ok(*ino),
        FileSelector::Path(path) => Ok(read::resolve(volume, path, read::FinalSymlink::Keep)?.ino()),
    }
}

/// An inode, used or free, which is not verified.
pub fn inode(volume: &Volume, ino: Ino) -> Result<Located> {
    let geometry = volume.geometry();
    let (ag, ag_ino) = geometry.split_ino(ino).ok_or_else(|| {
        let message = format!("inode {ino}: no such number in a volume of {} blocks", geometry.blocks());
        Error::unfit(errno::ENOENT, message)
    })?;
    let block = ag_block(volume, ag, geometry.ag_ino_block(ag_ino))?;
    let offset = geometry.ino_offset_in_block(ag_ino);
    let end = offset + geometry.inode_size as usize;
    let bytes = block.bytes.get(offset..end).unwrap_or(&[]).to_vec();
    Ok(Located {
        bytes,
        place: block.place.of_inode(ino),
        daddr: Daddr(block.daddr.get() + (offset as u64 >> 9)),
    })
}

/// A view of an inode, which is not verified.
pub fn view<'a>(volume: &Volume, located: &'a Located) -> Result<Dinode<'a>> {
    Dinode::view(&located.bytes, volume.geometry())
        .ok_or_else(|| Error::unfit(errno::EFSCORRUPTED, format!("{}: truncated inode", located.place)))
}

/// Consecutive logical blocks of a fork.
pub struct ForkBlocks {
    /// The bytes of all blocks, and the place of the first.
    pub located: Located,
    /// The identity of the first block.
    pub at: ForkBlock,
}

/// `count` blocks of a fork from logical block `first`; fewer at a hole or the end of the fork.
pub fn fork_blocks(
    volume: &Volume,
    ino: Ino,
    kind: ForkKind,
    first: FileBlock,
    count: u32,
) -> Result<ForkBlocks> {
    let inode = inode(volume, ino)?;
    let view = view(volume, &inode)?;
    let geometry = volume.geometry();
    let mut bytes = Vec::new();
    let mut first_start = None;
    let (mut next, end) = (first, FileBlock(first.get().saturating_add(count.into())));
    for extent in ExtentWalk::new(volume, &view, kind, first)? {
        let extent = extent?;
        if extent.offset > next || next >= end {
            break;
        }
        let start = FsBlock(extent.start.get() + (next.get() - extent.offset.get()));
        let length = extent.end().min(end).get() - next.get();
        first_start.get_or_insert(start);
        let filled = bytes.len();
        bytes.resize(filled + ((length as usize) << geometry.block_log), 0);
        volume.read_blocks(start, bytes.get_mut(filled..).unwrap_or_default())?;
        next = FileBlock(next.get() + length);
    }
    let Some((ag, block)) = first_start.and_then(|start| geometry.split_fs_block(start)) else {
        let fork = if kind == ForkKind::Data { "data" } else { "attribute" };
        let message = format!("inode {ino}: block {first} of its {fork} fork is a hole, or after its end");
        return Err(Error::unfit(errno::EINVAL, message));
    };
    let daddr = geometry.ag_block_daddr(ag, block);
    let place = Place::block(ag, block).of_inode(ino).at(first);
    let at = ForkBlock { ino, file_block: first, daddr };
    Ok(ForkBlocks { located: Located { bytes, place, daddr }, at })
}
