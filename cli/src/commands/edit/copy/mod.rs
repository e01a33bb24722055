//! `cp`: files and whole trees into a volume, out of it, and within it, as GNU `cp` does it.
//!
//! | part | subject |
//! |---|---|
//! | this file | the command line: what goes where |
//! | [`options`] | options, and what they mean together |
//! | [`engine`] | what is done with each file |
//! | [`side`] | what it needs of where files come from, and of where they go |
//! | [`host`], [`volume`], [`image`] | this machine, a volume open for changes, an image that is only read |

mod engine;
mod host;
mod image;
mod options;
mod side;
mod volume;

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::Args;
use format::inode::FileType;
use serde::Serialize;
use xebec::Volume;

use super::{Edit, bytes};
use crate::args::Global;
use crate::excludes::left_out;
use crate::failure::{self, Failure};
use crate::names::{JsonName, quoted};
use crate::open::{self, image_and_path};
use crate::output::{self, Level, Messages, Stdout, chain, say};
use engine::{Copier, Report};
use host::Host;
use options::How;
use side::{At, Side, Target, joined};

/// Arguments of `cp`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Sources are files of this machine, unless the image's name stands before them with a colon; with \
    --within they are files of the volume. A target that is a directory takes them in under their names. Everything \
    else is as with GNU cp: holes stay holes, -a keeps all that a file has, -r copies pipes and devices as such.\n\n\
    Otherwise than there: files in the image belong to root, and a umask of 022 holds, unless -p keeps what they have. \
    Without -r, devices of this machine are read as there; named pipes are not, as nobody may ever write to them. \
    Nothing is written to pipes and devices. With --ignore-unreadable, what exists stays where its source cannot be \
    read.\n\n\
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
    /// What to copy, and at last where to: one side or both in an image, as IMAGE:PATH; or the image, and then files
    /// and a path in it.
    // Options may stand between them.
    #[arg(required = true, num_args = 1.., value_name = "SOURCE... TARGET")]
    paths: Vec<OsString>,
    #[command(flatten)]
    how: How,
}

/// The same in a session.
#[derive(Clone, Debug, Args)]
pub struct Cp {
    /// What to copy, and at last where to.
    #[arg(required = true, num_args = 1.., value_name = "SOURCE... TARGET")]
    paths: Vec<OsString>,
    #[command(flatten)]
    how: How,
    /// Say what is copied.
    #[arg(short, long)]
    verbose: bool,
}

