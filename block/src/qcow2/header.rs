//! The header of a qcow2 image: the fields that a writer needs.
//!
//! The format is that of QEMU's `docs/interop/qcow2.txt`. Reading is the business of the crate `imago`; what is judged
//! here is whether the image may be changed.

use std::io;

use crate::device::Device;

/// Bytes of a header of version 3 that are understood here.
const LENGTH: usize = 104;
/// Bytes of the L1 table and of the refcount table: the limits of QEMU.
const L1_MAX: u64 = 32 << 20;
pub const REFCOUNT_TABLE_MAX: u64 = 8 << 20;
/// Where the header keeps the place and the length of the refcount table.
const REFCOUNT_TABLE: usize = 48;
/// Where the header keeps the autoclear features.
const AUTOCLEAR: usize = 88;

/// Bits of the incompatible features.
const DIRTY: u64 = 1 << 0;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;
/// The autoclear feature of bitmaps that are up to date.
const BITMAPS: u64 = 1 << 0;

/// The start of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// 2 or 3.
    pub version: u32,
    /// The size of a cluster, as a power of two: 9 to 21.
    pub cluster_bits: u32,
    /// Bytes of the disk inside.
    pub size: u64,
    /// Whether what is not allocated here is read from another image.
    pub has_backing: bool,
    /// Where the L1 table lies.
    pub l1_offset: u64,
    /// Entries of the L1 table.
    pub l1_entries: u64,
    /// Where the refcount table lies.
    pub table_offset: u64,
    /// Clusters of the refcount table.
    pub table_clusters: u64,
    /// The width of a refcount in bits, as a power of two: 0 to 6.
    pub refcount_order: u32,
    encryption: u32,
    snapshots: u32,
    incompatible: u64,
    autoclear: u64,
}

pub fn damaged(what: impl Into<String>) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{} (look at it with `qemu-img check`, mend it with `qemu-img check -r all`)", what.into()),
    )
}

fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, what)
}

impl Header {
    /// Reads the header.
    ///
    /// # Errors
    /// What the device reports; something else than a qcow2 image.
    pub fn read(file: &dyn Device) -> io::Result<Self> {
        let mut bytes = [0; LENGTH];
        let known = usize::try_from(file.size()).unwrap_or(LENGTH).min(LENGTH);
        file.read_at(0, bytes.get_mut(..known).unwrap_or_default()).map_err(io::Error::other)?;
        Self::parse(&bytes)
    }

    fn parse(bytes: &[u8; LENGTH]) -> io::Result<Self> {
        let (int, long) = (|at| int(bytes, at), |at| long(bytes, at));
        if bytes.get(..4) != Some(b"QFI\xfb") {
            return Err(damaged("this is no qcow2 image"));
        }
        let version = int(4);
        let late = |value: u64| if version == 3 { value } else { 0 };
        Ok(Self {
            version,
            cluster_bits: int(20),
            size: long(24),
            has_backing: long(8) != 0,
            l1_offset: long(40),
            l1_entries: u64::from(int(36)),
            table_offset: long(REFCOUNT_TABLE),
            table_clusters: u64::from(int(REFCOUNT_TABLE + 8)),
            refcount_order: if version == 3 { int(96) } else { 4 },
            encryption: int(32),
            snapshots: int(60),
            incompatible: late(long(72)),
            autoclear: late(long(AUTOCLEAR)),
        })
    }

