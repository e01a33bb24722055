//! What a caller may choose. Sizes are in bytes.

use format::compatibility::{FEATURES, Reader};
use format::features::{incompat, ro_compat};
use format::timestamp::Timestamp;

/// Everything that can be chosen; [`Options::default`] is what `mkfs.xfs` 6.13 makes without options, with seed and
/// time zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a block: a power of two from 1024 to 65536 (`-b size`).
    pub block_size: u32,
    /// Bytes of a sector; the device's where not given (`-s size`).
    pub sector_size: Option<u32>,
    /// Bytes of an inode: a power of two from 512 to 2048, at most half a block (`-i size`).
    pub inode_size: u32,
    /// Highest share of the volume for inodes in percent; 0 is as not given (`-i maxpct`).
    pub max_inode_percent: Option<u8>,
    /// Bytes of the volume; all of the device where not given (`-d size`).
    pub size: Option<u64>,
    /// Number of AGs (`-d agcount`).
    pub ag_count: Option<u64>,
    /// Bytes of an AG; rounded up to the stripe unit (`-d agsize`).
    pub ag_size: Option<u64>,
    /// Bytes that the volume will grow to: AGs and log are sized for that (`--grow-to`).
    pub grow_to: Option<u64>,
    /// Stripe unit and width of the device below (`-d su,sw`).
    pub stripe: Option<Stripe>,
    /// Bytes of a directory block; 4096, or a block if that is larger, where not given (`-n size`).
    pub dir_block_size: Option<u32>,
    /// Names compare without ASCII case (`-n version=ci`).
    pub ascii_ci: bool,
    /// The log (`-l`).
    pub log: LogOptions,
    /// Free inode tree (`-m finobt`).
    pub finobt: bool,
    /// Reverse-mapping tree (`-m rmapbt`).
    pub rmapbt: bool,
    /// Shared blocks and their tree (`-m reflink`).
    pub reflink: bool,
    /// Wide times (`-m bigtime`).
    pub bigtime: bool,
    /// The AGI counts the blocks of its trees (`-m inobtcount`).
    pub inobtcount: bool,
    /// Sparse inode chunks (`-i sparse`).
    pub sparse: bool,
    /// Wide extent counters (`-i nrext64`).
    pub nrext64: bool,
    /// Exchange of file ranges (`-i exchange`).
    pub exchange: bool,
    /// Parent pointers, which bring the exchange of ranges with them (`-n parent`).
    pub parent: bool,
    /// The label, at most 12 bytes (`-L`).
    pub label: Vec<u8>,
    /// The UUID; from the seed where not given (`-m uuid`).
    pub uuid: Option<[u8; 16]>,
    /// Where UUID and inode generations come from.
    pub seed: [u8; 16],
    /// Birth of the root directory and the other first inodes.
    pub time: Timestamp,
    /// User and group of the root directory (`--root-owner`).
    pub root_owner: (u32, u32),
    /// Tell the device that its old contents are not wanted (`-K` says no).
    pub discard: bool,
}

impl Options {
    /// The same without the features that one of these programs would not expect in a new volume.
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
                // No new volume goes without file types, or has one of the others.
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

/// How the device below spreads its bytes over disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// Bytes on one disk before the next one's turn: a multiple of the block size.
    pub unit: u64,
    /// Bytes of a stripe over all disks that hold data: a multiple of the unit.
    pub width: u64,
}

/// What may be chosen of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Bytes (`-l size`).
    pub size: Option<u64>,
    /// Where it lies.
    pub place: LogPlace,
    /// Stripe unit: a multiple of the block size, at most 256 KiB (`-l su`).
    pub stripe_unit: Option<u64>,
    /// Bytes of a sector of the log's device, where it is not the data device (`-l sectsize`).
    pub sector_size: Option<u32>,
}

/// Where the log lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogPlace {
    /// In the AG in the middle.
    #[default]
    Internal,
    /// In this AG (`-l agnum`).
    Ag(u32),
    /// On a device of its own, of so many bytes (`-l logdev`).
    External(u64),
}
