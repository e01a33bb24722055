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
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::Args;
use format::inode::FileType;
use serde::Serialize;
use xebec::Volume;

use super::{Edit, bytes};
use crate::args::Global;
use crate::failure;
use crate::names::{JsonName, quoted};
use crate::open::{self, image_and_path};
use crate::output::{self, Level, Messages, Stdout, say};
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
    Nothing is written to pipes and devices.\n\n\
    Examples:\n  xebec cp motd disk.xfs:/etc/motd\n  xebec cp -p vmlinuz initrd.img disk.xfs:/boot/\n  \
    xebec cp -a build/ disk.xfs:/srv/www\n  xebec cp -r disk.xfs:/etc .\n  \
    xebec cp disk.xfs motd issue /etc/        # the image first, as with other commands\n  \
    xebec cp -a disk.xfs:/etc disk.xfs:/etc.old\n  xebec cp --within disk.xfs /etc/motd /etc/issue"
)]
pub struct Copy {
    /// What to copy, and at last where to: one side in an image, as IMAGE:PATH; or the image, and then files and a path
    /// in it.
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
    /// The image was named first: what follows is as in a session.
    First(&'a [OsString]),
}

impl Copy {
    /// The image.
    pub fn image(&self) -> &Path {
        self.split().0
    }

    /// The image, and what is copied.
    fn split(&self) -> (&Path, Way<'_>) {
        let nothing = || (OsStr::new(""), &[][..]);
        let (first, rest) = self.paths.split_first().map_or_else(nothing, |(a, b)| (a.as_os_str(), b));
        let (last, sources) = match &self.how.into {
            Some(target) => (target.as_os_str(), &self.paths[..]),
            None => self.paths.split_last().map_or_else(nothing, |(a, b)| (a.as_os_str(), b)),
        };
        match (image_and_path(first).filter(|_| !sources.is_empty()), image_and_path(last)) {
            (Some((image, _)), Some((other, to))) if image == other => {
                (image, Way::Within { from: sources, to })
            }
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
            let opened = open::open(image, global)?;
            let sources = paths_in(from, image)?;
            let mut report = |told| tell(&opened.messages, global.verbose, told);
            copy((&opened, &Host::new()), &sources, to.as_bytes(), &how, &mut report);
            opened.expect_whole("copied");
            return Ok(opened.messages.finish());
        }
        Way::In { sources, to } => {
            if let Some(other) = sources.iter().find(|source| image_and_path(source).is_some()) {
                bail!("{}: copy it out of its image first", other.display());
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
    if sources.is_empty() {
        bail!("say what to copy, and where to: `xebec cp FILE {}:/PATH`", image.display());
    }
    let opened = open::writable(image, global)?;
    let mut report = |told| tell(&opened.messages, global.verbose, told);
    copy_into(&opened.volume, &sources, &target, &how, &mut report);
    let failed = opened.messages.finish();
    opened.volume.unmount().context("the last changes may not be on the disk")?;
    Ok(failed)
}

/// The paths of operands that name the image.
fn paths_in(operands: &[OsString], image: &Path) -> anyhow::Result<Vec<Vec<u8>>> {
    let path = |operand: &OsString| match image_and_path(operand).filter(|(named, _)| *named == image) {
        Some((_, path)) => Ok(path.as_bytes().to_vec()),
        None => bail!("{}: files come out of one image at a time", operand.display()),
    };
    operands.iter().map(path).collect()
}

fn tell(messages: &Messages, verbose: bool, told: Report) {
    match told {
        Report::Failed(error) => messages.fail(&error),
        Report::Warned(text) => messages.warn(text),
        Report::Copies { from, to } if verbose => show(&from, &to),
        Report::Copies { .. } => {}
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
        copy_into(volume, &sources, &target, &self.how, &mut |told| match told {
            Report::Failed(error) => tell(error),
            Report::Warned(text) => say(Level::Warning, "", text),
            Report::Copies { from, to } if self.verbose => show(&from, &to),
            Report::Copies { .. } => {}
        });
    }
}

fn copy_into(volume: &Volume, sources: &[Vec<u8>], target: &[u8], how: &How, report: &mut dyn FnMut(Report)) {
    match how.within {
        true => copy((volume, volume), sources, target, how, report),
        false => copy((&Host::new(), volume), sources, target, how, report),
    }
}

/// Copies what was named to where it goes.
fn copy<S: Side, T: Target>(
    (from, to): (&S, &T),
    sources: &[Vec<u8>],
    target: &[u8],
    how: &How,
    report: &mut dyn FnMut(Report),
) {
    let into = match is_into(to, sources, target, how) {
        Ok(into) => into,
        Err(error) => return report(Report::Failed(error.context(failure::At(target.to_vec())))),
    };
    let mut copier = Copier::new((from, to), how.rules(), sources.len() > 1, report);
    for source in sources {
        // What has no name of its own is the directory's contents.
        let to = match last_name(source).filter(|_| into) {
            Some(name) => joined(target, name),
            None => target.to_vec(),
        };
        copier.copy(At::path(source), At::path(&to));
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
    let is_directory = there.is_some_and(|there| there.kind == FileType::Directory);
    anyhow::ensure!(
        is_directory || (sources.len() == 1 && how.into.is_none()),
        "it is not a directory, or there is no such directory"
    );
    Ok(is_directory)
}

/// The last name of a path; none where it is the root, or ends with `.` or `..`.
fn last_name(path: &[u8]) -> Option<&[u8]> {
    let name = path.rsplit(|byte| *byte == b'/').find(|part| !part.is_empty())?;
    (!matches!(name, b"." | b"..")).then_some(name)
}
