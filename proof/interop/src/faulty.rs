//! A device that fails on request: a FUSE mount with a file whose transfers are passed to a host file, or fail.
//!
//! The mount has two files: `image`, the host file, and `switch`. The last text written to `switch` selects the
//! transfers that fail with `EIO`: the words `read`, `write` and `sync`, and a range of bytes `FROM-TO`; reads and
//! writes fail only if they overlap the range. An empty `switch` lets everything pass. With `late`, `stat` of `image`
//! returns only after `switch` no longer contains this word, with values from before.
//!
//! # Locking
//! One mutex around the selected faults, held only to copy them.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use base::errno::{EINVAL, EIO, ENOENT};
use base::time::Time;
use clap::Args;
use fuse::mount::MountConfig;
use fuse::operations::{
    Attributes, Entry, Errno, FileHandle, NodeId, Opened, Operations, ROOT, Result as Answer, SetAttributes,
    StatFs, WriteFlags,
};
use fuse::statistics::RequestStatistics;

/// Arguments of `faulty`.
#[derive(Args)]
pub struct Options {
    /// The host file behind `image`.
    file: PathBuf,
    /// The directory to mount on.
    directory: PathBuf,
}

const IMAGE: NodeId = NodeId(2);
const SWITCH: NodeId = NodeId(3);
const THREADS: usize = 4;
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The selected faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Faults {
    reads: bool,
    writes: bool,
    syncs: bool,
    /// `stat` of `image` is delayed.
    late: bool,
    range: Option<(u64, u64)>,
}

impl Faults {
    fn parse(text: &[u8]) -> Option<Self> {
        let mut faults = Self::default();
        for word in std::str::from_utf8(text).ok()?.split_whitespace() {
            match word {
                "read" => faults.reads = true,
                "write" => faults.writes = true,
                "sync" => faults.syncs = true,
                "late" => faults.late = true,
                range => {
                    let (from, to) = range.split_once('-')?;
                    faults.range = Some((from.parse().ok()?, to.parse().ok()?));
                }
            }
        }
        Some(faults)
    }

    fn overlaps(&self, offset: u64, length: usize) -> bool {
        self.range.is_none_or(|(from, to)| offset < to && from < offset.saturating_add(length as u64))
    }
}

struct Faulty {
    file: File,
    faults: Mutex<Faults>,
}

/// Mounts the device and serves it until it is unmounted.
///
/// # Errors
/// The file cannot be opened, the mount fails, or `/dev/fuse` reports an error.
pub fn run(options: &Options) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(&options.file);
    let file = file.with_context(|| options.file.display().to_string())?;
    let config = MountConfig {
        source: "faulty".into(),
        directory: options.directory.canonicalize()?,
        allow_other: true,
        ..MountConfig::default()
    };
    let session = fuse::Session::begin(fuse::mount::mount(&config)?, fuse::SessionOptions::default())?;
    let faulty = Faulty { file, faults: Mutex::default() };
    Ok(session.serve(&faulty, &RequestStatistics::new(THREADS))?)
}

impl Faulty {
    fn faults(&self) -> Faults {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fail_if(fails: bool) -> Answer<()> {
        if fails { Err(Errno(EIO)) } else { Ok(()) }
    }

    fn entry(&self, node: NodeId) -> Answer<Entry> {
        Ok(Entry { node, generation: 1, attributes: self.getattr(node)? })
    }
}

fn host(error: &std::io::Error) -> Errno {
    Errno(error.raw_os_error().map_or(EIO, base::errno::Errno::new))
}

impl Operations for Faulty {
    fn lookup(&self, _dir: NodeId, name: &[u8]) -> Answer<Entry> {
        match name {
            b"image" => self.entry(IMAGE),
            b"switch" => self.entry(SWITCH),
            b"." | b".." => self.entry(ROOT),
            _ => Err(Errno(ENOENT)),
        }
    }

    fn getattr(&self, node: NodeId) -> Answer<Attributes> {
        let stat = self.file.metadata().map_err(|error| host(&error))?;
        let time = Time { seconds: stat.mtime(), nanos: stat.mtime_nsec() as u32 };
        let mode = if node == ROOT { 0o040_755 } else { 0o100_644 };
        let size = if node == IMAGE { stat.size() } else { 0 };
        while node == IMAGE && self.faults().late {
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(Attributes {
            ino: node.0,
            mode,
            nlink: 1,
            size,
            sectors: stat.blocks(),
            block_size: 4096,
            accessed: time,
            modified: time,
            changed: time,
            created: time,
            ..Attributes::default()
        })
    }

    fn setattr(&self, node: NodeId, changes: &SetAttributes) -> Answer<Attributes> {
        if let Some(size) = changes.size.filter(|_| node == IMAGE) {
            self.file.set_len(size).map_err(|error| host(&error))?;
        }
        self.getattr(node)
    }

    fn open(&self, node: NodeId, _flags: i32) -> Answer<Opened> {
        Ok(FileHandle(node.0).into())
    }

    fn read(&self, handle: FileHandle, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        if handle.0 != IMAGE.0 {
            return Ok(0);
        }
        let faults = self.faults();
        Self::fail_if(faults.reads && faults.overlaps(offset, buf.len()))?;
        self.file.read_at(buf, offset).map_err(|error| host(&error))
    }

    fn write(&self, handle: FileHandle, offset: u64, data: &[u8], how: WriteFlags) -> Answer<usize> {
        if handle.0 != IMAGE.0 {
            let faults = Faults::parse(data).ok_or(Errno(EINVAL))?;
            *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
            return Ok(data.len());
        }
        let faults = self.faults();
        Self::fail_if(faults.writes && faults.overlaps(offset, data.len()))?;
        let written = self.file.write_at(data, offset).map_err(|error| host(&error))?;
        if how.dsync {
            self.fsync(handle)?;
        }
        Ok(written)
    }

    fn fsync(&self, _handle: FileHandle) -> Answer<()> {
        Self::fail_if(self.faults().syncs)?;
        self.file.sync_all().map_err(|error| host(&error))
    }

    fn statfs(&self) -> Answer<StatFs> {
        Ok(StatFs { block_size: 4096, blocks: 0, blocks_free: 0, files: 0, files_free: 0 })
    }
}
