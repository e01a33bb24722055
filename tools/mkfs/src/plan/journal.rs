//! Size and location of the log.

use format::limits::{VolumeShape, log};

use super::ags::Ags;
use super::validate::ValidOptions;
use crate::error::MkfsError;
use crate::options::{LogLocation, Options};

/// The log of a planned volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// Size in blocks.
    pub blocks: u32,
    /// Location of an internal log.
    pub start: Option<LogStart>,
    /// Sector size of its device in bytes.
    pub sector_size: u32,
}

/// The first block of an internal log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStart {
    /// AG.
    pub ag: u32,
    /// Block in the AG.
    pub block: u32,
}

/// Maximum stripe unit of a log.
const MAX_STRIPE_UNIT: u64 = 256 << 10;
/// Stripe unit of the log if that of the volume is larger than the maximum.
const SMALLER_STRIPE_UNIT: u64 = 32 << 10;
/// Volumes below this size have the minimum log.
const MIN_LOG_BELOW: u64 = 300 << 20;
/// Ratio of the size of a volume to that of its log.
const RATIO: u64 = 2048;

pub fn choose(
    options: &Options,
    valid: &ValidOptions,
    ags: &Ags,
    shape: &mut VolumeShape,
) -> Result<Log, MkfsError> {
    shape.log_stripe_unit = stripe_unit(options, valid)?;
    let ag = match options.log.location {
        LogLocation::External(size) => return external(options, valid, shape, size),
        LogLocation::Internal if options.grow_to.is_some() => full_size_ag(ags),
        LogLocation::Internal => ags.ag_count / 2,
        LogLocation::Ag(ag) if ag < ags.ag_count => ag,
        LogLocation::Ag(ag) => {
            let problem = format!("AG {ag} does not exist: the volume has {} AGs", ags.ag_count);
            return Err(MkfsError::option("-l agnum", problem));
        }
    };
    let min = shape.min_log_blocks();
    // mkfs.xfs leaves one of the usable blocks of the AG free.
    let max = u64::from(shape.ag_usable_blocks()).saturating_sub(1);
    let unit = u64::from(shape.log_stripe_unit / shape.block_size).max(1);
    let start_align = if shape.log_stripe_unit > 0 { unit } else { u64::from(valid.stripe_unit.max(1)) };
    // The kernel requires that the file system block number is aligned, not the block number in the AG.
    let base = u64::from(ag) << shape.ag_block_log();
    let start = (base + u64::from(shape.roots().end)).next_multiple_of(start_align) - base;
    let length = (ags.blocks - u64::from(ag) * u64::from(ags.ag_blocks)).min(ags.ag_blocks.into());
    let blocks = match options.log.size {
        Some(size) => given_size(options, shape, size, max + 1)?,
        None => {
            let blocks = align(default_size(options, valid, ags, shape).min(max), unit, min, max);
            if start + blocks > length { length.saturating_sub(start) / unit * unit } else { blocks }
        }
    };
    if blocks < min || start + blocks > length {
        let problem = format!("an AG is too small for the smallest log, {min} blocks: enlarge the volume");
        return Err(MkfsError::option("-l size", problem));
    }
    // Both are at most the size of an AG, which has 32 bits.
    let start = Some(LogStart { ag, block: start as u32 });
    Ok(Log { blocks: blocks as u32, start, sector_size: valid.log_sector_size })
}

/// The stripe unit of the log in bytes, 0 for none: as given, or one block for sectors of more than 512 bytes, or that
/// of the volume.
fn stripe_unit(options: &Options, valid: &ValidOptions) -> Result<u32, MkfsError> {
    let block = u64::from(options.block_size);
    let bytes = match options.log.stripe_unit {
        Some(bytes) if bytes > MAX_STRIPE_UNIT => {
            return Err(MkfsError::option("-l su", format!("{bytes} bytes are more than 256 KiB")));
        }
        Some(bytes) if bytes.is_multiple_of(block) => bytes,
        Some(bytes) => {
            let problem = format!("{bytes} bytes are not a multiple of the block size, {block}");
            return Err(MkfsError::option("-l su", problem));
        }
        None if valid.log_sector_size > 512 => block,
        None if valid.stripe_unit > 0 => u64::from(valid.stripe_unit) * block,
        None => 0,
    };
    let bytes = if bytes > MAX_STRIPE_UNIT { SMALLER_STRIPE_UNIT.max(block) } else { bytes };
    // At most MAX_STRIPE_UNIT.
    Ok(bytes as u32)
}

