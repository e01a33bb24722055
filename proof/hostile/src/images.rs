//! The volumes that are damaged: small, healthy, made by the kernel (`make-images`), and a list of all metadata in
//! them.

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
    /// Its name in `make-images`.
    pub name: &'static str,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The same as a device.
    pub device: Arc<MemoryDevice>,
    /// Its shape.
    pub geometry: Geometry,
    /// Every piece of metadata, in the order of the disk.
    pub sites: Vec<Site>,
    /// Those of the log alone.
    pub records: Vec<Site>,
}

/// A piece of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Bytes from the start of the volume.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// How it is protected.
    pub seal: Seal,
    /// The inode that it is, or that owns it.
    pub ino: Option<Ino>,
}

/// How a piece of metadata is protected against accidents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// CRC32C of all of it, stored at this offset.
    Crc(usize),
    /// A log record's own, which may be missing: zero stands for none.
    Record,
}

impl Seal {
    /// Makes damaged bytes pass.
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

/// How many volumes there are.
pub const COUNT: usize = PACKED.len();
/// The first of them whose log is dirty; all behind it are, too.
pub const FIRST_DIRTY: usize = 3;

/// One of the volumes, unpacked and searched when it is first asked for.
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
        let sites = Scan { bytes: &bytes, geometry: &geometry, sites: Vec::new() }.run();
        let device = Arc::new(MemoryDevice::from_bytes(&bytes));
        let records = sites.iter().copied().filter(|site| site.seal == Seal::Record).collect();
        Some(Self { name, bytes, device, geometry, sites, records })
    }

    /// The bytes of a site.
    pub fn site_bytes(&self, site: Site) -> &[u8] {
        self.bytes.get(site.offset..site.offset + site.size).unwrap_or(&[])
    }
}

/// The search for everything that has a magic number and a checksum that holds.
struct Scan<'a> {
    bytes: &'a [u8],
    geometry: &'a Geometry,
    sites: Vec<Site>,
}

/// Metadata that is told by its first bytes: magic, where the checksum lies, where the owning inode.
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

/// Blocks of an index are told by two bytes at offset 8.
const BY_INDEX_MAGIC: &[[u8; 2]] = &[[0x3e, 0xbe], [0x3d, 0xf1], [0x3d, 0xff], [0x3b, 0xee]];

impl Scan<'_> {
    fn run(mut self) -> Vec<Site> {
        let mut offset = 0;
        while offset < self.bytes.len() {
            let found = self.at(offset);
            self.sites.extend(found);
            offset = found.map_or(offset + 512, |site| site.offset + site.size.max(512));
        }
        self.inodes();
        self.sites.sort_by_key(|site| site.offset);
        self.sites
    }

    fn at(&self, offset: usize) -> Option<Site> {
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
        // The size follows from the structure, but for index blocks; so of all the one whose checksum holds.
        let size = [sector_size, block_size, dir_block_size].into_iter().find(|size| {
            here.get(..*size as usize).is_some_and(|bytes| checksum::verify("", bytes, crc).is_ok())
        })?;
        let ino = owner
            .and_then(|at| here.get(at..at + 8)?.try_into().ok())
            .map(|raw| Ino(u64::from_be_bytes(raw)));
        Some(Site { offset, size: size as usize, seal: Seal::Crc(crc), ino })
    }

    fn record(&self, offset: usize) -> Option<Site> {
        let start = self.geometry.fs_block_offset(self.geometry.log_start?)? as usize;
        let at = u32::try_from(offset.checked_sub(start)? / BLOCK_BYTES).ok()?;
        let header = RecordHeader::parse(self.bytes.get(offset..)?, at).ok()?;
        let size = header.blocks() as usize * BLOCK_BYTES;
        self.bytes.get(offset..offset + size)?;
        Some(Site { offset, size, seal: Seal::Record, ino: None })
    }

    /// Inodes lie closer together than sectors in part of the shapes, and in blocks of their own in all.
    fn inodes(&mut self) {
        let (size, known) = (self.geometry.inode_size as usize, self.sites.clone());
        for (n, slot) in self.bytes.chunks_exact(size).enumerate() {
            let offset = n * size;
            let inside = known.partition_point(|site| site.offset <= offset);
            let taken =
                known.get(inside.wrapping_sub(1)).is_some_and(|site| offset < site.offset + site.size);
            if !taken
                && slot.starts_with(b"IN")
                && checksum::verify("", slot, format::inode::CRC_OFFSET).is_ok()
            {
                let ino = self.ino_at(offset);
                self.sites.push(Site { offset, size, seal: Seal::Crc(format::inode::CRC_OFFSET), ino });
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

    /// Each image must hold every kind of structure that it is there for, or its targets test less than they say.
    #[test]
    fn every_kind_of_metadata_is_found() {
        let all = |magic: &[u8]| {
            (0..COUNT).map(|n| image(n).expect("an image")).any(|image| {
                image.sites.iter().any(|site| {
                    let bytes = image.site_bytes(*site);
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
            let inodes = image.sites.iter().filter(|site| image.site_bytes(**site).starts_with(b"IN"));
            assert!(inodes.count() >= 64, "{}", image.name);
            assert!(!image.records.is_empty(), "{}", image.name);
        }
    }
}
