//! An empty file system on the same FUSE session as a volume, to measure the cost of a request in the kernel and in the
//! session alone: the lower bound for any FUSE server.
//!
//! A new file gets an inode number, and its name is not stored; every lookup fails. Reads return zeros. Only the sizes
//! of files are kept: the kernel would truncate its cached pages if it were told a smaller size.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::Context;
use base::errno::{ENODATA, ENOENT, ENOTTY};
use fuse::Session;
use fuse::mount::MountConfig;
use fuse::operations::{
    Attributes, ByteRange, Caller, Entry, Errno, FileHandle, NewInode, NodeId, Opened, Operations, Rename,
    Result, Seek, SetAttribute, SetAttributes, StatFs, WriteFlags,
};
use fuse::statistics::RequestStatistics;

/// Environment variable that passes the mount point to the fresh process.
const DIRECTORY_VARIABLE: &str = "XEBEC_BENCH_NOTHING";

/// Maximum number of files.
const FILES_MAX: usize = 1 << 20;

/// Worker threads: the default of `xebec mount` on a machine with two CPUs.
const THREADS: usize = 4;

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;

struct Nothing {
    /// Number of the last file.
    last: AtomicU64,
    /// Of each, its length, or [`DIRECTORY`].
    lengths: Box<[AtomicU64]>,
}

/// What marks a directory in the table of lengths.
const DIRECTORY: u64 = u64::MAX;

/// A command that serves it on a directory.
pub fn command(directory: &Path) -> anyhow::Result<std::process::Command> {
    let mut command = crate::child::command(std::env::current_exe().context("the path of this program")?);
    command.env(DIRECTORY_VARIABLE, directory);
    Ok(command)
}

/// In the fresh process: serves the file system until it is unmounted. Returns `false` in any other process.
pub fn serve() -> anyhow::Result<bool> {
    let Some(directory) = std::env::var_os(DIRECTORY_VARIABLE) else { return Ok(false) };
    let config =
        MountConfig { source: "nothing".into(), directory: directory.into(), ..MountConfig::default() };
    let session = Session::begin(fuse::mount::mount(&config)?, fuse::SessionOptions::default())?;
    // As `xebec mount` does.
    let _ = fuse::mount::Mounted::last_on(&config.directory).set_read_ahead();
    let lengths: Box<[AtomicU64]> = (0..FILES_MAX).map(|_| AtomicU64::new(0)).collect();
    let nothing = Nothing { last: AtomicU64::new(1), lengths };
    nothing.length(NodeId(1)).store(DIRECTORY, Relaxed);
    session.serve(&nothing, &RequestStatistics::new(THREADS))?;
    Ok(true)
}

impl Nothing {
    fn length(&self, node: NodeId) -> &AtomicU64 {
        &self.lengths[node.0 as usize % FILES_MAX]
    }

    fn entry(&self, mode: u32) -> Entry {
        let node = NodeId(self.last.fetch_add(1, Relaxed) + 1);
        self.length(node).store(if mode & S_IFMT == S_IFDIR { DIRECTORY } else { 0 }, Relaxed);
        Entry { node, generation: 0, attributes: self.known(node) }
    }

    fn known(&self, node: NodeId) -> Attributes {
        let length = self.length(node).load(Relaxed);
        let (mode, nlink, size) = match length {
            DIRECTORY => (0o040_755, 2, 0),
            length => (0o100_644, 1, length),
        };
        Attributes { ino: node.0, mode, nlink, size, block_size: 4096, ..Attributes::default() }
    }
}

impl Operations for Nothing {
    fn lookup(&self, _dir: NodeId, _name: &[u8]) -> Result<Entry> {
        Err(Errno(ENOENT))
    }

    fn getattr(&self, node: NodeId) -> Result<Attributes> {
        Ok(self.known(node))
    }

    fn setattr(&self, node: NodeId, changes: &SetAttributes) -> Result<Attributes> {
        if let Some(size) = changes.size {
            self.length(node).store(size, Relaxed);
        }
        Ok(self.known(node))
    }

    fn readlink(&self, _node: NodeId) -> Result<Vec<u8>> {
        Ok(b"nothing".to_vec())
    }

    fn mknod(&self, _caller: Caller, _dir: NodeId, _name: &[u8], new: &NewInode<'_>) -> Result<Entry> {
        Ok(self.entry(new.mode))
    }

    fn create(
        &self,
        _caller: Caller,
        _dir: NodeId,
        _name: Option<&[u8]>,
        new: &NewInode<'_>,
        _flags: i32,
    ) -> Result<(Entry, Opened)> {
        let entry = self.entry(new.mode);
        Ok((entry, FileHandle(entry.node.0).into()))
    }

    fn link(&self, node: NodeId, _dir: NodeId, _name: &[u8]) -> Result<Entry> {
        Ok(Entry { node, generation: 0, attributes: self.known(node) })
    }

    fn unlink(&self, _dir: NodeId, _name: &[u8]) -> Result<()> {
        Ok(())
    }

    fn rmdir(&self, _dir: NodeId, _name: &[u8]) -> Result<()> {
        Ok(())
    }

    fn rename(&self, _from: (NodeId, &[u8]), _to: (NodeId, &[u8]), _mode: Rename) -> Result<()> {
        Ok(())
    }

    fn open(&self, node: NodeId, _flags: i32) -> Result<Opened> {
        Ok(FileHandle(node.0).into())
    }

    fn read(&self, _handle: FileHandle, _offset: u64, buf: &mut [u8]) -> Result<usize> {
        buf.fill(0);
        Ok(buf.len())
    }

    fn write(&self, handle: FileHandle, offset: u64, data: &[u8], _: WriteFlags) -> Result<usize> {
        self.length(NodeId(handle.0)).fetch_max(offset + data.len() as u64, Relaxed);
        Ok(data.len())
    }

    fn fsync(&self, _handle: FileHandle) -> Result<()> {
        Ok(())
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs {
            block_size: 4096,
            blocks: 1 << 30,
            blocks_free: 1 << 30,
            files: 1 << 30,
            files_free: 1 << 30,
        })
    }

    fn setxattr(
        &self,
        _caller: Caller,
        _node: NodeId,
        _name: &[u8],
        _value: &[u8],
        _mode: SetAttribute,
        _remove_sgid: bool,
    ) -> Result<()> {
        Ok(())
    }

    fn getxattr(&self, _node: NodeId, _name: &[u8]) -> Result<Vec<u8>> {
        Err(Errno(ENODATA))
    }

    fn listxattr(&self, _caller: Caller, _node: NodeId) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn removexattr(&self, _node: NodeId, _name: &[u8]) -> Result<()> {
        Err(Errno(ENODATA))
    }

    fn fallocate(&self, _handle: FileHandle, _range: ByteRange, _mode: u32) -> Result<()> {
        Ok(())
    }

    fn lseek(&self, _handle: FileHandle, offset: u64, _target: Seek) -> Result<u64> {
        Ok(offset)
    }

    fn copy_file_range(&self, _from: (FileHandle, u64), _to: (FileHandle, u64), length: u64) -> Result<u64> {
        Ok(length)
    }

    fn ioctl(&self, _caller: Caller, _node: NodeId, _command: u32, _argument: &[u8]) -> Result<Vec<u8>> {
        Err(Errno(ENOTTY))
    }
}
