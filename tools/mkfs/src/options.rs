//! Options of a new volume. Sizes are in bytes.

use format::compatibility::{FEATURES, Reader};
use format::features::{incompat, ro_compat};
use format::timestamp::Timestamp;

/// Options of a new volume. [`Options::default`] gives the defaults of `mkfs.xfs` 6.13, with seed and time zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Block size: a power of two from 1024 to 65536 (`-b size`).
    pub block_size: u32,
    /// Sector size; that of the device by default (`-s size`).
    pub sector_size: Option<u32>,
    /// Inode size: a power of two from 512 to 2048, at most half a block (`-i size`).
    pub inode_size: u32,
    /// Maximum percentage of space for inodes; 0 is the default (`-i maxpct`).
    pub max_inode_percent: Option<u8>,
    /// Size of the volume; that of the device by default (`-d size`).
    pub size: Option<u64>,
    /// Number of AGs (`-d agcount`).
    pub ag_count: Option<u64>,
    /// Size of an AG, rounded up to the stripe unit (`-d agsize`).
    pub ag_size: Option<u64>,
    /// Size to which the volume will grow; determines the sizes of AGs and log (`--grow-to`).
    pub grow_to: Option<u64>,
    /// Stripe unit and width (`-d su,sw`).
    pub stripe: Option<Stripe>,
    /// Directory block size; 4096 or the block size by default, whichever is larger (`-n size`).
    pub dir_block_size: Option<u32>,
    /// Case-insensitive names (`-n version=ci`).
    pub ascii_ci: bool,
    /// The log (`-l`).
    pub log: LogOptions,
    /// Free inode btree (`-m finobt`).
    pub finobt: bool,
    /// Reverse mapping btree (`-m rmapbt`).
    pub rmapbt: bool,
    /// Shared blocks and the reference count btree (`-m reflink`).
    pub reflink: bool,
    /// Large timestamps (`-m bigtime`).
    pub bigtime: bool,
    /// Counts of inode btree blocks in the AGI (`-m inobtcount`).
    pub inobtcount: bool,
    /// Sparse inode chunks (`-i sparse`).
    pub sparse: bool,
    /// Large extent counters (`-i nrext64`).
    pub nrext64: bool,
    /// Exchange of file ranges (`-i exchange`).
    pub exchange: bool,
    /// Parent pointers; also enables the exchange of file ranges (`-n parent`).
    pub parent: bool,
    /// Label, at most 12 bytes (`-L`).
    pub label: Vec<u8>,
    /// UUID; derived from the seed by default (`-m uuid`).
    pub uuid: Option<[u8; 16]>,
    /// Seed of the UUID and of inode generations.
    pub seed: [u8; 16],
    /// Timestamps of the first inodes.
    pub time: Timestamp,
    /// User and group of the root directory (`--root-owner`).
    pub root_owner: (u32, u32),
    /// Discard the old contents of the device (disabled by `-K`).
    pub discard: bool,
}

impl Options {
    /// Disables the features that are not usual for one of these readers.
    #[must_use]
    pub fn read_by(mut self, readers: &[Reader]) -> Self {
        for feature in FEATURES {
            if readers.iter().all(|reader| reader.usual(feature)) {
                continue;
            }
            let switch = match (feature.is_incompatible, feature.bit) {
                (false, ro_compat::FINOBT) => &mut self.finobt,
                (false, ro_compat::RMAPBT) => &mut self.rmapbt,
                (false, ro_compat::REFLINK) => &mut self.reflink,
                (false, ro_compat::INOBTCOUNT) => &mut self.inobtcount,
                (true, incompat::SPARSE_INODES) => &mut self.sparse,
                (true, incompat::BIGTIME) => &mut self.bigtime,
                (true, incompat::NREXT64) => &mut self.nrext64,
                (true, incompat::EXCHANGE) => &mut self.exchange,
                (true, incompat::PARENT) => &mut self.parent,
                // File types are always enabled, the other features never.
                _ => continue,
            };
            *switch = false;
        }
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            block_size: 4096,
            sector_size: None,
            inode_size: 512,
            max_inode_percent: None,
            size: None,
            ag_count: None,
            ag_size: None,
            grow_to: None,
            stripe: None,
            dir_block_size: None,
            ascii_ci: false,
            log: LogOptions::default(),
            finobt: true,
            rmapbt: true,
            reflink: true,
            bigtime: true,
            inobtcount: true,
            sparse: true,
            nrext64: true,
            exchange: false,
            parent: false,
            label: Vec::new(),
            uuid: None,
            seed: [0; 16],
            time: Timestamp::default(),
            root_owner: (0, 0),
            discard: true,
        }
    }
}

/// Stripe geometry of a RAID device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// Stripe unit: a multiple of the block size.
    pub unit: u64,
    /// Stripe width: a multiple of the unit.
    pub width: u64,
}

/// Options of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Size (`-l size`).
    pub size: Option<u64>,
    /// Location.
    pub location: LogLocation,
    /// Stripe unit: a multiple of the block size, at most 256 KiB (`-l su`).
    pub stripe_unit: Option<u64>,
    /// Sector size of an external log (`-l sectsize`).
    pub sector_size: Option<u32>,
}

/// Location of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLocation {
    /// In the middle AG.
    #[default]
    Internal,
    /// In this AG (`-l agnum`).
    Ag(u32),
    /// On an external device of this size (`-l logdev`).
    External(u64),
}
