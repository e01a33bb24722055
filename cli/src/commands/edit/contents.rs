//! `write`, `truncate`, `fallocate`, `reflink`.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use xebec::{File, OpenOptions, Volume, errno};

use super::{Edit, at_path, for_each_path, literal_paths, parent_of_new, paths};
use crate::failure::AtPath;
use crate::{operands, sizes};

/// Buffer size in bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// Arguments of `write`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "The file is created if it does not exist. Without --at or --append its contents are \
replaced.\n\n\
    Examples:\n  echo example > hostname; xebec write disk.xfs /etc/hostname < hostname\n  \
    xebec write disk.xfs /etc/motd --append --text 'Welcome'\n  \
    xebec write disk.xfs /boot.img --at 1m --from patch.bin"
)]
pub struct Write {
    /// File to write.
    #[arg(value_name = "PATH")]
    path: OsString,
    /// Read from this host file instead of standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    from: Option<PathBuf>,
    /// Write this text and a newline.
    #[arg(long, value_name = "TEXT")]
    text: Option<OsString>,
    /// Write at this byte offset and keep the rest; suffixes k, m, g, t.
    #[arg(long, value_name = "BYTES", value_parser = sizes::parse)]
    at: Option<u64>,
    /// Append to the file.
    #[arg(long, conflicts_with = "at")]
    append: bool,
    /// Mode of a new file, as in chmod.
    #[arg(short, long, value_name = "MODE", default_value = "644")]
    mode: super::mode::Mode,
}

impl Edit for Write {
    fn perform(&self, volume: &Volume, _: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        let path = self.path.as_bytes();
        self.write(volume, path).with_context(|| AtPath(path.to_vec()))
    }

    fn reads_standard_input(&self) -> bool {
        self.from.is_none() && self.text.is_none()
    }
}

impl Write {
    fn write(&self, volume: &Volume, path: &[u8]) -> anyhow::Result<()> {
        // An unreadable source must not truncate the file.
        let mut source = self.source()?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).append(self.append).mode(self.mode.apply(0o666, false));
        options.truncate(self.at.is_none() && !self.append);
        parent_of_new(volume, path)?;
        let file = options.open(volume, path)?;
        let start = if self.append { file.len() } else { self.at.unwrap_or(0) };
        copy(&mut *source, &file, start)
    }

    fn source(&self) -> anyhow::Result<Box<dyn io::Read + '_>> {
        Ok(match (&self.text, &self.from) {
            (Some(text), _) => Box::new(text.as_bytes().chain(&b"\n"[..])),
            (None, Some(from)) => Box::new(fs::File::open(from).with_context(|| from.display().to_string())?),
            (None, None) => Box::new(io::stdin().lock()),
        })
    }
}

/// Copies a source to an offset of the file.
fn copy(source: &mut dyn io::Read, file: &File<'_>, mut offset: u64) -> anyhow::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let length = match source.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context("cannot read the source"),
        };
        let mut rest = buffer.get(..length).unwrap_or_default();
        while !rest.is_empty() {
            let written = file.write_at(rest, offset)?;
            offset += written as u64;
            rest = rest.get(written..).unwrap_or_default();
        }
    }
}

/// Arguments of `truncate`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "A size with + or - extends or reduces the file by that size. Extended files get a hole.\n\n\
    Examples:\n  xebec truncate -s 0 disk.xfs /var/log/messages\n  xebec truncate -s +1g disk.xfs /swap"
)]
pub struct Truncate {
    /// Size in bytes; suffixes k, m, g, t.
    #[arg(short, long, value_name = "SIZE", allow_hyphen_values = true)]
    size: Size,
    /// Do not create files, and expand patterns.
    #[arg(short = 'c', long)]
    no_create: bool,
    /// Files to truncate or extend.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

/// An absolute or relative size.
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
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        let paths = match self.no_create {
            true => paths(volume, &self.paths, report),
            false => literal_paths(&self.paths),
        };
        for_each_path(&paths, report, |path| {
            let mut options = OpenOptions::new();
            options.write(true).create(!self.no_create);
            let file = match parent_of_new(volume, path).and_then(|_| options.open(volume, path)) {
                Err(error) if self.no_create && error.errno() == errno::ENOENT => return Ok(()),
                opened => opened?,
            };
            file.set_len(match self.size {
                Size::Exact(size) => size,
                Size::More(by) => file.len().saturating_add(by),
                Size::Less(by) => file.len().saturating_sub(by),
            })
        });
        Ok(())
    }
}

