//! `xebec mkfs`: creates a volume, with the options of `mkfs.xfs`.
//!
//! | part | subject |
//! |---|---|
//! | `suboptions` | parsing of sub-options: `-d agcount=4,su=64k` |
//! | `choose` | translation of sub-options to options of the library |
//! | `target` | the file or device: creating, opening, checking for existing data |

mod choose;
mod suboptions;
mod target;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use clap::Args;
use format::compatibility::Reader;
use format::superblock::Superblock;
use format::timestamp::Timestamp;
use serde_json::json;
use xebec::mkfs::{LogLocation, MkfsError, Plan};
use xebec::transfer::image::{self, seed};
use xebec::{Directory, Overrides, Source as _, TransferError, Volume, Writer};

use crate::args::Global;
use crate::geometry;
use crate::json;
use crate::open;
use crate::output::{Coded, Stdout, exit_code};
use crate::sizes;
use crate::urls::{expect_local_log, shown};
pub use choose::{ParsedFormat, source_date_epoch};
use target::Target;
use xebec::device::Device;

/// Arguments of `mkfs`. Letters are those of `mkfs.xfs`.
#[derive(Debug, Args)]
#[command(
    after_help = "Options and defaults are those of mkfs.xfs 6.13: the volume is byte for byte the same, except \
    for UUID, times and inode generations. The minimum size is 16 MiB. NUM has an optional suffix: s for sectors, \
    b for blocks, k, m, g, t, p; VALUE counts 512-byte units.\n\n\
    A new file appears under its name when the volume is complete. Existing file systems, partition tables and \
    containers are overwritten only with -f.\n\n\
    With --seed and SOURCE_DATE_EPOCH in the environment, the result is reproducible.\n\n\
    Examples:\n  xebec mkfs disk.xfs --size 10g\n  xebec mkfs disk.xfs --size 1g -L data -m rmapbt=0 -d agcount=8\n  \
    xebec mkfs boot.xfs --size 512m --for linux-5.15,grub\n  \
    xebec mkfs disk.xfs --size 4g --grow-to 1t\n  \
    xebec mkfs disk.xfs --size 1g -p build/\n  xebec mkfs -N disk.xfs --size 1t --json | jq .geometry\n  \
    SOURCE_DATE_EPOCH=0 xebec mkfs --seed mine disk.xfs --size 300m\n\n\
    Exit codes: 0 success; 1 the image cannot be created or written; 2 usage error. See also docs/mkfs.md."
)]
pub struct Arguments {
    /// Image file or volume of a URL, which is created if necessary, or block device.
    pub image: PathBuf,
    /// Size of the image file: a new file gets it, an existing one is extended or (with -f) truncated; suffixes k, m,
    /// g, t.
    #[arg(long, value_name = "BYTES", value_parser = sizes::parse)]
    size: Option<u64>,
    #[command(flatten)]
    layout: FormatOptions,
    /// User ID and group ID of the root directory (default: 0:0).
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    root_owner: Option<(u32, u32)>,
    /// Overwrite existing file systems and partition tables.
    #[arg(short, long)]
    force: bool,
    /// Populate the volume from this directory.
    #[arg(short, long, value_name = "DIR")]
    populate: Option<PathBuf>,
    /// Show the geometry without creating the volume.
    #[arg(short = 'N', long = "dry-run")]
    dry_run: bool,
}

fn owner(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once(':').and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    numbers.ok_or_else(|| format!("`{text}`: expected UID:GID"))
}

/// Options of a volume, as in `mkfs.xfs`.
#[derive(Debug, Default, Args)]
pub struct FormatOptions {
    /// Block options: size=NUM.
    #[arg(short, value_name = "WORDS")]
    block: Vec<String>,
    /// Data options: agcount=N, agsize=NUM, size=NUM, su=NUM, sw=N, sunit=VALUE, swidth=VALUE, noalign, sectsize=NUM,
    /// file, name=PATH.
    #[arg(short, value_name = "WORDS")]
    data: Vec<String>,
    /// Inode options: size=NUM, perblock=N, maxpct=N, sparse=0|1, nrext64=0|1, exchange=0|1.
    #[arg(short, value_name = "WORDS")]
    inodes: Vec<String>,
    /// Log options: size=NUM, agnum=N, su=NUM, sunit=VALUE, sectsize=NUM, logdev=PATH, internal, version=2,
    /// lazy-count=1.
    #[arg(short, value_name = "WORDS")]
    log: Vec<String>,
    /// Metadata options: uuid=UUID, finobt=0|1, rmapbt=0|1, reflink=0|1, inobtcount=0|1, bigtime=0|1, crc=1.
    #[arg(short, value_name = "WORDS")]
    metadata: Vec<String>,
    /// Naming options: size=NUM, version=2|ci, parent=0|1, ftype=1.
    #[arg(short, value_name = "WORDS")]
    names: Vec<String>,
    /// Sector options: size=NUM.
    #[arg(short, value_name = "WORDS")]
    sector: Vec<String>,
    /// Realtime options: not supported.
    #[arg(short, value_name = "WORDS", hide = true)]
    realtime: Vec<String>,
    /// Disable features that are unsupported or experimental in these readers: linux-VERSION such as linux-5.15,
    /// grub-VERSION, or grub.
    #[arg(long = "for", value_name = "READER", value_delimiter = ',')]
    readers: Vec<Reader>,
    /// Size AGs and log for growing the volume to this size, like mke2fs -E resize; suffixes k, m, g, t.
    #[arg(long, value_name = "BYTES", value_parser = sizes::parse)]
    grow_to: Option<u64>,
    /// Label, at most 12 bytes.
    #[arg(short = 'L', value_name = "LABEL")]
    label: Option<OsString>,
    /// Do not discard blocks.
    #[arg(short = 'K', long = "no-discard")]
    keep: bool,
    /// Derive UUID and inode generations from this text instead of random numbers.
    #[arg(long, value_name = "TEXT")]
    seed: Option<String>,
}

