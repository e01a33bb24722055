//! `cp`: copies files and trees into, out of, within and between volumes, as GNU `cp` does.
//!
//! | part | subject |
//! |---|---|
//! | this file | the command line: sources and target |
//! | [`options`] | options |
//! | [`messages`] | messages |
//!
//! [`TreeCopy`] copies.

mod messages;
mod options;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::bail;
use clap::Args;
use remote::RemoteUrl;
use xebec::{CopyReport, CopySide, CopySource, CopyTarget, TreeCopy, Volume};

use super::{Edit, unmount};
use crate::args::Global;
use crate::excludes::skipped;
use crate::failure;
use crate::image_operand::is_same_file;
use crate::limits::allow_many_descriptors;
use crate::open::{self, Image, image_and_path};
use crate::operands;
use crate::output::{Level, chain, print_message};
use crate::urls::shown;
use messages::{CopyMessage, CopyMessages, Labels, label, show};
use options::CopyOptions;

/// Arguments of `cp`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Paths are on the host, or in an image if written IMAGE:PATH; with --within all paths are in the \
    volume. Options are those of GNU cp: holes are preserved, -a preserves everything, -r copies pipes and devices \
    as such.\n\n\
    Differences: without -p, files in the image belong to root and are created with a umask of 022. Without -r, \
    host devices are read, but named pipes are not. Nothing is written to existing pipes and devices. With \
    --ignore-unreadable, the target of an unreadable source is not changed.\n\n\
    Examples:\n  xebec cp motd disk.xfs:/etc/motd\n  xebec cp -p vmlinuz initrd.img disk.xfs:/boot/\n  \
    xebec cp -a build/ disk.xfs:/srv/www\n  xebec cp -r disk.xfs:/etc .\n  \
    xebec cp 'disk.xfs:/var/log/*.gz' logs/\n  \
    xebec cp disk.xfs motd issue /etc/        # the image first, as with other commands\n  \
    xebec cp -r --exclude '*.o' --exclude /cache/ src/ disk.xfs:/srv\n  \
    xebec cp -a --ignore-unreadable disk.xfs:/home rescued\n  \
    xebec cp -a disk.xfs:/etc disk.xfs:/etc.old\n  xebec cp -a old.xfs:/home new.xfs:/\n  \
    xebec cp --within disk.xfs /etc/motd /etc/issue"
)]
pub struct Copy {
    /// Sources and target, in an image if written IMAGE:PATH; or the image, followed by host files and a path in it.
    // Options may be between them.
    #[arg(required = true, num_args = 1.., value_name = "SOURCE... TARGET")]
    paths: Vec<OsString>,
    #[command(flatten)]
    options: CopyOptions,
}

/// Arguments of `cp` in a session.
#[derive(Clone, Debug, Args)]
pub struct Cp {
    /// Sources and target.
    #[arg(required = true, num_args = 1.., value_name = "SOURCE... TARGET")]
    paths: Vec<OsString>,
    #[command(flatten)]
    options: CopyOptions,
    /// Print each copied file.
    #[arg(short, long)]
    verbose: bool,
}