/// Arguments of `fallocate`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "By default space is allocated to the range.\n\n\
    Examples:\n  xebec fallocate -l 1g disk.xfs /swap\n  xebec fallocate -p -o 1m -l 1m disk.xfs /sparse")]
pub struct Fallocate {
    /// Offset of the range; suffixes k, m, g, t.
    #[arg(short = 'o', long, value_name = "BYTES", default_value = "0", value_parser = sizes::parse)]
    at: u64,
    /// Length of the range; suffixes k, m, g, t.
    #[arg(short, long, value_name = "BYTES", value_parser = sizes::parse)]
    length: u64,
    /// Do not change the file size.
    #[arg(short = 'n', long)]
    keep_size: bool,
    #[command(flatten)]
    mode: FallocateMode,
    /// Files to change.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, Args)]
#[group(multiple = false)]
struct FallocateMode {
    /// Deallocate the range; it reads as zeros.
    #[arg(short, long)]
    punch_hole: bool,
    /// Zero the range, keeping it allocated.
    #[arg(short, long)]
    zero_range: bool,
    /// Remove the range; data after it moves down.
    #[arg(short, long)]
    collapse_range: bool,
    /// Insert a hole; data after it moves up.
    #[arg(short, long)]
    insert_range: bool,
    /// Unshare the range from other files.
    #[arg(short, long)]
    unshare_range: bool,
}

impl Edit for Fallocate {
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        let Self { at, length, keep_size, mode, .. } = *self;
        for_each_path(&literal_paths(&self.paths), report, |path| {
            let file = OpenOptions::new().write(true).create(true).open(volume, path)?;
            match mode {
                FallocateMode { punch_hole: true, .. } => file.punch_hole(at, length),
                FallocateMode { zero_range: true, .. } => file.zero_range(at, length, keep_size),
                FallocateMode { collapse_range: true, .. } => file.collapse_range(at, length),
                FallocateMode { insert_range: true, .. } => file.insert_range(at, length),
                FallocateMode { unshare_range: true, .. } => file.unshare_range(at, length, keep_size),
                _ => file.allocate(at, length, keep_size),
            }
        });
        Ok(())
    }
}

/// Arguments of `reflink`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Both files are in the volume. Without --length, the range extends to the end of the source.\n\n\
    Examples:\n  xebec reflink disk.xfs /images/base.qcow2 /images/vm1.qcow2\n  \
    xebec reflink --dedupe disk.xfs /a /b"
)]
pub struct Reflink {
    /// Source file.
    #[arg(value_name = "SOURCE")]
    source: OsString,
    /// Target file; it is created if it does not exist.
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// Offset in the source; suffixes k, m, g, t.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = sizes::parse)]
    from: u64,
    /// Offset in the target; suffixes k, m, g, t.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = sizes::parse)]
    to: u64,
    /// Length of the range; suffixes k, m, g, t.
    #[arg(long, value_name = "BYTES", value_parser = sizes::parse)]
    length: Option<u64>,
    /// Share only if both ranges are identical.
    #[arg(long)]
    dedupe: bool,
}

impl Edit for Reflink {
    fn perform(&self, volume: &Volume, _: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        let source = operands::path(volume, self.source.as_bytes())?;
        let source = OpenOptions::new().read(true).open(volume, &source).map_err(at_path(&source))?;
        let target = self.target.as_bytes();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(!self.dedupe);
        let file = options.open(volume, target).map_err(at_path(target))?;
        let shared = match (self.dedupe, self.length) {
            (true, length) => {
                let length = length.unwrap_or_else(|| source.len().saturating_sub(self.from));
                file.dedupe_range(&source, self.from, self.to, length)
            }
            (false, length) => file.clone_range(&source, self.from, self.to, length.unwrap_or(0)),
        };
        shared.map_err(at_path(target))
    }
}
