//! A device that fails by request: a file of this machine under a mount that passes transfers on, or fails them.
//!
//! The mount has two files: `image`, which is the other, and `switch`. What was last written to `switch` says which
//! transfers fail with `EIO`: words among `read`, `write` and `sync`, and a range of bytes `FROM-TO` that reads and
//! writes must touch to fail. An empty `switch` lets everything pass. By `late`, what is known of `image` is looked up
//! at once, and told when `switch` no longer says so.
//!
//! # Locking
//! One mutex over what fails, held for a look.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use base::errno::{EINVAL, EIO, ENOENT};
use base::time::Time;
use clap::Args;
use fuse::counts::Counts;
use fuse::mount::Wanted;
use fuse::operations::{
    Attributes, Changes, Errno, Found, Node, Open, Opened, Operations, ROOT, Result as Answer, Space,
    WriteHow,
};

/// Arguments of `faulty`.
#[derive(Args)]
pub struct Options {
    /// The file behind `image`.
    file: PathBuf,
    /// The directory to mount on.
    directory: PathBuf,
}

const IMAGE: Node = Node(2);
const SWITCH: Node = Node(3);
const THREADS: usize = 4;
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What fails.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Failing {
    reads: bool,
    writes: bool,
    syncs: bool,
    /// Not failing, but late.
    late: bool,
    range: Option<(u64, u64)>,
}

impl Failing {
    fn parse(text: &[u8]) -> Option<Self> {
        let mut failing = Self::default();
        for word in std::str::from_utf8(text).ok()?.split_whitespace() {
            match word {
                "read" => failing.reads = true,
                "write" => failing.writes = true,
                "sync" => failing.syncs = true,
                "late" => failing.late = true,
                range => {
                    let (from, to) = range.split_once('-')?;
                    failing.range = Some((from.parse().ok()?, to.parse().ok()?));
                }
            }
        }
        Some(failing)
    }

    fn touches(&self, offset: u64, length: usize) -> bool {
        self.range.is_none_or(|(from, to)| offset < to && from < offset.saturating_add(length as u64))
    }
}

struct Faulty {
    file: File,
    failing: Mutex<Failing>,
}

/// Mounts and serves until it is unmounted.
///
/// # Errors
/// The file cannot be opened, the directory not be mounted on; what the kernel's device reports.
pub fn run(options: &Options) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(&options.file);
    let file = file.with_context(|| options.file.display().to_string())?;
    let wanted = Wanted {
        source: "faulty".into(),
        directory: options.directory.canonicalize()?,
        allow_other: true,
        ..Wanted::default()
    };
    let session = fuse::Session::begin(fuse::mount::mount(&wanted)?, false)?;
    let faulty = Faulty { file, failing: Mutex::default() };
    Ok(session.serve(&faulty, &Counts::new(THREADS))?)
}

impl Faulty {
    fn failing(&self) -> Failing {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn pass(fails: bool) -> Answer<()> {
        if fails { Err(Errno(EIO)) } else { Ok(()) }
    }

    fn found(&self, node: Node) -> Answer<Found> {
        Ok(Found { node, generation: 1, attributes: self.attributes(node)? })
    }
}

fn host(error: &std::io::Error) -> Errno {
    Errno(error.raw_os_error().map_or(EIO, base::errno::Errno::new))
}

impl Operations for Faulty {
    fn lookup(&self, _dir: Node, name: &[u8]) -> Answer<Found> {
        match name {
            b"image" => self.found(IMAGE),
            b"switch" => self.found(SWITCH),
            b"." | b".." => self.found(ROOT),
            _ => Err(Errno(ENOENT)),
        }
    }

    fn attributes(&self, node: Node) -> Answer<Attributes> {
        let about = self.file.metadata().map_err(|error| host(&error))?;
        let time = Time { seconds: about.mtime(), nanos: about.mtime_nsec() as u32 };
        let mode = if node == ROOT { 0o040_755 } else { 0o100_644 };
        let size = if node == IMAGE { about.size() } else { 0 };
        while node == IMAGE && self.failing().late {
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(Attributes {
            ino: node.0,
            mode,
            nlink: 1,
            size,
            sectors: about.blocks(),
            block_size: 4096,
            accessed: time,
            modified: time,
            changed: time,
            created: time,
            ..Attributes::default()
        })
    }

    fn change(&self, node: Node, changes: &Changes) -> Answer<Attributes> {
        if let Some(size) = changes.size.filter(|_| node == IMAGE) {
            self.file.set_len(size).map_err(|error| host(&error))?;
        }
        self.attributes(node)
    }

    fn open(&self, node: Node, _flags: i32) -> Answer<Opened> {
        Ok(Open(node.0).into())
    }

    fn read(&self, open: Open, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        if open.0 != IMAGE.0 {
            return Ok(0);
        }
        let failing = self.failing();
        Self::pass(failing.reads && failing.touches(offset, buf.len()))?;
        self.file.read_at(buf, offset).map_err(|error| host(&error))
    }

    fn write(&self, open: Open, offset: u64, data: &[u8], how: WriteHow) -> Answer<usize> {
        if open.0 != IMAGE.0 {
            let failing = Failing::parse(data).ok_or(Errno(EINVAL))?;
            *self.failing.lock().unwrap_or_else(PoisonError::into_inner) = failing;
            return Ok(data.len());
        }
        let failing = self.failing();
        Self::pass(failing.writes && failing.touches(offset, data.len()))?;
        let written = self.file.write_at(data, offset).map_err(|error| host(&error))?;
        if how.stable {
            self.sync_file(open)?;
        }
        Ok(written)
    }

    fn sync_file(&self, _open: Open) -> Answer<()> {
        Self::pass(self.failing().syncs)?;
        self.file.sync_all().map_err(|error| host(&error))
    }

    fn space(&self) -> Answer<Space> {
        Ok(Space { block_size: 4096, blocks: 0, blocks_free: 0, files: 0, files_free: 0 })
    }
}
