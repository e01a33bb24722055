//! From a path on the command line to a volume: container, partition, journal.
//!
//! A dirty journal is replayed into a copy-on-write overlay in memory, and everything after reads the overlay: the
//! image stays as it is. Commands that look at damage ([`Device`] alone, see [`Opened`]) go on where a volume cannot
//! be opened.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use base::{Ino, errno};
use block::{Device, Holder, NewFile, OpenError, OpenImage, OpenOptions, OverlayDevice};
use clap::Args;
use format::features;
use format::superblock::{Superblock, SuperblockError};
use journal::recovery::Intent;
use journal::{Dirty, Journal, OnDamage, RecoveryReport, ReplayRegistry, State};
use read::{Inode, Last, Volume, read_at, resolve};

use crate::args::{Global, Io};
use crate::failure::Failure;
use crate::output::{Messages, chain, counted};
use crate::owners::{Names, Numbers, Owners};
use crate::{names, operands};

/// An opened image whose volume can be read.
pub struct Image {
    /// The volume as the user wants it: with the log replayed in memory, or as it lies.
    pub volume: Volume,
    /// The state of its log.
    pub log: Log,
    /// What a command has to say about it.
    pub messages: Messages,
}

/// An opened image, as far as it could be opened.
pub struct Opened {
    /// What to read: the image, or the overlay into which its log was replayed.
    pub device: Arc<dyn Device>,
    /// The device of an external log.
    pub log_device: Option<Arc<dyn Device>>,
    /// The state of its log.
    pub log: Log,
}

/// What is known of a volume's log.
#[derive(Clone, Debug)]
pub enum Log {
    /// Nothing was to be replayed.
    Clean,
    /// It was replayed in memory.
    Replayed(Box<Replay>),
    /// It is dirty, and the user wants to see the image as it lies.
    Ignored(Dirty),
    /// It cannot be read, for this reason.
    Unread(String),
}

/// What a dirty log was, and what became of it in memory.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The log.
    pub dirty: Dirty,
    /// What was replayed.
    pub report: RecoveryReport,
    /// How many operations were unfinished, and were finished then.
    pub finished: usize,
    /// Those that were not.
    pub left: Vec<Intent>,
    /// Why none was finished, where that failed.
    pub failure: Option<String>,
}

impl Log {
    /// The files whose contents or attributes unfinished operations could still change.
    pub fn files_unfinished(&self) -> BTreeSet<Ino> {
        match self {
            Self::Replayed(replay) => replay.left.iter().flat_map(Intent::files_changed).collect(),
            _ => BTreeSet::new(),
        }
    }

    /// Whether some of it could not be replayed, or not be finished. What is shown may then lack anything newer.
    pub fn is_partial(&self) -> bool {
        matches!(self, Self::Replayed(replay) if replay.report.problems_total > 0 || !replay.left.is_empty())
    }
}

/// Files that a command line names: by path, or by number.
#[derive(Clone, Debug, Args)]
pub struct Files {
    /// Paths in the image.
    #[arg(required_unless_present = "inodes")]
    paths: Vec<OsString>,
    /// A file by its inode number; may be given several times.
    #[arg(long = "inode", value_name = "N", value_parser = parse_inode)]
    inodes: Vec<u64>,
}

/// An inode number in decimal, or in hexadecimal after `0x`.
fn parse_inode(text: &str) -> Result<u64, std::num::ParseIntError> {
    text.strip_prefix("0x").map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16))
}

impl Image {
    /// What a log does not give back may be missing anywhere: no script must take a tree that was `taken` out for a
    /// whole one.
    pub fn expect_whole(&self, taken: &str) {
        if self.log.is_partial() {
            let lacks = "may lack its newest changes";
            self.messages.fail(format_args!("the log was replayed in part: what was {taken} {lacks}"));
        }
    }

    /// The paths that operands name, patterns expanded; what cannot be expanded is counted as a failure.
    pub fn paths(&self, operands: &[OsString]) -> Vec<Vec<u8>> {
        let operands = operands.iter().map(|operand| operand.as_bytes());
        operands::paths(&self.volume, operands, &mut |path, error| {
            self.messages.fail(Failure::at(path, &error));
        })
    }

