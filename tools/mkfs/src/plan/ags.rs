//! Number and size of AGs.

use format::limits::ag;

use super::validate::{GROW_TO, ValidOptions};
use crate::error::MkfsError;
use crate::options::Options;

/// The AGs of the volume.
#[derive(Debug)]
pub struct Ags {
    pub ag_blocks: u32,
    pub ag_count: u32,
    /// Size of the volume in blocks, without a last AG that would be too small.
    pub blocks: u64,
}

pub fn choose(options: &Options, valid: &ValidOptions) -> Result<Ags, MkfsError> {
    let (min, max) = (ag::min_blocks(options.block_size), ag::max_blocks(options.block_size));
    let ag_blocks = match (options.ag_count, options.ag_size) {
        (Some(_), Some(_)) => return Err(MkfsError::option("-d agcount", "conflicts with -d agsize")),
        (Some(count), None) => size_by_count(valid, count)?,
        (None, Some(size)) => given_size(options, valid, size)?,
        (None, None) if options.grow_to.is_some() => size_for_growth(options, valid)?,
        (None, None) => default_size(options, valid, valid.blocks),
    };
    let refuse = |problem| {
        let option = if options.ag_size.is_some() { "-d agsize" } else { "-d agcount" };
        Err(MkfsError::option(option, problem))
    };
    if ag_blocks < u64::from(min) {
        return refuse(format!("an AG of {ag_blocks} blocks is too small: the minimum is {min} (16 MiB)"));
    }
    if ag_blocks > u64::from(max) {
        let problem =
            format!("an AG of {ag_blocks} blocks is too large: the maximum is {max} (less than 1 TiB)");
        return refuse(problem);
    }
    let ag_blocks = ag_blocks as u32; // at most `max`
    let mut blocks = valid.blocks;
    let rest = blocks % u64::from(ag_blocks);
    if rest > 0 && rest < u64::from(min) && blocks > u64::from(ag_blocks) {
        blocks -= rest;
    }
    let count = blocks.div_ceil(ag_blocks.into());
    match u32::try_from(count) {
        Ok(ag_count) => Ok(Ags { ag_blocks, ag_count, blocks }),
        Err(_) => refuse(format!("{count} AGs are too many")),
    }
}

fn size_by_count(valid: &ValidOptions, count: u64) -> Result<u64, MkfsError> {
    if count == 0 || count > valid.blocks {
        let problem = format!("{count} is not between 1 and the number of blocks, {}", valid.blocks);
        return Err(MkfsError::option("-d agcount", problem));
    }
    // Each AG begins at a multiple of the stripe unit.
    Ok(valid.blocks.div_ceil(count).next_multiple_of(u64::from(valid.stripe_unit.max(1))))
}

fn given_size(options: &Options, valid: &ValidOptions, size: u64) -> Result<u64, MkfsError> {
    let block = u64::from(options.block_size);
    if !size.is_multiple_of(block) {
        let problem = format!("{size} bytes are not a multiple of the block size, {block}");
        return Err(MkfsError::option("-d agsize", problem));
    }
    let blocks = size / block;
    if blocks > valid.blocks {
        return Err(MkfsError::option("-d agsize", "an AG would be larger than the volume"));
    }
    Ok(blocks.next_multiple_of(u64::from(valid.stripe_unit.max(1))))
}

/// The size for the volume after it has grown. If the volume is too small for such an AG and a second one, the largest
/// size that leaves space for a second AG of the minimum size.
fn size_for_growth(options: &Options, valid: &ValidOptions) -> Result<u64, MkfsError> {
    let min = u64::from(ag::min_blocks(options.block_size));
    let unit = u64::from(valid.stripe_unit.max(1));
    let max = valid.blocks.saturating_sub(min) / unit * unit;
    if max < min {
        let problem = "the volume is too small for two AGs that are aligned to the stripe unit";
        return Err(MkfsError::option(GROW_TO, problem));
    }
    Ok(default_size(options, valid, valid.blocks_grown).min(max))
}

/// The default: four AGs for a single disk and more for a RAID; fewer if they would be too small, more if they would be
/// too large.
fn default_size(options: &Options, valid: &ValidOptions, blocks: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    let (min, max) = (ag::min_blocks(options.block_size), ag::max_blocks(options.block_size));
    let size = blocks.saturating_mul(options.block_size.into());
    let is_raid = valid.stripe_unit > 0;
    let count = match size {
        _ if size < 32 * MIB => 1,
        _ if size < 64 * MIB => 2,
        _ if size < 128 * MIB || !is_raid => 4,
        _ if size <= 8 * GIB => 8,
        _ if size <= 512 * GIB => 16,
        _ => 32,
    };
    let ag_blocks = blocks.div_ceil(count).min(max.into());
    let (unit, width) = (u64::from(valid.stripe_unit), u64::from(valid.stripe_width));
    if unit == 0 {
        return ag_blocks;
    }
    let mut aligned = ag_blocks.next_multiple_of(unit);
    if aligned > u64::from(max) {
        aligned = ag_blocks - ag_blocks % unit;
    }
    // Do not place all AG headers on the same disk.
    if width > unit && aligned.is_multiple_of(width) && blocks.div_ceil(aligned) > 1 {
        aligned = if aligned - unit >= u64::from(min) { aligned - unit } else { aligned + unit };
    }
    aligned
}
