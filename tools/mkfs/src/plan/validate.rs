//! Options that are wrong on their own, or that the device contradicts.

use format::timestamp::Timestamp;

use crate::error::MkfsError;
use crate::options::{LogPlace, Options};

/// What everything else is computed from.
#[derive(Debug)]
pub struct Basics {
    pub sector_size: u32,
    pub log_sector_size: u32,
    pub dir_block_size: u32,
    /// Blocks that the volume may take at most.
    pub blocks: u64,
    /// Blocks that it will grow to: no fewer.
    pub blocks_grown: u64,
    /// In blocks.
    pub stripe_unit: u32,
    /// In blocks.
    pub stripe_width: u32,
    pub label: [u8; 12],
}

/// What `grow_to` is called.
pub const GROW_TO: &str = "--grow-to";

/// Fewest bytes of a volume: one AG.
const MIN_SIZE: u64 = format::limits::ag::MIN_BYTES;

pub fn basics(options: &Options, device_size: u64, device_sector: u32) -> Result<Basics, MkfsError> {
    let block_size = options.block_size;
    power("-b size", block_size, 1024, 65536)?;
    let sector_size = options.sector_size.unwrap_or(device_sector);
    power("-s size", sector_size, 512, 32768)?;
    if sector_size > block_size {
        let problem = format!("a sector of {sector_size} bytes is larger than a block of {block_size}");
        return Err(MkfsError::option("-s size", problem));
    }
    if sector_size < device_sector {
        let problem = format!("{sector_size} is less than the device's sector of {device_sector} bytes");
        return Err(MkfsError::option("-s size", problem));
    }
    power("-i size", options.inode_size, 512, 2048.min(block_size / 2))?;
    let dir_block_size = options.dir_block_size.unwrap_or(block_size.max(4096));
    power("-n size", dir_block_size, block_size, 65536)?;
    if options.max_inode_percent.is_some_and(|percent| percent > 100) {
        return Err(MkfsError::option("-i maxpct", "a percentage is at most 100"));
    }
    features(options)?;
    let (stripe_unit, stripe_width) = stripe(options)?;
    let log_sector_size = match (options.log.place, options.log.sector_size) {
        (LogPlace::External(_), given) => given.unwrap_or(sector_size),
        (_, None) => sector_size,
        (_, Some(given)) if given == sector_size => given,
        _ => {
            return Err(MkfsError::option(
                "-l sectsize",
                format!("an internal log has the volume's sectors of {sector_size} bytes"),
            ));
        }
    };
    power("-l sectsize", log_sector_size, 512, 32768.min(block_size))?;
    let blocks = blocks(options, device_size)?;
    Ok(Basics {
        sector_size,
        log_sector_size,
        dir_block_size,
        blocks,
        blocks_grown: blocks_grown(options, blocks)?,
        stripe_unit,
        stripe_width,
        label: label(options)?,
    })
}

fn power(option: &'static str, size: u32, least: u32, most: u32) -> Result<(), MkfsError> {
    if size.is_power_of_two() && (least..=most).contains(&size) {
        return Ok(());
    }
    Err(MkfsError::option(option, format!("{size} is not a power of two from {least} to {most}")))
}

fn features(options: &Options) -> Result<(), MkfsError> {
    if options.inobtcount && !options.finobt {
        return Err(MkfsError::option("-m inobtcount", "it needs the free inode tree: set inobtcount=0 too"));
    }
    // A time that the form cannot tell is stored as its nearest.
    if Timestamp::decode(options.time.encode(options.bigtime), options.bigtime) != options.time {
        let range = if options.bigtime { "2486" } else { "2038 (without bigtime)" };
        let problem = format!("the time of birth is not between 1901 and {range}");
        return Err(MkfsError::option("-m bigtime", problem));
    }
    Ok(())
}

fn stripe(options: &Options) -> Result<(u32, u32), MkfsError> {
    let Some(stripe) = options.stripe else { return Ok((0, 0)) };
    let block = u64::from(options.block_size);
    let blocks = |option, bytes: u64| {
        let count =
            u32::try_from(bytes / block).ok().filter(|count| *count > 0 && bytes.is_multiple_of(block));
        count.ok_or_else(|| {
            MkfsError::option(option, format!("{bytes} bytes are not a multiple of the block size, {block}"))
        })
    };
    let (unit, width) = (blocks("-d su", stripe.unit)?, blocks("-d sw", stripe.width)?);
    if !width.is_multiple_of(unit) {
        return Err(MkfsError::option("-d sw", "a stripe's width is a multiple of its unit"));
    }
    Ok((unit, width))
}

fn blocks(options: &Options, device_size: u64) -> Result<u64, MkfsError> {
    let block = u64::from(options.block_size);
    let size = options.size.unwrap_or(device_size);
    if size > device_size {
        return Err(MkfsError::option(
            "-d size",
            format!("{size} bytes are more than the device has, {device_size}"),
        ));
    }
    if size < MIN_SIZE {
        return Err(MkfsError::option(
            "-d size",
            format!("{size} bytes are less than the least, {MIN_SIZE} (16 MiB)"),
        ));
    }
    if size > i64::MAX as u64 {
        return Err(MkfsError::option("-d size", "a volume is less than 8 EiB"));
    }
    Ok(size / block)
}

/// Volumes that grow have two AGs from the start: the last is never smaller than the smallest, and the first is as
/// large as those that will follow, so that it can hold the log.
fn blocks_grown(options: &Options, blocks: u64) -> Result<u64, MkfsError> {
    let Some(size) = options.grow_to else { return Ok(blocks) };
    let block = u64::from(options.block_size);
    let refuse = |problem| Err(MkfsError::option(GROW_TO, problem));
    if options.ag_count.is_some() || options.ag_size.is_some() {
        return refuse("it chooses the AGs: leave -d agcount and -d agsize out".into());
    }
    if size / block < blocks {
        return refuse(format!("{size} bytes are less than the volume has at once, {}", blocks * block));
    }
    if size > i64::MAX as u64 {
        return refuse("a volume is less than 8 EiB".into());
    }
    if blocks * block < 2 * MIN_SIZE {
        return refuse(format!(
            "the volume begins with two AGs, and so with at least {} bytes (32 MiB)",
            2 * MIN_SIZE
        ));
    }
    Ok(size / block)
}

fn label(options: &Options) -> Result<[u8; 12], MkfsError> {
    let mut label = [0; 12];
    match label.get_mut(..options.label.len()) {
        Some(start) => start.copy_from_slice(&options.label),
        None => return Err(MkfsError::option("-L", "a label has at most 12 bytes")),
    }
    Ok(label)
}