    /// Finds the files of a command line; those that cannot be found are counted as failures. A file that was named
    /// by number is called by it.
    pub fn find_files(&self, files: &Files, last: Last) -> Vec<(Vec<u8>, Inode)> {
        let by_path = self.paths(&files.paths).into_iter().map(|path| {
            let inode = resolve(&self.volume, &path, last);
            (path, inode)
        });
        let by_number = files
            .inodes
            .iter()
            .map(|ino| (format!("inode {ino}").into_bytes(), self.volume.inode(Ino(*ino))));
        let (mut found, unfinished) = (Vec::new(), self.log.files_unfinished());
        for (name, inode) in by_path.chain(by_number) {
            match inode {
                Ok(inode) => {
                    if unfinished.contains(&inode.ino()) {
                        let name = names::quoted(&name);
                        self.messages.warn(format_args!(
                            "{name}: an operation on it was unfinished: it is shown half done"
                        ));
                    }
                    found.push((name, inode));
                }
                Err(error) => self.messages.fail(Failure::naming(&name, &error)),
            }
        }
        found
    }

    /// The names of owners in the image's own `/etc/passwd` and `/etc/group`; none where they cannot be read.
    pub fn owners(&self) -> Owners {
        Owners { users: self.names_of(b"/etc/passwd"), groups: self.names_of(b"/etc/group") }
    }

    /// The numbers of the names in its `/etc/passwd` or `/etc/group`.
    pub fn numbers_of(&self, path: &[u8]) -> Numbers {
        Numbers::parse(&self.text_of(path))
    }

    fn names_of(&self, path: &[u8]) -> Names {
        Names::parse(&self.text_of(path))
    }

    /// A file of names; empty where it cannot be read.
    fn text_of(&self, path: &[u8]) -> Vec<u8> {
        let Ok(inode) = resolve(&self.volume, path, Last::Follow) else { return Vec::new() };
        let dinode = inode.dinode();
        let size = dinode.core.size.get().min(crate::owners::BYTES_MAX);
        let mut text = vec![0; usize::try_from(size).unwrap_or(0)];
        let length = read_at(&self.volume, &dinode, 0, &mut text).unwrap_or(0);
        text.truncate(length);
        text
    }
}

/// Opens an image as the options ask.
pub fn open(path: &Path, global: &Global) -> anyhow::Result<Image> {
    let messages = Messages::new(global, path.display().to_string());
    let device = device(path, global)?;
    let superblock = superblock(&device)?;
    let log_device = log_device(&superblock, global)?;
    let Opened { device, log, .. } = replayed(&device, &superblock, log_device, global)?;
    let volume = Volume::open(device)?;
    tell(&log, &messages);
    Ok(Image { volume, log, messages })
}

/// A volume that is open for changes.
pub struct Writable {
    /// The volume. To be unmounted at the end.
    pub volume: xebec::Volume,
    /// What it lies on.
    device: Arc<dyn Device>,
    /// What a command has to say about it.
    pub messages: Messages,
}

impl Writable {
    /// The same volume for whoever shows it: [`write_home`](xebec::Volume::write_home) makes it show what was done.
    pub fn image(&self, global: &Global) -> anyhow::Result<Image> {
        let messages = Messages::new(global, self.messages.image());
        Ok(Image { volume: Volume::open(self.device.clone())?, log: Log::Clean, messages })
    }
}

/// An image that a command is about to change as a whole.
pub struct ForChanges {
    /// What the volume lies on, locked.
    pub device: Arc<dyn Device>,
    /// How to open the volume.
    pub options: xebec::Options,
    /// What a command has to say about it.
    pub messages: Messages,
}

/// Opens an image for changes. A dirty log is replayed in place, and unfinished operations are finished.
pub fn writable(path: &Path, global: &Global) -> anyhow::Result<Writable> {
    let ForChanges { device, options, messages } = for_changes(path, global)?;
    let volume = xebec::Volume::open(device.clone(), options)?;
    Ok(Writable { volume, device, messages })
}

/// Opens an image for changes in memory, which leave it as it is. A dirty log is replayed there.
pub fn in_memory(path: &Path, global: &Global) -> anyhow::Result<Writable> {
    let messages = Messages::new(global, path.display().to_string());
    let device = device(path, global)?;
    let log_device = log_device(&superblock(&device)?, global)?;
    let options = xebec::Options { log_device, ..xebec::Options::default() };
    let volume = xebec::Volume::open_in_memory(device.clone(), options)?;
    Ok(Writable { volume, device, messages })
}

