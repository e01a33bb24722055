//! `cp`: files and whole trees into a volume, out of it, and within it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::bail;
use base::time::Time;
use clap::Args;
use format::inode::FileType;
use xebec::{OpenOptions, SetMetadata, Volume};

use super::contents::{copy, replaced};
use super::{Edit, bytes, trees};
use crate::args::Global;
use crate::commands::On;
use crate::commands::extract;
use crate::names;
use crate::open::{self, image_and_path};

/// Arguments of `cp`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Sources are files of this machine, unless the image's name stands before them with a colon; with \
    --within they are files of the volume. A target that is a directory, or that ends in a slash, takes them in under \
    their names.\n\n\
    What is copied out of an image keeps everything that this user may keep, as with `xebec extract`.\n\n\
    Examples:\n  xebec cp motd disk.xfs:/etc/motd\n  xebec cp -p vmlinuz initrd.img disk.xfs:/boot/\n  \
    xebec cp -a build/ disk.xfs:/srv/www\n  xebec cp -r disk.xfs:/etc .\n  \
    xebec cp disk.xfs motd issue /etc/        # the image first, as with other commands\n  \
    xebec cp --within disk.xfs /etc/motd /etc/issue"
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
    #[arg(required = true, num_args = 2.., value_name = "SOURCE... TARGET")]
    paths: Vec<OsString>,
    #[command(flatten)]
    how: How,
}

#[derive(Clone, Copy, Debug, Args)]
struct How {
    /// Copy files of the volume: they share their blocks where the volume can.
    #[arg(long)]
    within: bool,
    /// Keep permissions, owner, group and times; with -r everything that files have.
    #[arg(short, long)]
    preserve: bool,
    /// Directories, too, with everything in them.
    #[arg(short, long, conflicts_with = "within")]
    recursive: bool,
    /// The same as -r -p.
    #[arg(short, long)]
    archive: bool,
}

/// What a command line says.
enum Way<'a> {
    /// Of this machine, to a path in the image.
    In { sources: &'a [OsString], to: &'a OsStr },
    /// Paths in the image, each in its own words, to a place of this machine.
    Out { from: &'a [OsString], to: &'a Path },
    /// The image was named first: what follows is as in a session.
    Within(&'a [OsString]),
}

impl Copy {
    /// The image.
    pub fn image(&self) -> &Path {
        self.split().0
    }

    /// The image, and what is copied.
    fn split(&self) -> (&Path, Way<'_>) {
        let (first, rest) = self.paths.split_first().map_or((OsStr::new(""), &[][..]), |(a, b)| (a, b));
        let (last, sources) = self.paths.split_last().map_or((OsStr::new(""), &[][..]), |(a, b)| (a, b));
        if let Some((image, to)) = image_and_path(last) {
            return (image, Way::In { sources, to });
        }
        match image_and_path(first) {
            Some((image, _)) => (image, Way::Out { from: sources, to: Path::new(last) }),
            None => (Path::new(first), Way::Within(rest)),
        }
    }
}

/// Runs `cp`.
pub fn run(arguments: &Copy, global: &Global) -> anyhow::Result<u8> {
    let how = arguments.how;
    let (image, way) = arguments.split();
    let paths = match way {
        Way::Out { from, to } => return copy_out(image, (from, to), how, global),
        Way::In { sources, to } => [sources, &[to.to_owned()]].concat(),
        Way::Within(paths) => paths.to_vec(),
    };
    if paths.len() < 2 {
        bail!("say what to copy, and where to: `xebec cp FILE {}:/PATH`", image.display());
    }
    super::run(&On { image: image.to_owned(), what: Cp { paths, how } }, global)
}

/// Files of an image, by what takes them out.
fn copy_out(image: &Path, (from, to): (&[OsString], &Path), how: How, global: &Global) -> anyhow::Result<u8> {
    let into = to.is_dir();
    if from.len() > 1 && !into {
        bail!("{}: it is not a directory", to.display());
    }
    let opened = open::open(image, global)?;
    for source in from {
        let Some((_, path)) = image_and_path(source).filter(|(named, _)| *named == image) else {
            bail!("{}: files come out of one image at a time", source.display());
        };
        let recursive = how.recursive || how.archive;
        if let Err(error) = extract::copy(&opened, path, (to, into), recursive, global) {
            opened.messages.fail(format_args!("{}: {error:#}", names::quoted(path.as_bytes())));
        }
    }
    Ok(opened.messages.finish())
}

impl Edit for Cp {
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        let Some((target, sources)) = self.paths.split_last() else { return };
        let target = bytes(target);
        let into = target.ends_with(b"/")
            || volume
                .resolve(target, true)
                .and_then(|ino| volume.metadata(ino))
                .is_ok_and(|there| there.file_type == FileType::Directory);
        if sources.len() > 1 && !into {
            return tell(anyhow::anyhow!("{} is not a directory", names::quoted(target)));
        }
        for source in sources {
            let source = bytes(source);
            let name = source.rsplit(|byte| *byte == b'/').find(|part| !part.is_empty());
            let to = match name.filter(|_| into) {
                Some(name) => [target.trim_ascii_end(), b"/", name].concat(),
                None => target.to_vec(),
            };
            let done = if self.how.within {
                self.copy_within(volume, source, &to)
            } else {
                self.copy_in(volume, source, &to)
            };
            if let Err(error) = done {
                tell(error.context(names::quoted(source).to_string()));
            }
        }
    }
}

impl Cp {
    fn copy_in(&self, volume: &Volume, source: &[u8], to: &[u8]) -> anyhow::Result<()> {
        let path: &Path = Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(source));
        let mut from = fs::File::open(path)?;
        let facts = from.metadata()?;
        if facts.is_dir() && (self.how.recursive || self.how.archive) {
            return trees::copy_in(volume, path, to, self.how.preserve || self.how.archive);
        }
        if facts.is_dir() {
            bail!("is a directory: copy it with -r");
        }
        let mode = (facts.mode() & 0o777) as u16;
        let file = replaced(volume, to, mode)?;
        copy(&mut from, &file, 0)?;
        if self.how.preserve || self.how.archive {
            let time = |seconds: i64, nanos: i64| Time { seconds, nanos: nanos as u32 };
            volume.set_metadata(
                file.ino(),
                &SetMetadata {
                    permissions: Some((facts.mode() & 0o7777) as u16),
                    uid: Some(facts.uid()),
                    gid: Some(facts.gid()),
                    accessed: Some(time(facts.atime(), facts.atime_nsec())),
                    modified: Some(time(facts.mtime(), facts.mtime_nsec())),
                    ..SetMetadata::default()
                },
            )?;
        }
        Ok(())
    }

    fn copy_within(&self, volume: &Volume, source: &[u8], to: &[u8]) -> anyhow::Result<()> {
        let from = OpenOptions::new().read(true).open(volume, source)?;
        let facts = from.metadata()?;
        if volume.resolve(to, true).is_ok_and(|ino| ino == from.ino()) {
            bail!("is the same file as {}", names::quoted(to));
        }
        let file = replaced(volume, to, facts.permissions & 0o777)?;
        if from.is_empty() || file.clone_range(&from, 0, 0, 0).is_err() {
            copy(&mut &from, &file, 0)?;
        }
        if self.how.preserve {
            volume.set_metadata(
                file.ino(),
                &SetMetadata {
                    permissions: Some(facts.permissions),
                    uid: Some(facts.uid),
                    gid: Some(facts.gid),
                    accessed: Some(facts.accessed),
                    modified: Some(facts.modified),
                    ..SetMetadata::default()
                },
            )?;
        }
        Ok(())
    }
}
