//! From the words of a request to bytes: where a structure lies, and who it should say that it is.

use base::{AgBlock, AgNumber, Daddr, FileBlock, FsBlock, Ino, errno};
use format::btree::BtreeBlockIdentity;
use format::extent::Extent;
use format::inode::{Dinode, ForkKind};
use format::{ForkBlock, Geometry, Place};
use read::{Error, ExtentWalk, Result, Volume};

use crate::request::File;

/// Bytes of a structure, and where they lie.
#[derive(Clone, Debug)]
pub struct Located {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Where they lie, in words that a person may follow.
    pub place: Place,
    /// Where they begin.
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

/// As many of `most` bytes from a sector on as the volume has.
pub fn sectors(volume: &Volume, daddr: Daddr, most: usize) -> Result<Located> {
    let end = volume.geometry().bytes().min(volume.device().size());
    let outside = || {
        let message = format!("sector {daddr}: the volume has {} sectors of 512 bytes", end >> 9);
        Error::unfit(errno::EINVAL, message)
    };
    let start = daddr.checked_bytes().filter(|start| *start < end).ok_or_else(outside)?;
    let mut bytes = vec![0; usize::try_from(end - start).unwrap_or(most).min(most)];
    volume.device().read_at(start, &mut bytes)?;
    let place = match volume.geometry().split_daddr(daddr) {
        Some((ag, block)) => Place { daddr: Some(daddr), ..Place::block(ag, block) },
        None => Place::daddr(daddr),
    };
    Ok(Located { bytes, place, daddr })
}

/// What a block of a tree should say of itself.
pub fn identity(geometry: &Geometry, daddr: Daddr, ino: Option<Ino>) -> BtreeBlockIdentity {
    let (ag, block) = geometry.split_daddr(daddr).unwrap_or_default();
    BtreeBlockIdentity { ag, block, ino }
}

/// The inode of a file.
pub fn ino(volume: &Volume, file: &File) -> Result<Ino> {
    match file {
        File::Ino(ino) => Ok(*ino),
        File::Path(path) => Ok(read::resolve(volume, path, read::Last::Keep)?.ino()),
    }
}

/// The slot of an inode, whatever it holds.
pub fn inode(volume: &Volume, ino: Ino) -> Result<Located> {
    let geometry = volume.geometry();
    let (ag, within) = geometry.split_ino(ino).ok_or_else(|| {
        let message =
            format!("inode {ino}: no such number can be in a volume of {} blocks", geometry.blocks());
        Error::unfit(errno::ENOENT, message)
    })?;
    let block = ag_block(volume, ag, geometry.ag_ino_block(within))?;
    let offset = geometry.ino_offset_in_block(within);
    let end = offset + geometry.inode_size as usize;
    let bytes = block.bytes.get(offset..end).unwrap_or(&[]).to_vec();
    Ok(Located {
        bytes,
        place: block.place.of_inode(ino),
        daddr: Daddr(block.daddr.get() + (offset as u64 >> 9)),
    })
}

/// A view of an inode's slot that nobody has verified.
pub fn view<'a>(volume: &Volume, located: &'a Located) -> Result<Dinode<'a>> {
    Dinode::view(&located.bytes, volume.geometry())
        .ok_or_else(|| Error::unfit(errno::EFSCORRUPTED, format!("{}: the slot is cut short", located.place)))
}

/// A logical block of a fork.
pub struct ForkPart {
    /// The bytes: of several blocks that need not lie together.
    pub located: Located,
    /// What the block should say of itself.
    pub at: ForkBlock,
}

/// `count` blocks of a fork from a logical block on; fewer where the fork ends or has a hole.
pub fn fork_blocks(
    volume: &Volume,
    ino: Ino,
    kind: ForkKind,
    from: FileBlock,
    count: u32,
) -> Result<ForkPart> {
    let inode = inode(volume, ino)?;
    let view = view(volume, &inode)?;
    let geometry = volume.geometry();
    let mut bytes = Vec::new();
    let mut first = None;
    let mut next = from;
    for extent in ExtentWalk::new(volume, &view, kind, from)? {
        let extent = extent?;
        let done = (bytes.len() >> geometry.block_log) as u64;
        if extent.offset > next || done >= u64::from(count) {
            break;
        }
        let (start, length) = rest_of(&extent, next, u64::from(count) - done);
        first.get_or_insert(start);
        let filled = bytes.len();
        bytes.resize(filled + ((length as usize) << geometry.block_log), 0);
        volume.read_blocks(start, bytes.get_mut(filled..).unwrap_or_default())?;
        next = FileBlock(next.get() + length);
    }
    let Some((ag, block)) = first.and_then(|start| geometry.split_fs_block(start)) else {
        let fork = if kind == ForkKind::Data { "data" } else { "attribute" };
        let message = format!("inode {ino}: block {from} of its {fork} fork is a hole, or behind its end");
        return Err(Error::unfit(errno::EINVAL, message));
    };
    let daddr = geometry.ag_block_daddr(ag, block);
    let place = Place::block(ag, block).of_inode(ino).at(from);
    Ok(ForkPart { located: Located { bytes, place, daddr }, at: ForkBlock { ino, file_block: from, daddr } })
}

/// The part of an extent from a logical block on, at most so many blocks: where it lies, and how long it is.
fn rest_of(extent: &Extent, from: FileBlock, most: u64) -> (FsBlock, u64) {
    let skip = from.get() - extent.offset.get().min(from.get());
    (FsBlock(extent.start.get() + skip), (extent.count - skip.min(extent.count)).min(most))
}