/// The image and the path in it that `IMAGE:PATH` names. A colon is a part of a file's name where there is such a file.
pub fn image_and_path(text: &OsStr) -> Option<(&Path, &OsStr)> {
    if Path::new(text).exists() {
        return None;
    }
    let bytes = text.as_bytes();
    let colons = bytes.iter().enumerate().filter(|(_, byte)| **byte == b':');
    let mut splits = colons.filter_map(|(at, _)| bytes.split_at_checked(at)).map(|(image, path)| {
        let path = path.get(1..).filter(|path| !path.is_empty()).unwrap_or(b"/");
        (Path::new(OsStr::from_bytes(image)), OsStr::from_bytes(path))
    });
    splits.find(|(image, _)| image.metadata().is_ok_and(|image| !image.is_dir()))
}

/// The device of an image, for changes, on which a volume is yet to be opened.
pub fn for_changes(path: &Path, global: &Global) -> anyhow::Result<ForChanges> {
    let options = OpenOptions { writable: true, ..options(global) };
    prepared(open_device(path, options, global)?, path, options, global)
}

/// The same for an image file that will be `path` when it is finished.
pub fn new_for_changes(new: &NewFile, path: &Path, global: &Global) -> anyhow::Result<ForChanges> {
    let options = OpenOptions { writable: true, ..options(global) };
    prepared(block::open_part(new.shared_device(), &image(options, global))?, path, options, global)
}

fn prepared(
    device: Arc<dyn Device>,
    path: &Path,
    options: OpenOptions,
    global: &Global,
) -> anyhow::Result<ForChanges> {
    if global.no_replay {
        anyhow::bail!("a volume is never changed without its log (leave --no-replay out)");
    }
    let messages = Messages::new(global, path.display().to_string());
    let superblock = superblock(&device)?;
    let log_device = match (superblock.geometry.log_start, &global.log_device) {
        (None, Some(path)) => Some(unless_ending(path, global, || block::open_file(path, &options))?),
        _ => log_device(&superblock, global)?,
    };
    let options = xebec::Options { log_device, ..xebec::Options::default() };
    Ok(ForChanges { device, options, messages })
}

/// Opens an image as far as it can be opened, for commands that look at damage: a log that cannot be read is a warning.
pub fn open_damaged(path: &Path, global: &Global, messages: &Messages) -> anyhow::Result<Opened> {
    let device = device(path, global)?;
    let as_it_lies = |error: anyhow::Error| {
        let reason = chain(&error);
        messages.warn(format_args!("{reason}; shown as it lies"));
        Opened { device: device.clone(), log_device: None, log: Log::Unread(reason) }
    };
    let superblock = match superblock(&device) {
        Ok(superblock) => superblock,
        Err(error) if is_foreign(&error) => return Err(error),
        Err(error) => return Ok(as_it_lies(error)),
    };
    let log_device = log_device(&superblock, global)?;
    match replayed(&device, &superblock, log_device, global) {
        Ok(opened) => {
            tell(&opened.log, messages);
            Ok(opened)
        }
        Err(error) => Ok(as_it_lies(error)),
    }
}

/// The device that holds the volume, to be read. Whoever may change it meanwhile is told.
pub fn device(path: &Path, global: &Global) -> anyhow::Result<Arc<dyn Device>> {
    let device = open_device(path, options(global), global)?;
    if let Some(holder) = block::writer_of(path) {
        let messages = Messages::new(global, path.display().to_string());
        messages.warn(format_args!("{holder}: what is shown may be out of date or inconsistent"));
    }
    Ok(device)
}

fn open_device(path: &Path, options: OpenOptions, global: &Global) -> anyhow::Result<Arc<dyn Device>> {
    unless_ending(path, global, || block::open_image(path, &image(options, global)))
}