/// Direction of a copy.
enum Direction<'a> {
    /// From the host to a path in the image.
    In { sources: &'a [OsString], to: &'a OsStr },
    /// From paths in the image to the host.
    Out { from: &'a [OsString], to: &'a OsStr },
    /// From paths in the image to another path in it.
    Within { from: &'a [OsString], to: &'a OsStr },
    /// From paths in one image to a path in another.
    Across { image: &'a Path, from: &'a [OsString], to: &'a OsStr },
    /// The image is the first operand; the rest is as in a session.
    First(&'a [OsString]),
}

impl Copy {
    /// The image to change or to read, and the direction.
    fn split(&self) -> (&Path, Direction<'_>) {
        let nothing = || (OsStr::new(""), &[][..]);
        let (first, rest) = self.paths.split_first().map_or_else(nothing, |(a, b)| (a.as_os_str(), b));
        let (last, sources) = match &self.options.into {
            Some(target) => (target.as_os_str(), &self.paths[..]),
            None => self.paths.split_last().map_or_else(nothing, |(a, b)| (a.as_os_str(), b)),
        };
        match (image_and_path(first).filter(|_| !sources.is_empty()), image_and_path(last)) {
            (Some((image, _)), Some((other, to))) if is_same_file(image, other) => {
                (image, Direction::Within { from: sources, to })
            }
            (Some((image, _)), Some((other, to))) => (other, Direction::Across { image, from: sources, to }),
            (_, Some((image, to))) => (image, Direction::In { sources, to }),
            (Some((image, _)), None) => (image, Direction::Out { from: sources, to: last }),
            (None, None) => (Path::new(first), Direction::First(rest)),
        }
    }
}

/// Runs `cp`.
pub fn run(arguments: &Copy, global: &Global) -> anyhow::Result<u8> {
    let (image, direction) = arguments.split();
    let mut options = arguments.options.clone();
    let (sources, target) = match direction {
        Direction::Out { from, to } => {
            if let Some(url) = RemoteUrl::new(Path::new(to)) {
                bail!("{url}: this names no path in the volume: write {url}:/");
            }
            let mut opened = open::open(image, global)?;
            opened.messages.ignore_unreadable(options.exclude.ignore_unreadable);
            let messages = CopyMessages::new(&opened.messages, global);
            let sources = paths_in(from, image)?;
            allow_many_descriptors();
            let labels = Labels { from: &messages.label, to: b"" };
            let report = &mut |message| messages.report(message);
            copy_out(&opened, CopyTarget::Host, labels, &sources, to, &options, report);
            opened.expect_whole("copied");
            return Ok(messages.finish());
        }
        Direction::Across { image: source, from, to } => {
            return across(source, from, image, to, &options, global);
        }
        Direction::In { sources, to } => {
            if let Some(other) = sources.iter().find(|source| image_and_path(source).is_some()) {
                bail!("{}: cannot mix host files and files of an image as sources", shown(Path::new(other)));
            }
            (sources.iter().map(|source| source.as_bytes().to_vec()).collect(), to.as_bytes().to_vec())
        }
        Direction::Within { from, to } => {
            options.within = true;
            (paths_in(from, image)?, to.as_bytes().to_vec())
        }
        Direction::First(paths) => {
            let mut paths: Vec<_> = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
            let target = options.into.as_ref().map(|into| into.as_bytes().to_vec()).or_else(|| paths.pop());
            (paths, target.unwrap_or_default())
        }
    };
    if sources.is_empty() || !open::exists(image) {
        return Err(arguments.no_image());
    }
    let opened = open::writable(image, global).map_err(|error| match open::is_not_xfs(&error) {
        // Another operand may have been meant as the image.
        true => error.context(arguments.no_image()),
        false => error,
    })?;
    let messages = CopyMessages::new(&opened.messages, global);
    let from = if options.within { messages.label.as_slice() } else { b"" };
    let labels = Labels { from, to: &messages.label };
    let mut report = |message| messages.report(message);
    copy_into(&opened.volume, labels, &sources, &target, &options, &mut report);
    let failed = messages.finish();
    unmount(opened.volume)?;
    Ok(failed)
}

/// From one image to another.
fn across(
    source: &Path,
    from: &[OsString],
    image: &Path,
    to: &OsStr,
    options: &CopyOptions,
    global: &Global,
) -> anyhow::Result<u8> {
    let sources = paths_in(from, source)?;
    let (mut from, to_image) = (open::open(source, global)?, open::writable(image, global)?);
    from.messages.ignore_unreadable(options.exclude.ignore_unreadable);
    let messages = CopyMessages::new(&to_image.messages, global).with_source(&from.messages);
    let labels = Labels { from: &label(&from.messages), to: &messages.label };
    let report = &mut |message| messages.report(message);
    copy_out(&from, (&to_image.volume).into(), labels, &sources, to, options, report);
    from.expect_whole("copied");
    let failed = messages.finish();
    unmount(to_image.volume)?;
    Ok(failed)
}

impl Copy {
    /// No operand names a path in an image.
    fn no_image(&self) -> anyhow::Error {
        let missing_image = |operand: &OsString| {
            let text = operand.to_str().filter(|text| RemoteUrl::new(Path::new(text)).is_none())?;
            let (image, path) = text.split_once(':')?;
            (path.starts_with('/') && !Path::new(image).exists()).then(|| image.to_owned())
        };
        if let Some(image) = self.paths.iter().find_map(missing_image) {
            return anyhow::anyhow!("{image}: no such image");
        }
        let is_image = |path: &Path| path.is_file() || RemoteUrl::new(path).is_some();
        let (file, image) = match self.paths.as_slice() {
            [file, .., image] if is_image(Path::new(image)) => (file.as_os_str(), image.as_os_str()),
            _ => (OsStr::new("FILE"), OsStr::new("IMAGE")),
        };
        let (file, image) = (shown(Path::new(file)), shown(Path::new(image)));
        anyhow::anyhow!(
            "no operand names a path in an image: write IMAGE:/PATH, as in `xebec cp {file} {image}:/`"
        )
    }
}

/// The paths of operands that name the image.
fn paths_in(operands: &[OsString], image: &Path) -> anyhow::Result<Vec<Vec<u8>>> {
    let path = |operand: &OsString| match image_and_path(operand) {
        Some((named, path)) if is_same_file(named, image) => Ok(path.as_bytes().to_vec()),
        Some(_) => bail!("{}: all sources must be in one image", shown(Path::new(operand))),
        None => {
            bail!(
                "{}: is not a path in {}, unlike the other sources",
                shown(Path::new(operand)),
                shown(image)
            )
        }
    };
    operands.iter().map(path).collect()
}

impl Edit for Cp {
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        let mut sources: Vec<_> = self.paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        let target =
            self.options.into.as_ref().map(|into| into.as_bytes().to_vec()).or_else(|| sources.pop());
        let Some(target) = target.filter(|_| !sources.is_empty()) else {
            bail!("missing operand: cp FILE... PATH");
        };
        let labels = Labels { from: b"", to: b"" };
        copy_into(volume, labels, &sources, &target, &self.options, &mut |message| match message {
            CopyMessage::Failed(error) => report(error),
            CopyMessage::Skipped(error) => print_message(Level::Warning, "", skipped(chain(&error))),
            CopyMessage::Unreadable(failure) => report(anyhow::anyhow!(failure.text)),
            CopyMessage::Warning(text) | CopyMessage::SourceWarning(text) => {
                print_message(Level::Warning, "", text);
            }
            CopyMessage::Copying { from, to } if self.verbose => show(&from, &to),
            CopyMessage::Copying { .. } => {}
        });
        Ok(())
    }
}

