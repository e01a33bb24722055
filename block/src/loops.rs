//! Loop devices of this machine that lie on a file, and through which it may be mounted or written.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Where Linux tells of block devices (`Documentation/ABI/testing/sysfs-block`).
const BLOCK_DEVICES: &str = "/sys/block";

/// A loop device over this file that may write to it. What cannot be looked at does not count: whoever may not look
/// does not see a name either.
pub fn writer_over(file: &Metadata) -> Option<PathBuf> {
    std::fs::read_dir(BLOCK_DEVICES).ok()?.flatten().find_map(|entry| {
        let told = |name: &str| std::fs::read_to_string(entry.path().join(name)).ok();
        let backing = told("loop/backing_file")?;
        let other = std::fs::metadata(backing.trim_end_matches('\n')).ok()?;
        let same = (other.dev(), other.ino()) == (file.dev(), file.ino());
        (same && told("ro")?.trim() == "0").then(|| Path::new("/dev").join(entry.file_name()))
    })
}
