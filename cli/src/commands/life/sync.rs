//! `xebec sync`: synchronizes a directory to a tree in an image.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, bail};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser as _};
use format::inode::FileType;
use serde_json::{Value, json};
use xebec::transfer::sync::{SyncAction, SyncReport};
use xebec::{Counts, Directory, ImageBuilder, ImportReport, Progress as _, TreeSync, Volume};

use crate::args::Global;
use crate::commands::create;
use crate::commands::create::overrides::OverrideOptions;
use crate::commands::edit::{directories, unmount};
use crate::excludes::Exclude;
use crate::json;
use crate::names::{printable, quoted};
use crate::open::{self, image_and_path};
use crate::output::{Messages, Stdout, exit_code};
use crate::progress::TransferProgress;
use crate::sizes::with_unit;
use crate::urls::shown;

/// Arguments of `sync`.
#[derive(Debug, Args)]
#[command(
    after_help = "Like rsync -aHAX --delete. Files are compared by type, size, mtime, owner, permissions, device, \
    link target, attributes, flags and hard links; contents are compared if sizes are equal and times differ. New \
    contents replace a file when they are complete and on stable storage: a power failure leaves the old file or \
    the new one.\n\n\
    An image that does not exist is created, with the size that the directory needs; `xebec create --free` leaves \
    free space. A missing PATH is created with its parents.\n\n\
    Examples:\n  xebec create disk.xfs --from build/ --free 30%\n  \
    xebec sync build/ disk.xfs               # after the next build\n  \
    xebec sync -n build/ disk.xfs            # what would change\n  \
    xebec sync --no-delete site/ disk.xfs:/srv/www\n  \
    xebec sync --owner 0:0 --checksum build/ disk.xfs\n  \
    xebec sync --ignore-unreadable /etc disk.xfs:/etc\n\n\
    With --ignore-unreadable, the image keeps its versions of unreadable files and directories.\n\n\
    Exit codes: 0 success; 1 failure, changes made so far remain; 2 usage error."
)]
pub struct Arguments {
    /// Source directory.
    pub directory: PathBuf,
    /// Image and target directory in it (default: the root).
    #[arg(value_name = "IMAGE[:PATH]", value_parser = OsStringValueParser::new().map(Target::of))]
    pub target: Target,
    /// Do not delete files that the source does not have.
    #[arg(long)]
    no_delete: bool,
    /// Compare contents even if sizes and times are equal.
    #[arg(short, long)]
    checksum: bool,
    /// Print what would be done, without changes.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Do not cross file system boundaries; mount points are copied as empty directories.
    #[arg(short = 'x', long)]
    one_file_system: bool,
    #[command(flatten)]
    exclude: Exclude,
    #[command(flatten)]
    overrides: OverrideOptions,
}

/// An image, and a path in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The image.
    pub image: PathBuf,
    path: Vec<u8>,
}

impl Target {
    fn of(text: OsString) -> Self {
        let new = || {
            // In a new image, a path begins with a slash.
            let (bytes, exists) = (text.as_bytes(), open::exists(Path::new(&text)));
            let at = bytes.windows(2).position(|two| two == b":/").filter(|at| *at > 0 && !exists)?;
            let (image, path) = bytes.split_at_checked(at)?;
            Some((Path::new(OsStr::from_bytes(image)), OsStr::from_bytes(path.get(1..)?)))
        };
        let (image, path) = image_and_path(&text).or_else(new).unwrap_or((Path::new(&text), OsStr::new("/")));
        Self { image: image.into(), path: path.as_bytes().into() }
    }
}

/// The JSON payload, in the order of docs/json.md.
fn document(dry_run: bool, done: &SyncReport, seconds: f64, not_kept: &BTreeMap<&'static str, u64>) -> Value {
    json!({
        "dry_run": dry_run,
        "created": done.created,
        "replaced": done.replaced,
        "amended": done.amended,
        "removed": done.removed,
        "unchanged": done.unchanged,
        "bytes": done.bytes,
        "seconds": seconds,
        "not_kept": not_kept,
        "unreadable": done.unreadable,
    })
}

