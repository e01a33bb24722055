//! `xebec create`: creates an image from directories and archives.

pub mod overrides;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use clap::{Args, ValueEnum};
use remote::RemoteUrl;
use serde_json::json;
use xebec::{
    BuiltImage, Cancel, Container, Counts, FreeSpace, ImageBuilder, ImportReport, Time,
    TransferError as Error,
};

use crate::args::Global;
use crate::commands::mkfs::{FormatOptions, refused, source_date_epoch, wrong};
use crate::commands::remote::complete;
use crate::excludes::Exclude;
use crate::interrupt;
use crate::json;
use crate::output::Messages;
use crate::progress::TransferProgress;
use crate::sizes::{self, with_unit};
use crate::urls::shown;
use overrides::OverrideOptions;

/// Arguments of `create`.
#[derive(Debug, Args)]
#[command(
    after_help = "All metadata is preserved: owners, modes, times in nanoseconds, extended attributes, ACLs, \
    capabilities, labels, hard links, devices and holes. Root is not required.\n\n\
    By default the volume is as large as its contents require; --size and --free make it larger, --minimize \
    removes free space at the end. The image appears under its name when it is complete; after a failure nothing \
    is left. On a block device, the first sectors are written last: an interrupted run leaves no file system. A volume \
    that a URL names exists when it is complete.\n\n\
    Several sources are merged; files of later ones replace earlier ones. Layout options (-b, -d, -i, -l, -m, -n, \
    -s, -L) are those of mkfs.xfs; --for disables features that a kernel or boot loader does not support, and \
    --grow-to sizes AGs and log for growing the volume later.\n\n\
    With --reproducible, or with SOURCE_DATE_EPOCH in the environment, the image is reproducible.\n\n\
    Examples:\n  xebec create disk.xfs --from /usr/share/doc\n  \
    xebec create root.xfs --from rootfs.tar.zst --size 4g -L root\n  \
    tar c -C build . | xebec create disk.xfs --from -\n  \
    xebec create disk.xfs --from build/ --owner 0:0 --mode u=rwX,go=rX --overrides devices.list\n  \
    xebec create root.xfs --from rootfs.tar --file-contexts policy/file_contexts\n  \
    xebec create boot.xfs --from boot/ --for linux-5.15,grub\n  \
    xebec create home.xfs --from /home/me --exclude '*.o' --exclude .cache/\n  \
    xebec create etc.xfs --from /etc --ignore-unreadable\n  \
    xebec create s3://bucket/root --from rootfs.tar.zst --free 20%\n  \
    xebec create root.xfs --from layer1.tar --from layer2.tar --whiteouts oci --free 20%\n\n\
    With --ignore-unreadable, unreadable host files and directories are skipped, and so are members behind the \
    point where an archive is damaged or truncated.\n\n\
    Exit codes: 0 success; 1 failure; 2 usage error; 130 interrupted. Unless it is 0, no image is created."
)]
pub struct Arguments {
    /// Image file to create, URL of a new volume, or with --force block device.
    pub image: PathBuf,
    /// Source: a directory, a tar archive (optionally compressed with gzip, zstd, xz or bzip2), - for an archive on
    /// standard input, or oci:DIR for an image in an OCI layout. May be repeated.
    #[arg(long, required = true, value_name = "DIR|FILE.tar|-|oci:DIR[:NAME]")]
    from: Vec<OsString>,
    /// Size of the image, including the partition table; suffixes k, m, g, t.
    #[arg(long, value_name = "BYTES", value_parser = sizes::parse, conflicts_with = "free")]
    size: Option<u64>,
    /// Free space in the image, in bytes or in percent of the image.
    #[arg(long, value_name = "BYTES|N%", value_parser = parse_free)]
    free: Option<FreeSpace>,
    /// Shrink the volume to its minimum size, as `xebec minimize` does.
    #[arg(long, conflicts_with_all = ["size", "free"])]
    minimize: bool,
    /// Create a GPT with one partition for the volume.
    #[arg(long)]
    gpt: bool,
    /// Image format.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Raw)]
    format: Format,
    #[command(flatten)]
    overrides: OverrideOptions,
    /// Do not cross file system boundaries; mount points are copied as empty directories.
    #[arg(short = 'x', long)]
    one_file_system: bool,
    #[command(flatten)]
    exclude: Exclude,
    /// Format of whiteouts: members that remove files of earlier sources.
    #[arg(long, value_name = "KIND")]
    whiteouts: Option<Whiteouts>,
    /// Create a reproducible image: no random numbers, and the time of SOURCE_DATE_EPOCH or of the newest file.
    #[arg(long)]
    reproducible: bool,
    /// Overwrite an existing image.
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    layout: FormatOptions,
}

/// Parses free space in bytes or percent.
fn parse_free(text: &str) -> Result<FreeSpace, String> {
    let Some(percent) = text.strip_suffix('%') else { return sizes::parse(text).map(FreeSpace::Bytes) };
    let percent = percent.parse().ok().filter(|percent| *percent < 100);
    percent.map(FreeSpace::Percent).ok_or_else(|| format!("`{text}`: expected 0% to 99%"))
}

/// Image formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A raw image; unused space is sparse.
    #[default]
    Raw,
    /// A qcow2 image.
    Qcow2,
}

/// Formats of whiteouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Whiteouts {
    /// Files with names that start with `.wh.`, as in OCI layers.
    Oci,
}

/// An image that was built.
pub struct Built {
    pub size: u64,
    pub report: ImportReport,
    pub seconds: f64,
}

impl Built {
    /// Metadata that was not preserved, with its number.
    pub fn not_kept(&self) -> BTreeMap<&'static str, u64> {
        self.report.lost.iter().map(|(lost, count)| (lost.name(), *count)).collect()
    }
}

