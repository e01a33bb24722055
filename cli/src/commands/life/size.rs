//! `xebec grow`, `xebec shrink`, `xebec minimize`: another size for a volume, and for the file that it lies in. One
//! that is mounted grows by way of its mount ([`mounted`](super::mounted)).

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use base::errno;
use block::Device;
use clap::Args;
use serde::Serialize;
use xebec::resize::{FEWEST_AGS, FreeEnd, Shrunk};

use crate::args::Global;
use crate::commands::edit::DONE;
use crate::json;
use crate::open::{self, ForChanges};
use crate::output::Stdout;
use crate::sizes::{self, spoken};

/// Arguments of `grow`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "An image file is made longer first; a block device or a partition must have the room already. New \
    allocation groups are as large as those that there are. A last one that would be too small is left out, as with \
    xfs_growfs, so the volume may come out a little smaller than asked for. A volume that `xebec mount` serves grows \
    while it is in use: name the directory instead of the image, as who mounted it or as root.\n\n\
    Examples:\n  \
    xebec grow disk.xfs 20g\n  \
    xebec grow disk.xfs +512m\n  \
    truncate -s 1t disk.xfs && xebec grow disk.xfs\n  \
    xebec grow --json /dev/sdb1 max\n  \
    xebec grow mnt +10g\n\n\
    Exit codes: 0 done, or nothing was to be done; 1 it failed; 2 wrong usage."
)]
pub struct Grow {
    /// The image; or the directory on which it is mounted.
    pub image: PathBuf,
    /// How large: bytes, with suffix k, m, g or t; how much larger, after a plus; or `max`: as large as its file,
    /// device or partition.
    #[arg(default_value = "max", value_parser = parse_size)]
    pub size: Size,
}

/// Arguments of `shrink`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Only what is free at the end can go: empty allocation groups, and the free end of the last \
    one that stays. Nothing is moved. An image file is cut off behind the volume; a block device or a partition keeps \
    its size.\n\n\
    Examples:\n  \
    xebec shrink disk.xfs 2g\n  \
    xebec shrink --minimum disk.xfs\n\n\
    Exit codes: 0 done, or nothing was to be done; 1 it failed, or more is in use; 2 wrong usage."
)]
pub struct Shrink {
    /// The image.
    pub image: PathBuf,
    /// How large: bytes, with suffix k, m, g or t.
    #[arg(value_parser = sizes::parse, required_unless_present = "minimum", conflicts_with = "minimum")]
    pub size: Option<u64>,
    /// As small as it can be.
    #[arg(long)]
    pub minimum: bool,
}

/// Arguments of `minimize`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "The same as `xebec shrink --minimum`, and says what keeps it from being smaller. Free space \
    between files stays, but takes no room in a sparse file after `xebec trim`.\n\n\
    Examples:\n  \
    xebec minimize disk.xfs\n  \
    xebec minimize disk.xfs && xebec trim disk.xfs\n\n\
    Exit codes: as `xebec shrink`."
)]
pub struct Minimize {
    /// The image.
    pub image: PathBuf,
}

/// A size for `grow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// That many bytes.
    To(u64),
    /// That many more.
    By(u64),
    /// What there is room for.
    Max,
}

impl Size {
    /// In bytes, of a volume that has so many and that could have so many.
    pub fn of(self, now: u64, most: u64) -> u64 {
        match self {
            Self::To(bytes) => bytes,
            Self::By(more) => now.saturating_add(more),
            Self::Max => most,
        }
    }
}

fn parse_size(text: &str) -> Result<Size, String> {
    match text.strip_prefix('+') {
        Some(more) => sizes::parse(more).map(Size::By),
        None if text == "max" => Ok(Size::Max),
        None => sizes::parse(text).map(Size::To).map_err(|why| format!("{why}, nor `max`")),
    }
}

/// The JSON payload, in the order of docs/json.md.
#[derive(Debug, Serialize)]
struct Document {
    block_size: u32,
    before_blocks: u64,
    before_bytes: u64,
    after_blocks: u64,
    after_bytes: u64,
    ag_count: u32,
    /// What the file, device or partition has now.
    device_bytes: u64,
    /// The fewest blocks that the volume can have as it is; not of `grow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    least_blocks: Option<u64>,
    /// Bytes up to the last block that is in use; not of `grow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    used_bytes: Option<u64>,
}

/// A change of size that was done.
pub struct Done<'a> {
    pub command: &'a str,
    pub image: &'a Path,
    pub device_bytes: u64,
    pub block: u32,
    pub ag_count: u32,
    pub before: u64,
    pub after: u64,
    pub end: Option<FreeEnd>,
}

