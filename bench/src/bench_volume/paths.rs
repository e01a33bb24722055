//! Operations on paths, on files without names, and listing.

use std::os::fd::AsFd;

use anyhow::bail;
use base::time::Time;
use rustix::fs::{AtFlags, Dir as KernelDir, Mode, OFlags, Stat, StatxFlags};
use rustix::io::Errno;
use xebec::{Dir, Metadata, NewFile, OpenOptions, Rename};

use super::{BenchDir, BenchVolume};

/// The metadata by which `git` finds out whether a file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    ino: u64,
    permissions: u32,
    size: u64,
    owners: (u32, u32),
    /// Modification and change time, in seconds and nanoseconds.
    times: [(i64, i64); 2],
}

impl From<Metadata> for Stamp {
    fn from(metadata: Metadata) -> Self {
        let time = |time: Time| (time.seconds, i64::from(time.nanos));
        Self {
            ino: metadata.ino.get(),
            permissions: u32::from(metadata.permissions),
            size: metadata.size,
            owners: (metadata.uid, metadata.gid),
            times: [time(metadata.modified), time(metadata.changed)],
        }
    }
}

impl From<Stat> for Stamp {
    fn from(stat: Stat) -> Self {
        Self {
            ino: stat.st_ino,
            permissions: stat.st_mode & 0o7777,
            size: stat.st_size as u64,
            owners: (stat.st_uid, stat.st_gid),
            times: [(stat.st_mtime, stat.st_mtime_nsec), (stat.st_ctime, stat.st_ctime_nsec)],
        }
    }
}

impl BenchVolume {
    /// `stat` of a path from the root directory; returns whether it exists.
    pub fn exists(&self, root: &BenchDir, path: &str) -> anyhow::Result<bool> {
        let failed = match (self, root) {
            (Self::Xebec(volume), BenchDir::Xebec(_)) => {
                volume.metadata_at(path.as_bytes(), true).err().map(|error| error.errno().get())
            }
            (Self::Kernel(_), BenchDir::Kernel(root)) => {
                rustix::fs::statat(root.as_fd(), path, AtFlags::empty()).err().map(Errno::raw_os_error)
            }
            _ => bail!("a directory of another volume"),
        };
        match failed {
            None => Ok(true),
            Some(errno) if errno == Errno::NOENT.raw_os_error() => Ok(false),
            Some(errno) => Err(std::io::Error::from_raw_os_error(errno).into()),
        }
    }

    /// `lstat` of a path from the root directory.
    pub fn stamp(&self, root: &BenchDir, path: &str) -> anyhow::Result<Stamp> {
        match (self, root) {
            (Self::Xebec(volume), BenchDir::Xebec(_)) => {
                Ok(volume.metadata_at(path.as_bytes(), false)?.into())
            }
            (Self::Kernel(_), BenchDir::Kernel(root)) => {
                Ok(rustix::fs::statat(root.as_fd(), path, AtFlags::SYMLINK_NOFOLLOW)?.into())
            }
            _ => bail!("a directory of another volume"),
        }
    }

    /// `lstat` of paths from the root directory: one call for all of them, where there is one.
    pub fn stamps<P: AsRef<str>>(&self, root: &BenchDir, paths: &[P]) -> anyhow::Result<Vec<Stamp>> {
        match self {
            Self::Xebec(volume) => {
                let known = Dir::root(volume)?.stat_many(paths.iter().map(AsRef::as_ref));
                known.into_iter().map(|metadata| Ok(metadata?.into())).collect()
            }
            Self::Kernel(_) => paths.iter().map(|path| self.stamp(root, path.as_ref())).collect(),
        }
    }

    /// Opens the file at a path from the root directory for reading, and closes it.
    pub fn open_close(&self, root: &BenchDir, path: &str) -> anyhow::Result<()> {
        match (self, root) {
            (Self::Xebec(volume), BenchDir::Xebec(_)) => {
                OpenOptions::new().read(true).open(volume, path)?;
            }
            (Self::Kernel(_), BenchDir::Kernel(root)) => {
                rustix::fs::openat(root.as_fd(), path, OFlags::RDONLY, Mode::empty())?;
            }
            _ => bail!("a directory of another volume"),
        }
        Ok(())
    }

    /// Creates a file without a name (`O_TMPFILE`), and closes it, which removes it.
    pub fn tmpfile_close(&self, dir: &BenchDir) -> anyhow::Result<()> {
        match (self, dir) {
            (Self::Xebec(volume), BenchDir::Xebec(dir)) => {
                volume.create_tmpfile(*dir, &NewFile::regular())?;
            }
            (Self::Kernel(_), BenchDir::Kernel(dir)) => {
                let flags = OFlags::TMPFILE | OFlags::RDWR;
                rustix::fs::openat(dir.as_fd(), ".", flags, Mode::from_raw_mode(0o600))?;
            }
            _ => bail!("a directory of another volume"),
        }
        Ok(())
    }

    /// Renames a file.
    pub fn rename(&self, from: (&BenchDir, &str), to: (&BenchDir, &str)) -> anyhow::Result<()> {
        match (self, from.0, to.0) {
            (Self::Xebec(volume), BenchDir::Xebec(old), BenchDir::Xebec(new)) => {
                volume.rename(*old, from.1.as_bytes(), *new, to.1.as_bytes(), Rename::Replace)?;
            }
            (Self::Kernel(_), BenchDir::Kernel(old), BenchDir::Kernel(new)) => {
                rustix::fs::renameat(old.as_fd(), from.1, new.as_fd(), to.1)?;
            }
            _ => bail!("a directory of another volume"),
        }
        Ok(())
    }

    /// Lists the names of a directory. Returns their number.
    pub fn names(&self, dir: &BenchDir) -> anyhow::Result<u64> {
        match (self, dir) {
            (Self::Xebec(volume), BenchDir::Xebec(dir)) => Dir::open_id(volume, *dir)?
                .entries()?
                .try_fold(0, |count, entry| Ok(entry.map(|_| count + 1)?)),
            (Self::Kernel(_), BenchDir::Kernel(dir)) => {
                let names = KernelDir::read_from(dir)?;
                let is_file = |name: &[u8]| !matches!(name, b"." | b"..");
                names
                    .into_iter()
                    .try_fold(0, |count, entry| Ok(count + u64::from(is_file(entry?.file_name().to_bytes()))))
            }
            _ => bail!("a directory of another volume"),
        }
    }

    /// Lists a directory with the metadata of each file, as `ls -l` does. Returns the number of files and the sum of
    /// their sizes.
    pub fn list(&self, dir: &BenchDir) -> anyhow::Result<(u64, u64)> {
        let (mut files, mut bytes) = (0, 0);
        match (self, dir) {
            (Self::Xebec(volume), BenchDir::Xebec(dir)) => {
                for entry in Dir::open_id(volume, *dir)?.entries()?.with_metadata() {
                    files += 1;
                    bytes += entry?.metadata.map_or(0, |metadata| metadata.size);
                }
            }
            (Self::Kernel(_), BenchDir::Kernel(dir)) => {
                for entry in KernelDir::read_from(dir)? {
                    let entry = entry?;
                    if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                        continue;
                    }
                    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
                    let stat = rustix::fs::statx(dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW, wanted)?;
                    files += 1;
                    bytes += stat.stx_size;
                }
            }
            _ => bail!("a directory of another volume"),
        }
        Ok((files, bytes))
    }
}
