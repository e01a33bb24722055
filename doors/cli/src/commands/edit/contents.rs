//! What files hold: `write`, `cp`, `truncate`, `fallocate`, `reflink`.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use base::time::Time;
use clap::Args;
use format::inode::FileType;
use xebec::{File, OpenOptions, SetMetadata, Volume};

use super::{Edit, bytes, each, trees};
use crate::names;
use crate::sizes;

/// Bytes that are copied at once.
const AT_ONCE: usize = 1 << 20;

/// Arguments of `write`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "The file is made if it does not exist. Without --at or --append it is replaced.\n\n\
    Examples:\n  echo example > hostname; xebec write disk.xfs /etc/hostname < hostname\n  \
    xebec write disk.xfs /etc/motd --append --text 'Welcome'\n  \
    xebec write disk.xfs /boot.img --at 1m --from patch.bin")]
pub struct Write {
    /// The file in the volume.
    #[arg(value_name = "PATH")]
    path: OsString,
    /// Read from this file of the machine instead of standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    from: Option<PathBuf>,
    /// Write this text and a newline.
    #[arg(long, value_name = "TEXT")]
    text: Option<OsString>,
    /// Write at this byte, and keep the rest; suffixes k, m, g, t.
    #[arg(long, value_name = "BYTES", value_parser = sizes::parse)]
    at: Option<u64>,
    /// Write at the end.
    #[arg(long, conflicts_with = "at")]
    append: bool,
    /// Permissions of a file that is made, in octal or in letters.
    #[arg(short, long, value_name = "MODE", default_value = "644")]
    mode: super::mode::Mode,
}

impl Edit for Write {
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        let path = bytes(&self.path);
        if let Err(error) = self.write(volume, path) {
            tell(error.context(names::quoted(path)));
        }
    }
}

impl Write {
    /// Whether it takes its contents from standard input, which a session reads its commands from.
    pub fn reads_standard_input(&self) -> bool {
        self.from.is_none() && self.text.is_none()
    }

    fn write(&self, volume: &Volume, path: &[u8]) -> anyhow::Result<()> {
        // What cannot be read must not cost what is there.
        let mut source = self.source()?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).append(self.append).mode(self.mode.apply(0o666, false));
        options.truncate(self.at.is_none() && !self.append);
        let file = options.open(volume, path)?;
        let start = if self.append { file.len() } else { self.at.unwrap_or(0) };
        copy(&mut *source, &file, start).map(drop)
    }

    fn source(&self) -> anyhow::Result<Box<dyn io::Read + '_>> {
        Ok(match (&self.text, &self.from) {
            (Some(text), _) => Box::new(bytes(text).chain(&b"\n"[..])),
            (None, Some(from)) => Box::new(fs::File::open(from).with_context(|| from.display().to_string())?),
            (None, None) => Box::new(io::stdin().lock()),
        })
    }
}

/// Writes all of a source; how many bytes.
fn copy(source: &mut dyn io::Read, file: &File<'_>, start: u64) -> anyhow::Result<u64> {
    let (mut buffer, mut at) = (vec![0; AT_ONCE], start);
    loop {
        let read = match source.read(&mut buffer) {
            Ok(0) => return Ok(at - start),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context("the source cannot be read"),
        };
        let mut rest = buffer.get(..read).unwrap_or_default();
        while !rest.is_empty() {
            let written = file.write_at(rest, at)?;
            at += written as u64;
            rest = rest.get(written..).unwrap_or_default();
        }
    }
}

/// Arguments of `cp`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Sources are files of this machine; with --within they are files of the volume. A target that is a \
    directory, or that ends in a slash, takes them in under their names.\n\n\
    Examples:\n  xebec cp disk.xfs motd /etc/motd\n  xebec cp -p disk.xfs vmlinuz initrd.img /boot/\n  \
    xebec cp -a disk.xfs build/ /srv/www\n  \
    xebec cp --within disk.xfs /etc/motd /etc/issue"
)]
pub struct Cp {
    /// What to copy, and at last where to.
    #[arg(required = true, num_args = 2.., value_name = "SOURCE... TARGET")]
    paths: Vec<OsString>,
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
            let done = if self.within {
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
        if facts.is_dir() && (self.recursive || self.archive) {
            return trees::copy_in(volume, path, to, self.preserve || self.archive);
        }
        if facts.is_dir() {
            bail!("is a directory: copy it with -r");
        }
        let mode = (facts.mode() & 0o777) as u16;
        let file = replaced(volume, to, mode)?;
        copy(&mut from, &file, 0)?;
        if self.preserve || self.archive {
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
        if self.preserve {
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

/// A file that is made, or cut off at its beginning.
fn replaced<'v>(volume: &'v Volume, path: &[u8], mode: u16) -> xebec::Result<File<'v>> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(volume, path)
}

/// Arguments of `truncate`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "A size with + or - in front is relative to the size that the file has. Growing leaves a hole.\n\n\
    Examples:\n  xebec truncate -s 0 disk.xfs /var/log/messages\n  xebec truncate -s +1g disk.xfs /swap"
)]
pub struct Truncate {
    /// The size: a number of bytes, with suffix k, m, g or t.
    #[arg(short, long, value_name = "SIZE", allow_hyphen_values = true)]
    size: Size,
    /// Do not make files.
    #[arg(short = 'c', long)]
    no_create: bool,
    /// Whose size.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

/// A size, or a change of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Exact(u64),
    More(u64),
    Less(u64),
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(more), _) => sizes::parse(more).map(Self::More),
            (_, Some(less)) => sizes::parse(less).map(Self::Less),
            _ => sizes::parse(text).map(Self::Exact),
        }
    }
}

