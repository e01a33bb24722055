//! How large the log is, and where it lies.

use format::limits::{VolumeShape, log};

use super::check::Basics;
use super::groups::Groups;
use crate::error::MkfsError;
use crate::options::{LogPlace, Options};

/// The log of a planned volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// Blocks.
    pub blocks: u32,
    /// AG and block where it begins; `None` on a device of its own.
    pub place: Option<(u32, u32)>,
    /// Bytes of a sector of its device.
    pub sector_size: u32,
}

/// Largest stripe unit of a log, and what is taken where a volume's is larger.
const STRIPE_UNIT_MAX: u64 = 256 << 10;
const STRIPE_UNIT_INSTEAD: u64 = 32 << 10;
/// From this size on a volume affords a log of more than the minimum.
const AFFORDS: u64 = 300 << 20;
/// A log is this part of the volume.
const RATIO: u64 = 2048;

pub fn choose(
    options: &Options,
    basics: &Basics,
    groups: &Groups,
    shape: &mut VolumeShape,
) -> Result<Log, MkfsError> {
    shape.log_stripe_unit = stripe_unit(options, basics)?;
    let ag = match options.log.place {
        LogPlace::External(size) => return external(options, basics, shape, size),
        LogPlace::Internal if options.grow_to.is_some() => whole_ag(groups),
        LogPlace::Internal => groups.ag_count / 2,
        LogPlace::Ag(ag) if ag < groups.ag_count => ag,
        LogPlace::Ag(ag) => {
            let problem = format!("AG {ag} does not exist: there are {}", groups.ag_count);
            return Err(MkfsError::option("-l agnum", problem));
        }
    };
    let least = shape.min_log_blocks();
    // All but one of the blocks that an AG can have in one piece.
    let most = u64::from(shape.ag_usable_blocks()).saturating_sub(1);
    let unit = u64::from(shape.log_stripe_unit / shape.block_size).max(1);
    let blocks = match options.log.size {
        Some(size) => asked(options, shape, size, most + 1)?,
        None => by_default(options, basics, groups, shape).min(most),
    };
    let blocks = if options.log.size.is_some() { blocks } else { align(blocks, unit, least, most) };
    let first = u64::from(shape.roots().end);
    let align_to = if shape.log_stripe_unit > 0 { unit } else { u64::from(basics.stripe_unit.max(1)) };
    // Packed block numbers are aligned, as the kernel sees them, not those within the AG.
    let base = u64::from(ag) << shape.ag_block_log();
    let start = (base + first).next_multiple_of(align_to) - base;
    let length = (groups.blocks - u64::from(ag) * u64::from(groups.ag_blocks)).min(groups.ag_blocks.into());
    let blocks = if start + blocks > length && options.log.size.is_none() {
        (length.saturating_sub(start)) / unit * unit
    } else {
        blocks
    };
    if blocks < least || start + blocks > length {
        return Err(MkfsError::option(
            "-l size",
            format!("an AG has no room for the smallest log, {least} blocks: the volume is too small"),
        ));
    }
    // Below an AG's blocks, and so 32 bits wide.
    Ok(Log { blocks: blocks as u32, place: Some((ag, start as u32)), sector_size: basics.log_sector_size })
}

/// Bytes; 0 for none. As asked; else a block where sectors are larger than 512 bytes; else the volume's.
fn stripe_unit(options: &Options, basics: &Basics) -> Result<u32, MkfsError> {
    let block = u64::from(options.block_size);
    let bytes = match options.log.stripe_unit {
        Some(bytes) if bytes > STRIPE_UNIT_MAX => {
            let problem = format!("{bytes} bytes are too many: a log's stripe unit is at most 256 KiB");
            return Err(MkfsError::option("-l su", problem));
        }
        Some(bytes) if bytes.is_multiple_of(block) => bytes,
        Some(bytes) => {
            let problem = format!("{bytes} bytes are not a multiple of the block size, {block}");
            return Err(MkfsError::option("-l su", problem));
        }
        None if basics.log_sector_size > 512 => block,
        None if basics.stripe_unit > 0 => u64::from(basics.stripe_unit) * block,
        None => 0,
    };
    let bytes = if bytes > STRIPE_UNIT_MAX { STRIPE_UNIT_INSTEAD.max(block) } else { bytes };
    // At most STRIPE_UNIT_MAX.
    Ok(bytes as u32)
}

