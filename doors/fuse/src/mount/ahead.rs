//! How far ahead of a reader the kernel asks, which is its administrator's to say: without a word, 128 KiB, and each
//! such piece is a request.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes. A program that maps a file meets as much around a page that it misses: more would cost those that jump.
const AHEAD: u32 = 512 << 10;

/// Has the kernel ask further ahead, for a mount of root's that requests can come from by now.
///
/// # Errors
/// `EACCES` for an ordinary user; `ENOENT` where the mount is gone, or the kernel has no such place. Nothing is wrong
/// with the mount then.
pub fn read_ahead(directory: &Path) -> io::Result<()> {
    // No look at the directory itself: nobody may answer yet.
    let mounts = std::fs::read("/proc/self/mountinfo")?;
    let device = device(&mounts, directory.as_os_str().as_bytes()).ok_or(io::ErrorKind::NotFound)?;
    std::fs::write(format!("/sys/class/bdi/{device}/read_ahead_kb"), (AHEAD >> 10).to_string())
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
