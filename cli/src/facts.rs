//! What is known of a file, in JSON: the same keys in `ls`, `find` and `stat`, and those of the manifest.

use format::inode::FileType;
use format::timestamp::Timestamp;
use read::Metadata;
use serde::Serialize;

use crate::names::JsonName;

/// One file. A field that does not apply is left out.
#[derive(Debug, Serialize)]
pub struct Facts<'f> {
    /// Where it is.
    #[serde(flatten)]
    path: JsonName<'f>,
    /// What it is.
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

impl<'f> Facts<'f> {
    /// Of the file at a path.
    pub fn new(path: &'f [u8], metadata: &Metadata, target: Option<&'f [u8]>) -> Self {
        let is_device = matches!(metadata.file_type, FileType::BlockDevice | FileType::CharDevice);
        let times = &metadata.times;
        Self {
            path: JsonName::path(path),
            kind: kind(metadata.file_type),
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
            target: target.map(JsonName::target),
            projid: metadata.project,
            xflags: metadata.xflags,
            generation: metadata.generation,
        }
    }

    /// Appends it as one element of an array: what separates it from the one before, and the object.
    pub fn push(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(SEPARATOR);
        // Writing to memory cannot fail, and every field can be written.
        let _ = serde_json::to_writer(out, self);
    }
}

/// What separates the elements of an array that is written as it comes.
pub const SEPARATOR: &[u8] = b",\n";

/// The head of a document whose elements are written as they come.
pub fn head(command: &str, image: &str, array: &str) -> Vec<u8> {
    let image = serde_json::Value::from(image);
    let version = crate::output::JSON_VERSION;
    format!("{{\"version\":{version},\"command\":\"{command}\",\"image\":{image},\"{array}\":[\n")
        .into_bytes()
}

/// What closes such a document.
pub const TAIL: &[u8] = b"\n]}\n";

/// A file type as the manifest names it.
pub fn kind(file_type: FileType) -> &'static str {
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

/// Seconds since 1970, a dot, nine digits that count forward from that second.
fn time(time: Timestamp) -> String {
    format!("{}.{:09}", time.seconds, time.nanoseconds)
}