impl Edit for Truncate {
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        each(&self.paths, tell, |path| {
            let file = OpenOptions::new().write(true).create(!self.no_create).open(volume, path)?;
            file.set_len(match self.size {
                Size::Exact(size) => size,
                Size::More(by) => file.len().saturating_add(by),
                Size::Less(by) => file.len().saturating_sub(by),
            })
        });
    }
}

/// Arguments of `fallocate`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Without one of the options, blocks are reserved for the range.\n\n\
    Examples:\n  xebec fallocate -l 1g disk.xfs /swap\n  xebec fallocate -p -o 1m -l 1m disk.xfs /sparse")]
pub struct Fallocate {
    /// The range's first byte; suffixes k, m, g, t.
    #[arg(short = 'o', long, value_name = "BYTES", default_value = "0", value_parser = sizes::parse)]
    at: u64,
    /// The range's length; suffixes k, m, g, t.
    #[arg(short, long, value_name = "BYTES", value_parser = sizes::parse)]
    length: u64,
    /// Leave the size of the file as it is.
    #[arg(short = 'n', long)]
    keep_size: bool,
    /// What to do instead of reserving.
    #[command(flatten)]
    what: What,
    /// Whose blocks.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, Args)]
#[group(multiple = false)]
struct What {
    /// Take the blocks away: the range reads as zeros.
    #[arg(short, long)]
    punch_hole: bool,
    /// Make it read as zeros, and keep blocks for it.
    #[arg(short, long)]
    zero_range: bool,
    /// Take the range out: what is behind it moves there.
    #[arg(short, long)]
    collapse_range: bool,
    /// Put a hole there: what is behind it moves up.
    #[arg(short, long)]
    insert_range: bool,
    /// Give it blocks that it shares with no other file.
    #[arg(short, long)]
    unshare_range: bool,
}

impl Edit for Fallocate {
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        let Self { at, length, keep_size, what, .. } = *self;
        each(&self.paths, tell, |path| {
            let file = OpenOptions::new().write(true).create(true).open(volume, path)?;
            match what {
                What { punch_hole: true, .. } => file.punch_hole(at, length),
                What { zero_range: true, .. } => file.zero_range(at, length, keep_size),
                What { collapse_range: true, .. } => file.collapse_range(at, length),
                What { insert_range: true, .. } => file.insert_range(at, length),
                What { unshare_range: true, .. } => file.unshare_range(at, length, keep_size),
                _ => file.allocate(at, length, keep_size),
            }
        });
    }
}

/// Arguments of `reflink`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Both files are of the volume. Without --length, all of the source from its offset on is shared.\n\n\
    Examples:\n  xebec reflink disk.xfs /images/base.qcow2 /images/vm1.qcow2\n  \
    xebec reflink --dedupe disk.xfs /a /b"
)]
pub struct Reflink {
    /// Whose blocks are shared.
    #[arg(value_name = "SOURCE")]
    source: OsString,
    /// Who gets them; it is made if it does not exist.
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// First byte in the source; suffixes k, m, g, t.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = sizes::parse)]
    from: u64,
    /// First byte in the target; suffixes k, m, g, t.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = sizes::parse)]
    to: u64,
    /// Bytes to share; suffixes k, m, g, t.
    #[arg(long, value_name = "BYTES", value_parser = sizes::parse)]
    length: Option<u64>,
    /// Only where both hold the same bytes already.
    #[arg(long)]
    dedupe: bool,
}

impl Edit for Reflink {
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        let shared = || -> xebec::Result<()> {
            let source = OpenOptions::new().read(true).open(volume, bytes(&self.source))?;
            let mut options = OpenOptions::new();
            let target =
                options.read(true).write(true).create(!self.dedupe).open(volume, bytes(&self.target))?;
            match (self.dedupe, self.length) {
                (true, None) => target.dedupe_range(
                    &source,
                    self.from,
                    self.to,
                    source.len() - self.from.min(source.len()),
                ),
                (true, Some(length)) => target.dedupe_range(&source, self.from, self.to, length),
                (false, length) => target.clone_range(&source, self.from, self.to, length.unwrap_or(0)),
            }
        };
        if let Err(error) = shared() {
            tell(anyhow::Error::new(error).context(names::quoted(bytes(&self.target)).to_string()));
        }
    }
}
