//! Small valid volumes that the kernel made (`make-images`), with a list of their metadata blocks.

use std::io::Read;
use std::sync::{Arc, OnceLock};

use base::{AgBlock, Daddr, Ino};
use block::MemoryDevice;
use flate2::read::GzDecoder;
use format::log::BLOCK_BYTES;
use format::log::record::RecordHeader;
use format::superblock::Superblock;
use format::{Geometry, checksum};

/// A volume.
pub struct Image {
    /// Name in `make-images`.
    pub name: &'static str,
    /// Contents.
    pub bytes: Vec<u8>,
    /// Contents as a device.
    pub device: Arc<MemoryDevice>,
    /// Geometry.
    pub geometry: Geometry,
    /// Metadata blocks in the order of their offsets.
    pub blocks: Vec<MetadataBlock>,
    /// Log records.
    pub records: Vec<MetadataBlock>,
}

/// A metadata block, inode or log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataBlock {
    /// Offset on the volume in bytes.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
    /// Checksum.
    pub protection: Protection,
    /// Inode number of the inode or owner.
    pub ino: Option<Ino>,
}

/// How a metadata block is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// CRC32C of the block, at this offset.
    Crc(usize),
    /// Checksum of a log record; zero means none.
    Record,
}

impl Protection {
    /// Makes damaged bytes pass verification.
    pub fn repair(self, bytes: &mut [u8]) {
        match self {
            Self::Crc(offset) => {
                checksum::store(bytes, offset);
            }
            Self::Record => {
                if let Some(field) = bytes.get_mut(32..36) {
                    field.fill(0);
                }
            }
        }
    }
}

macro_rules! images {
    ($($name:literal),*) => {
        const PACKED: &[(&str, &[u8])] = &[$(($name, include_bytes!(concat!("../images/", $name, ".xfs.gz")))),*];
    };
}
images!("bs1k", "parent", "old-dir64k", "dirty", "dirty-parent");

/// Number of volumes.
pub const COUNT: usize = PACKED.len();
/// Index of the first volume with a dirty log; all later ones are dirty, too.
pub const FIRST_DIRTY: usize = 3;

/// Returns a volume, which is unpacked and scanned at the first call.
pub fn image(index: usize) -> Option<&'static Image> {
    static IMAGES: [OnceLock<Option<Image>>; COUNT] = [const { OnceLock::new() }; COUNT];
    let (name, packed) = PACKED.get(index)?;
    IMAGES.get(index)?.get_or_init(|| Image::unpack(name, packed)).as_ref()
}

impl Image {
    fn unpack(name: &'static str, packed: &[u8]) -> Option<Self> {
        let mut bytes = Vec::new();
        GzDecoder::new(packed).read_to_end(&mut bytes).ok()?;
        let geometry = Superblock::parse(&bytes).ok()?.geometry;
        let blocks = Scan { bytes: &bytes, geometry: &geometry, blocks: Vec::new() }.run();
        let device = Arc::new(MemoryDevice::from_bytes(&bytes));
        let records = blocks.iter().copied().filter(|block| block.protection == Protection::Record).collect();
        Some(Self { name, bytes, device, geometry, blocks, records })
    }

    /// Bytes of a metadata block.
    pub fn block_bytes(&self, block: MetadataBlock) -> &[u8] {
        self.bytes.get(block.offset..block.offset + block.size).unwrap_or(&[])
    }
}

/// Scans for blocks with a magic number and a valid checksum.
struct Scan<'a> {
    bytes: &'a [u8],
    geometry: &'a Geometry,
    blocks: Vec<MetadataBlock>,
}

/// Metadata with a magic number at its start: magic, offsets of the checksum and of the owner.
const BY_MAGIC: &[(&[u8; 4], usize, Option<usize>)] = &[
    (b"XFSB", 224, None),
    (b"XAGF", 216, None),
    (b"XAGI", 312, None),
    (b"XAFL", 32, None),
    (b"AB3B", 52, None),
    (b"AB3C", 52, None),
    (b"IAB3", 52, None),
    (b"FIB3", 52, None),
    (b"RMB3", 52, None),
    (b"R3FC", 52, None),
    (b"BMA3", 64, Some(56)),
    (b"XDB3", 4, Some(40)),
    (b"XDD3", 4, Some(40)),
    (b"XDF3", 4, Some(40)),
    (b"XARM", 12, Some(32)),
    (b"XSLM", 12, Some(32)),
];

/// Magic numbers of hash tree blocks, at offset 8.
const BY_INDEX_MAGIC: &[[u8; 2]] = &[[0x3e, 0xbe], [0x3d, 0xf1], [0x3d, 0xff], [0x3b, 0xee]];

