//! A file system that does nothing, served by the same session as a volume. It measures the cost of FUSE itself.
//!
//! A created file gets an inode number, and its name is forgotten; lookups always fail. Contents are zeros. Only the
//! sizes of files are kept: with other sizes the kernel would truncate its pages.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::Context;
use base::errno::{ENODATA, ENOENT, ENOTTY};
use fuse::Session;
use fuse::counts::Counts;
use fuse::mount::Wanted;
use fuse::operations::{
    Attributes, Caller, Changes, Errno, Found, Make, Node, Open, Opened, Operations, Range, Rename, Result,
    Seek, SetXattr, Space, WriteHow,
};

/// Environment variable that passes the mount point to the fresh process.
const DIRECTORY_VARIABLE: &str = "XEBEC_BENCH_NOTHING";

/// Maximum number of files.
const FILES_MAX: usize = 1 << 20;

/// Worker threads: the default of `xebec mount` on a machine with two CPUs.
const THREADS: usize = 4;

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;

struct Nothing {
    /// Inode number of the last created file.
    last: AtomicU64,
    /// Length of each file, or [`DIRECTORY`].
    lengths: Box<[AtomicU64]>,
}

/// Marks a directory in the table of lengths.
const DIRECTORY: u64 = u64::MAX;

/// A command that serves the file system on a directory.
pub fn command(directory: &Path) -> anyhow::Result<std::process::Command> {
    let mut command =
        std::process::Command::new(std::env::current_exe().context("the path of this program")?);
    command.env(DIRECTORY_VARIABLE, directory);
    Ok(command)
}

/// In the fresh process: serves the file system until it is unmounted. Returns `false` in any other process.
pub fn serve() -> anyhow::Result<bool> {
    let Some(directory) = std::env::var_os(DIRECTORY_VARIABLE) else { return Ok(false) };
    let wanted = Wanted { source: "nothing".into(), directory: directory.into(), ..Wanted::default() };
    let session = Session::begin(fuse::mount::mount(&wanted)?, false)?;
    // As `xebec mount` does.
    let _ = fuse::mount::Mounted::last_on(&wanted.directory).read_ahead();
    let lengths: Box<[AtomicU64]> = (0..FILES_MAX).map(|_| AtomicU64::new(0)).collect();
    let nothing = Nothing { last: AtomicU64::new(1), lengths };
    nothing.length(Node(1)).store(DIRECTORY, Relaxed);
    session.serve(&nothing, &Counts::new(THREADS))?;
    Ok(true)
}

impl Nothing {
    fn length(&self, node: Node) -> &AtomicU64 {
        &self.lengths[node.0 as usize % FILES_MAX]
    }

    fn found(&self, mode: u32) -> Found {
        let node = Node(self.last.fetch_add(1, Relaxed) + 1);
        self.length(node).store(if mode & S_IFMT == S_IFDIR { DIRECTORY } else { 0 }, Relaxed);
        Found { node, generation: 0, attributes: self.known(node) }
    }

    fn known(&self, node: Node) -> Attributes {
        let length = self.length(node).load(Relaxed);
        let (mode, nlink, size) = match length {
            DIRECTORY => (0o040_755, 2, 0),
            length => (0o100_644, 1, length),
        };
        Attributes { ino: node.0, mode, nlink, size, block_size: 4096, ..Attributes::default() }
    }
}

impl Operations for Nothing {
    fn lookup(&self, _dir: Node, _name: &[u8]) -> Result<Found> {
        Err(Errno(ENOENT))
    }

    fn attributes(&self, node: Node) -> Result<Attributes> {
        Ok(self.known(node))
    }

    fn change(&self, node: Node, changes: &Changes) -> Result<Attributes> {
        if let Some(size) = changes.size {
            self.length(node).store(size, Relaxed);
        }
        Ok(self.known(node))
    }

    fn read_link(&self, _node: Node) -> Result<Vec<u8>> {
        Ok(b"nothing".to_vec())
    }

    fn make(&self, _caller: Caller, _dir: Node, _name: &[u8], make: &Make<'_>) -> Result<Found> {
        Ok(self.found(make.mode))
    }

    fn create(
        &self,
        _caller: Caller,
        _dir: Node,
        _name: Option<&[u8]>,
        make: &Make<'_>,
        _flags: i32,
    ) -> Result<(Found, Opened)> {
        let found = self.found(make.mode);
        Ok((found, Open(found.node.0).into()))
    }

    fn link(&self, node: Node, _dir: Node, _name: &[u8]) -> Result<Found> {
        Ok(Found { node, generation: 0, attributes: self.known(node) })
    }

    fn unlink(&self, _dir: Node, _name: &[u8]) -> Result<()> {
        Ok(())
    }

    fn rmdir(&self, _dir: Node, _name: &[u8]) -> Result<()> {
        Ok(())
    }

    fn rename(&self, _from: (Node, &[u8]), _to: (Node, &[u8]), _how: Rename) -> Result<()> {
        Ok(())
    }

    fn open(&self, node: Node, _flags: i32) -> Result<Opened> {
        Ok(Open(node.0).into())
    }

    fn read(&self, _open: Open, _offset: u64, buf: &mut [u8]) -> Result<usize> {
        buf.fill(0);
        Ok(buf.len())
    }

    fn write(&self, open: Open, offset: u64, data: &[u8], _how: WriteHow) -> Result<usize> {
        self.length(Node(open.0)).fetch_max(offset + data.len() as u64, Relaxed);
        Ok(data.len())
    }

    fn sync_file(&self, _open: Open) -> Result<()> {
        Ok(())
    }

    fn space(&self) -> Result<Space> {
        Ok(Space {
            block_size: 4096,
            blocks: 1 << 30,
            blocks_free: 1 << 30,
            files: 1 << 30,
            files_free: 1 << 30,
        })
    }

    fn set_xattr(
        &self,
        _caller: Caller,
        _node: Node,
        _name: &[u8],
        _value: &[u8],
        _how: SetXattr,
        _drop_set_group_id: bool,
    ) -> Result<()> {
        Ok(())
    }

    fn xattr(&self, _node: Node, _name: &[u8]) -> Result<Vec<u8>> {
        Err(Errno(ENODATA))
    }

    fn list_xattrs(&self, _caller: Caller, _node: Node) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn remove_xattr(&self, _node: Node, _name: &[u8]) -> Result<()> {
        Err(Errno(ENODATA))
    }

    fn allocate(&self, _open: Open, _range: Range, _mode: u32) -> Result<()> {
        Ok(())
    }

    fn seek(&self, _open: Open, offset: u64, _what: Seek) -> Result<u64> {
        Ok(offset)
    }

    fn copy(&self, _from: (Open, u64), _to: (Open, u64), length: u64) -> Result<u64> {
        Ok(length)
    }

    fn control(&self, _caller: Caller, _node: Node, _command: u32, _argument: &[u8]) -> Result<Vec<u8>> {
        Err(Errno(ENOTTY))
    }
}
