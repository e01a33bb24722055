//! Metadata of a file in JSON, for `ls`, `find` and `stat`. The keys are those of the manifest.

use format::inode::FileType;
use format::timestamp::Timestamp;
use read::Metadata;
use serde::Serialize;

use super::JsonName;

/// A file. Fields that do not apply are omitted.
#[derive(Debug, Serialize)]
pub struct FileJson<'f> {
    #[serde(flatten)]
    path: JsonName<'f>,
    #[serde(rename = "type")]
    kind: &'static str,
    /// Permission bits in octal, four digits.
    mode: String,
    uid: u32,
    gid: u32,
    nlink: u32,
    size: u64,
    /// Bytes on disk.
    allocated: u64,
    ino: u64,
    atime: String,
    mtime: String,
    ctime: String,
    btime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rdev: Option<String>,
    #[serde(flatten)]
    target: Option<JsonName<'f>>,
    projid: u32,
    xflags: u32,
    generation: u32,
}

impl<'f> FileJson<'f> {
    /// The file at a path.
    pub fn new(path: &'f [u8], metadata: &Metadata, target: Option<&'f [u8]>) -> Self {
        let is_device = matches!(metadata.file_type, FileType::BlockDevice | FileType::CharDevice);
        let times = &metadata.times;
        Self {
            path: JsonName("path", path),
            kind: type_name(metadata.file_type),
            mode: format!("{:04o}", metadata.permissions),
            uid: metadata.uid,
            gid: metadata.gid,
            nlink: metadata.links,
            size: metadata.size,
            allocated: metadata.sectors.saturating_mul(512),
            ino: metadata.ino.get(),
            atime: time(times.access),
            mtime: time(times.modify),
            ctime: time(times.change),
            btime: time(times.create),
            rdev: is_device.then(|| format!("{}:{}", metadata.device.0, metadata.device.1)),
            target: target.map(|target| JsonName("target", target)),
            projid: metadata.project,
            xflags: metadata.xflags,
            generation: metadata.generation,
        }
    }

    /// Appends it as an element of an array: the separator, and the object.
    pub fn push(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(super::SEPARATOR);
        out.extend_from_slice(super::object(self).as_bytes());
    }
}

/// A file type as the manifest names it.
pub fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "dir",
        FileType::Symlink => "symlink",
        FileType::BlockDevice => "block",
        FileType::CharDevice => "char",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}

/// `SECONDS.NANOSECONDS` since 1970, with nine digits of nanoseconds.
fn time(time: Timestamp) -> String {
    format!("{}.{:09}", time.seconds, time.nanoseconds)
}
