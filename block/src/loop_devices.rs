//! Use of an image by the kernel: loop devices over a file, mounts of those and of block devices.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::mounts::{DeviceNumber, mounts};

/// Block devices by name (`Documentation/ABI/testing/sysfs-block`).
const BLOCK_DEVICES: &str = "/sys/block";
/// Block devices by device number.
const BY_NUMBER: &str = "/sys/dev/block";

/// A writable loop device over a file. Devices that this user may not examine are ignored.
pub fn writable_loop_device(file: &Metadata) -> Option<PathBuf> {
    loop_devices_over(file).into_iter().next()
}

/// The mount point of a writable mount by the kernel of a file (through a loop device), of a block device, or of a
/// partition in one of them.
pub fn writable_mount(file: &Metadata) -> Option<PathBuf> {
    let devices = if file.file_type().is_block_device() {
        let (major, minor) = (rustix::fs::major(file.rdev()), rustix::fs::minor(file.rdev()));
        with_partitions(&Path::new(BY_NUMBER).join(DeviceNumber { major, minor }.to_string()))
    } else {
        let sysfs = |device: PathBuf| Some(Path::new(BLOCK_DEVICES).join(device.file_name()?));
        let loop_devices = loop_devices_over(file).into_iter().filter_map(sysfs);
        loop_devices.flat_map(|device| with_partitions(&device)).collect()
    };
    if devices.is_empty() {
        return None;
    }
    let mut mounts = mounts().into_iter();
    mounts.find(|mount| mount.writable && devices.contains(&mount.device)).map(|mount| mount.directory)
}

/// The writable loop devices over a file.
fn loop_devices_over(file: &Metadata) -> Vec<PathBuf> {
    let Ok(devices) = std::fs::read_dir(BLOCK_DEVICES) else { return Vec::new() };
    let found = devices.flatten().filter_map(|entry| {
        let attribute = |name: &str| std::fs::read_to_string(entry.path().join(name)).ok();
        let backing = attribute("loop/backing_file")?;
        let backing = std::fs::metadata(backing.trim_end_matches('\n')).ok()?;
        let is_same = (backing.dev(), backing.ino()) == (file.dev(), file.ino());
        (is_same && attribute("ro")?.trim() == "0").then(|| Path::new("/dev").join(entry.file_name()))
    });
    found.collect()
}

/// The device numbers of a block device and of its partitions, from its directory in sysfs.
fn with_partitions(device: &Path) -> Vec<DeviceNumber> {
    let number = |directory: PathBuf| DeviceNumber::parse(&std::fs::read(directory.join("dev")).ok()?);
    let entries = std::fs::read_dir(device).into_iter().flatten().flatten().map(|entry| entry.path());
    let partitions = entries.filter(|directory| directory.join("partition").exists());
    std::iter::once(device.to_owned()).chain(partitions).filter_map(number).collect()
}