fn asked(options: &Options, shape: &VolumeShape, size: u64, limit: u64) -> Result<u64, MkfsError> {
    let block = u64::from(options.block_size);
    let refuse = |problem| Err(MkfsError::option("-l size", problem));
    if !size.is_multiple_of(block) {
        return refuse(format!("{size} bytes are not a multiple of the block size, {block}"));
    }
    let (blocks, least) = (size / block, shape.min_log_blocks());
    let unit = u64::from(shape.log_stripe_unit) / block;
    if unit > 0 && !blocks.is_multiple_of(unit) {
        return refuse(format!("{blocks} blocks are not a multiple of the log stripe unit of {unit}"));
    }
    if blocks < least {
        return refuse(format!("{blocks} blocks are too few: the kernel asks for {least} on such a volume"));
    }
    if blocks >= limit {
        return refuse(format!("{blocks} blocks are too many: a log in an AG has less than {limit}"));
    }
    if blocks > shape.max_log_blocks() {
        return refuse(format!("{blocks} blocks are too many: a log has at most {}", shape.max_log_blocks()));
    }
    Ok(blocks)
}

/// The AG in the middle, unless it is the last and shorter than the others.
fn whole_ag(groups: &Groups) -> u32 {
    let middle = groups.ag_count / 2;
    let end = u64::from(middle + 1) * u64::from(groups.ag_blocks);
    if end <= groups.blocks { middle } else { 0 }
}

/// For the volume as it will be; while it is small, the log takes an eighth of it, or what it would take anyway.
fn by_default(options: &Options, basics: &Basics, groups: &Groups, shape: &VolumeShape) -> u64 {
    let now = for_blocks(options, groups.blocks, shape);
    match options.grow_to {
        Some(_) => for_blocks(options, basics.blocks_grown, shape).min(groups.blocks / 8).max(now),
        None => now,
    }
}

fn for_blocks(options: &Options, blocks: u64, shape: &VolumeShape) -> u64 {
    let block = u64::from(options.block_size);
    let least = shape.min_log_blocks();
    let size = blocks.saturating_mul(block);
    if size < AFFORDS {
        return least;
    }
    let part = size / RATIO / block;
    part.max(log::REALISTIC_BYTES / block).max(least).min(shape.max_log_blocks())
}

/// To the stripe unit: up where there is room, else down.
fn align(blocks: u64, unit: u64, least: u64, most: u64) -> u64 {
    let up = blocks.next_multiple_of(unit);
    if up <= most { up } else { (blocks - blocks % unit).max(least) }
}

fn external(options: &Options, basics: &Basics, shape: &VolumeShape, size: u64) -> Result<Log, MkfsError> {
    let block = u64::from(options.block_size);
    let wanted = options.log.size.unwrap_or(size);
    if wanted > size {
        let problem = format!("{wanted} bytes are more than the log's device has, {size}");
        return Err(MkfsError::option("-l size", problem));
    }
    let most = shape.max_log_blocks();
    let unit = (u64::from(shape.log_stripe_unit) / block).max(1);
    let blocks = match options.log.size {
        Some(_) => asked(options, shape, wanted, most + 1)?,
        None => (wanted / block).min(most) / unit * unit,
    };
    let least = shape.min_log_blocks();
    if blocks < least {
        let problem = format!("{blocks} blocks are too few: the kernel asks for {least} on such a volume");
        return Err(MkfsError::option("-l size", problem));
    }
    // At most `most`, 2^20.
    Ok(Log { blocks: blocks as u32, place: None, sector_size: basics.log_sector_size })
}