/// Copies from an image that is not changed.
fn copy_out(
    image: &Image,
    to: CopyTarget<'_>,
    labels: Labels<'_>,
    sources: &[Vec<u8>],
    target: &OsStr,
    options: &CopyOptions,
    report: &mut dyn FnMut(CopyMessage),
) {
    let from = CopySource::Reader(&image.volume);
    let copy = TreeCopy::new(from, to).unfinished(image.log.files_unfinished());
    CopyOperands { from, labels, sources, target: target.as_bytes() }.copy(copy, options, report);
}

/// Copies to a volume, from the host or within it.
fn copy_into(
    volume: &Volume,
    labels: Labels<'_>,
    sources: &[Vec<u8>],
    target: &[u8],
    options: &CopyOptions,
    report: &mut dyn FnMut(CopyMessage),
) {
    let from = match options.within {
        true => CopySource::Volume(volume),
        false => {
            allow_many_descriptors();
            CopySource::Host
        }
    };
    let copy = TreeCopy::new(from, volume);
    CopyOperands { from, labels, sources, target }.copy(copy, options, report);
}

/// Sources and target of a copy.
struct CopyOperands<'c> {
    from: CopySource<'c>,
    labels: Labels<'c>,
    sources: &'c [Vec<u8>],
    target: &'c [u8],
}

impl CopyOperands<'_> {
    fn copy(&self, copy: TreeCopy<'_>, options: &CopyOptions, report: &mut dyn FnMut(CopyMessage)) {
        let sources = self.expand(report);
        if sources.is_empty() {
            return;
        }
        let copy = copy.rules(options.rules()).into_target(options.copy_into());
        let excludes = match options.exclude.patterns() {
            Ok(excludes) => excludes,
            Err(wrong) => {
                // A target that cannot be used is reported first.
                let target = copy.check_target(sources.len(), self.target);
                let error = target.map_or_else(|error| self.labels.error(error), |()| wrong);
                return report(CopyMessage::Failed(error));
            }
        };
        let mut events = |event| report(self.labels.message(event));
        match copy.excludes(excludes).run(&sources, self.target, &mut events) {
            Ok(CopyReport { not_preserved: 0, .. }) => {}
            Ok(CopyReport { not_preserved, .. }) => {
                let text = format!("{not_preserved} extended attributes or ACLs could not be preserved");
                report(CopyMessage::Warning(text));
            }
            Err(error) => report(CopyMessage::Failed(self.labels.error(error))),
        }
    }

    /// Expands patterns in paths of a volume. Host paths are expanded by the shell.
    fn expand(&self, report: &mut dyn FnMut(CopyMessage)) -> Vec<Vec<u8>> {
        let sources = self.sources.iter().map(Vec::as_slice);
        let mut fail = |path: &[u8], error: anyhow::Error| {
            let path = self.labels.path(CopySide::Source, path);
            report(CopyMessage::Failed(error.context(failure::AtPath(path))));
        };
        match self.from {
            CopySource::Host => self.sources.to_vec(),
            CopySource::Volume(volume) => operands::paths(volume, sources, &mut fail),
            CopySource::Reader(volume) => operands::paths(volume, sources, &mut fail),
        }
    }
}
