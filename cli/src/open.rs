//! Opens images and finds the files of a command line, with messages.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use read::{FinalSymlink, Inode, Listing, Volume, join, read_at, resolve};
use remote::{RemoteUrl, RemoteVolume};
use xebec::check::log_problem;
use xebec::device::{Device, OpenError};
use xebec::image::{self, ImageNotice, LogStatus, OpenedImage};
use xebec::{Access, ImageError, ImageOptions, Ino};

use crate::args::{Global, Io};
use crate::failure::Failure;
use crate::output::{Messages, counted};
use crate::owners::{self, IdsByName, NamesById, Owners};
use crate::urls::{expect_local_log, shown};
use crate::{memory, names, operands};

/// An image that is open for reading.
pub struct Image {
    /// The volume, with the log replayed in memory unless `--no-replay` was given.
    pub volume: Volume,
    /// State of the log.
    pub log: LogStatus,
    /// Messages of the command.
    pub messages: Messages,
}

/// Files on a command line, by path or by inode number.
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
    /// Fails the command if the log was replayed partially: a script must not take the result for complete. `action` is
    /// a participle such as "copied".
    pub fn expect_whole(&self, action: &str) {
        if self.log.is_partial() {
            self.messages.fail(format_args!(
                "the log was replayed partially: the {action} files may lack recent changes"
            ));
        }
    }

    /// Expands operands; those that cannot be expanded are counted as failures.
    pub fn paths(&self, operands: &[OsString]) -> Vec<Vec<u8>> {
        let operands = operands.iter().map(|operand| operand.as_bytes());
        operands::paths(&self.volume, operands, &mut |path, error| {
            self.messages.fail(Failure::at(path, &error));
        })
    }

    /// Finds the files of a command line; those that cannot be found are counted as failures. The name of a file given
    /// by number is that number.
    pub fn find_files(&self, files: &Files, last: FinalSymlink) -> Vec<(Vec<u8>, Inode)> {
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
                            "{name}: an operation on it was not finished: it is shown in an intermediate state"
                        ));
                    }
                    found.push((name, inode));
                }
                Err(error) => self.messages.fail(Failure::naming(&name, &error)),
            }
        }
        found
    }

    /// Reads a directory: the files whose names `accept` accepts, with their paths, sorted by name. Errors are counted
    /// as failures.
    pub fn read_dir(
        &self,
        path: &[u8],
        dir: &Inode,
        accept: impl Fn(&[u8]) -> bool,
    ) -> Vec<(Vec<u8>, Inode)> {
        let fail = |path: &[u8], error| self.messages.fail(Failure::at(path, error));
        let mut listing = Listing::read(&self.volume, &dir.dinode(), |error| fail(path, error));
        listing.retain(accept);
        listing.sort();
        let mut files = Vec::new();
        for entry in listing.items() {
            let path = join(path, listing.name(entry));
            match self.volume.inode(entry.ino) {
                Ok(inode) => files.push((path, inode)),
                Err(error) => fail(&path, error),
            }
        }
        files
    }

    /// User and group names from the image's `/etc/passwd` and `/etc/group`; none if they cannot be read.
    pub fn owners(&self) -> Owners {
        let names = |path: &[u8]| NamesById::parse(&self.small_file(path));
        Owners { users: names(b"/etc/passwd"), groups: names(b"/etc/group") }
    }

    /// IDs by name, from the image's `/etc/passwd` or `/etc/group`.
    pub fn ids_by_name(&self, path: &[u8]) -> IdsByName {
        IdsByName::parse(&self.small_file(path))
    }

    /// The contents of a file of limited size; empty if it cannot be read.
    fn small_file(&self, path: &[u8]) -> Vec<u8> {
        let Ok(inode) = resolve(&self.volume, path, FinalSymlink::Follow) else { return Vec::new() };
        let dinode = inode.dinode();
        let size = dinode.core.size.get().min(owners::BYTES_MAX);
        let mut text = vec![0; usize::try_from(size).unwrap_or(0)];
        let length = read_at(&self.volume, &dinode, 0, &mut text).unwrap_or(0);
        text.truncate(length);
        text
    }
}

/// Opens an image to be read.
pub fn open(path: &Path, global: &Global) -> anyhow::Result<Image> {
    let messages = Messages::new(global, shown(path));
    let OpenedImage { device, log, .. } = open_image(path, Access::ReadOnly, global)?;
    report_log(&log, &messages);
    Ok(Image { volume: Volume::open(device)?, log, messages })
}

/// A volume that is open for changes.
pub struct Writable {
    /// The volume, to be unmounted at the end.
    pub volume: xebec::Volume,
    /// The device of the volume.
    device: Arc<dyn Device>,
    /// Messages of the command.
    pub messages: Messages,
}