/// The size of `-l size` in blocks, which must be below `limit`.
fn given_size(options: &Options, shape: &VolumeShape, size: u64, limit: u64) -> Result<u64, MkfsError> {
    let block = u64::from(options.block_size);
    let refuse = |problem| Err(MkfsError::option("-l size", problem));
    if !size.is_multiple_of(block) {
        return refuse(format!("{size} bytes are not a multiple of the block size, {block}"));
    }
    let (blocks, min) = (size / block, shape.min_log_blocks());
    let unit = u64::from(shape.log_stripe_unit) / block;
    if unit > 0 && !blocks.is_multiple_of(unit) {
        return refuse(format!("{blocks} blocks are not a multiple of the log stripe unit of {unit}"));
    }
    if blocks < min {
        return refuse(too_few(blocks, min));
    }
    let max = shape.max_log_blocks().min(limit - 1);
    if blocks > max {
        return refuse(format!("{blocks} blocks are too many: the maximum for this volume is {max}"));
    }
    Ok(blocks)
}

fn too_few(blocks: u64, min: u64) -> String {
    format!("{blocks} blocks are too few: the minimum for this volume is {min}")
}

/// The middle AG, or AG 0 if the middle one is shorter than the others.
fn full_size_ag(ags: &Ags) -> u32 {
    let middle = ags.ag_count / 2;
    let end = u64::from(middle + 1) * u64::from(ags.ag_blocks);
    if end <= ags.blocks { middle } else { 0 }
}

/// The default size in blocks. For a volume that will grow it is that of the later volume, but at most an eighth of the
/// current one if that is larger than its own default.
fn default_size(options: &Options, valid: &ValidOptions, ags: &Ags, shape: &VolumeShape) -> u64 {
    let now = size_for(options, ags.blocks, shape);
    match options.grow_to {
        Some(_) => size_for(options, valid.blocks_grown, shape).min(ags.blocks / 8).max(now),
        None => now,
    }
}

/// The size in blocks of the log of a volume of `blocks` blocks.
fn size_for(options: &Options, blocks: u64, shape: &VolumeShape) -> u64 {
    let block = u64::from(options.block_size);
    let min = shape.min_log_blocks();
    let size = blocks.saturating_mul(block);
    if size < MIN_LOG_BELOW {
        return min;
    }
    (size / RATIO / block).max(log::REALISTIC_BYTES / block).max(min).min(shape.max_log_blocks())
}

/// Rounds up to the stripe unit, or down if the result exceeded `max`.
fn align(blocks: u64, unit: u64, min: u64, max: u64) -> u64 {
    let up = blocks.next_multiple_of(unit);
    if up <= max { up } else { (blocks - blocks % unit).max(min) }
}

/// A log on an external device of `size` bytes.
fn external(
    options: &Options,
    valid: &ValidOptions,
    shape: &VolumeShape,
    size: u64,
) -> Result<Log, MkfsError> {
    let block = u64::from(options.block_size);
    if let Some(given) = options.log.size.filter(|given| *given > size) {
        let problem = format!("{given} bytes are more than the size of the log device, {size}");
        return Err(MkfsError::option("-l size", problem));
    }
    let max = shape.max_log_blocks();
    let unit = (u64::from(shape.log_stripe_unit) / block).max(1);
    let blocks = match options.log.size {
        Some(given) => given_size(options, shape, given, max + 1)?,
        None => (size / block).min(max) / unit * unit,
    };
    let min = shape.min_log_blocks();
    if blocks < min {
        return Err(MkfsError::option("-l size", too_few(blocks, min)));
    }
    // At most `max`, 2^20.
    Ok(Log { blocks: blocks as u32, start: None, sector_size: valid.log_sector_size })
}
