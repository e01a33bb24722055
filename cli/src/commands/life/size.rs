//! `xebec grow`, `xebec shrink`, `xebec minimize`: resize a volume and its image file. Mounted volumes: see
//! [`online`](super::online).

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use serde_json::json;
use xebec::errno::{self, Errno};
use xebec::resize::{self, GrowError, GrowReport, MIN_AGS, NewSize, ShrinkError, ShrinkLimit, ShrinkReport};

use crate::args::Global;
use crate::commands::edit::unmount_failed;
use crate::json;
use crate::open::{self, ForChanges};
use crate::output::{Stdout, exit_code};
use crate::sizes::{self, with_unit};
use crate::urls::shown;

/// Arguments of `grow`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "An image file is extended first; a block device or partition must have the space already. New \
    allocation groups have the size of the existing ones. As in xfs_growfs, a last AG that would be too small is \
    not added, so that the volume may become slightly smaller than requested. A volume mounted by `xebec mount` \
    can be grown online: name the mount point instead of the image, as the user who mounted it or as root.\n\n\
    Examples:\n  \
    xebec grow disk.xfs 20g\n  \
    xebec grow disk.xfs +512m\n  \
    truncate -s 1t disk.xfs && xebec grow disk.xfs\n  \
    xebec grow --json /dev/sdb1 max\n  \
    xebec grow mnt +10g\n\n\
    Exit codes: 0 success, or nothing to do; 1 failure; 2 usage error."
)]
pub struct Grow {
    /// The image, or the mount point.
    pub image: PathBuf,
    /// New size in bytes; with +, an increment; or `max`: the size of the file, device or partition. Suffixes k, m, g,
    /// t.
    #[arg(default_value = "max", value_parser = parse_size)]
    pub size: NewSize,
}

/// Arguments of `shrink`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Only free space at the end of the volume can be removed: empty allocation groups, and the free \
    end of the last remaining one. No files are moved. An image file is truncated to the volume; a block device or \
    partition keeps its size.\n\n\
    Examples:\n  \
    xebec shrink disk.xfs 2g\n  \
    xebec shrink --minimum disk.xfs\n\n\
    Exit codes: 0 success, or nothing to do; 1 failure, or more space is in use; 2 usage error."
)]
pub struct Shrink {
    /// The image.
    pub image: PathBuf,
    /// New size in bytes; suffixes k, m, g, t.
    #[arg(value_parser = sizes::parse, required_unless_present = "minimum", conflicts_with = "minimum")]
    pub size: Option<u64>,
    /// Shrink to the minimum size.
    #[arg(long)]
    pub minimum: bool,
}

/// Arguments of `minimize`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Same as `xebec shrink --minimum`, and reports what limits the size. Free space between files \
    remains; `xebec trim` makes it sparse in an image file.\n\n\
    Examples:\n  \
    xebec minimize disk.xfs\n  \
    xebec minimize disk.xfs && xebec trim disk.xfs\n\n\
    Exit codes: those of `xebec shrink`."
)]
pub struct Minimize {
    /// The image.
    pub image: PathBuf,
}

fn parse_size(text: &str) -> Result<NewSize, String> {
    match text.strip_prefix('+') {
        Some(more) => sizes::parse(more).map(NewSize::MoreBytes),
        None if text == "max" => Ok(NewSize::Device),
        None => sizes::parse(text).map(NewSize::Bytes).map_err(|why| format!("{why}, nor `max`")),
    }
}

/// Result of a resize.
pub struct Resize<'a> {
    pub command: &'a str,
    pub image: &'a Path,
    pub device_bytes: u64,
    pub block: u32,
    pub ag_count: u32,
    pub before: u64,
    pub after: u64,
    pub end: Option<ShrinkLimit>,
}

impl Resize<'_> {
    /// Prints the result.
    pub fn print(&self, global: &Global) -> anyhow::Result<()> {
        let bytes = |blocks: u64| blocks * u64::from(self.block);
        if global.json {
            // `least_blocks` and `used_bytes` are not for `grow`.
            let document = json!({
                "block_size": self.block,
                "before_blocks": self.before,
                "before_bytes": bytes(self.before),
                "after_blocks": self.after,
                "after_bytes": bytes(self.after),
                "ag_count": self.ag_count,
                "device_bytes": self.device_bytes,
                "least_blocks": self.end.map(|end| end.min_blocks),
                "used_bytes": self.end.map(|end| bytes(end.used_blocks)),
            });
            let image = shown(self.image);
            return json::write(self.command, &image, json::without_nulls(document));
        }
        let mut out = Stdout::buffered();
        let (before, after) = (with_unit(bytes(self.before)), with_unit(bytes(self.after)));
        if self.before == self.after {
            writeln!(out, "unchanged: {after}, {} blocks in {} AGs", self.after, self.ag_count)?;
        } else {
            let (from, to) = (self.before, self.after);
            writeln!(out, "{before} -> {after}: {from} -> {to} blocks, {} AGs", self.ag_count)?;
        }
        Ok(out.flush()?)
    }
}

