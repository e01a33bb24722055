//! `cp`: copies files and trees into, out of, within and between volumes, as GNU `cp` does.
//!
//! | part | subject |
//! |---|---|
//! | this file | the command line: sources and target |
//! | [`options`] | options |
//! | [`engine`] | copying of each file |
//! | [`traits`] | sources and targets |
//! | [`host`], [`volume`], [`image`] | sources and targets: the host, a writable volume, a read-only image |

mod engine;
mod host;
mod image;
mod options;
mod traits;
mod volume;

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::bail;
use clap::Args;
use format::inode::FileType;
use serde_json::json;
use xebec::Volume;

use super::{Edit, unmount};
use crate::args::Global;
use crate::excludes::skipped;
use crate::failure::{self, Failure};
use crate::image_operand::is_same_file;
use crate::json;
use crate::names::quoted;
use crate::open::{self, image_and_path};
use crate::output::{self, Level, Messages, Stdout, chain, print_message};
use engine::{Copier, CopyEvent};
use host::Host;
use options::CopyOptions;
use traits::{CopySource, CopyTarget, Location, joined};

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
            let mut opened = open::open(image, global)?;
            opened.messages.ignore_unreadable(options.exclude.ignore_unreadable);
            let messages = CopyMessages::new(&opened.messages, global);
            let sources = paths_in(from, image)?;
            let host = Host::new();
            let pair = CopyPair { from: &opened, to: &host, from_label: &messages.label, to_label: b"" };
            pair.copy(&sources, to.as_bytes(), &options, &mut |event| messages.report(event));
            opened.expect_whole("copied");
            return Ok(messages.finish());
        }
        Direction::Across { image: source, from, to } => {
            return across(source, from, image, to, &options, global);
        }
        Direction::In { sources, to } => {
            if let Some(other) = sources.iter().find(|source| image_and_path(source).is_some()) {
                bail!("{}: cannot mix host files and files of an image as sources", other.display());
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
    if sources.is_empty() || !image.exists() {
        return Err(arguments.no_image());
    }
    let opened = open::writable(image, global).map_err(|error| match open::is_not_xfs(&error) {
        // Another operand may have been meant as the image.
        true => error.context(arguments.no_image()),
        false => error,
    })?;
    let messages = CopyMessages::new(&opened.messages, global);
    let from = if options.within { messages.label.clone() } else { Vec::new() };
    let mut report = |event| messages.report(event);
    copy_into(&opened.volume, &from, &messages.label, &sources, &target, &options, &mut report);
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
    let (source_messages, messages) =
        (CopyMessages::new(&from.messages, global), CopyMessages::new(&to_image.messages, global));
    let volume = &to_image.volume;
    let pair =
        CopyPair { from: &from, to: volume, from_label: &source_messages.label, to_label: &messages.label };
    pair.copy(&sources, to.as_bytes(), options, &mut |event| messages.report(event));
    from.expect_whole("copied");
    let failed = source_messages.finish().max(messages.finish());
    unmount(to_image.volume)?;
    Ok(failed)
}

impl Copy {
    /// No operand names a path in an image.
    fn no_image(&self) -> anyhow::Error {
        let missing_image = |operand: &OsString| {
            let text = operand.to_str()?;
            let (image, path) = text.split_once(':')?;
            (path.starts_with('/') && !Path::new(image).exists()).then(|| image.to_owned())
        };
        if let Some(image) = self.paths.iter().find_map(missing_image) {
            return anyhow::anyhow!("{image}: no such image");
        }
        let (file, image) = match self.paths.as_slice() {
            [file, .., image] if Path::new(image).is_file() => (file.as_os_str(), image.as_os_str()),
            _ => (OsStr::new("FILE"), OsStr::new("IMAGE")),
        };
        let (file, image) = (file.display(), image.display());
        anyhow::anyhow!(
            "no operand names a path in an image: write IMAGE:/PATH, as in `xebec cp {file} {image}:/`"
        )
    }
}

/// The paths of operands that name the image.
fn paths_in(operands: &[OsString], image: &Path) -> anyhow::Result<Vec<Vec<u8>>> {
    let path = |operand: &OsString| match image_and_path(operand) {
        Some((named, path)) if is_same_file(named, image) => Ok(path.as_bytes().to_vec()),
        Some(_) => bail!("{}: all sources must be in one image", operand.display()),
        None => {
            bail!("{}: is not a path in {}, unlike the other sources", operand.display(), image.display())
        }
    };
    operands.iter().map(path).collect()
}

/// Messages about an image and the host: paths in the image are prefixed with the image's name and a colon.
struct CopyMessages<'m> {
    image: &'m Messages,
    host: Messages,
    label: Vec<u8>,
    verbose: bool,
}

impl<'m> CopyMessages<'m> {
    fn new(image: &'m Messages, global: &Global) -> Self {
        let label = format!("{}:", image.image()).into_bytes();
        Self { image, host: Messages::new(global, ""), label, verbose: global.verbose }
    }

