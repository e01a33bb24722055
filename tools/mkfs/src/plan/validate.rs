//! Validates options by themselves and against the device.

use format::timestamp::Timestamp;

use crate::error::MkfsError;
use crate::options::{LogLocation, Options};

/// Values of valid options, with defaults.
#[derive(Debug)]
pub struct ValidOptions {
    pub sector_size: u32,
    pub log_sector_size: u32,
    pub dir_block_size: u32,
    /// Maximum size of the volume in blocks.
    pub blocks: u64,
    /// Size to which the volume will grow in blocks, at least `blocks`.
    pub blocks_grown: u64,
    /// In blocks.
    pub stripe_unit: u32,
    /// In blocks.
    pub stripe_width: u32,
    pub label: [u8; 12],
}

/// The option for `grow_to`.
pub const GROW_TO: &str = "--grow-to";

/// Minimum size of a volume in bytes: one AG.
const MIN_SIZE: u64 = format::limits::ag::MIN_BYTES;

pub fn validate(options: &Options, device_size: u64, device_sector: u32) -> Result<ValidOptions, MkfsError> {
    let block_size = options.block_size;
    check_power_of_two("-b size", block_size, 1024, 65536)?;
    let sector_size = options.sector_size.unwrap_or(device_sector);
    check_power_of_two("-s size", sector_size, 512, 32768)?;
    if sector_size > block_size {
        let problem = format!("a sector of {sector_size} bytes is larger than a block of {block_size}");
        return Err(MkfsError::option("-s size", problem));
    }
    if sector_size < device_sector {
        let problem = format!("{sector_size} is less than the sector size of the device, {device_sector}");
        return Err(MkfsError::option("-s size", problem));
    }
    check_power_of_two("-i size", options.inode_size, 512, 2048.min(block_size / 2))?;
    let dir_block_size = options.dir_block_size.unwrap_or(block_size.max(4096));
    check_power_of_two("-n size", dir_block_size, block_size, 65536)?;
    if options.max_inode_percent.is_some_and(|percent| percent > 100) {
        return Err(MkfsError::option("-i maxpct", "the maximum is 100"));
    }
    check_features(options)?;
    let (stripe_unit, stripe_width) = stripe(options)?;
    let log_sector_size = options.log.sector_size.unwrap_or(sector_size);
    let is_external = matches!(options.log.location, LogLocation::External(_));
    if !is_external && log_sector_size != sector_size {
        let problem = format!("the sector size of an internal log is that of the volume, {sector_size}");
        return Err(MkfsError::option("-l sectsize", problem));
    }
    check_power_of_two("-l sectsize", log_sector_size, 512, 32768.min(block_size))?;
    let blocks = blocks(options, device_size)?;
    Ok(ValidOptions {
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

fn check_power_of_two(option: &'static str, size: u32, min: u32, max: u32) -> Result<(), MkfsError> {
    if size.is_power_of_two() && (min..=max).contains(&size) {
        return Ok(());
    }
    Err(MkfsError::option(option, format!("{size} is not a power of two from {min} to {max}")))
}

fn check_features(options: &Options) -> Result<(), MkfsError> {
    if options.inobtcount && !options.finobt {
        return Err(MkfsError::option("-m inobtcount", "it requires finobt: set inobtcount=0, too"));
    }
    // A time out of range is encoded as the nearest valid one.
    if Timestamp::decode(options.time.encode(options.bigtime), options.bigtime) != options.time {
        let range = if options.bigtime { "2486" } else { "2038 (without bigtime)" };
        let problem = format!("the creation time is not between 1901 and {range}");
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
        return Err(MkfsError::option("-d sw", "the stripe width is not a multiple of the stripe unit"));
    }
    Ok((unit, width))
}

fn blocks(options: &Options, device_size: u64) -> Result<u64, MkfsError> {
    let block = u64::from(options.block_size);
    let size = options.size.unwrap_or(device_size);
    let refuse = |problem: String| Err(MkfsError::option("-d size", problem));
    if size > device_size {
        return refuse(format!("{size} bytes are more than the size of the device, {device_size}"));
    }
    if size < MIN_SIZE {
        return refuse(format!("{size} bytes are less than the minimum, {MIN_SIZE} (16 MiB)"));
    }
    if size > i64::MAX as u64 {
        return refuse("the size must be less than 8 EiB".into());
    }
    Ok(size / block)
}

/// The size to which the volume will grow. Such a volume has two AGs from the start: the second has at least the
/// minimum size, and the first is as large as later AGs, so that it has enough space for the log.
fn blocks_grown(options: &Options, blocks: u64) -> Result<u64, MkfsError> {
    let Some(size) = options.grow_to else { return Ok(blocks) };
    let block = u64::from(options.block_size);
    let refuse = |problem| Err(MkfsError::option(GROW_TO, problem));
    if options.ag_count.is_some() || options.ag_size.is_some() {
        return refuse("conflicts with -d agcount and -d agsize".into());
    }
    if size / block < blocks {
        return refuse(format!("{size} bytes are less than the size of the volume, {}", blocks * block));
    }
    if size > i64::MAX as u64 {
        return refuse("the size must be less than 8 EiB".into());
    }
    if blocks * block < 2 * MIN_SIZE {
        let min = 2 * MIN_SIZE;
        return refuse(format!("the volume needs two AGs, which take at least {min} bytes (32 MiB)"));
    }
    Ok(size / block)
}

fn label(options: &Options) -> Result<[u8; 12], MkfsError> {
    let mut label = [0; 12];
    match label.get_mut(..options.label.len()) {
        Some(start) => start.copy_from_slice(&options.label),
        None => return Err(MkfsError::option("-L", "the label is longer than 12 bytes")),
    }
    Ok(label)
}