/// What a command line says.
enum Way<'a> {
    /// Of this machine, to a path in the image.
    In { sources: &'a [OsString], to: &'a OsStr },
    /// Paths in the image, each in its own words, to a place of this machine.
    Out { from: &'a [OsString], to: &'a OsStr },
    /// From paths in the image, each in its own words, to another in it.
    Within { from: &'a [OsString], to: &'a OsStr },
    /// From paths in one image, each in its own words, to a path in the image that is changed.
    Across { image: &'a Path, from: &'a [OsString], to: &'a OsStr },
    /// The image was named first: what follows is as in a session.
    First(&'a [OsString]),
}

impl Copy {
    /// The image that is changed, or that is read, and what is copied.
    fn split(&self) -> (&Path, Way<'_>) {
        let nothing = || (OsStr::new(""), &[][..]);
        let (first, rest) = self.paths.split_first().map_or_else(nothing, |(a, b)| (a.as_os_str(), b));
        let (last, sources) = match &self.how.into {
            Some(target) => (target.as_os_str(), &self.paths[..]),
            None => self.paths.split_last().map_or_else(nothing, |(a, b)| (a.as_os_str(), b)),
        };
        match (image_and_path(first).filter(|_| !sources.is_empty()), image_and_path(last)) {
            (Some((image, _)), Some((other, to))) if is_same(image, other) => {
                (image, Way::Within { from: sources, to })
            }
            (Some((image, _)), Some((other, to))) => (other, Way::Across { image, from: sources, to }),
            (_, Some((image, to))) => (image, Way::In { sources, to }),
            (Some((image, _)), None) => (image, Way::Out { from: sources, to: last }),
            (None, None) => (Path::new(first), Way::First(rest)),
        }
    }
}

/// Runs `cp`.
pub fn run(arguments: &Copy, global: &Global) -> anyhow::Result<u8> {
    let (image, way) = arguments.split();
    let mut how = arguments.how.clone();
    let (sources, target) = match way {
        Way::Out { from, to } => {
            let mut opened = open::open(image, global)?;
            opened.messages.ignore_unreadable(how.exclude.ignore_unreadable);
            let says = Says::new(&opened.messages, global);
            let names = (&says.label[..], &b""[..]);
            let (sources, to) = (paths_in(from, image)?, to.as_bytes());
            copy((&opened, &Host::new()), names, &sources, to, &how, &mut |told| says.report(told));
            opened.expect_whole("copied");
            return Ok(says.finish());
        }
        Way::Across { image: source, from, to } => return across((source, from), (image, to), &how, global),
        Way::In { sources, to } => {
            if let Some(other) = sources.iter().find(|source| image_and_path(source).is_some()) {
                bail!(
                    "{}: files of this machine and of an image are copied by one command each",
                    other.display()
                );
            }
            (sources.iter().map(|source| bytes(source).to_vec()).collect(), to.as_bytes().to_vec())
        }
        Way::Within { from, to } => {
            how.within = true;
            (paths_in(from, image)?, to.as_bytes().to_vec())
        }
        Way::First(paths) => {
            let mut paths: Vec<_> = paths.iter().map(|path| bytes(path).to_vec()).collect();
            let target = how.into.as_ref().map(|into| bytes(into).to_vec()).or_else(|| paths.pop());
            (paths, target.unwrap_or_default())
        }
    };
    if sources.is_empty() || !image.exists() {
        return Err(arguments.no_image());
    }
    let opened = open::writable(image, global).map_err(|error| match open::is_foreign(&error) {
        // The image may have been meant to be another operand.
        true => error.context(arguments.no_image()),
        false => error,
    })?;
    let says = Says::new(&opened.messages, global);
    let from = if how.within { says.label.clone() } else { Vec::new() };
    let names = (&from[..], &says.label[..]);
    copy_into(&opened.volume, names, &sources, &target, &how, &mut |told| says.report(told));
    let failed = says.finish();
    opened.volume.unmount().context("the last changes may not be on the disk")?;
    Ok(failed)
}

/// From one image to another.
fn across(
    (source, from): (&Path, &[OsString]),
    (image, to): (&Path, &OsStr),
    how: &How,
    global: &Global,
) -> anyhow::Result<u8> {
    let sources = paths_in(from, source)?;
    let (mut from, to_image) = (open::open(source, global)?, open::writable(image, global)?);
    from.messages.ignore_unreadable(how.exclude.ignore_unreadable);
    let (reads, says) = (Says::new(&from.messages, global), Says::new(&to_image.messages, global));
    let names = (&reads.label[..], &says.label[..]);
    let volume = &to_image.volume;
    copy((&from, volume), names, &sources, to.as_bytes(), how, &mut |told| says.report(told));
    from.expect_whole("copied");
    let failed = reads.finish().max(says.finish());
    to_image.volume.unmount().context("the last changes may not be on the disk")?;
    Ok(failed)
}

/// Whether two names are of one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino()));
    one == other || matches!((file(one), file(other)), (Ok(one), Ok(other)) if one == other)
}

impl Copy {
    /// No operand names a path in an image.
    fn no_image(&self) -> anyhow::Error {
        let named = |operand: &OsString| {
            let text = operand.to_str()?;
            let (image, path) = text.split_once(':')?;
            (path.starts_with('/') && !Path::new(image).exists()).then(|| image.to_owned())
        };
        if let Some(image) = self.paths.iter().find_map(named) {
            return anyhow::anyhow!("{image}: there is no such image");
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
        Some((named, path)) if is_same(named, image) => Ok(path.as_bytes().to_vec()),
        Some(_) => bail!("{}: files come out of one image at a time", operand.display()),
        None => bail!("{}: it names no path in {}, as the others do", operand.display(), image.display()),
    };
    operands.iter().map(path).collect()
}

/// Messages about both sides: what is in the image has the image's name and a colon before its path, and what is on
/// this machine has not.
struct Says<'m> {
    image: &'m Messages,
    machine: Messages,
    label: Vec<u8>,
    verbose: bool,
}

impl<'m> Says<'m> {
    fn new(image: &'m Messages, global: &Global) -> Self {
        let label = format!("{}:", image.image()).into_bytes();
        Self { image, machine: Messages::new(global, ""), label, verbose: global.verbose }
    }

    fn report(&self, told: Report) {
        match told {
            Report::Failed(error) => {
                let (messages, failure) = self.about(Failure::from(&error));
                messages.fail(failure);
            }
            Report::LeftOut(error) => {
                let (messages, failure) = self.about(Failure::from(&error).with_text(chain(&error)));
                messages.leave_out(failure);
            }
            Report::Warned(text) => self.image.warn(text),
            Report::Copies { from, to } if self.verbose => show(&from, &to),
            Report::Copies { .. } => {}
        }
    }

