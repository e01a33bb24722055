//! Translates sub-options to options of the library.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use format::timestamp::Timestamp;
use xebec::mkfs::{LogLocation, LogOptions, Options, Stripe};

use super::FormatOptions;
use super::suboptions::{SubOptions, Units};

/// The parsed options.
#[derive(Debug)]
pub struct ParsedFormat {
    pub options: Options,
    /// Device of an external log.
    pub log_device: Option<PathBuf>,
    /// `-d file`: the image is a file, which gets the size of the volume.
    pub is_file: bool,
}

/// Units of `sunit` and `swidth`.
const BASIC_BLOCK: u64 = 512;

/// Parses the sub-options; the seed and the time are set by the caller.
pub fn parse(layout: &FormatOptions, image: &Path, sub_options: &SubOptions) -> Result<ParsedFormat, String> {
    let defaults = Options::default().read_by(&layout.readers);
    let default_units = Units { sector: 512, block: defaults.block_size.into() };
    let block_size =
        narrow(sub_options.bytes('b', "size", default_units)?, "-b size")?.unwrap_or(defaults.block_size);
    let sector_size = [('s', "size"), ('s', "sectsize"), ('d', "sectsize")]
        .into_iter()
        .find_map(|(letter, name)| sub_options.bytes(letter, name, default_units).transpose())
        .transpose()?;
    let sector_size = narrow(sector_size, "-s size")?;
    let units = Units { sector: sector_size.unwrap_or(512).into(), block: block_size.into() };
    if let Some(name) = sub_options.value('d', "name")?
        && OsStr::new(name) != image.as_os_str()
    {
        return Err(format!("-d name={name}: the image is {}", image.display()));
    }
    let finobt = sub_options.switch('m', "finobt")?.unwrap_or(defaults.finobt);
    let switch =
        |letter, name, default| sub_options.switch(letter, name).map(|value| value.unwrap_or(default));
    let options = Options {
        block_size,
        sector_size,
        inode_size: inode_size(sub_options, units)?.unwrap_or(defaults.inode_size),
        max_inode_percent: percent(sub_options)?,
        size: sub_options.bytes('d', "size", units)?,
        ag_count: sub_options.number('d', "agcount")?,
        ag_size: sub_options.bytes('d', "agsize", units)?,
        grow_to: layout.grow_to,
        stripe: stripe(sub_options, units)?,
        dir_block_size: narrow(sub_options.bytes('n', "size", units)?, "-n size")?,
        ascii_ci: ascii_ci(sub_options)?,
        log: log(sub_options, units)?,
        finobt,
        rmapbt: switch('m', "rmapbt", defaults.rmapbt)?,
        reflink: switch('m', "reflink", defaults.reflink)?,
        bigtime: switch('m', "bigtime", defaults.bigtime)?,
        // It counts blocks of the finobt, which must exist.
        inobtcount: switch('m', "inobtcount", finobt && defaults.inobtcount)?,
        sparse: switch('i', "sparse", defaults.sparse)?,
        nrext64: switch('i', "nrext64", defaults.nrext64)?,
        exchange: switch('i', "exchange", defaults.exchange)?,
        parent: switch('n', "parent", defaults.parent)?,
        label: layout.label.as_ref().map_or_else(Vec::new, |label| label.as_bytes().to_vec()),
        uuid: sub_options.value('m', "uuid")?.map(uuid).transpose()?,
        discard: !layout.keep,
        ..defaults
    };
    let log_device = sub_options.value('l', "logdev")?.map(PathBuf::from);
    Ok(ParsedFormat { options, log_device, is_file: sub_options.switch('d', "file")?.unwrap_or(false) })
}

/// A size with 32 bits in the format.
fn narrow(size: Option<u64>, option: &str) -> Result<Option<u32>, String> {
    size.map(|size| u32::try_from(size).map_err(|_| format!("{option}: {size} is too large"))).transpose()
}

fn inode_size(sub_options: &SubOptions, units: Units) -> Result<Option<u32>, String> {
    match sub_options.number('i', "perblock")? {
        Some(0) => Err("-i perblock=0: a block must hold at least two inodes".into()),
        Some(count) => narrow(Some(units.block / count), "-i perblock"),
        None => narrow(sub_options.bytes('i', "size", units)?, "-i size"),
    }
}

fn percent(sub_options: &SubOptions) -> Result<Option<u8>, String> {
    let Some(percent) = sub_options.number('i', "maxpct")? else { return Ok(None) };
    u8::try_from(percent).map(Some).map_err(|_| format!("-i maxpct={percent}: must be at most 100"))
}

fn stripe(sub_options: &SubOptions, units: Units) -> Result<Option<Stripe>, String> {
    let by_size = (sub_options.bytes('d', "su", units)?, sub_options.number('d', "sw")?);
    let by_count = (sub_options.number('d', "sunit")?, sub_options.number('d', "swidth")?);
    let too_large = || "-d su, sw: the stripe is too large".to_owned();
    let (unit, width) = match (by_size, by_count) {
        ((None, None), (None, None)) => return Ok(None),
        ((Some(unit), Some(disks)), _) => (unit, unit.checked_mul(disks).ok_or_else(too_large)?),
        (_, (Some(unit), Some(width))) => {
            let bytes = |count: u64| count.checked_mul(BASIC_BLOCK).ok_or_else(too_large);
            (bytes(unit)?, bytes(width)?)
        }
        ((Some(_), None), _) | ((None, Some(_)), _) => {
            return Err("-d su and -d sw must be given together".into());
        }
        _ => return Err("-d sunit and -d swidth must be given together".into()),
    };
    Ok((unit > 0).then_some(Stripe { unit, width }))
}

fn ascii_ci(sub_options: &SubOptions) -> Result<bool, String> {
    match sub_options.value('n', "version")? {
        None | Some("2") => Ok(false),
        Some("ci") => Ok(true),
        Some(other) => Err(format!("-n version={other}: must be 2 or ci")),
    }
}

fn log(sub_options: &SubOptions, units: Units) -> Result<LogOptions, String> {
    if sub_options.switch('l', "internal")? == Some(false) {
        return Err("-l internal=0: name the log's device with logdev=PATH".into());
    }
    let location = match sub_options.number('l', "agnum")? {
        Some(ag) => LogLocation::Ag(u32::try_from(ag).map_err(|_| format!("-l agnum={ag}: too large"))?),
        None => LogLocation::Internal,
    };
    let stripe_unit = match sub_options.number('l', "sunit")? {
        Some(count) => Some(count.checked_mul(BASIC_BLOCK).ok_or("-l sunit: too large")?),
        None => sub_options.bytes('l', "su", units)?,
    };
    Ok(LogOptions {
        size: sub_options.bytes('l', "size", units)?,
        location,
        stripe_unit,
        sector_size: narrow(sub_options.bytes('l', "sectsize", units)?, "-l sectsize")?,
    })
}

fn uuid(text: &str) -> Result<[u8; 16], String> {
    format::uuid::parse(text).ok_or_else(|| format!("-m uuid={text}: not a UUID"))
}

/// `SOURCE_DATE_EPOCH`, if it is set.
pub fn source_date_epoch() -> anyhow::Result<Option<Timestamp>> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") else { return Ok(None) };
    let text = text.to_string_lossy();
    let seconds =
        text.parse().with_context(|| format!("SOURCE_DATE_EPOCH={text} is not a number of seconds"))?;
    Ok(Some(Timestamp { seconds, nanoseconds: 0 }))
}