/// Runs `grow`.
pub fn grow(arguments: &Grow, global: &Global) -> anyhow::Result<u8> {
    if arguments.image.is_dir() {
        return super::online::grow(&arguments.image, arguments.size, global);
    }
    let image = arguments.image.as_path();
    let ForChanges { device, options, messages } = open::for_changes(image, global)?;
    let GrowReport { block_size: block, before, after, ag_count } =
        resize::grow(&device, &options, arguments.size).map_err(not_grown)?;
    if after == before {
        messages.note("no room to grow: nothing was changed");
    }
    let device_bytes = device.size();
    Resize { command: "grow", image, device_bytes, block, ag_count, before, after, end: None }
        .print(global)?;
    Ok(exit_code::OK)
}

fn not_grown(error: GrowError) -> anyhow::Error {
    match error {
        GrowError::Grow { error, requested, current, available } => {
            let errno = error.errno();
            why_not(error.into(), errno, requested, current, available)
        }
        GrowError::Unmount(error) => unmount_failed(error),
        error => xebec::Error::from(error).into(),
    }
}

/// Explains why a volume cannot grow.
pub fn why_not(error: anyhow::Error, errno: Errno, wanted: u64, now: u64, has: u64) -> anyhow::Error {
    if wanted < now {
        anyhow!("the volume has {}, and {} is less: see `xebec shrink`", with_unit(now), with_unit(wanted))
    } else if has < wanted && errno != errno::ENOSPC && errno != errno::EFBIG {
        error.context(format!(
            "only {} available: enlarge the partition or device first (growpart, sfdisk, lvextend)",
            with_unit(has)
        ))
    } else {
        error
    }
}

/// Runs `shrink`.
pub fn shrink(arguments: &Shrink, global: &Global) -> anyhow::Result<u8> {
    smaller("shrink", &arguments.image, arguments.size, global)
}

/// Runs `minimize`.
pub fn minimize(arguments: &Minimize, global: &Global) -> anyhow::Result<u8> {
    smaller("minimize", &arguments.image, None, global)
}

fn smaller(command: &str, image: &Path, size: Option<u64>, global: &Global) -> anyhow::Result<u8> {
    let ForChanges { device, options, messages } = open::for_changes(image, global)?;
    let block = xebec::image::superblock(&device)?.geometry.block_size;
    let blocks = size.map(|bytes| bytes / u64::from(block));
    let shrunk = resize::shrink(&device, &options, blocks).map_err(|error| not_shrunk(error, block))?;
    let ShrinkReport { before, after, ag_count, limit: end } = shrunk;
    let bytes = after * u64::from(block);
    if after < before && device.set_size(bytes).is_err() {
        messages.note(
            "the device, partition or qcow2 disk keeps its size (reduce it with sfdisk, lvreduce or `qemu-img \
            resize --shrink`)",
        );
    }
    let device_bytes = device.size();
    Resize { command, image, device_bytes, block, ag_count, before, after, end: Some(end) }.print(global)?;
    if size.is_none() {
        messages.note(limit(&end, after, block, ag_count));
    }
    Ok(exit_code::OK)
}

/// What limits the size of the volume.
fn limit(end: &ShrinkLimit, after: u64, block: u32, ag_count: u32) -> String {
    let used = with_unit(end.used_blocks * u64::from(block));
    if end.used_blocks >= after {
        "cannot shrink further: the last block is in use (files are not moved)".into()
    } else if ag_count <= MIN_AGS {
        format!("cannot shrink further: the btrees of the last AG need the free space after {used}")
    } else {
        format!("cannot shrink further: used space ends at {used}")
    }
}

fn not_shrunk(error: ShrinkError, block: u32) -> anyhow::Error {
    match error {
        ShrinkError::Larger => anyhow!("the volume is already smaller than that: see `xebec grow`"),
        ShrinkError::InUse { min_blocks } => {
            let bytes = min_blocks * u64::from(block);
            anyhow!("the minimum size is {} ({bytes} bytes)", with_unit(bytes))
        }
        error => xebec::Error::from(error).into(),
    }
}