    fn report(&self, event: CopyEvent) {
        match event {
            CopyEvent::Failed(error) => {
                let (messages, failure) = self.messages_of(Failure::from(&error));
                messages.fail(failure);
            }
            CopyEvent::Skipped(error) => {
                let (messages, failure) = self.messages_of(Failure::from(&error).with_text(chain(&error)));
                messages.skip(failure);
            }
            CopyEvent::Warning(text) => self.image.warn(text),
            CopyEvent::Copying { from, to } if self.verbose => show(&from, &to),
            CopyEvent::Copying { .. } => {}
        }
    }

    /// The messages of the image or of the host, depending on the path of a failure.
    fn messages_of(&self, mut failure: Failure) -> (&Messages, Failure) {
        let inside = failure.path.as_ref().and_then(|path| path.strip_prefix(&self.label[..]));
        match inside.map(<[u8]>::to_vec) {
            Some(path) => {
                failure.path = Some(path);
                (self.image, failure)
            }
            None => (&self.host, failure),
        }
    }

    fn finish(&self) -> u8 {
        self.image.finish().max(self.host.finish())
    }
}

fn show(from: &[u8], to: &[u8]) {
    let line = if output::uses_json_messages() {
        let ((from_key, from), (to_key, to)) = (json::name("from", from), json::name("to", to));
        json!({ (from_key): from, (to_key): to }).to_string()
    } else {
        format!("{} -> {}", quoted(from), quoted(to))
    };
    // The copy goes on if standard output is closed.
    let _ = writeln!(Stdout::raw(), "{line}");
}

impl Edit for Cp {
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        let mut sources: Vec<_> = self.paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        let target =
            self.options.into.as_ref().map(|into| into.as_bytes().to_vec()).or_else(|| sources.pop());
        let Some(target) = target.filter(|_| !sources.is_empty()) else {
            bail!("missing operand: cp FILE... PATH");
        };
        copy_into(volume, b"", b"", &sources, &target, &self.options, &mut |event| match event {
            CopyEvent::Failed(error) => report(error),
            CopyEvent::Skipped(error) => print_message(Level::Warning, "", skipped(chain(&error))),
            CopyEvent::Warning(text) => print_message(Level::Warning, "", text),
            CopyEvent::Copying { from, to } if self.verbose => show(&from, &to),
            CopyEvent::Copying { .. } => {}
        });
        Ok(())
    }
}

/// Copies to a volume, from the host or within it.
fn copy_into(
    volume: &Volume,
    from_label: &[u8],
    to_label: &[u8],
    sources: &[Vec<u8>],
    target: &[u8],
    options: &CopyOptions,
    report: &mut dyn FnMut(CopyEvent),
) {
    match options.within {
        true => {
            CopyPair { from: volume, to: volume, from_label, to_label }.copy(sources, target, options, report)
        }
        false => {
            let host = Host::new();
            CopyPair { from: &host, to: volume, from_label, to_label }.copy(sources, target, options, report);
        }
    }
}

/// Source and target of a copy, with the prefixes of their paths in messages.
struct CopyPair<'c, S, T> {
    from: &'c S,
    to: &'c T,
    from_label: &'c [u8],
    to_label: &'c [u8],
}

impl<S: CopySource, T: CopyTarget> CopyPair<'_, S, T> {
    fn copy(
        &self,
        sources: &[Vec<u8>],
        target: &[u8],
        options: &CopyOptions,
        report: &mut dyn FnMut(CopyEvent),
    ) {
        let sources = &self.from.expand(sources, &mut |path, error| {
            report(CopyEvent::Failed(error.context(failure::AtPath([self.from_label, path].concat()))));
        });
        if sources.is_empty() {
            return;
        }
        let into = match is_into(self.to, sources, target, options) {
            Ok(into) => into,
            Err(error) => {
                let shown = [self.to_label, target].concat();
                return report(CopyEvent::Failed(error.context(failure::AtPath(shown))));
            }
        };
        let excludes = match options.exclude.patterns() {
            Ok(excludes) => excludes,
            Err(error) => return report(CopyEvent::Failed(error)),
        };
        let mut copier =
            Copier::new(self.from, self.to, options.rules(), excludes, sources.len() > 1, report);
        for source in sources {
            // A path without a last name stands for the contents of the directory.
            let to = match last_name(source).filter(|_| into) {
                Some(name) => joined(target, name),
                None => target.to_vec(),
            };
            copier.copy(Location::labelled(self.from_label, source), Location::labelled(self.to_label, &to));
        }
        copier.finish();
    }
}

/// Whether sources are copied into the target directory, and not to the target itself.
fn is_into<T: CopyTarget>(
    to: &T,
    sources: &[Vec<u8>],
    target: &[u8],
    options: &CopyOptions,
) -> anyhow::Result<bool> {
    if options.no_target_directory {
        anyhow::ensure!(sources.len() == 1, "-T takes one source only");
        return Ok(false);
    }
    let existing = to.stat(&Location::path(target), true)?;
    let is_directory = existing.as_ref().is_some_and(|existing| existing.kind == FileType::Directory);
    if !is_directory && (sources.len() > 1 || options.into.is_some()) {
        match existing {
            Some(_) => bail!("target is not a directory"),
            None => bail!("no such directory"),
        }
    }
    Ok(is_directory)
}

/// Last name of a path; `None` for the root, `.` and `..`.
fn last_name(path: &[u8]) -> Option<&[u8]> {
    let name = path.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty())?;
    (!matches!(name, b"." | b"..")).then_some(name)
}
