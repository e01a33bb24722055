//! The header of a qcow2 image: the fields that a writer needs.
//!
//! The format is described in QEMU's `docs/interop/qcow2.txt`. For readers the crate `imago` parses the header; this
//! module decides whether an image can be changed.

use std::io;

use crate::device::Device;

/// Bytes of a version 3 header.
const LENGTH: usize = 104;
/// Maximum bytes of the L1 table in QEMU.
const L1_MAX: u64 = 32 << 20;
/// Maximum bytes of the refcount table in QEMU.
pub const REFCOUNT_TABLE_MAX: u64 = 8 << 20;
/// Offset of the fields `refcount_table_offset` and `refcount_table_clusters`.
const REFCOUNT_TABLE: usize = 48;
/// Offset of the field `autoclear_features`.
const AUTOCLEAR: usize = 88;

/// Incompatible features.
const DIRTY: u64 = 1 << 0;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;
/// Autoclear feature: the bitmaps are consistent.
const BITMAPS: u64 = 1 << 0;

/// The header of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// 2 or 3.
    pub version: u32,
    /// Cluster size as a power of two: 9 to 21.
    pub cluster_bits: u32,
    /// Size of the disk in bytes.
    pub size: u64,
    /// Whether unallocated clusters are read from a backing image.
    pub has_backing: bool,
    /// Offset of the L1 table.
    pub l1_offset: u64,
    /// Number of entries of the L1 table.
    pub l1_entries: u64,
    /// Offset of the refcount table.
    pub refcount_table_offset: u64,
    /// Number of clusters of the refcount table.
    pub refcount_table_clusters: u64,
    /// Width of a refcount in bits, as a power of two: 0 to 6.
    pub refcount_order: u32,
    encryption: u32,
    snapshots: u32,
    incompatible: u64,
    autoclear: u64,
}

/// An error about damaged metadata.
pub fn damaged(what: impl Into<String>) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{} (examine it with `qemu-img check`, repair it with `qemu-img check -r all`)", what.into()),
    )
}

fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, what)
}

impl Header {
    /// Reads the header.
    ///
    /// # Errors
    /// Errors of the device; this is no qcow2 image.
    pub fn read(file: &dyn Device) -> io::Result<Self> {
        let mut bytes = [0; LENGTH];
        let length = usize::try_from(file.size()).unwrap_or(LENGTH).min(LENGTH);
        file.read_at(0, bytes.get_mut(..length).unwrap_or_default()).map_err(io::Error::other)?;
        Self::parse(&bytes)
    }

    fn parse(bytes: &[u8; LENGTH]) -> io::Result<Self> {
        let (u32_at, u64_at) = (|offset| u32_at(bytes, offset), |offset| u64_at(bytes, offset));
        if bytes.get(..4) != Some(b"QFI\xfb") {
            return Err(damaged("this is not a qcow2 image"));
        }
        let version = u32_at(4);
        let if_v3 = |value: u64| if version == 3 { value } else { 0 };
        Ok(Self {
            version,
            cluster_bits: u32_at(20),
            size: u64_at(24),
            has_backing: u64_at(8) != 0,
            l1_offset: u64_at(40),
            l1_entries: u64::from(u32_at(36)),
            refcount_table_offset: u64_at(REFCOUNT_TABLE),
            refcount_table_clusters: u64::from(u32_at(REFCOUNT_TABLE + 8)),
            refcount_order: if version == 3 { u32_at(96) } else { 4 },
            encryption: u32_at(32),
            snapshots: u32_at(60),
            incompatible: if_v3(u64_at(72)),
            autoclear: if_v3(u64_at(AUTOCLEAR)),
        })
    }

    /// Refuses invalid values.
    fn verify(&self) -> io::Result<()> {
        if !matches!(self.version, 2 | 3) {
            return Err(damaged(format!("unknown version {}", self.version)));
        }
        if !(9..=21).contains(&self.cluster_bits) {
            return Err(damaged(format!("invalid cluster size of 2^{} bytes", self.cluster_bits)));
        }
        if self.refcount_order > 6 {
            return Err(damaged(format!("invalid refcount width of 2^{} bits", self.refcount_order)));
        }
        let table = self.refcount_table_clusters << self.cluster_bits;
        if self.l1_entries * 8 > L1_MAX || table > REFCOUNT_TABLE_MAX || table == 0 {
            return Err(damaged(format!(
                "invalid L1 table of {} entries or refcount table of {} clusters",
                self.l1_entries, self.refcount_table_clusters
            )));
        }
        if self.l1_entries < self.size.div_ceil(self.cluster_size() * self.l2_entries()) {
            return Err(damaged(format!(
                "the L1 table of {} entries is too short for a disk of {} bytes",
                self.l1_entries, self.size
            )));
        }
        Ok(())
    }

