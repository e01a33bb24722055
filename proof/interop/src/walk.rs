//! The manifest of a mounted tree: all properties of its files that root can read.
//!
//! All files are opened relative to their directory, because paths of the corpus are longer than `PATH_MAX`. The tree
//! must be mounted read-only or with `noatime`: otherwise the walk changes access times.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use block::fsxattr;
use read::manifest::{self, EntryType, HASH_SIZE_MAX, PathKey, Record, TargetKey};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, SeekFrom, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

const COPY_BUFFER: usize = 1 << 20;

/// Writes the manifest of the tree below `root`.
///
/// # Errors
/// The first file that cannot be read: an incomplete manifest would prove nothing.
pub fn write_manifest(root: &Path, mut out: impl Write) -> Result<()> {
    let mut records = Vec::new();
    let fd =
        rustix::fs::openat(CWD, root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .with_context(|| format!("{}", root.display()))?;
    let stat = rustix::fs::statx(&fd, c"", AtFlags::EMPTY_PATH, StatxFlags::ALL)?;
    let mut walker = Walker { records: &mut records, buffer: vec![0; COPY_BUFFER] };
    let record = walker.describe(&[], &stat, &Handle::Open(&fd))?;
    walker.records.push((Vec::new(), record));
    walker.directory(&[], &fd)?;
    records.sort_by(|a, b| a.0.cmp(&b.0));
    for (_, record) in &records {
        record.write_line(&mut out)?;
    }
    Ok(out.flush()?)
}

struct Walker<'a> {
    records: &'a mut Vec<(Vec<u8>, Record)>,
    buffer: Vec<u8>,
}

/// Access to a file: regular files and directories by their own handle, others by that of their directory and a name,
/// since opening them would have side effects, or fail.
enum Handle<'a> {
    Open(&'a OwnedFd),
    Named(&'a OwnedFd, &'a CStr),
}

impl Handle<'_> {
    fn list_xattrs(&self, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        match self {
            Self::Open(fd) => rustix::fs::flistxattr(fd, buffer),
            Self::Named(dir, name) => rustix::fs::llistxattr(proc_path(dir, name), buffer),
        }
    }

    fn get_xattr(&self, name: &CStr, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        match self {
            Self::Open(fd) => rustix::fs::fgetxattr(fd, name, buffer),
            Self::Named(dir, path) => rustix::fs::lgetxattr(proc_path(dir, path), name, buffer),
        }
    }
}

/// Returns a path for calls without an `at` variant.
fn proc_path(dir: &OwnedFd, name: &CStr) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(OsStr::from_bytes(name.to_bytes()))
}