/// Runs `sync`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let began = Instant::now();
    let image = &arguments.target.image;
    let mut messages = Messages::new(global, shown(image));
    messages.ignore_unreadable(arguments.exclude.ignore_unreadable);
    // Checked before the log is replayed.
    if !std::fs::metadata(&arguments.directory)
        .with_context(|| arguments.directory.display().to_string())?
        .is_dir()
    {
        bail!("{}: not a directory", arguments.directory.display());
    }
    let exists = open::exists(image);
    let volume = match arguments.dry_run {
        true if exists => open::in_memory(image, global)?.volume,
        true => empty_volume()?,
        false if exists => open::writable(image, global)?.volume,
        false => return create(arguments, global, &messages),
    };
    let done = update(arguments, global, &volume, &messages);
    if arguments.dry_run {
        drop(volume);
    } else {
        unmount(volume)?;
    }
    let done = done?;
    for (lost, count) in &done.lost {
        messages.note(format_args!("not kept: {count} {}", lost.name()));
    }
    messages.finish();
    let seconds = began.elapsed().as_secs_f64();
    if global.json {
        let not_kept = done.lost.iter().map(|(lost, count)| (lost.name(), *count)).collect();
        json::write("sync", messages.image(), document(arguments.dry_run, &done, seconds, &not_kept))?;
        return Ok(exit_code::OK);
    }
    let SyncReport { created, replaced, amended, removed, unchanged, bytes, .. } = done;
    messages.detail(format_args!(
        "{created} created, {replaced} replaced, {amended} amended, {removed} removed, {unchanged} unchanged; {} in \
        {seconds:.2} s",
        with_unit(bytes)
    ));
    Ok(exit_code::OK)
}

/// Creates a new image, as `create` does.
fn create(arguments: &Arguments, global: &Global, messages: &Messages) -> anyhow::Result<u8> {
    let Target { image, path } = &arguments.target;
    let progress = TransferProgress::new(global, messages, "surveying the directory");
    let builder = ImageBuilder::new(image)
        .from_directory(&arguments.directory)
        .target_directory(path)
        .overrides(arguments.overrides.read()?)
        .excludes(arguments.exclude.patterns()?)
        .one_file_system(arguments.one_file_system)
        .skip_unreadable(arguments.exclude.ignore_unreadable)
        .wait(global.wait())
        .threads(global.thread_count());
    let built = create::build(builder, image, &progress)?;
    messages.finish();
    if global.json {
        let ImportReport { files: created, bytes, unreadable, .. } = built.report;
        let done = SyncReport { created, bytes, unreadable, ..SyncReport::default() };
        json::write("sync", messages.image(), document(false, &done, built.seconds, &built.not_kept()))?;
    }
    Ok(exit_code::OK)
}

/// An empty volume in memory, for a dry run.
fn empty_volume() -> anyhow::Result<Volume> {
    const BYTES: u64 = 64 << 20;
    let device = Arc::new(xebec::device::MemoryDevice::new(BYTES));
    xebec::mkfs::format(&*device, &xebec::mkfs::Options::default())
        .map_err(crate::commands::mkfs::refused)?;
    Ok(Volume::open(device, open::volume_options())?)
}

fn update(
    arguments: &Arguments,
    global: &Global,
    volume: &Volume,
    messages: &Messages,
) -> anyhow::Result<SyncReport> {
    let Target { image, path } = &arguments.target;
    let root = match volume.resolve(path, true) {
        Err(error) if error.errno() == xebec::errno::ENOENT => directories(volume, path)?,
        found => found.with_context(|| quoted(path))?,
    };
    if volume.metadata(root)?.file_type != FileType::Directory {
        bail!("{}: not a directory", quoted(path));
    }
    let mut directory = Directory::new(&arguments.directory)
        .one_file_system(arguments.one_file_system)
        .excludes(arguments.exclude.patterns()?);
    if let Ok(known) = std::fs::metadata(image) {
        directory = directory.without(known.dev(), known.ino());
    }
    let progress = TransferProgress::new(global, messages, "comparing");
    let overrides = arguments.overrides.read()?;
    let sync = TreeSync {
        delete: !arguments.no_delete,
        checksum: arguments.checksum,
        dry_run: arguments.dry_run,
        skip_unreadable: arguments.exclude.ignore_unreadable,
        progress: &progress,
        ..TreeSync::new(&directory, &overrides)
    };
    let mut out = Stdout::buffered();
    let shows = (arguments.dry_run || global.verbose) && !global.json;
    let mut watch = |action: Option<(SyncAction, &[u8])>, done: &SyncReport| {
        if let Some((action, path)) = action.filter(|_| shows) {
            // Errors of standard output are reported at the end.
            let _ =
                writeln!(out, "{:8} {}", name(action), printable(if path.is_empty() { b"." } else { path }));
        }
        progress.advance(Counts { files: done.files(), bytes: done.bytes });
    };
    let done = sync.run(volume, root, global.thread_count(), &mut watch);
    progress.clear();
    out.flush()?;
    done.map_err(|error| match error.is_full() {
        true => anyhow::anyhow!("the volume is full: enlarge it with `xebec grow` and run the command again"),
        false => error.into(),
    })
}

fn name(action: SyncAction) -> &'static str {
    match action {
        SyncAction::Created => "created",
        SyncAction::Replaced => "replaced",
        SyncAction::Amended => "amended",
        SyncAction::Removed => "removed",
    }
}