    /// Refuses images that can be neither read nor written.
    ///
    /// # Errors
    /// The image is encrypted.
    pub fn check_readable(&self) -> io::Result<()> {
        match self.encryption {
            0 => Ok(()),
            _ => Err(refused(
                "it is encrypted; decrypt it with `qemu-img convert -O qcow2`, which takes the key by --object secret",
            )),
        }
    }

    /// Adds advice to an error of the reader, if the image is marked as dirty or corrupt.
    pub fn add_advice(&self, error: io::Error) -> io::Error {
        match self.incompatible & (DIRTY | CORRUPT) {
            0 => error,
            _ => io::Error::new(
                error.kind(),
                format!("{error} (repair it with `qemu-img check -r all IMAGE`)"),
            ),
        }
    }

    /// Refuses images that cannot be changed.
    ///
    /// # Errors
    /// An unsupported feature, with what to do about it.
    pub fn check_writable(&self) -> io::Result<()> {
        self.verify()?;
        self.check_readable()?;
        let bit = |bit| self.incompatible & bit != 0;
        let known = DIRTY | CORRUPT | EXTERNAL_DATA | COMPRESSION | EXTENDED_L2;
        Err(refused(match () {
            () if self.incompatible & !known != 0 => {
                "it has unknown incompatible features; convert it with `qemu-img convert -O qcow2`"
            }
            () if bit(CORRUPT) => "it is marked as corrupt; repair it with `qemu-img check -r all`",
            () if bit(DIRTY) => {
                "it was not closed properly, and its refcounts may be wrong; repair it with `qemu-img check -r all`"
            }
            () if bit(EXTERNAL_DATA) => {
                "its data is in another file; convert it with `qemu-img convert -O qcow2`"
            }
            () if bit(COMPRESSION) => {
                "its compression is not deflate; convert it with `qemu-img convert -O qcow2`"
            }
            () if bit(EXTENDED_L2) => {
                "it has extended L2 entries; convert it with `qemu-img convert -O qcow2`"
            }
            () if self.snapshots != 0 => {
                "it contains internal snapshots; delete them with `qemu-img snapshot -d`, or copy the current state \
                 with `qemu-img convert -O qcow2`"
            }
            () if self.autoclear & BITMAPS != 0 => {
                "it contains bitmaps, which would become stale; remove them with `qemu-img bitmap --remove`, or \
                 copy the disk with `qemu-img convert -O qcow2`"
            }
            () => return Ok(()),
        }))
    }

    /// Whether there are autoclear features, which a writer must clear first.
    pub fn has_autoclear(&self) -> bool {
        self.autoclear != 0
    }

    /// Clears the autoclear features in the bytes of a header.
    pub fn clear_autoclear(bytes: &mut [u8]) {
        put(bytes, AUTOCLEAR, &[0; 8]);
    }

    /// Sets the refcount table in the bytes of a header.
    pub fn set_refcount_table(bytes: &mut [u8], offset: u64, clusters: u64) {
        put(bytes, REFCOUNT_TABLE, &offset.to_be_bytes());
        put(bytes, REFCOUNT_TABLE + 8, &u32::try_from(clusters).unwrap_or(u32::MAX).to_be_bytes());
    }

    /// Cluster size in bytes.
    pub fn cluster_size(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Number of entries of an L2 table.
    pub fn l2_entries(&self) -> u64 {
        self.cluster_size() / 8
    }
}

fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
    if let Some(field) = bytes.get_mut(offset..offset + value.len()) {
        field.copy_from_slice(value);
    }
}

fn u32_at(bytes: &[u8; LENGTH], offset: usize) -> u32 {
    let field = bytes.get(offset..).and_then(|rest| rest.first_chunk::<4>());
    field.map_or(0, |field| u32::from_be_bytes(*field))
}

fn u64_at(bytes: &[u8; LENGTH], offset: usize) -> u64 {
    let field = bytes.get(offset..).and_then(|rest| rest.first_chunk::<8>());
    field.map_or(0, |field| u64::from_be_bytes(*field))
}
