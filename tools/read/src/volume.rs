//! A volume that is open for reading.

use std::sync::Arc;

use base::{AgBlock, AgNumber, FsBlock, Ino};
use block::Device;
use format::superblock::{Superblock, SuperblockError};
use format::{Damage, Geometry, Place};

use crate::error::{Error, Result};
use crate::inode::{Inode, InodeReader};

/// A volume, shared by any number of threads.
#[derive(Clone)]
pub struct Volume {
    device: Arc<dyn Device>,
    superblock: Arc<Superblock>,
}

/// Maximum sector size in bytes.
const MAX_SECTOR: u64 = 32768;

impl Volume {
    /// Opens the volume at the start of a device: verifies the primary superblock, and that the device holds all blocks
    /// of the volume.
    ///
    /// The log is not read: to see a dirty volume as the kernel would show it, replay the log into an overlay first.
    pub fn open(device: Arc<dyn Device>) -> Result<Self> {
        let refuse = |reason| Error::Refused { device: device.describe(), reason };
        let mut sector = vec![0; device.size().min(MAX_SECTOR) as usize];
        device.read_at(0, &mut sector)?;
        if sector.len() < 512 {
            return Err(refuse(SuperblockError::NotXfs));
        }
        let superblock = Superblock::parse(&sector).map_err(refuse)?;
        let (need, have) = (superblock.geometry.bytes(), device.size());
        if have < need {
            return Err(Error::Truncated { device: device.describe(), need, have });
        }
        Ok(Self { device, superblock: Arc::new(superblock) })
    }

    /// Opens a volume to examine damage: the superblock's checksum is not verified, and the device may be shorter than
    /// the volume. The geometry must be valid.
    pub fn open_unverified(device: Arc<dyn Device>) -> Result<Self> {
        let mut sector = vec![0; device.size().min(MAX_SECTOR) as usize];
        device.read_at(0, &mut sector)?;
        let superblock = Superblock::parse_unchecked(&sector)
            .map_err(|reason| Error::Refused { device: device.describe(), reason })?;
        Ok(Self { device, superblock: Arc::new(superblock) })
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Geometry of the volume.
    pub fn geometry(&self) -> &Geometry {
        &self.superblock.geometry
    }

    /// Inode number of the root directory.
    pub fn root(&self) -> Ino {
        self.geometry().root
    }

    /// Reads one inode. To read many, [`Volume::inodes`] is faster.
    pub fn inode(&self, ino: Ino) -> Result<Inode> {
        let geometry = self.geometry();
        let (ag, ag_ino) = geometry.split_ino(ino).ok_or(Error::NoSuchInode(ino))?;
        let offset = geometry.ag_block_offset(ag, geometry.ag_ino_block(ag_ino))
            + geometry.ino_offset_in_block(ag_ino) as u64;
        let mut bytes = vec![0; geometry.inode_size as usize];
        self.device.read_at(offset, &mut bytes)?;
        Ok(Inode::from(crate::inode::verify(&bytes, geometry, ino)?))
    }

    /// A reader of many inodes, which reads whole chunks and keeps the last one.
    pub fn inodes(&self) -> InodeReader<'_> {
        InodeReader::new(self)
    }

    /// Reads contiguous blocks. `buf` holds whole blocks.
    pub fn read_blocks(&self, start: FsBlock, buf: &mut [u8]) -> Result<()> {
        let geometry = self.geometry();
        let count = (buf.len() as u64).div_ceil(u64::from(geometry.block_size));
        let offset = geometry
            .fs_block_offset(start)
            .filter(|_| geometry.fs_block_range_is_valid(start, count))
            .ok_or_else(|| {
                let found = format_args!("{start:#x} for {count} blocks").to_string();
                Error::damaged(
                    Place::default(),
                    Damage::new("block pointer", "startblock", "blocks within one AG", found),
                )
            })?;
        Ok(self.device.read_at(offset, buf)?)
    }

    /// Reads one block of an AG.
    pub fn read_ag_block(&self, ag: AgNumber, block: AgBlock, buf: &mut [u8]) -> Result<()> {
        self.read_blocks(self.geometry().fs_block(ag, block), buf)
    }

    /// Reads a header sector of an AG: 0 superblock, 1 AGF, 2 AGI, 3 AGFL.
    pub fn read_ag_header(&self, ag: AgNumber, sector: u32) -> Result<Vec<u8>> {
        let geometry = self.geometry();
        let mut bytes = vec![0; geometry.sector_size as usize];
        let offset =
            geometry.ag_block_offset(ag, AgBlock(0)) + u64::from(sector) * u64::from(geometry.sector_size);
        self.device.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }
}
