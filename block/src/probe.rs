//! Names the contents of an image by magic numbers.
//!
//! This is used for messages, to find the partition with XFS and to detect containers. Nothing is parsed here.
//!
//! # Invariants
//! - Reads at most the first 260 KiB and the last 128 KiB of the device.
//! - The first match in [`SIGNATURES`] wins. So a file system comes before the boot sector that it may have, and XFS
//!   before a RAID superblock at the end of the device.

use std::fmt;

use crate::device::Device;
use crate::error::DeviceError;

/// The class of a device's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContentClass {
    /// An XFS file system.
    Xfs,
    /// The external log of an XFS file system.
    XfsLog,
    /// Another file system.
    FileSystem,
    /// A layer below file systems: LVM, RAID, encryption.
    Volume,
    /// Swap space.
    Swap,
    /// A partition table.
    PartitionTable,
    /// A qcow2 image: the only container that can be opened.
    Qcow2,
    /// Another disk image format.
    Container,
    /// A compressed file.
    Compressed,
    /// An archive, a dump, a backup.
    Archive,
    /// An empty file.
    Empty,
    /// Zeros, as far as examined.
    Zeros,
    /// Unknown contents.
    Unknown,
}

/// The contents of a device. `Display` gives a noun phrase: `an ext4 file system`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Content {
    /// The class.
    pub class: ContentClass,
    /// The name, with an article.
    pub name: &'static str,
}

