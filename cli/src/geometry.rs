//! Geometry and features of a volume, for `info` and `mkfs`.

use std::fmt::Write as _;

use format::Geometry;
use format::features;
use format::superblock::{RawSuperblock, Superblock};
use serde::Serialize;

/// Geometry, in bytes and counts.
#[derive(Debug, Serialize)]
pub struct Shape {
    block_bytes: u32,
    sector_bytes: u32,
    inode_bytes: u32,
    directory_block_bytes: u32,
    blocks: u64,
    ag_count: u32,
    ag_blocks: u32,
    stripe_unit_blocks: u32,
    stripe_width_blocks: u32,
    inode_percent_max: u8,
    log_blocks: u32,
    log_is_internal: bool,
    log_sector_bytes: u32,
    log_stripe_unit_bytes: u32,
    root_inode: u64,
}

impl Shape {
    /// The geometry of a verified superblock.
    pub fn of(superblock: &Superblock) -> Self {
        let (raw, geometry) = (&superblock.raw, &superblock.geometry);
        Self {
            block_bytes: geometry.block_size,
            sector_bytes: geometry.sector_size,
            inode_bytes: geometry.inode_size,
            directory_block_bytes: geometry.dir_block_size,
            blocks: geometry.blocks(),
            ag_count: geometry.ag_count(),
            ag_blocks: geometry.ag_blocks,
            stripe_unit_blocks: raw.unit.get(),
            stripe_width_blocks: raw.width.get(),
            inode_percent_max: raw.imax_pct,
            log_blocks: geometry.log_blocks,
            log_is_internal: geometry.log_start.is_some(),
            log_sector_bytes: log_sector(raw),
            log_stripe_unit_bytes: geometry.log_stripe_unit,
            root_inode: geometry.root.get(),
        }
    }
}

/// Names of all features of the superblock, as in `mkfs.xfs`.
pub fn feature_names(raw: &RawSuperblock) -> Vec<String> {
    let words = raw.features();
    let old = [
        (true, "crc"),
        (words.lazysbcount(), "lazy-count"),
        (words.projid32(), "projid32bit"),
        (words.ascii_ci(), "ascii-ci"),
    ];
    let mut names: Vec<String> = old.iter().filter(|(set, _)| *set).map(|(_, name)| (*name).into()).collect();
    let listed = [
        features::names(words.ro_compat, features::ro_compat::ALL),
        features::names(words.incompat, features::incompat::ALL),
        features::names(words.log_incompat, features::log_incompat::ALL),
    ];
    names.extend(
        listed.iter().flat_map(|list| list.split(", ")).filter(|name| !name.is_empty()).map(str::to_owned),
    );
    names
}

fn log_sector(raw: &RawSuperblock) -> u32 {
    u32::from(raw.logsectsize.get()).max(512)
}

/// Text in the format of `xfs_info` and `mkfs.xfs` (xfsprogs 6.13).
pub fn text(superblock: &Superblock, name: &str) -> String {
    let (raw, geometry) = (&superblock.raw, &superblock.geometry);
    let has = Flags::of(geometry);
    let log_kind = if geometry.log_start.is_some() { "internal log" } else { "external" };
    let log_unit = geometry.log_stripe_unit >> geometry.block_log;
    let real_extent = u64::from(raw.rextsize.get()) << geometry.block_log;
    let mut out = String::new();
    let mut line = |head: &str, what: &str, rest: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{head:<9}={what:<22} {rest}");
    };
    let (isize, agcount, agsize) = (geometry.inode_size, geometry.ag_count(), geometry.ag_blocks);
    line("meta-data", name, format_args!("isize={isize:<6} agcount={agcount}, agsize={agsize} blks"));
    let sector = geometry.sector_size;
    line("", "", format_args!("sectsz={sector:<5} attr=2, projid32bit={}", has.projid32));
    line(
        "",
        "",
        format_args!("crc={:<8} finobt={}, sparse={}, rmapbt={}", 1, has.finobt, has.sparse, has.rmapbt),
    );
    line(
        "",
        "",
        format_args!(
            "reflink={:<4} bigtime={} inobtcount={} nrext64={}",
            has.reflink, has.bigtime, has.inobtcount, has.nrext64
        ),
    );
    line("", "", format_args!("exchange={:<3} metadir={}", has.exchange, has.metadir));
    let (block, blocks) = (geometry.block_size, geometry.blocks());
    line("data", "", format_args!("bsize={block:<6} blocks={blocks}, imaxpct={}", raw.imax_pct));
    line("", "", format_args!("sunit={:<6} swidth={} blks", raw.unit, raw.width));
    let directory = geometry.dir_block_size;
    line(
        "naming",
        "version 2",
        format_args!(
            "bsize={directory:<6} ascii-ci={}, ftype={}, parent={}",
            has.ascii_ci, has.ftype, has.parent
        ),
    );
    line("log", log_kind, format_args!("bsize={block:<6} blocks={}, version=2", geometry.log_blocks));
    line(
        "",
        "",
        format_args!("sectsz={:<5} sunit={log_unit} blks, lazy-count={}", log_sector(raw), has.lazy_count),
    );
    line(
        "realtime",
        "none",
        format_args!("extsz={real_extent:<6} blocks={}, rtextents={}", raw.rblocks, raw.rextents),
    );
    line("", "", format_args!("rgcount={:<4} rgsize={} extents", raw.rgcount, raw.rgextents));
    out
}

/// Features as the digits 0 and 1.
struct Flags {
    projid32: u8,
    finobt: u8,
    sparse: u8,
    rmapbt: u8,
    reflink: u8,
    bigtime: u8,
    inobtcount: u8,
    nrext64: u8,
    exchange: u8,
    metadir: u8,
    ascii_ci: u8,
    ftype: u8,
    parent: u8,
    lazy_count: u8,
}

impl Flags {
    fn of(geometry: &Geometry) -> Self {
        let words = &geometry.features;
        Self {
            projid32: words.projid32().into(),
            finobt: words.finobt().into(),
            sparse: words.sparse_inodes().into(),
            rmapbt: words.rmapbt().into(),
            reflink: words.reflink().into(),
            bigtime: words.bigtime().into(),
            inobtcount: words.inobtcount().into(),
            nrext64: words.nrext64().into(),
            exchange: words.exchange().into(),
            metadir: words.metadir().into(),
            ascii_ci: words.ascii_ci().into(),
            ftype: words.ftype().into(),
            parent: words.parent().into(),
            lazy_count: words.lazysbcount().into(),
        }
    }
}