impl FormatOptions {
    /// Parses the options for a volume in `image`; time and seed are not set.
    pub fn parse(&self, image: &Path) -> anyhow::Result<ParsedFormat> {
        let sub_options = suboptions::SubOptions::parse(&[
            ('b', &self.block),
            ('d', &self.data),
            ('i', &self.inodes),
            ('l', &self.log),
            ('m', &self.metadata),
            ('n', &self.names),
            ('s', &self.sector),
            ('r', &self.realtime),
        ])
        .map_err(wrong)?;
        choose::parse(self, image, &sub_options).map_err(wrong)
    }

    /// Programs that must support the volume.
    pub fn readers(&self) -> &[Reader] {
        &self.readers
    }

    /// Seed of UUID and inode generations.
    pub fn seed(&self) -> Option<&str> {
        self.seed.as_deref()
    }
}

/// Runs `mkfs`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    if let Some(source) = arguments.populate.as_ref().filter(|source| !source.is_dir()) {
        let source = source.display();
        return Err(wrong(format!("-p {source}: not a directory (protofiles are not supported)")));
    }
    let mut format = arguments.layout.parse(&arguments.image)?;
    format.options.seed = match arguments.layout.seed() {
        Some(text) => seed::from_text(text),
        None => seed::random().context("no random numbers from the system (give a seed with --seed)")?,
    };
    format.options.time = time()?;
    format.options.root_owner = arguments.root_owner.unwrap_or_default();
    let target_options = target::TargetOptions {
        size: arguments.size.or(if format.is_file { format.options.size } else { None }),
        size_if_new: format.options.size,
        force: arguments.force,
        dry_run: arguments.dry_run,
    };
    let target = Target::open(&arguments.image, &target_options, global)?;
    let log_path = format.log_device.as_ref().or(global.log_device.as_ref());
    let log = log_path
        .map(|path| {
            expect_local_log(path)?;
            let size = format.options.log.size;
            let target_options = target::TargetOptions { size: None, size_if_new: size, ..target_options };
            Target::open(path, &target_options, global)
        })
        .transpose()?;
    if let Some(log) = &log {
        format.options.log.location = LogLocation::External(log.size());
        // An explicit sector size applies to both devices.
        if format.options.sector_size.is_none() {
            format.options.log.sector_size.get_or_insert(log.sector_size());
        }
    }
    let plan = Plan::new(&format.options, target.size(), target.sector_size()).map_err(refused)?;
    image::check_readers(&plan, arguments.layout.readers()).map_err(|error| match error {
        TransferError::Option { .. } => wrong(format!("--{error}")),
        error => error.into(),
    })?;
    if !arguments.dry_run {
        // Last, as all checks have passed.
        [Some(&target), log.as_ref()].into_iter().flatten().try_for_each(Target::prepare)?;
        let (device, log_device) = (target.device()?, log.as_ref().map(Target::device).transpose()?);
        xebec::mkfs::write(&*device, log_device.as_deref(), &plan).map_err(refused)?;
        if let Some(source) = &arguments.populate {
            populate(source, device, log_device, global)?;
        }
        if let Some(log) = log {
            log.finish()?;
        }
        target.finish()?;
    }
    show(&plan.superblock()?, arguments, global)
}

/// `SOURCE_DATE_EPOCH`, or the current time.
fn time() -> anyhow::Result<Timestamp> {
    if let Some(time) = source_date_epoch()? {
        return Ok(time);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the system clock is before 1970")?;
    // Seconds since 1970 fit.
    Ok(Timestamp { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() })
}

/// Copies a directory to a new volume.
fn populate(
    source: &Path,
    device: Arc<dyn Device>,
    log_device: Option<Arc<dyn Device>>,
    global: &Global,
) -> anyhow::Result<()> {
    let options = xebec::Options { log_device, background: false, ..open::volume_options() };
    let volume = Volume::open(device, options).context("cannot open the new volume")?;
    let mut writer = Writer::new(&volume, volume.root(), Overrides::default()).in_rounds();
    Directory::new(source).read(true, global.thread_count(), &mut writer)?;
    writer.finish()?;
    Ok(volume.unmount()?)
}

/// A usage error.
pub fn wrong(problem: String) -> anyhow::Error {
    Coded { code: exit_code::USAGE, error: anyhow::Error::msg(problem) }.into()
}

/// An error of the library: wrong options are usage errors.
pub fn refused(error: MkfsError) -> anyhow::Error {
    match error {
        // Name both options.
        MkfsError::Option { option: "-d size", problem } => wrong(format!("--size (-d size): {problem}")),
        MkfsError::Option { .. } => wrong(error.to_string()),
        other => other.into(),
    }
}

fn show(superblock: &Superblock, arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let image = shown(&arguments.image);
    if global.json {
        let raw = &superblock.raw;
        let (key, label) = json::name("label", raw.label());
        let document = json!({
            (key): label,
            "uuid": raw.uuid_text().to_string(),
            "geometry": geometry::json(superblock),
            "features": geometry::feature_names(raw),
            "written": !arguments.dry_run,
        });
        json::write("mkfs", &image, document)?;
    } else if !global.quiet || arguments.dry_run {
        let mut out = Stdout::buffered();
        out.write_all(geometry::text(superblock, &image).as_bytes())?;
        out.flush()?;
    }
    Ok(exit_code::OK)
}