impl Content {
    /// What a user who expected XFS can do; `None` for XFS.
    pub fn advice(&self) -> Option<&'static str> {
        match self.class {
            ContentClass::Xfs => None,
            ContentClass::XfsLog => Some("name the data device, and this one as its log"),
            ContentClass::FileSystem | ContentClass::Swap => Some("only XFS can be read here"),
            ContentClass::Volume => Some("assemble or unlock it first, then open the device that appears"),
            ContentClass::PartitionTable => Some("choose a partition with --partition N"),
            ContentClass::Qcow2 | ContentClass::Container => {
                Some("convert it with `qemu-img convert -O raw`")
            }
            ContentClass::Compressed => Some("decompress it first"),
            ContentClass::Archive => Some("unpack or restore it first"),
            ContentClass::Empty => Some("the file has no contents: was the copy complete?"),
            ContentClass::Zeros => Some("there is no file system in it, or its beginning was overwritten"),
            ContentClass::Unknown => Some("try --offset BYTES if a file system begins inside it"),
        }
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Bytes at the start and at the end of the device that are examined.
const HEAD: usize = 260 << 10;
const TAIL: usize = 128 << 10;

/// Both ends of a device. Anything outside them does not match.
struct Ends {
    size: u64,
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Ends {
    fn read(device: &dyn Device) -> Result<Self, DeviceError> {
        let size = device.size();
        let length = |limit: usize| size.min(limit as u64) as usize;
        let (mut head, mut tail) = (vec![0; length(HEAD)], vec![0; length(TAIL)]);
        device.read_at(0, &mut head)?;
        device.read_at(size - tail.len() as u64, &mut tail)?;
        Ok(Self { size, head, tail })
    }

    fn has(&self, offset: usize, magic: &[u8]) -> bool {
        self.head.get(offset..).is_some_and(|rest| rest.starts_with(magic))
    }

    fn byte(&self, offset: usize) -> u8 {
        self.head.get(offset).copied().unwrap_or(0)
    }

    /// `offset` counts from the start of the device and must lie in its last 128 KiB.
    fn has_in_tail(&self, offset: Option<u64>, magic: &[u8]) -> bool {
        let start = self.size - self.tail.len() as u64;
        offset
            .and_then(|offset| offset.checked_sub(start))
            .and_then(|index| self.tail.get(usize::try_from(index).ok()?..))
            .is_some_and(|rest| rest.starts_with(magic))
    }
}

/// How contents are recognised.
enum Signature {
    /// This magic at this offset.
    At(usize, &'static [u8]),
    /// This magic at any of these offsets.
    AtAny(&'static [usize], &'static [u8]),
    /// A condition.
    When(fn(&Ends) -> bool),
}

impl Signature {
    fn matches(&self, ends: &Ends) -> bool {
        match self {
            Self::At(offset, magic) => ends.has(*offset, magic),
            Self::AtAny(offsets, magic) => offsets.iter().any(|&offset| ends.has(offset, magic)),
            Self::When(test) => test(ends),
        }
    }
}

use ContentClass::{
    Archive, Compressed, Container, FileSystem, PartitionTable, Qcow2, Swap, Volume, Xfs, XfsLog,
};
use Signature::{At, AtAny, When};

/// The signature of swap space is at the end of the first page, whose size varies.
const SWAP_OFFSETS: &[usize] = &[4096 - 10, 8192 - 10, 16384 - 10, 65536 - 10];
const MD_MAGIC: &[u8] = &[0xfc, 0x4e, 0x2b, 0xa9];

/// In order of precedence.
const SIGNATURES: &[(ContentClass, &str, Signature)] = &[
    (Xfs, "an XFS file system", At(0, b"XFSB")),
    (XfsLog, "the external log of an XFS file system", At(0, &[0xfe, 0xed, 0xba, 0xbe])),
    // Containers, archives and compressed files, by their first bytes.
    (Qcow2, "a qcow2 image", When(is_qcow2)),
    (Container, "a qcow image of version 1", At(0, b"QFI\xfb")),
    (Container, "a VMDK image", At(0, b"KDMV")),
    (Container, "a VMDK image", At(0, b"COWD")),
    (Container, "a VMDK descriptor", At(0, b"# Disk DescriptorFile")),
    (Container, "a VDI image", At(0x40, &[0x7f, 0x10, 0xda, 0xbe])),
    (Container, "a VHDX image", At(0, b"vhdxfile")),
    (Container, "a VHD image", At(0, b"conectix")),
    (Container, "a QED image", At(0, b"QED\0")),
    (Container, "a Parallels image", At(0, b"WithoutFreeSpace")),
    (Archive, "an Android sparse image", At(0, &[0x3a, 0xff, 0x26, 0xed])),
    (Archive, "a dump of XFS metadata (xfs_metadump)", At(0, b"XFSM")),
    (Archive, "a dump of XFS metadata (xfs_metadump)", At(0, b"XMD2")),
    (Archive, "a backup of an XFS file system (xfsdump)", At(0, b"xFSdump0")),
    (Compressed, "gzip-compressed data", At(0, &[0x1f, 0x8b, 0x08])),
    (Compressed, "xz-compressed data", At(0, b"\xfd7zXZ\0")),
    (Compressed, "zstd-compressed data", At(0, &[0x28, 0xb5, 0x2f, 0xfd])),
    (Compressed, "bzip2-compressed data", When(is_bzip2)),
    (Compressed, "lz4-compressed data", At(0, &[0x04, 0x22, 0x4d, 0x18])),
    (Archive, "a zip archive", At(0, b"PK\x03\x04")),
    (Archive, "a 7z archive", At(0, b"7z\xbc\xaf\x27\x1c")),
    (Archive, "a tar archive", At(257, b"ustar")),
    (Archive, "a cpio archive", At(0, b"07070")),
    // Volumes.
    (Volume, "a LUKS2 encrypted volume", At(0, b"LUKS\xba\xbe\x00\x02")),
    (Volume, "a LUKS encrypted volume", At(0, b"LUKS\xba\xbe")),
    (Volume, "a BitLocker encrypted volume", At(3, b"-FVE-FS-")),
    (Volume, "an LVM physical volume", AtAny(&[512, 0, 1024, 1536], b"LABELONE")),
    (Volume, "a member of a Linux RAID (md 1.1)", At(0, MD_MAGIC)),
    (Volume, "a member of a Linux RAID (md 1.2)", At(4096, MD_MAGIC)),
    (Volume, "a bcache device", At(4096 + 24, BCACHE)),
    (Volume, "a Ceph BlueStore device", At(0, b"bluestore block device")),
    // File systems.
    (FileSystem, "an ext4 file system", When(is_ext4)),
    (FileSystem, "an ext3 file system", When(is_ext3)),
    (FileSystem, "an ext2 file system", When(is_ext)),
    (FileSystem, "a btrfs file system", At(0x1_0040, b"_BHRfS_M")),
    (FileSystem, "a bcachefs file system", At(4096 + 24, BCACHEFS)),
    (FileSystem, "an F2FS file system", At(1024, &[0x10, 0x20, 0xf5, 0xf2])),
    (FileSystem, "an EROFS file system", At(1024, &[0xe2, 0xe1, 0xf5, 0xe0])),
    (FileSystem, "a squashfs file system", At(0, b"hsqs")),
    (FileSystem, "a squashfs file system", At(0, b"sqsh")),
    (FileSystem, "a cramfs file system", At(0, &[0x45, 0x3d, 0xcd, 0x28])),
    (FileSystem, "a romfs file system", At(0, b"-rom1fs-")),
    (FileSystem, "an exFAT file system", At(3, b"EXFAT   ")),
    (FileSystem, "an NTFS file system", At(3, b"NTFS    ")),
    (FileSystem, "a FAT file system", When(is_fat)),
    (FileSystem, "a GFS2 file system", At(0x1_0000, &[0x01, 0x16, 0x19, 0x70, 0, 0, 0, 1])),
    (FileSystem, "an OCFS2 file system", AtAny(&[1024, 2048, 4096, 8192], b"OCFSV2")),
    (FileSystem, "a ReiserFS file system", AtAny(&[0x1_0034, 0x2034], b"ReIsEr")),
    (FileSystem, "a JFS file system", At(0x8000, b"JFS1")),
    (FileSystem, "a NILFS2 file system", When(is_nilfs2)),
    (FileSystem, "an HFS+ file system", AtAny(&[1024], b"H+\0\x04")),
    (FileSystem, "an HFSX file system", AtAny(&[1024], b"HX\0\x05")),
    (FileSystem, "an APFS container", At(32, b"NXSB")),
    (FileSystem, "a ZFS pool member", When(is_zfs)),
    (FileSystem, "an ISO 9660 file system", At(0x8001, b"CD001")),
    (FileSystem, "a UDF file system", When(is_udf)),
    (Swap, "swap space", AtAny(SWAP_OFFSETS, b"SWAPSPACE2")),
    (Swap, "swap space", AtAny(SWAP_OFFSETS, b"SWAP-SPACE")),
    // At the end of the device, or weak signatures.
    (Volume, "a member of a Linux RAID (md 1.0)", When(is_md_1_0)),
    (Volume, "a member of a Linux RAID (md 0.90)", When(is_md_0_90)),
    (PartitionTable, "a GPT partition table", AtAny(&[512, 4096], b"EFI PART")),
    (PartitionTable, "an MBR partition table", When(is_mbr)),
    // A raw image with a footer: other contents found in it can be read directly.
    (Container, "a VHD image of fixed size", When(is_fixed_vhd)),
];

/// The magic UUIDs of bcache (also of early bcachefs) and of bcachefs.
const BCACHE: &[u8] =
    &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81];
const BCACHEFS: &[u8] =
    &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef];

fn is_qcow2(ends: &Ends) -> bool {
    ends.has(0, b"QFI\xfb\0\0\0") && ends.byte(7) >= 2
}

/// A digit for the block size, then the magic of the first block or of the end.
fn is_bzip2(ends: &Ends) -> bool {
    let block = [0x31, 0x41, 0x59, 0x26, 0x53, 0x59];
    ends.has(0, b"BZh") && (ends.has(4, &block) || ends.has(4, &[0x17, 0x72, 0x45, 0x38, 0x50, 0x90]))
}

fn is_ext(ends: &Ends) -> bool {
    ends.has(1024 + 0x38, &[0x53, 0xef])
}

/// Any incompatible or read-only-compatible feature that ext3 does not know: extents, 64-bit, huge files...
fn is_ext4(ends: &Ends) -> bool {
    let feature = |offset: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| ends.byte(1024 + offset + i)));
    is_ext(ends) && (feature(0x60) & !0x1f != 0 || feature(0x64) & !0x7 != 0)
}

