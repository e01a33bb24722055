//! The manifest: everything a user can see of a tree, one JSON object per line.
//!
//! Two programs print it: `xebec manifest` from an image, and `interop manifest` from a kernel mount. Tests compare the
//! lines, so both use this serialization. `docs/manifest.md` explains the fields.
//!
//! # Invariants
//! - Keys are in the order of the fields of [`Record`]. A field that does not apply is omitted, never `null`.
//! - Lines are sorted by the bytes of the path. The path of the root, which is written as `.`, is empty and comes
//!   first.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

use serde::{Deserialize, Serialize};

/// Larger files have no `sha256`: they are sparse, and hashing them would take too long.
pub const HASH_SIZE_MAX: u64 = 4 << 30;

/// One file, of any type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Path relative to the root of the tree.
    #[serde(flatten)]
    pub path: PathKey,
    /// File type.
    #[serde(rename = "type")]
    pub kind: EntryType,
    /// Permission bits, including set-user-ID, set-group-ID and sticky: four octal digits.
    pub mode: String,
    /// User ID of the owner.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// Number of hard links.
    pub nlink: u64,
    /// Size in bytes (`di_size`), also of a directory and a symlink.
    pub size: u64,
    /// Inode number.
    pub ino: u64,
    /// Access time (atime), see [`time`].
    pub atime: String,
    /// Modification time (mtime).
    pub mtime: String,
    /// Change time (ctime).
    pub ctime: String,
    /// Creation time (crtime).
    pub btime: String,
    /// Block and character devices: `major:minor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rdev: Option<String>,
    /// Symlinks: the target.
    #[serde(flatten)]
    pub target: Option<TargetKey>,
    /// Extended attributes as root sees them: name to value in lowercase hex. See [`xattr_key`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub xattrs: BTreeMap<String, String>,
    /// Files of up to [`HASH_SIZE_MAX`] bytes: SHA-256 of the content in lowercase hex, holes read as zeros.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Files and directories: the project ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projid: Option<u32>,
    /// Files and directories: the `FS_XFLAG_*` bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xflags: Option<u32>,
}

/// A path: as text, or in lowercase hex if it is not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathKey {
    /// UTF-8.
    #[serde(rename = "path")]
    Text(String),
    /// Not UTF-8.
    #[serde(rename = "path_hex")]
    Hex(String),
}

/// A symlink target: as text, or in lowercase hex if it is not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetKey {
    /// UTF-8.
    #[serde(rename = "target")]
    Text(String),
    /// Not UTF-8.
    #[serde(rename = "target_hex")]
    Hex(String),
}

/// File type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryType {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A block device.
    Block,
    /// A character device.
    Char,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl EntryType {
    /// The type in a POSIX mode; `None` if it is invalid.
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o100_000 => Self::File,
            0o040_000 => Self::Dir,
            0o120_000 => Self::Symlink,
            0o060_000 => Self::Block,
            0o020_000 => Self::Char,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }
}

impl PathKey {
    /// A path relative to the root, without a leading `/`; empty for the root itself.
    pub fn new(path: &[u8]) -> Self {
        match std::str::from_utf8(path) {
            Ok("") => Self::Text(".".into()),
            Ok(text) => Self::Text(text.into()),
            Err(_) => Self::Hex(hex(path)),
        }
    }
}

impl TargetKey {
    /// A symlink target.
    pub fn new(target: &[u8]) -> Self {
        match std::str::from_utf8(target) {
            Ok(text) => Self::Text(text.into()),
            Err(_) => Self::Hex(hex(target)),
        }
    }
}

impl Record {
    /// Writes the record as one line.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_line(&self, mut out: impl io::Write) -> io::Result<()> {
        serde_json::to_writer(&mut out, self)?;
        out.write_all(b"\n")
    }

    /// Parses a line.
    ///
    /// # Errors
    /// `InvalidData` if the line is not a record.
    pub fn from_line(line: &str) -> io::Result<Self> {
        serde_json::from_str(line).map_err(io::Error::from)
    }
}

/// The permission bits of a mode in the format of [`Record::mode`].
pub fn mode(mode: u32) -> String {
    format!("{:04o}", mode & 0o7777)
}

/// A time in the format of the records: seconds since 1970 (negative before), a dot, nine digits of nanoseconds that
/// count forward from that second. Half a second before 1970 is `-1.500000000`.
pub fn time(sec: i64, nsec: u32) -> String {
    format!("{sec}.{nsec:09}")
}

/// A device number in the format of [`Record::rdev`].
pub fn rdev(major: u32, minor: u32) -> String {
    format!("{major}:{minor}")
}

/// The key of an extended attribute: its full name with namespace (`user.mime`), or `hex:` and the full name in hex
/// where it is not UTF-8. No name begins with `hex:`, because each begins with its namespace.
pub fn xattr_key(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) => text.into(),
        Err(_) => format!("hex:{}", hex(name)),
    }
}

/// Bytes in lowercase hex.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(out, "{byte:02x}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            path: PathKey::new(b"a/b"),
            kind: EntryType::File,
            mode: mode(0o104_755),
            uid: 0,
            gid: 7,
            nlink: 1,
            size: 3,
            ino: 131,
            atime: time(1, 2),
            mtime: time(-1, 500_000_000),
            ctime: time(0, 0),
            btime: time(0, 0),
            rdev: None,
            target: None,
            xattrs: BTreeMap::from([(xattr_key(b"user.x"), hex(b"\x00\xff"))]),
            sha256: Some("00".into()),
            projid: Some(0),
            xflags: Some(0),
        }
    }

    #[test]
    fn a_line_has_its_keys_in_order() {
        let mut line = Vec::new();
        record().write_line(&mut line).unwrap();
        assert_eq!(
            String::from_utf8(line).unwrap(),
            "{\"path\":\"a/b\",\"type\":\"file\",\"mode\":\"4755\",\"uid\":0,\"gid\":7,\"nlink\":1,\"size\":3,\
             \"ino\":131,\"atime\":\"1.000000002\",\"mtime\":\"-1.500000000\",\"ctime\":\"0.000000000\",\
             \"btime\":\"0.000000000\",\"xattrs\":{\"user.x\":\"00ff\"},\"sha256\":\"00\",\"projid\":0,\"xflags\":0}\n"
        );
    }

    #[test]
    fn a_line_can_be_parsed() {
        let mut link = record();
        link.path = PathKey::new(b"\xff");
        link.kind = EntryType::Symlink;
        link.target = Some(TargetKey::new(b"\xfe/x"));
        link.xattrs.clear();
        for record in [record(), link] {
            let mut line = Vec::new();
            record.write_line(&mut line).unwrap();
            assert_eq!(Record::from_line(std::str::from_utf8(&line).unwrap()).unwrap(), record);
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_hex() {
        assert_eq!(PathKey::new(b"a\xff"), PathKey::Hex("61ff".into()));
        assert_eq!(PathKey::new(b""), PathKey::Text(".".into()));
        assert_eq!(xattr_key(b"user.\xff"), "hex:757365722eff");
    }
}