    /// Whose messages those about a failure are.
    fn about(&self, mut failure: Failure) -> (&Messages, Failure) {
        let inside = failure.path.as_ref().and_then(|path| path.strip_prefix(&self.label[..]));
        match inside.map(<[u8]>::to_vec) {
            Some(path) => {
                failure.path = Some(path);
                (self.image, failure)
            }
            None => (&self.machine, failure),
        }
    }

    fn finish(&self) -> u8 {
        self.image.finish().max(self.machine.finish())
    }
}

/// One file that is copied, as a line.
#[derive(Serialize)]
struct Copied<'c> {
    #[serde(flatten)]
    from: JsonName<'c>,
    #[serde(flatten)]
    to: JsonName<'c>,
}

fn show(from: &[u8], to: &[u8]) {
    let line = if output::says_json() {
        let from = JsonName { key: "from", hex_key: "from_hex", name: from };
        let to = JsonName { key: "to", hex_key: "to_hex", name: to };
        // Both can always be written.
        serde_json::to_string(&Copied { from, to }).unwrap_or_default()
    } else {
        format!("{} -> {}", quoted(from), quoted(to))
    };
    // A closed standard output keeps nothing from being copied.
    let _ = writeln!(Stdout::raw(), "{line}");
}

impl Edit for Cp {
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        let mut sources: Vec<_> = self.paths.iter().map(|path| bytes(path).to_vec()).collect();
        let target = self.how.into.as_ref().map(|into| bytes(into).to_vec()).or_else(|| sources.pop());
        let Some(target) = target.filter(|_| !sources.is_empty()) else {
            return tell(anyhow::anyhow!("say what to copy, and where to: cp FILE PATH"));
        };
        copy_into(volume, (b"", b""), &sources, &target, &self.how, &mut |told| match told {
            Report::Failed(error) => tell(error),
            Report::LeftOut(error) => say(Level::Warning, "", left_out(chain(&error))),
            Report::Warned(text) => say(Level::Warning, "", text),
            Report::Copies { from, to } if self.verbose => show(&from, &to),
            Report::Copies { .. } => {}
        });
    }
}

fn copy_into(
    volume: &Volume,
    names: (&[u8], &[u8]),
    sources: &[Vec<u8>],
    target: &[u8],
    how: &How,
    report: &mut dyn FnMut(Report),
) {
    match how.within {
        true => copy((volume, volume), names, sources, target, how, report),
        false => copy((&Host::new(), volume), names, sources, target, how, report),
    }
}

/// Copies what was named to where it goes; `names` stand before the paths of either side in messages.
fn copy<S: Side, T: Target>(
    (from, to): (&S, &T),
    (from_name, to_name): (&[u8], &[u8]),
    sources: &[Vec<u8>],
    target: &[u8],
    how: &How,
    report: &mut dyn FnMut(Report),
) {
    let sources = &from.expand(sources, &mut |path, error| {
        report(Report::Failed(error.context(failure::At([from_name, path].concat()))));
    });
    if sources.is_empty() {
        return;
    }
    let into = match is_into(to, sources, target, how) {
        Ok(into) => into,
        Err(error) => {
            let shown = [to_name, target].concat();
            return report(Report::Failed(error.context(failure::At(shown))));
        }
    };
    let excludes = match how.exclude.patterns() {
        Ok(excludes) => excludes,
        Err(error) => return report(Report::Failed(error)),
    };
    let mut copier = Copier::new((from, to), (how.rules(), excludes), sources.len() > 1, report);
    for source in sources {
        // What has no name of its own is the directory's contents.
        let to = match last_name(source).filter(|_| into) {
            Some(name) => joined(target, name),
            None => target.to_vec(),
        };
        copier.copy(At::named(from_name, source), At::named(to_name, &to));
    }
    copier.finish();
}

/// Whether sources go into the target, and not to its place.
fn is_into<T: Target>(to: &T, sources: &[Vec<u8>], target: &[u8], how: &How) -> anyhow::Result<bool> {
    if how.no_target_directory {
        anyhow::ensure!(sources.len() == 1, "with -T there is one source");
        return Ok(false);
    }
    let there = to.stat(&At::path(target), true)?;
    let is_directory = there.as_ref().is_some_and(|there| there.kind == FileType::Directory);
    if !is_directory && (sources.len() > 1 || how.into.is_some()) {
        match there {
            Some(_) => bail!("it is not a directory, which several files could go to"),
            None => bail!("there is no such directory"),
        }
    }
    Ok(is_directory)
}

/// The last name of a path; none where it is the root, or ends with `.` or `..`.
fn last_name(path: &[u8]) -> Option<&[u8]> {
    let name = path.rsplit(|byte| *byte == b'/').find(|part| !part.is_empty())?;
    (!matches!(name, b"." | b"..")).then_some(name)
}