    /// Refuses values that cannot be.
    fn judge(&self) -> io::Result<()> {
        if !matches!(self.version, 2 | 3) {
            return Err(damaged(format!("version {} is not known", self.version)));
        }
        if !(9..=21).contains(&self.cluster_bits) {
            return Err(damaged(format!("clusters of 2^{} bytes are not possible", self.cluster_bits)));
        }
        if self.refcount_order > 6 {
            return Err(damaged(format!("refcounts of 2^{} bits are not possible", self.refcount_order)));
        }
        let table = self.table_clusters << self.cluster_bits;
        if self.l1_entries * 8 > L1_MAX || table > REFCOUNT_TABLE_MAX || table == 0 {
            return Err(damaged(format!(
                "an L1 table of {} entries and a refcount table of {} clusters are not possible",
                self.l1_entries, self.table_clusters
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

    /// Refuses what neither a reader nor a writer can understand.
    ///
    /// # Errors
    /// Encryption.
    pub fn refuse_for_all(&self) -> io::Result<()> {
        match self.encryption {
            0 => Ok(()),
            _ => Err(refused(
                "it is encrypted; decrypt it with `qemu-img convert -O qcow2`, which takes the key by --object secret",
            )),
        }
    }

    /// Adds the next step to why an image cannot be read, where it is known.
    pub fn advise(&self, error: io::Error) -> io::Error {
        match self.incompatible & (DIRTY | CORRUPT) {
            0 => error,
            _ => io::Error::new(
                error.kind(),
                format!("{error} (repair it with `qemu-img check -r all IMAGE`)"),
            ),
        }
    }

    /// Refuses what a writer may not change, or cannot.
    ///
    /// # Errors
    /// One of the features, with what to do about it.
    pub fn refuse_for_writing(&self) -> io::Result<()> {
        self.judge()?;
        self.refuse_for_all()?;
        let bit = |bit| self.incompatible & bit != 0;
        let known = DIRTY | CORRUPT | EXTERNAL_DATA | COMPRESSION | EXTENDED_L2;
        Err(refused(match () {
            () if self.incompatible & !known != 0 => {
                "it has incompatible features that are not known here; convert it with `qemu-img convert -O qcow2`"
            }
            () if bit(CORRUPT) => "it is marked as corrupt; repair it with `qemu-img check -r all`",
            () if bit(DIRTY) => {
                "it was not closed properly, and its refcounts may be wrong; repair it with `qemu-img check -r all`"
            }
            () if bit(EXTERNAL_DATA) => {
                "its data lies in another file; convert it with `qemu-img convert -O qcow2`"
            }
            () if bit(COMPRESSION) => {
                "its compression is not deflate; convert it with `qemu-img convert -O qcow2`"
            }
            () if bit(EXTENDED_L2) => {
                "it has extended L2 entries; convert it with `qemu-img convert -O qcow2`"
            }
            () if self.snapshots != 0 => {
                "it holds internal snapshots; delete them with `qemu-img snapshot -d`, or copy the current state with \
                 `qemu-img convert -O qcow2`"
            }
            () if self.autoclear & BITMAPS != 0 => {
                "it holds bitmaps, which would no longer be true; remove them with `qemu-img bitmap --remove`, or \
                 copy the disk with `qemu-img convert -O qcow2`"
            }
            () => return Ok(()),
        }))
    }

    /// Whether a writer must clear autoclear features first, as it does not know them.
    pub fn must_clear(&self) -> bool {
        self.autoclear != 0
    }

    /// Clears the autoclear features in the first bytes of the image.
    pub fn clear_autoclear(start: &mut [u8]) {
        put(start, AUTOCLEAR, &[0; 8]);
    }

    /// Enters a refcount table into the first bytes of the image.
    pub fn enter_table(start: &mut [u8], offset: u64, clusters: u64) {
        put(start, REFCOUNT_TABLE, &offset.to_be_bytes());
        put(start, REFCOUNT_TABLE + 8, &u32::try_from(clusters).unwrap_or(u32::MAX).to_be_bytes());
    }

    /// Bytes of a cluster.
    pub fn cluster_size(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Entries of an L2 table.
    pub fn l2_entries(&self) -> u64 {
        self.cluster_size() / 8
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

fn int(bytes: &[u8; LENGTH], at: usize) -> u32 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    found.map_or(0, |found| u32::from_be_bytes(*found))
}

fn long(bytes: &[u8; LENGTH], at: usize) -> u64 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
    found.map_or(0, |found| u64::from_be_bytes(*found))
}
