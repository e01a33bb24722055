//! Inodes by number, and their metadata.

use base::{AgBlock, AgNumber, Ino, errno};
use format::inode::{
    Dinode, FileType, Fork, ForkKind, InodeTimes, RawInode, device_numbers, flags, permissions,
};
use format::{Geometry, Place};

use crate::error::{Error, Result};
use crate::volume::Volume;

/// A verified inode that owns its bytes.
#[derive(Clone, Debug)]
pub struct Inode {
    core: RawInode,
    literal: Box<[u8]>,
}

impl Inode {
    /// The parsed inode.
    pub fn dinode(&self) -> Dinode<'_> {
        Dinode::from_parts(&self.core, &self.literal)
    }

    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.dinode().ino()
    }
}

impl From<Dinode<'_>> for Inode {
    fn from(inode: Dinode<'_>) -> Self {
        let (core, literal) = inode.parts();
        Self { core: *core, literal: literal.into() }
    }
}

/// Verifies the bytes of an inode in use.
pub(crate) fn verify<'a>(bytes: &'a [u8], geometry: &Geometry, ino: Ino) -> Result<Dinode<'a>> {
    let inode =
        Dinode::verify(bytes, geometry, ino).map_err(|damage| Error::damaged(Place::ino(ino), damage))?;
    if inode.is_free() {
        return Err(Error::NoSuchInode(ino));
    }
    Ok(inode)
}

/// Reads many inodes, one chunk of blocks at a time.
pub struct InodeReader<'v> {
    volume: &'v Volume,
    /// The contents of `count` blocks from `first`.
    bytes: Vec<u8>,
    ag: AgNumber,
    first: AgBlock,
    count: u32,
}

impl<'v> InodeReader<'v> {
    pub(crate) fn new(volume: &'v Volume) -> Self {
        Self { volume, bytes: Vec::new(), ag: AgNumber(0), first: AgBlock(0), count: 0 }
    }

    /// An inode in use. It is valid until the next call.
    pub fn get(&mut self, ino: Ino) -> Result<Dinode<'_>> {
        let geometry = self.volume.geometry();
        let (ag, ag_ino) = geometry.split_ino(ino).ok_or(Error::NoSuchInode(ino))?;
        let block = geometry.ag_ino_block(ag_ino);
        if ag != self.ag || block < self.first || block.get() - self.first.get() >= self.count {
            self.fill(ag, block)?;
        }
        let block_offset = ((block.get() - self.first.get()) as usize) << geometry.block_log;
        let offset = block_offset + geometry.ino_offset_in_block(ag_ino);
        verify(self.bytes.get(offset..).unwrap_or(&[]), geometry, ino)
    }

    /// Reads the chunk of blocks that contains `block`, up to the end of the AG.
    fn fill(&mut self, ag: AgNumber, block: AgBlock) -> Result<()> {
        let geometry = self.volume.geometry();
        let per_chunk = geometry.blocks_per_chunk();
        let first = AgBlock(block.get() - block.get() % per_chunk);
        let count = per_chunk.min(geometry.ag_length(ag) - first.get());
        self.count = 0;
        self.bytes.resize((count as usize) << geometry.block_log, 0);
        self.volume.read_ag_block(ag, first, &mut self.bytes)?;
        (self.ag, self.first, self.count) = (ag, first, count);
        Ok(())
    }
}

/// Metadata of an inode, as `stat` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Inode number.
    pub ino: Ino,
    /// Generation: distinguishes reuses of one inode number.
    pub generation: u32,
    /// File type.
    pub file_type: FileType,
    /// Permission bits, including set-user-ID, set-group-ID and sticky.
    pub permissions: u16,
    /// Number of hard links.
    pub links: u32,
    /// User ID of the owner.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// Project ID.
    pub project: u32,
    /// Size in bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes, including the B+trees of the forks.
    pub sectors: u64,
    /// Major and minor number of a device file, else zeros.
    pub device: (u32, u32),
    /// atime, mtime, ctime and crtime.
    pub times: InodeTimes,
    /// Flags as `FS_IOC_FSGETXATTR` reports them.
    pub xflags: u32,
}

impl Metadata {
    /// Metadata of a verified inode.
    pub fn of(inode: &Dinode<'_>, geometry: &Geometry) -> Result<Self> {
        let core = inode.core;
        let file_type = inode.file_type().ok_or(Error::NoSuchInode(inode.ino()))?;
        let device = match file_type {
            FileType::CharDevice | FileType::BlockDevice => match inode.fork(ForkKind::Data, geometry) {
                Ok(Some(Fork::Device(raw))) => device_numbers(raw),
                _ => (0, 0),
            },
            _ => (0, 0),
        };
        Ok(Self {
            ino: inode.ino(),
            generation: core.generation.get(),
            file_type,
            permissions: permissions(core.mode.get()),
            links: core.nlink.get(),
            uid: core.uid.get(),
            gid: core.gid.get(),
            project: inode.project(),
            size: core.size.get(),
            sectors: core.nblocks.get() << (geometry.block_log - 9),
            device,
            times: inode.times(),
            xflags: xflags(inode),
        })
    }
}

/// Translates on-disk flags to those of `FS_IOC_FSGETXATTR` (`linux/fs.h`): the low bits are the same, except two that
/// are not reported.
fn xflags(inode: &Dinode<'_>) -> u32 {
    use format::inode::flags2;
    const HAS_ATTR: u32 = 1 << 31;
    const DAX: u32 = 1 << 15;
    const COW_EXTENT_SIZE: u32 = 1 << 16;
    let low = u32::from(inode.core.flags.get() & !(flags::NEWRTBM | 1 << 15));
    let high = inode.core.flags2.get();
    let mut xflags = low;
    for (bit, flag) in [(flags2::DAX, DAX), (flags2::COWEXTSIZE, COW_EXTENT_SIZE)] {
        if high & bit != 0 {
            xflags |= flag;
        }
    }
    if inode.core.forkoff != 0 {
        xflags |= HAS_ATTR;
    }
    xflags
}

/// Refuses files whose contents are on a realtime device.
pub(crate) fn refuse_realtime(inode: &Dinode<'_>) -> Result<()> {
    if inode.core.flags.get() & flags::REALTIME != 0 {
        return Err(Error::unfit(
            errno::EOPNOTSUPP,
            format!("inode {}: its contents lie on a realtime device, which is not supported", inode.ino()),
        ));
    }
    Ok(())
}