/// Opens or locks something of an image. Where its volume was just unmounted, and the server is still writing, this
/// waits for the server.
pub fn unless_ending<T>(
    path: &Path,
    global: &Global,
    mut open: impl FnMut() -> Result<T, OpenError>,
) -> anyhow::Result<T> {
    loop {
        match open() {
            Err(OpenError::Locked { by: by @ Holder::Ending(_), .. }) if global.wait.is_none() => {
                let messages = Messages::new(global, path.display().to_string());
                messages.note(format_args!("{by}: waiting for that"));
                if let Holder::Ending(ending) = by {
                    ending.wait().context("cannot wait for the server")?;
                }
            }
            opened => return opened.map_err(|error| with_advice(error, path)),
        }
    }
}

/// What may be read and was to be changed: says what to do.
fn with_advice(error: OpenError, path: &Path) -> anyhow::Error {
    let advice = match error.errno() {
        _ if !matches!(error, OpenError::Io { .. }) || std::fs::File::open(path).is_err() => None,
        errno::EACCES | errno::EPERM => Some(
            "it can be read, but is to be changed: make it writable with chmod, copy it, or mount it with -o ro",
        ),
        errno::EROFS => Some(
            "it can be read, but is to be changed, and lies on a file system that is mounted read-only: copy it, or \
             mount it with -o ro",
        ),
        _ => None,
    };
    match advice {
        Some(advice) => {
            let text = format!("{error} ({advice})");
            anyhow::Error::new(error).context(text)
        }
        None => error.into(),
    }
}

fn image(options: OpenOptions, global: &Global) -> OpenImage {
    OpenImage { options, partition: global.partition, offset: global.offset, backing: global.backing }
}

fn options(global: &Global) -> OpenOptions {
    let io = match global.io {
        Io::Auto => block::Io::Auto,
        Io::Pread => block::Io::Pread,
        Io::Uring => block::Io::Uring,
    };
    OpenOptions { direct: global.direct, io, wait: global.wait(), ..OpenOptions::default() }
}

/// An image that holds something else than XFS.
#[derive(Debug)]
struct Foreign(String);

impl std::fmt::Display for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Foreign {}

/// Whether an error says that an image holds something else than XFS.
pub fn is_foreign(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Foreign>().is_some()
}

/// The volume's superblock; what is not XFS is named.
pub fn superblock(device: &Arc<dyn Device>) -> anyhow::Result<Superblock> {
    match Volume::open(device.clone()) {
        Ok(volume) => Ok(volume.superblock().clone()),
        Err(read::Error::Refused { reason: SuperblockError::NotXfs, .. }) => {
            let content = block::probe(device)?;
            let advice = content.advice().map(|advice| format!(" ({advice})")).unwrap_or_default();
            let name = device.describe();
            Err(Foreign(format!("{name}: this is {content}, not an XFS file system{advice}")).into())
        }
        Err(error) => Err(error.into()),
    }
}

/// The device with its log replayed, if it is to be.
fn replayed(
    device: &Arc<dyn Device>,
    superblock: &Superblock,
    log_device: Option<Arc<dyn Device>>,
    global: &Global,
) -> anyhow::Result<Opened> {
    let as_it_lies = |log| Opened { device: device.clone(), log_device: log_device.clone(), log };
    if superblock.geometry.log_start.is_none() && log_device.is_none() {
        return Ok(as_it_lies(Log::Unread("it lies on another device, which was not named".into())));
    }
    let journal = match Journal::open(superblock, device, log_device.as_deref()) {
        Ok(journal) => journal,
        Err(error) if global.no_replay => return Ok(as_it_lies(Log::Unread(error.to_string()))),
        Err(error) => {
            return Err(error)
                .context("the log cannot be replayed (--no-replay shows the volume as it lies)");
        }
    };
    let dirty = match journal.state() {
        State::Clean { .. } => return Ok(as_it_lies(Log::Clean)),
        State::Dirty(dirty) if global.no_replay => return Ok(as_it_lies(Log::Ignored(dirty.clone()))),
        State::Dirty(dirty) => dirty.clone(),
    };
    let unknown = superblock.raw.features().log_incompat & !features::LOG_INCOMPAT_KNOWN;
    if unknown != 0 {
        let names = features::names(unknown, features::log_incompat::ALL);
        anyhow::bail!(
            "the log holds items that this version cannot replay: {names} (--no-replay shows the volume as it lies)"
        );
    }
    let overlay = OverlayDevice::new(device.clone());
    let options = journal::Options { on_damage: OnDamage::Note, ..journal::Options::default() };
    let report = journal::recover(&journal, superblock, &overlay, &ReplayRegistry::default(), &options)
        .context("the log cannot be replayed (--no-replay shows the volume as it lies)")?;
    overlay.freeze();
    Ok(finished(Arc::new(overlay), log_device, dirty, report))
}