fn is_ext3(ends: &Ends) -> bool {
    is_ext(ends) && ends.byte(1024 + 0x5c) & 4 != 0
}

fn is_boot_sector(ends: &Ends) -> bool {
    ends.has(510, &[0x55, 0xaa])
}

fn is_fat(ends: &Ends) -> bool {
    is_boot_sector(ends) && (ends.has(0x36, b"FAT") || ends.has(0x52, b"FAT32"))
}

fn is_nilfs2(ends: &Ends) -> bool {
    // Revision 2, then the magic: two bytes alone would be too weak.
    ends.has(1024, &[2, 0, 0, 0]) && ends.has(1024 + 6, &[0x34, 0x34])
}

/// Any uberblock of the first label, in either byte order.
fn is_zfs(ends: &Ends) -> bool {
    (0x2_0000..0x4_0000).step_by(1024).any(|offset| {
        ends.has(offset, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0])
            || ends.has(offset, &[0, 0, 0, 0, 0, 0xba, 0xb1, 0x0c])
    })
}

fn is_udf(ends: &Ends) -> bool {
    ends.has(0x8001, b"BEA01") && [0x8801, 0x9001].iter().any(|&offset| ends.has(offset, b"NSR0"))
}

fn is_fixed_vhd(ends: &Ends) -> bool {
    [512, 511].iter().any(|&length| ends.has_in_tail(ends.size.checked_sub(length), b"conectix"))
}

/// Between 8 and 12 KiB from the end, at a multiple of 4 KiB.
fn is_md_1_0(ends: &Ends) -> bool {
    let offset = ends.size.checked_sub(8 << 10).map(|offset| offset & !0xfff);
    ends.has_in_tail(offset, MD_MAGIC)
}

/// Between 64 and 128 KiB from the end, at a multiple of 64 KiB.
fn is_md_0_90(ends: &Ends) -> bool {
    let offset = (ends.size & !0xffff).checked_sub(64 << 10);
    ends.has_in_tail(offset, MD_MAGIC)
}

/// A boot signature alone is too weak: the four entries must be valid, and one of them used.
fn is_mbr(ends: &Ends) -> bool {
    is_boot_sector(ends) && ends.head.get(446..510).is_some_and(crate::mbr::looks_like_table)
}

/// Names the contents of `device`.
///
/// # Errors
/// Those of reading its first 260 KiB and last 128 KiB.
pub fn probe(device: &dyn Device) -> Result<Content, DeviceError> {
    if device.size() == 0 {
        return Ok(Content { class: ContentClass::Empty, name: "an empty file" });
    }
    let ends = Ends::read(device)?;
    if let Some((class, name, _)) = SIGNATURES.iter().find(|(_, _, signature)| signature.matches(&ends)) {
        return Ok(Content { class: *class, name });
    }
    if ends.head.iter().chain(&ends.tail).all(|&byte| byte == 0) {
        return Ok(Content { class: ContentClass::Zeros, name: "nothing but zeros" });
    }
    Ok(Content { class: ContentClass::Unknown, name: "a file in an unknown format" })
}
