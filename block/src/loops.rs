//! What the kernel does with an image: loop devices on a file, mounts of those and of block devices.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::mounts::{DeviceNumber, mounts};

/// Where Linux tells of block devices (`Documentation/ABI/testing/sysfs-block`).
const BLOCK_DEVICES: &str = "/sys/block";
/// The same by their numbers.
const BY_NUMBER: &str = "/sys/dev/block";

/// A loop device over this file that may write to it. What cannot be looked at does not count: whoever may not look
/// does not see a name either.
pub fn writer_over(file: &Metadata) -> Option<PathBuf> {
    loops_over(file).into_iter().next()
}

/// A mount by the kernel that writes to this file, through a loop device, or to this block device, or to a partition
/// in one of them.
pub fn mount_over(file: &Metadata) -> Option<PathBuf> {
    let devices = if file.file_type().is_block_device() {
        let (major, minor) = (rustix::fs::major(file.rdev()), rustix::fs::minor(file.rdev()));
        with_partitions(&Path::new(BY_NUMBER).join(DeviceNumber { major, minor }.to_string()))
    } else {
        let named = |device: PathBuf| Some(Path::new(BLOCK_DEVICES).join(device.file_name()?));
        let loops = loops_over(file).into_iter().filter_map(named);
        loops.flat_map(|device| with_partitions(&device)).collect()
    };
    if devices.is_empty() {
        return None;
    }
    let mut mounts = mounts().into_iter();
    mounts.find(|mount| mount.writable && devices.contains(&mount.device)).map(|mount| mount.directory)
}

/// The loop devices over this file that may write to it.
fn loops_over(file: &Metadata) -> Vec<PathBuf> {
    let Ok(devices) = std::fs::read_dir(BLOCK_DEVICES) else { return Vec::new() };
    let found = devices.flatten().filter_map(|entry| {
        let told = |name: &str| std::fs::read_to_string(entry.path().join(name)).ok();
        let backing = told("loop/backing_file")?;
        let other = std::fs::metadata(backing.trim_end_matches('\n')).ok()?;
        let same = (other.dev(), other.ino()) == (file.dev(), file.ino());
        (same && told("ro")?.trim() == "0").then(|| Path::new("/dev").join(entry.file_name()))
    });
    found.collect()
}

/// The numbers of a block device and of its partitions, by its folder.
fn with_partitions(device: &Path) -> Vec<DeviceNumber> {
    let number = |folder: PathBuf| DeviceNumber::parse(&std::fs::read(folder.join("dev")).ok()?);
    let inside = std::fs::read_dir(device).into_iter().flatten().flatten().map(|entry| entry.path());
    let partitions = inside.filter(|folder| folder.join("partition").exists());
    std::iter::once(device.to_owned()).chain(partitions).filter_map(number).collect()
}