impl Writable {
    /// The same volume for a reader, which sees the changes after [`write_back_all`](xebec::Volume::write_back_all).
    pub fn image(&self, global: &Global) -> anyhow::Result<Image> {
        let messages = Messages::new(global, self.messages.image());
        Ok(Image { volume: Volume::open(self.device.clone())?, log: LogStatus::Clean, messages })
    }
}

/// An image that a command changes as a whole.
pub struct ForChanges {
    /// The device of the volume, locked.
    pub device: Arc<dyn Device>,
    /// Options to open the volume with.
    pub options: xebec::Options,
    /// Messages of the command.
    pub messages: Messages,
}

/// Opens a volume for changes. A dirty log is replayed in place, and unfinished operations are finished.
pub fn writable(path: &Path, global: &Global) -> anyhow::Result<Writable> {
    open_volume(path, Access::ReadWrite, global)
}

/// Opens a volume for changes in memory: the image stays as it is.
pub fn in_memory(path: &Path, global: &Global) -> anyhow::Result<Writable> {
    open_volume(path, Access::InMemory, global)
}

fn open_volume(path: &Path, access: Access, global: &Global) -> anyhow::Result<Writable> {
    let ForChanges { device, options, messages } = with_access(path, access, global)?;
    let volume = xebec::Volume::open(device.clone(), options)?;
    Ok(Writable { volume, device, messages })
}

/// Splits `IMAGE:PATH`. `None` if a file has this whole name.
pub fn image_and_path(text: &OsStr) -> Option<(&Path, &OsStr)> {
    if Path::new(text).exists() {
        return None;
    }
    let bytes = text.as_bytes();
    if RemoteUrl::new(Path::new(text)).is_some() {
        return url_and_path(bytes);
    }
    let colons = bytes.iter().enumerate().filter(|(_, byte)| **byte == b':');
    let mut splits = colons.filter_map(|(colon, _)| bytes.split_at_checked(colon)).map(|(image, path)| {
        let path = path.get(1..).filter(|path| !path.is_empty()).unwrap_or(b"/");
        (Path::new(OsStr::from_bytes(image)), OsStr::from_bytes(path))
    });
    splits.find(|(image, _)| image.metadata().is_ok_and(|image| !image.is_dir()))
}

/// Splits `URL:/PATH`, or `URL:` for the root directory, at the first colon behind which a path begins or nothing
/// follows: a URL may contain others.
fn url_and_path(bytes: &[u8]) -> Option<(&Path, &OsStr)> {
    let scheme = bytes.windows(3).position(|part| part == b"://")? + 3;
    let behind = bytes.get(scheme..)?;
    let colon = behind.windows(2).position(|part| part == b":/");
    let colon = scheme + colon.or_else(|| behind.len().checked_sub(1).filter(|_| behind.ends_with(b":")))?;
    let (url, path) = bytes.split_at_checked(colon)?;
    let path = path.get(1..).filter(|path| !path.is_empty()).unwrap_or(b"/");
    Some((Path::new(OsStr::from_bytes(url)), OsStr::from_bytes(path)))
}

/// Opens an image for a command that opens the volume itself.
pub fn for_changes(path: &Path, global: &Global) -> anyhow::Result<ForChanges> {
    with_access(path, Access::ReadWrite, global)
}

/// Opens an image for a command that opens the volume itself. With [`Access::InMemory`], changes stay in memory.
pub fn with_access(path: &Path, access: Access, global: &Global) -> anyhow::Result<ForChanges> {
    let OpenedImage { device, log_device, .. } = open_image(path, access, global)?;
    let options = xebec::Options { log_device, ..volume_options() };
    Ok(ForChanges { device, options, messages: Messages::new(global, shown(path)) })
}

/// Options of volumes that a command opens.
pub fn volume_options() -> xebec::Options {
    xebec::Options { memory: Some(memory::of_command()), ..xebec::Options::default() }
}

/// Opens an image for commands that examine damage: a superblock or log that cannot be read is a warning.
pub fn open_damaged(path: &Path, global: &Global, messages: &Messages) -> anyhow::Result<OpenedImage> {
    let options = ImageOptions { damaged: true, ..options(Access::ReadOnly, global) };
    let opened = open_with(path, &options, global)?;
    report_log(&opened.log, messages);
    Ok(opened)
}

/// The device of a volume without replay, for commands that examine its log or its superblock.
pub fn device(path: &Path, global: &Global) -> anyhow::Result<OpenedImage> {
    let options = ImageOptions { replay: false, damaged: true, ..options(Access::ReadOnly, global) };
    open_with(path, &options, global)
}

fn open_image(path: &Path, access: Access, global: &Global) -> anyhow::Result<OpenedImage> {
    open_with(path, &options(access, global), global)
}