impl Done<'_> {
    /// Says what changed.
    pub fn tell(&self, global: &Global) -> anyhow::Result<()> {
        let bytes = |blocks: u64| blocks * u64::from(self.block);
        if global.json {
            return json::write(
                self.command,
                &self.image.display().to_string(),
                Document {
                    block_size: self.block,
                    before_blocks: self.before,
                    before_bytes: bytes(self.before),
                    after_blocks: self.after,
                    after_bytes: bytes(self.after),
                    ag_count: self.ag_count,
                    device_bytes: self.device_bytes,
                    least_blocks: self.end.map(|end| end.least),
                    used_bytes: self.end.map(|end| bytes(end.used)),
                },
            );
        }
        let mut out = Stdout::buffered();
        let (before, after) = (spoken(bytes(self.before)), spoken(bytes(self.after)));
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
        return super::mounted::grow(&arguments.image, arguments.size, global);
    }
    let ForChanges { device, options, messages } = open::for_changes(&arguments.image, global)?;
    let mut before = None;
    loop {
        let volume = xebec::Volume::open(Arc::clone(&device), options.clone())?;
        let geometry = volume.geometry().clone();
        let (block, now) = (u64::from(geometry.block_size), geometry.bytes());
        let first = *before.get_or_insert(geometry.blocks());
        let wanted = arguments.size.of(first * block, device.size());
        // An open volume is prepared for some growth; then it is opened anew.
        let step = (wanted / block).min(geometry.foreseen);
        let result = volume.grow(step).map_err(|error| {
            let errno = error.errno();
            why_not(error.into(), errno, wanted, (now, device.size()))
        });
        let (after, ag_count) = (volume.geometry().blocks(), volume.geometry().ag_count());
        volume.unmount().context("the volume could not be unmounted")?;
        result?;
        if step < wanted / block && after > geometry.blocks() {
            continue;
        }
        if after == first {
            messages.note("there is no room for more: nothing was changed");
        }
        let (block, image) = (geometry.block_size, arguments.image.as_path());
        let done = Done {
            command: "grow",
            image,
            device_bytes: device.size(),
            block,
            ag_count,
            before: first,
            after,
            end: None,
        };
        done.tell(global)?;
        return Ok(DONE);
    }
}

/// Why a volume cannot grow, with what to do.
pub fn why_not(error: anyhow::Error, errno: i32, wanted: u64, (now, has): (u64, u64)) -> anyhow::Error {
    if wanted < now {
        anyhow::anyhow!(
            "the volume has {} already, and {} is less: see `xebec shrink`",
            spoken(now),
            spoken(wanted)
        )
    } else if has < wanted && errno != errno::ENOSPC && errno != errno::EFBIG {
        error.context(format!(
            "there are only {}: make the partition or device larger first (growpart, sfdisk, lvextend)",
            spoken(has)
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
    let geometry = xebec::image::superblock(&device)?.geometry;
    let block = geometry.block_size;
    let blocks = size.map(|bytes| bytes / u64::from(block));
    let shrunk = match xebec::resize::shrink(&device, &options, blocks) {
        Ok(shrunk) => shrunk,
        Err(error) => return Err(too_small(error, &device, &options)),
    };
    let Shrunk { before, after, end } = shrunk;
    let bytes = after * u64::from(block);
    if after < before && device.set_size(bytes).is_err() {
        messages.note(
            "the device, the partition or the disk in a qcow2 image keeps its size (make it smaller with sfdisk, \
             lvreduce or `qemu-img resize --shrink`)",
        );
    }
    let ag_count = xebec::image::superblock(&device)?.geometry.ag_count();
    let device_bytes = device.size();
    Done { command, image, device_bytes, block, ag_count, before, after, end: Some(end) }.tell(global)?;
    if size.is_none() {
        messages.note(limit(&end, after, (block, ag_count)));
    }
    Ok(DONE)
}

/// What keeps the volume from being smaller.
fn limit(end: &FreeEnd, after: u64, (block, ag_count): (u32, u32)) -> String {
    let used = spoken(end.used * u64::from(block));
    if end.used >= after {
        "it cannot be smaller: the last block is in use (files are not moved)".into()
    } else if ag_count <= FEWEST_AGS {
        format!("it cannot be smaller: the trees of its last AG need what is free behind {used}")
    } else {
        format!("it cannot be smaller: what is in use ends at {used}")
    }
}

fn too_small(error: xebec::Error, device: &Arc<dyn Device>, options: &xebec::Options) -> anyhow::Error {
    let text = match error.errno() {
        errno::EINVAL => "the volume is smaller than that already: see `xebec grow`".to_owned(),
        errno::ENOSPC => match least(device, options) {
            Ok(bytes) => format!("it cannot be smaller than {} ({bytes} bytes)", spoken(bytes)),
            Err(_) => return error.into(),
        },
        _ => return error.into(),
    };
    anyhow::anyhow!("{text}")
}

fn least(device: &Arc<dyn Device>, options: &xebec::Options) -> anyhow::Result<u64> {
    let volume = xebec::Volume::open(Arc::clone(device), options.clone())?;
    let (least, block) = (volume.free_end()?.least, volume.geometry().block_size);
    volume.unmount()?;
    if least == 0 {
        bail!("unknown");
    }
    Ok(least * u64::from(block))
}
