//! From a path to the device that contains the file system: raw files, block devices, qcow2, partitions.

use std::path::Path;
use std::sync::Arc;

use crate::device::Device;
use crate::error::DeviceError;
use crate::file::FileDevice;
use crate::open::OpenOptions;
use crate::open_error::{ListedPartition, OpenError};
use crate::partition::{Partition, partitions};
use crate::probe::{ContentClass, probe};
use crate::qcow2::Qcow2Device;
use crate::window::WindowDevice;

/// How to open an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct OpenImageOptions {
    /// How to open the file or block device.
    pub file: OpenOptions,
    /// The partition, as numbered by Linux. By default the only one that contains XFS.
    pub partition: Option<u32>,
    /// Offset of the file system in bytes, from the start of the partition if one is given, else of the disk.
    pub offset: Option<u64>,
    /// Whether other files that a qcow2 image names (backing images, external data) may be opened. An untrusted image
    /// can name any file that you may read.
    pub backing: bool,
}

/// Opens `path` and returns the device that contains the file system: the disk in a qcow2 image, the partition, the
/// offset. [`Device::describe`] names the choice.
///
/// A disk without a partition table is returned whether it contains XFS or not; [`probe`] names its contents.
///
/// # Errors
/// [`OpenError`]; [`OpenError::Partitions`] lists the partitions if one must be chosen.
pub fn open_image(path: &Path, options: &OpenImageOptions) -> Result<Arc<dyn Device>, OpenError> {
    open_image_on(open_disk(path, options)?, options)
}

/// Finds the partition and the offset on a disk that the caller has opened.
///
/// # Errors
/// The errors of [`open_image`].
pub fn open_image_on(
    disk: Arc<dyn Device>,
    options: &OpenImageOptions,
) -> Result<Arc<dyn Device>, OpenError> {
    let partition = match options.partition {
        Some(number) => numbered_partition(disk, number)?,
        // An offset overrides the partition table.
        None if options.offset.is_some() => disk,
        None => only_partition(disk)?,
    };
    match options.offset {
        None | Some(0) => Ok(partition),
        Some(offset) => {
            let length = partition.size().saturating_sub(offset);
            Ok(Arc::new(WindowDevice::new(partition, offset, length, format!("offset {offset}"))?))
        }
    }
}

/// Opens `path` and returns the whole disk: the file or device, or the disk in a container. Partitions and offsets are
/// not looked for.
///
/// # Errors
/// [`OpenError`].
pub fn open_disk(path: &Path, options: &OpenImageOptions) -> Result<Arc<dyn Device>, OpenError> {
    let file = Arc::new(FileDevice::open(path, &options.file)?);
    let content = probe(&*file)?;
    let unsupported =
        |advice| Err(OpenError::Unsupported { path: path.to_owned(), name: content.name, advice });
    match content.class {
        ContentClass::Qcow2 => {
            let backing = options.backing.then_some(options.file);
            Ok(Arc::new(Qcow2Device::open(file, path, backing)?))
        }
        // A raw image with an offset may begin with anything.
        ContentClass::Container if options.offset.is_none() => {
            unsupported(content.advice().unwrap_or_default())
        }
        _ => Ok(file),
    }
}

fn window(disk: Arc<dyn Device>, partition: &Partition) -> Result<Arc<dyn Device>, DeviceError> {
    let label = format!("partition {}", partition.number);
    Ok(Arc::new(WindowDevice::new(disk, partition.start, partition.length, label)?))
}

fn numbered_partition(disk: Arc<dyn Device>, number: u32) -> Result<Arc<dyn Device>, OpenError> {
    let all = partitions(&*disk)?;
    match all.iter().find(|partition| partition.number == number) {
        Some(partition) => Ok(window(disk, partition)?),
        None => Err(OpenError::Partitions {
            device: disk.describe().into(),
            requested: Some(number),
            found: list(&disk, all),
        }),
    }
}

/// The disk, or if it has a partition table, the only partition that contains XFS.
fn only_partition(disk: Arc<dyn Device>) -> Result<Arc<dyn Device>, OpenError> {
    if probe(&*disk)?.class != ContentClass::PartitionTable {
        return Ok(disk);
    }
    let found = list(&disk, partitions(&*disk)?);
    let mut with_xfs = found.iter().filter(|listed| listed.holds_xfs());
    match (with_xfs.next(), with_xfs.next()) {
        (Some(only), None) => Ok(window(disk, &only.partition)?),
        _ => Err(OpenError::Partitions { device: disk.describe().into(), requested: None, found }),
    }
}

/// Examines the contents of each partition.
fn list(disk: &Arc<dyn Device>, all: Vec<Partition>) -> Vec<ListedPartition> {
    let examine = |partition: Partition| {
        let content = window(disk.clone(), &partition).and_then(|device| probe(&*device)).ok();
        ListedPartition { partition, content }
    };
    all.into_iter().map(examine).collect()
}