/// Runs `create`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let mut messages = Messages::new(global, shown(&arguments.image));
    messages.ignore_unreadable(arguments.exclude.ignore_unreadable);
    let progress = TransferProgress::new(global, &messages, "surveying the sources");
    let builder = arguments.builder(global)?;
    let built = match RemoteUrl::new(&arguments.image) {
        Some(url) => build_remote(builder, arguments, &url, &progress, global)?,
        None => build(builder, &arguments.image, &progress)?,
    };
    if global.json {
        let document = json!({
            "size": built.size,
            "files": built.report.files,
            "links": built.report.links,
            "bytes": built.report.bytes,
            "seconds": built.seconds,
            "not_kept": built.not_kept(),
            "unreadable": built.report.unreadable,
        });
        json::write("create", messages.image(), document)?;
    } else {
        messages.detail(format_args!("{} in all", with_unit(built.size)));
    }
    Ok(messages.finish())
}

impl Arguments {
    fn builder(&self, global: &Global) -> anyhow::Result<ImageBuilder<'static>> {
        let format = self.layout.parse(&self.image)?;
        if format.log_device.is_some() {
            return Err(wrong("-l logdev: the log of a new image is internal".into()));
        }
        let mut builder = ImageBuilder::new(&self.image)
            .format(format.options)
            .readers(self.layout.readers())
            .minimize(self.minimize)
            .container(Container { gpt: self.gpt, qcow2: self.format == Format::Qcow2 })
            .overrides(self.overrides.read()?)
            .excludes(self.exclude.patterns()?)
            .one_file_system(self.one_file_system)
            .whiteouts(self.whiteouts.is_some())
            .skip_unreadable(self.exclude.ignore_unreadable)
            .reproducible(self.reproducible)
            .replace(self.force)
            .wait(global.wait())
            .threads(global.thread_count())
            .size(self.size)
            .free(self.free);
        if let Some(seed) = self.layout.seed() {
            builder = builder.seed(seed);
        }
        if self.from.iter().filter(|from| *from == "-").count() > 1 {
            bail!("--from -: standard input can be given only once");
        }
        for from in &self.from {
            builder =
                add_source(builder, from).map_err(|error| anyhow!("--from {}: {error}", from.display()))?;
        }
        Ok(builder)
    }
}

/// Adds the source that a `--from` names.
fn add_source<'b>(builder: ImageBuilder<'b>, from: &OsStr) -> anyhow::Result<ImageBuilder<'b>> {
    if let Some(layout) = from.as_bytes().strip_prefix(b"oci:") {
        // As in skopeo: oci:DIR or oci:DIR:NAME.
        let layout = OsStr::from_bytes(layout);
        let named = layout.to_str().and_then(|text| text.rsplit_once(':'));
        let (path, name) = match named {
            Some((path, name)) if !Path::new(layout).exists() => (Path::new(path), Some(name)),
            _ => (Path::new(layout), None),
        };
        return Ok(builder.from_oci(path, name));
    }
    if from == "-" {
        return Ok(builder.from_reader("standard input", io::stdin()));
    }
    match std::fs::metadata(from)?.is_dir() {
        true => Ok(builder.from_directory(from)),
        false => Ok(builder.from_archive(from)),
    }
}

/// Builds an image, with the time of SOURCE_DATE_EPOCH if it is set.
pub fn build<'b>(
    builder: ImageBuilder<'b>,
    image: &Path,
    progress: &'b TransferProgress<'b>,
) -> anyhow::Result<Built> {
    interrupt::abandon(image.display());
    fill(builder, progress)
}

/// Size with which the volume of a URL begins, before it gets that of its contents.
const REMOTE_BYTES: u64 = 1 << 20;

/// Builds the volume of a URL. It exists when it is complete; after a failure nothing is left.
fn build_remote<'b>(
    builder: ImageBuilder<'b>,
    arguments: &Arguments,
    url: &RemoteUrl<'_>,
    progress: &'b TransferProgress<'b>,
    global: &Global,
) -> anyhow::Result<Built> {
    if arguments.force {
        return Err(wrong(format!(
            "--force: {url} is not replaced: change it with sync, or replace it by an image with push --force"
        )));
    }
    if arguments.format == Format::Qcow2 {
        return Err(wrong(format!("--format qcow2: {url} is no file")));
    }
    let cancel = Cancel::default();
    let message = format!("{url}: interrupted: what was stored is removed (interrupt again to leave it)");
    interrupt::cancel(message, cancel.clone());
    let new = url.begin(REMOTE_BYTES, &global.remote(true))?;
    let built = fill(builder.on_device(new.device()).cancel(cancel), progress);
    complete(new, built).map_err(interrupt::with_exit_code)
}

fn fill<'b>(builder: ImageBuilder<'b>, progress: &'b TransferProgress<'b>) -> anyhow::Result<Built> {
    let time = source_date_epoch()?.map(|time| Time { seconds: time.seconds, nanos: time.nanoseconds });
    let BuiltImage { size, report } = builder.time(time).progress(progress).build().map_err(explain)?;
    let mut built = Built { size, report, seconds: 0.0 };
    let done = Counts { files: built.report.files, bytes: built.report.bytes };
    built.seconds = progress.finish(done, &built.not_kept());
    Ok(built)
}

/// Names the options of an error.
fn explain(error: Error) -> anyhow::Error {
    match error {
        Error::Exists { .. } => anyhow!("already exists (--force replaces it)"),
        Error::Option { option, problem } => wrong(format!("--{option}: {problem}")),
        Error::Mkfs(error) => refused(error),
        Error::Spool(error) => anyhow!(
            "--from -: cannot be stored in a temporary file beside the image (not needed with --size): {error}"
        ),
        error => error.into(),
    }
}