impl Scan<'_> {
    fn run(mut self) -> Vec<MetadataBlock> {
        let mut offset = 0;
        while offset < self.bytes.len() {
            let found = self.at(offset);
            self.blocks.extend(found);
            offset = found.map_or(offset + 512, |block| block.offset + block.size.max(512));
        }
        self.inodes();
        self.blocks.sort_by_key(|block| block.offset);
        self.blocks
    }

    fn at(&self, offset: usize) -> Option<MetadataBlock> {
        let here = self.bytes.get(offset..)?;
        let word = here.get(..4)?;
        if word == format::log::record::MAGIC.to_be_bytes() {
            return self.record(offset);
        }
        let by_magic =
            BY_MAGIC.iter().find(|(magic, ..)| word == *magic).map(|(_, crc, owner)| (*crc, *owner));
        let index = || BY_INDEX_MAGIC.iter().any(|magic| here.get(8..10) == Some(magic));
        let (crc, owner) = by_magic.or_else(|| index().then_some((12, Some(48))))?;
        let Geometry { sector_size, block_size, dir_block_size, .. } = *self.geometry;
        // The size is the one with a valid checksum: the size of hash tree blocks depends on the tree.
        let size = [sector_size, block_size, dir_block_size].into_iter().find(|size| {
            here.get(..*size as usize).is_some_and(|bytes| checksum::verify("", bytes, crc).is_ok())
        })?;
        let ino = owner
            .and_then(|at| here.get(at..at + 8)?.try_into().ok())
            .map(|raw| Ino(u64::from_be_bytes(raw)));
        Some(MetadataBlock { offset, size: size as usize, protection: Protection::Crc(crc), ino })
    }

    fn record(&self, offset: usize) -> Option<MetadataBlock> {
        let start = self.geometry.fs_block_offset(self.geometry.log_start?)? as usize;
        let at = u32::try_from(offset.checked_sub(start)? / BLOCK_BYTES).ok()?;
        let header = RecordHeader::parse(self.bytes.get(offset..)?, at).ok()?;
        let size = header.blocks() as usize * BLOCK_BYTES;
        self.bytes.get(offset..offset + size)?;
        Some(MetadataBlock { offset, size, protection: Protection::Record, ino: None })
    }

    /// Inodes, which may be smaller than sectors; other metadata never shares their blocks.
    fn inodes(&mut self) {
        let (size, known) = (self.geometry.inode_size as usize, self.blocks.clone());
        for (n, slot) in self.bytes.chunks_exact(size).enumerate() {
            let offset = n * size;
            let inside = known.partition_point(|block| block.offset <= offset);
            let taken =
                known.get(inside.wrapping_sub(1)).is_some_and(|block| offset < block.offset + block.size);
            if !taken
                && slot.starts_with(b"IN")
                && checksum::verify("", slot, format::inode::CRC_OFFSET).is_ok()
            {
                let ino = self.ino_at(offset);
                self.blocks.push(MetadataBlock {
                    offset,
                    size,
                    protection: Protection::Crc(format::inode::CRC_OFFSET),
                    ino,
                });
            }
        }
    }

    fn ino_at(&self, offset: usize) -> Option<Ino> {
        let (ag, block) = self.geometry.split_daddr(Daddr(offset as u64 >> 9))?;
        let within = offset & (self.geometry.block_size as usize - 1);
        let first = self.geometry.first_ag_ino(AgBlock(block.get()))?;
        Some(self.geometry.ino(ag, base::AgIno(first.get() + (within >> self.geometry.inode_log) as u32)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The images contain every kind of structure.
    #[test]
    fn every_kind_of_metadata_is_found() {
        let all = |magic: &[u8]| {
            (0..COUNT).map(|n| image(n).expect("an image")).any(|image| {
                image.blocks.iter().any(|block| {
                    let bytes = image.block_bytes(*block);
                    bytes.starts_with(magic) || bytes.get(8..10) == Some(magic)
                })
            })
        };
        for (magic, ..) in BY_MAGIC {
            assert!(all(&magic[..]), "{}", magic.escape_ascii());
        }
        for magic in BY_INDEX_MAGIC {
            assert!(all(magic), "{magic:02x?}");
        }
        for n in 0..COUNT {
            let image = image(n).expect("an image");
            let inodes = image.blocks.iter().filter(|block| image.block_bytes(**block).starts_with(b"IN"));
            assert!(inodes.count() >= 64, "{}", image.name);
            assert!(!image.records.is_empty(), "{}", image.name);
        }
    }
}
