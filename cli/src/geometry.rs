//! Geometry and features of a volume, for `info` and `mkfs`.

use std::fmt::Write as _;

use format::features;
use format::superblock::{RawSuperblock, Superblock};
use serde_json::{Value, json};

/// The geometry of a verified superblock in JSON, in bytes and counts.
pub fn json(superblock: &Superblock) -> Value {
    let (raw, geometry) = (&superblock.raw, &superblock.geometry);
    json!({
        "block_bytes": geometry.block_size,
        "sector_bytes": geometry.sector_size,
        "inode_bytes": geometry.inode_size,
        "directory_block_bytes": geometry.dir_block_size,
        "blocks": geometry.blocks(),
        "ag_count": geometry.ag_count(),
        "ag_blocks": geometry.ag_blocks,
        "stripe_unit_blocks": raw.unit.get(),
        "stripe_width_blocks": raw.width.get(),
        "inode_percent_max": raw.imax_pct,
        "log_blocks": geometry.log_blocks,
        "log_is_internal": geometry.log_start.is_some(),
        "log_sector_bytes": log_sector(raw),
        "log_stripe_unit_bytes": geometry.log_stripe_unit,
        "root_inode": geometry.root.get(),
    })
}

/// Names of all features of the superblock, as in `mkfs.xfs`.
pub fn feature_names(raw: &RawSuperblock) -> Vec<String> {
    let fields = raw.features();
    let old = [
        (true, "crc"),
        (fields.lazysbcount(), "lazy-count"),
        (fields.projid32(), "projid32bit"),
        (fields.ascii_ci(), "ascii-ci"),
    ];
    let lists = [
        features::names(fields.ro_compat, features::ro_compat::ALL),
        features::names(fields.incompat, features::incompat::ALL),
        features::names(fields.log_incompat, features::log_incompat::ALL),
    ];
    let old = old.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name);
    let new = lists.iter().flat_map(|list| list.split(", ")).filter(|name| !name.is_empty());
    old.chain(new).map(str::to_owned).collect()
}

fn log_sector(raw: &RawSuperblock) -> u32 {
    u32::from(raw.logsectsize.get()).max(512)
}

/// Text in the format of `xfs_info` and `mkfs.xfs` (xfsprogs 6.13).
pub fn text(superblock: &Superblock, name: &str) -> String {
    let (raw, geometry) = (&superblock.raw, &superblock.geometry);
    let has = &geometry.features;
    let bit = u8::from;
    let (finobt, sparse, rmapbt) = (bit(has.finobt()), bit(has.sparse_inodes()), bit(has.rmapbt()));
    let (reflink, bigtime) = (bit(has.reflink()), bit(has.bigtime()));
    let (inobtcount, nrext64) = (bit(has.inobtcount()), bit(has.nrext64()));
    let (ascii_ci, ftype, parent) = (bit(has.ascii_ci()), bit(has.ftype()), bit(has.parent()));
    let lazy_count = bit(has.lazysbcount());
    let log_kind = if geometry.log_start.is_some() { "internal log" } else { "external" };
    let log_unit = geometry.log_stripe_unit >> geometry.block_log;
    let real_extent = u64::from(raw.rextsize.get()) << geometry.block_log;
    let mut out = String::new();
    let mut line = |section: &str, value: &str, fields: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{section:<9}={value:<22} {fields}");
    };
    let (isize, agcount, agsize) = (geometry.inode_size, geometry.ag_count(), geometry.ag_blocks);
    line("meta-data", name, format_args!("isize={isize:<6} agcount={agcount}, agsize={agsize} blks"));
    let sector = geometry.sector_size;
    line("", "", format_args!("sectsz={sector:<5} attr=2, projid32bit={}", bit(has.projid32())));
    line("", "", format_args!("crc=1        finobt={finobt}, sparse={sparse}, rmapbt={rmapbt}"));
    line(
        "",
        "",
        format_args!("reflink={reflink:<4} bigtime={bigtime} inobtcount={inobtcount} nrext64={nrext64}"),
    );
    line("", "", format_args!("exchange={:<3} metadir={}", bit(has.exchange()), bit(has.metadir())));
    let (block, blocks) = (geometry.block_size, geometry.blocks());
    line("data", "", format_args!("bsize={block:<6} blocks={blocks}, imaxpct={}", raw.imax_pct));
    line("", "", format_args!("sunit={:<6} swidth={} blks", raw.unit, raw.width));
    let directory = geometry.dir_block_size;
    let naming = format_args!("bsize={directory:<6} ascii-ci={ascii_ci}, ftype={ftype}, parent={parent}");
    line("naming", "version 2", naming);
    line("log", log_kind, format_args!("bsize={block:<6} blocks={}, version=2", geometry.log_blocks));
    let sector = log_sector(raw);
    line("", "", format_args!("sectsz={sector:<5} sunit={log_unit} blks, lazy-count={lazy_count}"));
    let realtime = format_args!("extsz={real_extent:<6} blocks={}, rtextents={}", raw.rblocks, raw.rextents);
    line("realtime", "none", realtime);
    line("", "", format_args!("rgcount={:<4} rgsize={} extents", raw.rgcount, raw.rgextents));
    out
}
