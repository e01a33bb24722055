//! How many AGs, and how large.

use format::limits::ag;

use super::check::{Basics, GROW_TO};
use crate::error::MkfsError;
use crate::options::Options;

/// The volume cut into AGs.
#[derive(Debug)]
pub struct Groups {
    pub ag_blocks: u32,
    pub ag_count: u32,
    /// Blocks of the volume: a last AG that would be too small is left out.
    pub blocks: u64,
}

pub fn choose(options: &Options, basics: &Basics) -> Result<Groups, MkfsError> {
    let (least, most) = (ag::min_blocks(options.block_size), ag::max_blocks(options.block_size));
    let ag_blocks = match (options.ag_count, options.ag_size) {
        (Some(_), Some(_)) => {
            return Err(MkfsError::option("-d agcount", "give the number of AGs or their size, not both"));
        }
        (Some(count), None) => by_count(basics, count)?,
        (None, Some(size)) => by_size(options, basics, size)?,
        (None, None) if options.grow_to.is_some() => for_growth(options, basics)?,
        (None, None) => by_default(options, basics, basics.blocks),
    };
    if ag_blocks < u64::from(least) {
        let problem = format!("an AG of {ag_blocks} blocks is too small: it has at least {least} (16 MiB)");
        return Err(MkfsError::option(asked(options), problem));
    }
    if ag_blocks > u64::from(most) {
        let problem =
            format!("an AG of {ag_blocks} blocks is too large: it has at most {most} (less than 1 TiB)");
        return Err(MkfsError::option(asked(options), problem));
    }
    // Between the two, and so 32 bits wide.
    let ag_blocks = ag_blocks as u32;
    let mut blocks = basics.blocks;
    let rest = blocks % u64::from(ag_blocks);
    if rest > 0 && rest < u64::from(least) && blocks > u64::from(ag_blocks) {
        blocks -= rest;
    }
    let count = blocks.div_ceil(ag_blocks.into());
    let Ok(ag_count) = u32::try_from(count) else {
        return Err(MkfsError::option(asked(options), format!("{count} AGs are too many")));
    };
    Ok(Groups { ag_blocks, ag_count, blocks })
}

fn asked(options: &Options) -> &'static str {
    if options.ag_size.is_some() { "-d agsize" } else { "-d agcount" }
}

fn by_count(basics: &Basics, count: u64) -> Result<u64, MkfsError> {
    if count == 0 || count > basics.blocks {
        return Err(MkfsError::option("-d agcount", format!("{count} AGs are impossible")));
    }
    let size = basics.blocks.div_ceil(count);
    // Every AG begins where a stripe unit does.
    Ok(size.next_multiple_of(u64::from(basics.stripe_unit.max(1))))
}

fn by_size(options: &Options, basics: &Basics, size: u64) -> Result<u64, MkfsError> {
    let block = u64::from(options.block_size);
    if !size.is_multiple_of(block) {
        return Err(MkfsError::option(
            "-d agsize",
            format!("{size} bytes are not a multiple of a block, {block}"),
        ));
    }
    let blocks = size / block;
    if blocks > basics.blocks {
        return Err(MkfsError::option("-d agsize", "an AG would be larger than the volume"));
    }
    Ok(blocks.next_multiple_of(u64::from(basics.stripe_unit.max(1))))
}

/// As large as for the volume when it has grown. One that is too small for such an AG and a second one has the largest
/// AG that leaves the smallest possible second one.
fn for_growth(options: &Options, basics: &Basics) -> Result<u64, MkfsError> {
    let least = u64::from(ag::min_blocks(options.block_size));
    let unit = u64::from(basics.stripe_unit.max(1));
    let room = basics.blocks.saturating_sub(least) / unit * unit;
    if room < least {
        let problem = "the volume is too small for two AGs that begin where a stripe unit does";
        return Err(MkfsError::option(GROW_TO, problem));
    }
    let grown = by_default(options, basics, basics.blocks_grown);
    Ok(grown.min(room))
}

/// Four AGs for one disk, more where a stripe tells of several; fewer where they would become too small, more where
/// they would become too large.
fn by_default(options: &Options, basics: &Basics, blocks: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    let (least, most) = (ag::min_blocks(options.block_size), ag::max_blocks(options.block_size));
    let size = blocks.saturating_mul(options.block_size.into());
    let many = basics.stripe_unit > 0;
    let count = match size {
        _ if size < 32 * MIB => 1,
        _ if size < 64 * MIB => 2,
        _ if size < 128 * MIB || !many => 4,
        _ if size <= 8 * GIB => 8,
        _ if size <= 512 * GIB => 16,
        _ => 32,
    };
    let ag_blocks = blocks.div_ceil(count).min(most.into());
    let (unit, width) = (u64::from(basics.stripe_unit), u64::from(basics.stripe_width));
    if unit == 0 {
        return ag_blocks;
    }
    let mut aligned = ag_blocks.next_multiple_of(unit);
    if aligned > u64::from(most) {
        aligned = ag_blocks - ag_blocks % unit;
    }
    // Else all headers would lie on the same disk of a stripe.
    if width > unit && aligned.is_multiple_of(width) && blocks.div_ceil(aligned) > 1 {
        aligned = if aligned - unit >= u64::from(least) { aligned - unit } else { aligned + unit };
    }
    aligned
}
