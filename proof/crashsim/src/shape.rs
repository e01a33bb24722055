//! The shapes of volumes that are crashed: small, so that states are cheap, and of every feature that changes what a
//! change writes.

use format::timestamp::Timestamp;

/// A shape, and how its volumes are opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What it is called.
    pub name: &'static str,
    /// Bytes of the volume.
    pub size: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of a sector, where they are not 512.
    pub sector_size: Option<u32>,
    /// Bytes of a directory block, where it is larger.
    pub dir_block_size: Option<u32>,
    /// Bytes of an inode.
    pub inode_size: u32,
    /// AGs; as mkfs chooses where not given.
    pub ag_count: Option<u64>,
    /// Bytes of the log; the least where not given.
    pub log_size: Option<u64>,
    /// Log stripe unit.
    pub log_stripe: Option<u64>,
    /// Free inode tree.
    pub finobt: bool,
    /// Reverse mappings.
    pub rmapbt: bool,
    /// Shared blocks.
    pub reflink: bool,
    /// Sparse inode chunks.
    pub sparse: bool,
    /// Wide times.
    pub bigtime: bool,
    /// Shards of the committed item list.
    pub cil_shards: Option<usize>,
    /// Log buffers.
    pub log_buffers: usize,
    /// Bytes of each.
    pub log_buffer_bytes: u32,
    /// Bytes of metadata that are kept in memory.
    pub buffer_bytes: usize,
    /// Inodes that are kept in memory.
    pub inodes: usize,
    /// Threads of the volume's own.
    pub background: bool,
}

/// The shape from which the others differ.
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
    buffer_bytes: 1 << 20,
    inodes: 256,
    background: true,
};

/// The least log that the kernel accepts of blocks of 1 KiB with all features: it is full soon.
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
    /// A shape by its name.
    pub fn named(name: &str) -> Option<Self> {
        SHAPES.into_iter().find(|shape| shape.name == name)
    }

    /// What `mkfs` is told.
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
