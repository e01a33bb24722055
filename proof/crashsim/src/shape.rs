//! Shapes of volumes for power cuts: small, so that states are cheap, with every feature that changes what is logged.

use format::timestamp::Timestamp;

/// The format of a volume, and the options for opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Name.
    pub name: &'static str,
    /// Size of the volume in bytes.
    pub size: u64,
    /// Block size in bytes.
    pub block_size: u32,
    /// Sector size in bytes, if not 512.
    pub sector_size: Option<u32>,
    /// Directory block size in bytes, if larger than a block.
    pub dir_block_size: Option<u32>,
    /// Inode size in bytes.
    pub inode_size: u32,
    /// Number of AGs; `None` for the default of mkfs.
    pub ag_count: Option<u64>,
    /// Log size in bytes; `None` for the minimum.
    pub log_size: Option<u64>,
    /// Log stripe unit in bytes.
    pub log_stripe: Option<u64>,
    /// Free inode btree.
    pub finobt: bool,
    /// Reverse mapping btree.
    pub rmapbt: bool,
    /// Shared extents.
    pub reflink: bool,
    /// Sparse inode chunks.
    pub sparse: bool,
    /// Timestamps beyond 2038.
    pub bigtime: bool,
    /// Shards of the committed item list.
    pub cil_shards: Option<usize>,
    /// Log buffers.
    pub log_buffers: usize,
    /// Size of a log buffer in bytes.
    pub log_buffer_bytes: u32,
    /// Memory of the caches in bytes.
    pub memory: u64,
    /// Start background threads.
    pub background: bool,
}

/// The default shape, from which the others are derived.
pub const BASE: Shape = Shape {
    name: "default",
    size: 24 << 20,
    block_size: 4096,
    sector_size: None,
    dir_block_size: None,
    inode_size: 512,
    ag_count: None,
    log_size: None,
    log_stripe: None,
    finobt: true,
    rmapbt: true,
    reflink: true,
    sparse: true,
    bigtime: true,
    cil_shards: None,
    log_buffers: 8,
    log_buffer_bytes: 32 << 10,
    memory: 2 << 20,
    background: true,
};

/// The smallest log that the kernel accepts with 1 KiB blocks and all features, so that it fills quickly.
const SMALL_LOG: Option<u64> = Some(5363 << 10);

/// All shapes.
pub const SHAPES: [Shape; 7] = [
    BASE,
    Shape {
        name: "bs1k",
        size: 16 << 20,
        block_size: 1024,
        cil_shards: Some(4),
        log_size: SMALL_LOG,
        ..BASE
    },
    Shape {
        name: "plain",
        size: 32 << 20,
        finobt: false,
        rmapbt: false,
        reflink: false,
        sparse: false,
        bigtime: false,
        cil_shards: Some(1),
        ..BASE
    },
    Shape { name: "two-ags", size: 32 << 20, ag_count: Some(2), ..BASE },
    Shape {
        name: "bs1k-two-ags",
        size: 32 << 20,
        block_size: 1024,
        ag_count: Some(2),
        log_size: SMALL_LOG,
        log_buffers: 2,
        ..BASE
    },
    Shape {
        name: "dir16k",
        dir_block_size: Some(16 << 10),
        block_size: 2048,
        inode_size: 1024,
        size: 24 << 20,
        ..BASE
    },
    Shape { name: "log-stripe", log_stripe: Some(32 << 10), cil_shards: Some(2), ..BASE },
];

impl Shape {
    /// Returns a shape by name.
    pub fn named(name: &str) -> Option<Self> {
        SHAPES.into_iter().find(|shape| shape.name == name)
    }

    /// Returns the options of `mkfs`.
    pub fn mkfs(&self) -> mkfs::Options {
        let log = mkfs::LogOptions {
            size: self.log_size,
            stripe_unit: self.log_stripe,
            ..mkfs::LogOptions::default()
        };
        mkfs::Options {
            block_size: self.block_size,
            sector_size: self.sector_size,
            dir_block_size: self.dir_block_size,
            inode_size: self.inode_size,
            ag_count: self.ag_count,
            log,
            finobt: self.finobt,
            inobtcount: self.finobt,
            rmapbt: self.rmapbt,
            reflink: self.reflink,
            sparse: self.sparse,
            bigtime: self.bigtime,
            seed: [7; 16],
            time: Timestamp { seconds: 1_000_000, nanoseconds: 0 },
            ..mkfs::Options::default()
        }
    }
}
