//! The mount table of this process (`proc_pid_mountinfo(5)`).

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// Device number of a block device, or of a file system without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl DeviceNumber {
    /// Parses `MAJOR:MINOR`.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let (major, minor) = std::str::from_utf8(text).ok()?.trim().split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

/// `MAJOR:MINOR`.
impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// An entry of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The device number of the file system.
    pub device: DeviceNumber,
    /// The mount point.
    pub directory: PathBuf,
    /// Whether the file system is writable. This mount of it may still be read-only.
    pub writable: bool,
}

/// All mounts, oldest first; none if the system has no such table.
pub fn mounts() -> Vec<Mount> {
    // The directories are not accessed: the server of a mount may not respond.
    std::fs::read("/proc/self/mountinfo").map(|table| parse(&table)).unwrap_or_default()
}

fn parse(table: &[u8]) -> Vec<Mount> {
    let lines = table.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ').skip(2);
            let device = DeviceNumber::parse(fields.next()?)?;
            let directory = OsString::from_vec(unescape(fields.nth(1)?)).into();
            // After a dash: type, source and options of the file system.
            let options = fields.skip_while(|field| *field != b"-").nth(3)?;
            let writable = options.split(|byte| *byte == b',').any(|option| option == b"rw");
            Some(Mount { device, directory, writable })
        })
        .collect()
}

/// Spaces, tabs, newlines and backslashes are escaped as a backslash and three octal digits.
fn unescape(mut field: &[u8]) -> Vec<u8> {
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
    fn lines_of_the_table_are_parsed() {
        let table = b"22 1 254:0 / / rw - ext4 /dev/vda rw,errors=continue\n\
            40 22 0:50 / /mnt/a\\040b\\134 rw shared:1 master:2 - fuse.xebec /x ro,user_id=0\n\
            a malformed line\n41 22 7:3 / /mnt/c ro - xfs /dev/loop3 rw\n";
        let found = parse(table);
        let expected = [("254:0", "/", true), ("0:50", "/mnt/a b\\", false), ("7:3", "/mnt/c", true)];
        let seen: Vec<_> = found
            .iter()
            .map(|mount| (mount.device.to_string(), mount.directory.to_str().unwrap(), mount.writable))
            .collect();
        let expected: Vec<_> =
            expected.map(|(device, directory, rw)| (device.to_owned(), directory, rw)).into();
        assert_eq!(seen, expected);
    }
}