/// Opens a file or device, or the volume that a URL names.
fn open_with(path: &Path, options: &ImageOptions, global: &Global) -> anyhow::Result<OpenedImage> {
    options.log_device.as_deref().map_or(Ok(()), expect_local_log)?;
    let Some(url) = RemoteUrl::new(path) else {
        return Ok(image::open_image(path, options, &mut notices(path, global))?);
    };
    let RemoteVolume { device, writer } = url.open(&global.remote(options.access == Access::ReadWrite))?;
    if let Some(writer) = writer {
        Messages::new(global, shown(path)).warn(format_args!(
            "{writer} has it open for changes: what is read may be incomplete (read a snapshot instead)"
        ));
    }
    Ok(image::open_image_on(device, options)?)
}

/// Whether an operand names an existing file. A volume that a URL names is not looked up.
pub fn exists(path: &Path) -> bool {
    RemoteUrl::new(path).is_some() || path.symlink_metadata().is_ok()
}

/// Opens or locks a file; waits while the server of a mount that was unmounted is still writing to it.
pub fn retry_while_ending<T>(
    path: &Path,
    global: &Global,
    open: impl FnMut() -> Result<T, OpenError>,
) -> Result<T, ImageError> {
    image::retry_while_ending(path, global.wait(), &mut notices(path, global), open)
}

fn notices(path: &Path, global: &Global) -> impl FnMut(ImageNotice<'_>) {
    move |notice| print_notice(path, notice, global)
}

/// Prints what opening or locking a file has to say.
pub fn print_notice(path: &Path, notice: ImageNotice<'_>, global: &Global) {
    let messages = Messages::new(global, shown(path));
    match notice {
        ImageNotice::Waiting(_) => messages.note(notice),
        _ => messages.warn(notice),
    }
}

/// Options of an image from those of the command line.
pub fn options(access: Access, global: &Global) -> ImageOptions {
    let io = match global.io {
        Io::Auto => xebec::device::Io::Auto,
        Io::Pread => xebec::device::Io::Pread,
        Io::Uring => xebec::device::Io::Uring,
    };
    ImageOptions {
        access,
        partition: global.partition,
        offset: global.offset,
        backing: global.backing,
        log_device: global.log_device.clone(),
        direct: global.direct,
        io,
        wait: global.wait(),
        replay: !global.no_replay,
        damaged: false,
    }
}

/// Whether an error says that an image does not hold XFS.
pub fn is_not_xfs(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ImageError::NotXfs { .. }))
}

/// Maximum number of inodes named in a message.
const NAMED_MAX: usize = 20;

/// Reports the state of the log.
fn report_log(log: &LogStatus, messages: &Messages) {
    match log {
        LogStatus::Clean | LogStatus::NotExamined => {}
        LogStatus::Unreadable(error @ (ImageError::LogDeviceMissing | ImageError::Log(_))) => {
            messages.warn(format_args!("the log was not read: {}", log_problem(error)));
        }
        LogStatus::Unreadable(error) => messages.warn(format_args!("{error}; shown without replay")),
        LogStatus::Ignored(dirty) => messages.warn(format_args!(
            "the log is dirty: {} not shown, and the volume may look damaged (--no-replay)",
            counted(dirty.transactions.into(), "transaction")
        )),
        LogStatus::Replayed(replay) => {
            let report = &replay.report;
            let mut actions = format!("{} replayed", counted(report.transactions, "transaction"));
            if replay.finished > 0 {
                actions.push_str(&format!(", {} finished", counted(replay.finished as u64, "operation")));
            }
            messages.note(format_args!("the log is dirty: {actions} in memory; the image is untouched"));
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
                let inodes: Vec<String> = files.iter().take(NAMED_MAX).map(ToString::to_string).collect();
                let more = if files.len() > NAMED_MAX { ", ..." } else { "" };
                messages.warn(format_args!(
                    "operations on {} files were not finished, and these files are shown in an intermediate state: \
                     inodes {}{more}",
                    files.len(),
                    inodes.join(", ")
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_split_from_paths() {
        let split = |text: &'static str| {
            image_and_path(OsStr::new(text))
                .map(|(url, path)| (url.to_str().unwrap(), path.to_str().unwrap()))
        };
        assert_eq!(split("rbd://pool/image"), None);
        assert_eq!(split("rbd://pool/image:"), Some(("rbd://pool/image", "/")));
        assert_eq!(split("rbd://pool/image@s:/etc/a:/b"), Some(("rbd://pool/image@s", "/etc/a:/b")));
        let monitor = "rbd://pool/image?mon_host=1.2.3.4:6789&conf=/etc/c:/etc";
        assert_eq!(split(monitor), Some(("rbd://pool/image?mon_host=1.2.3.4:6789&conf=/etc/c", "/etc")));
    }
}
