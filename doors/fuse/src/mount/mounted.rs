//! A mount of ours, among others that may be made on the same directory later.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::unmount;

/// What this process has mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    directory: PathBuf,
    /// The device number, in the form of tables of mounts; `None` where there is no such table.
    device: Option<String>,
}

impl Mounted {
    /// What was mounted on a directory last. The path is one without symbolic links.
    pub fn last_on(directory: &Path) -> Self {
        Self { directory: directory.into(), device: device_on(directory) }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The device number, in the form of tables of mounts.
    pub(super) fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// Whether something else was mounted over it.
    pub fn is_covered(&self) -> bool {
        let last = device_on(&self.directory);
        last.is_some() && self.device.is_some() && last != self.device
    }

    /// Unmounts it as [`unmount()`] does, unless another mount covers it.
    ///
    /// # Errors
    /// The errors of [`unmount()`]; `EBUSY` where another mount covers it.
    pub fn unmount(&self, lazily: bool) -> io::Result<()> {
        if self.is_covered() {
            return Err(io::Error::from_raw_os_error(base::errno::EBUSY));
        }
        unmount(&self.directory, lazily)
    }
}

fn device_on(directory: &Path) -> Option<String> {
    // No look at the directory itself: nobody may answer yet.
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    device(&mounts, directory.as_os_str().as_bytes())
}

/// The device number of what was mounted last on a directory (`proc_pid_mountinfo(5)`).
fn device(mounts: &[u8], directory: &[u8]) -> Option<String> {
    let mut lines = mounts.split(|byte| *byte == b'\n').rev();
    lines.find_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        let (device, place) = (fields.next()?, fields.nth(1)?);
        (unescaped(place) == directory).then(|| String::from_utf8_lossy(device).into_owned())
    })
}

/// A blank, and its like, stands there as a backslash and three octal digits.
fn unescaped(mut field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    while let [first, rest @ ..] = field {
        field = rest;
        if let (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..]) = (first, rest) {
            plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            field = rest;
        } else {
            plain.push(*first);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_is_found_by_its_place() {
        let mounts = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n\
            40 22 0:50 / /mnt/a\\040b\\134 rw shared:1 - fuse.xebec /x rw\n\
            41 22 0:51 / /mnt/c rw - fuse.xebec /x rw\n42 41 0:52 / /mnt/c rw - fuse.xebec /y rw\n";
        let found = |place: &[u8]| device(mounts, place);
        assert_eq!(found(b"/mnt/a b\\").as_deref(), Some("0:50"));
        assert_eq!(found(b"/mnt/c").as_deref(), Some("0:52"));
        assert_eq!(found(b"/mnt"), None);
    }
}