impl Walker<'_> {
    fn directory(&mut self, path: &[u8], fd: &OwnedFd) -> Result<()> {
        for entry in Dir::read_from(fd)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let mut child = path.to_vec();
            if !child.is_empty() {
                child.push(b'/');
            }
            child.extend_from_slice(name.to_bytes());
            self.entry(fd, name, &child).with_context(|| format!("{}", child.escape_ascii()))?;
        }
        Ok(())
    }

    fn entry(&mut self, dir: &OwnedFd, name: &CStr, path: &[u8]) -> Result<()> {
        let stat = rustix::fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::ALL)?;
        let kind = EntryType::from_mode(stat.stx_mode.into());
        let open = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (handle, fd);
        if matches!(kind, Some(EntryType::File | EntryType::Dir)) {
            fd = rustix::fs::openat(dir, name, open, Mode::empty())?;
            handle = Handle::Open(&fd);
        } else {
            handle = Handle::Named(dir, name);
        }
        let record = self.describe(path, &stat, &handle)?;
        self.records.push((path.to_vec(), record));
        if let (Some(EntryType::Dir), Handle::Open(fd)) = (kind, handle) {
            self.directory(path, fd)?;
        }
        Ok(())
    }

    fn describe(&mut self, path: &[u8], stat: &Statx, handle: &Handle<'_>) -> Result<Record> {
        let kind = EntryType::from_mode(stat.stx_mode.into()).ok_or_else(|| anyhow!("unknown file type"))?;
        let mut record = Record {
            path: PathKey::new(path),
            kind,
            mode: manifest::mode(stat.stx_mode.into()),
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            nlink: stat.stx_nlink.into(),
            size: stat.stx_size,
            ino: stat.stx_ino,
            atime: time(&stat.stx_atime),
            mtime: time(&stat.stx_mtime),
            ctime: time(&stat.stx_ctime),
            btime: time(&stat.stx_btime),
            rdev: None,
            target: None,
            xattrs: xattrs(handle)?,
            sha256: None,
            projid: None,
            xflags: None,
        };
        match (kind, handle) {
            (EntryType::Block | EntryType::Char, _) => {
                record.rdev = Some(manifest::rdev(stat.stx_rdev_major, stat.stx_rdev_minor));
            }
            (EntryType::Symlink, Handle::Named(dir, name)) => {
                let target = rustix::fs::readlinkat(dir, *name, Vec::new())?;
                record.target = Some(TargetKey::new(target.to_bytes()));
            }
            (EntryType::File | EntryType::Dir, Handle::Open(fd)) => {
                let flags = fsxattr::get(fd.as_fd())?;
                record.projid = Some(flags.projid);
                record.xflags = Some(flags.xflags);
                if kind == EntryType::File && stat.stx_size <= HASH_SIZE_MAX {
                    record.sha256 = Some(manifest::hex(&self.hash(fd, stat.stx_size)?));
                }
            }
            _ => {}
        }
        Ok(record)
    }

    /// Returns the SHA-256 of the contents; holes are hashed as zeros without reading them.
    fn hash(&mut self, fd: &OwnedFd, size: u64) -> Result<Vec<u8>> {
        let mut hasher = Sha256::new();
        let mut at = 0;
        while at < size {
            let data = match rustix::fs::seek(fd, SeekFrom::Data(at)) {
                Ok(data) => data.min(size),
                Err(Errno::NXIO) => size,
                Err(e) => return Err(e.into()),
            };
            self.buffer.fill(0);
            while at < data {
                let len = (data - at).min(COPY_BUFFER as u64);
                hasher.update(&self.buffer[..len as usize]);
                at += len;
            }
            let hole = if at < size { rustix::fs::seek(fd, SeekFrom::Hole(at))?.min(size) } else { size };
            while at < hole {
                let want = (hole - at).min(COPY_BUFFER as u64) as usize;
                let got = rustix::io::pread(fd, &mut self.buffer[..want], at)?;
                if got == 0 {
                    return Err(anyhow!("ends at {at} of {size} bytes"));
                }
                hasher.update(&self.buffer[..got]);
                at += got as u64;
            }
        }
        Ok(hasher.finalize().to_vec())
    }
}

fn time(t: &StatxTimestamp) -> String {
    manifest::time(t.tv_sec, t.tv_nsec)
}

/// Returns all extended attributes. The kernel refuses a list of more than 64 KiB with `E2BIG`; `fill` creates fewer.
fn xattrs(handle: &Handle<'_>) -> Result<BTreeMap<String, String>> {
    let mut names = vec![0; 1 << 16];
    let len = match handle.list_xattrs(&mut names) {
        Ok(len) => len,
        Err(Errno::OPNOTSUPP) => 0,
        Err(e) => return Err(e).context("listxattr"),
    };
    names.truncate(len);
    let mut out = BTreeMap::new();
    let mut value = vec![0; 1 << 16];
    for name in names.split_inclusive(|b| *b == 0) {
        let name = CStr::from_bytes_with_nul(name)?;
        let len = handle.get_xattr(name, &mut value).with_context(|| format!("getxattr {name:?}"))?;
        out.insert(manifest::xattr_key(name.to_bytes()), manifest::hex(&value[..len]));
    }
    Ok(out)
}