/// Does in memory what the log's transactions had left to do, as far as it can be done.
fn finished(
    device: Arc<dyn Device>,
    log_device: Option<Arc<dyn Device>>,
    dirty: Dirty,
    report: RecoveryReport,
) -> Opened {
    let mut replay = Replay { dirty, left: report.unfinished.clone(), report, finished: 0, failure: None };
    let mut opened = Opened { device, log_device, log: Log::Clean };
    // Where items are missing, what stands on them cannot be trusted.
    if !replay.left.is_empty() && replay.report.problems_total == 0 {
        let (device, log_device) = (opened.device.clone(), opened.log_device.clone());
        match xebec::finish::finish_in_memory(device, log_device, &replay.left) {
            Ok(done) => {
                (opened.device, opened.log_device) = (done.device, done.log_device);
                (replay.finished, replay.left) = (done.finished, Vec::new());
            }
            Err(error) => replay.failure = Some(error.to_string()),
        }
    }
    opened.log = Log::Replayed(Box::new(replay));
    opened
}

/// Whether a volume's log, which lies in it, has something to replay.
pub fn is_dirty(superblock: &Superblock, device: &Arc<dyn Device>) -> anyhow::Result<bool> {
    let journal = Journal::open(superblock, device, None).context("the log cannot be read")?;
    Ok(matches!(journal.state(), State::Dirty(_)))
}

/// The device of an external log, if the volume has one and the user named it.
pub fn log_device(superblock: &Superblock, global: &Global) -> anyhow::Result<Option<Arc<dyn Device>>> {
    match (superblock.geometry.log_start, &global.log_device) {
        (Some(_), Some(path)) => {
            anyhow::bail!(
                "the volume's log is internal: --log-device {} does not belong to it",
                path.display()
            )
        }
        (None, Some(path)) => Ok(Some(block::open_file(path, &options(global))?)),
        (None, None) if !global.no_replay => anyhow::bail!(
            "the log lies on another device: name it with --log-device, or see the volume as it lies with --no-replay"
        ),
        _ => Ok(None),
    }
}

/// So many inodes are named in a message.
const NAMED_MAX: usize = 20;

/// Says what was done about the log.
fn tell(log: &Log, messages: &Messages) {
    match log {
        Log::Clean => {}
        Log::Unread(reason) => messages.warn(format_args!("the log was not looked at: {reason}")),
        Log::Ignored(dirty) => messages.warn(format_args!(
            "the log is dirty: {} not shown, and the volume may look damaged (--no-replay)",
            counted(dirty.transactions.into(), "transaction")
        )),
        Log::Replayed(replay) => {
            let report = &replay.report;
            let mut done = counted(report.transactions, "transaction");
            done.push_str(" replayed");
            if replay.finished > 0 {
                done.push_str(&format!(", {} finished", counted(replay.finished as u64, "operation")));
            }
            messages.note(format_args!("the log is dirty: {done} in memory; the image is untouched"));
            if let Some(failure) = &replay.failure {
                messages.warn(format_args!(
                    "{} could not be finished: {failure}",
                    counted(replay.left.len() as u64, "unfinished operation")
                ));
            }
            if report.problems_total > 0 {
                let first = report.problems.first().map(ToString::to_string).unwrap_or_default();
                messages.warn(format_args!(
                    "{} items of the log could not be replayed: {first}",
                    report.problems_total
                ));
            }
            let files = log.files_unfinished();
            if !files.is_empty() {
                let named: Vec<String> = files.iter().take(NAMED_MAX).map(ToString::to_string).collect();
                let more = if files.len() > NAMED_MAX { ", ..." } else { "" };
                messages.warn(format_args!(
                    "operations on {} files were unfinished and are shown half done: inodes {}{more}",
                    files.len(),
                    named.join(", ")
                ));
            }
        }
    }
}
