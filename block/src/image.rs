//! From a path to the device that should hold a file system: raw files, block devices, qcow2, partitions.

use std::path::Path;
use std::sync::Arc;

use crate::device::Device;
use crate::error::DeviceError;
use crate::file::OpenOptions;
use crate::open::open_file;
use crate::open_error::{ListedPartition, OpenError};
use crate::partition::{Partition, partitions};
use crate::probe::{Class, probe};
use crate::qcow2::Qcow2Device;
use crate::window::WindowDevice;

/// How to open an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct OpenImage {
    /// How to open the file or block device itself.
    pub options: OpenOptions,
    /// The partition to take, as Linux numbers them. Without it, the only partition with XFS is taken.
    pub partition: Option<u32>,
    /// Where the file system begins, in bytes: from the start of the partition if one is given, else of the disk.
    pub offset: Option<u64>,
    /// Whether the other files that a qcow2 image names (backing images, external data) may be opened.
    /// An image from a stranger can name any file that you may read.
    pub backing: bool,
}

/// Opens `path` and finds the device that should hold a file system: the disk inside a qcow2 container, the
/// partition, the range that was asked for. What was chosen is in [`Device::describe`].
///
/// A disk that begins with something else than a partition table is returned as it is, XFS or not:
/// [`probe`] names it.
///
/// # Errors
/// [`OpenError`]; where a partition must be chosen, [`OpenError::Partitions`] lists them.
pub fn open_image(path: &Path, image: &OpenImage) -> Result<Arc<dyn Device>, OpenError> {
    open_part(open_disk(path, image)?, image)
}

/// The same on a disk that is open already and lies in no container: the partition and the range that
/// [`OpenImage`] asks for.
///
/// # Errors
/// As [`open_image`].
pub fn open_part(disk: Arc<dyn Device>, image: &OpenImage) -> Result<Arc<dyn Device>, OpenError> {
    let part = match image.partition {
        Some(number) => numbered_partition(disk, number)?,
        // With an offset the caller knows better than any table.
        None if image.offset.is_some() => disk,
        None => only_partition(disk)?,
    };
    match image.offset {
        None | Some(0) => Ok(part),
        Some(offset) => {
            let length = part.size().saturating_sub(offset);
            Ok(Arc::new(WindowDevice::new(part, offset, length, format!("offset {offset}"))?))
        }
    }
}

/// The raw device, or the disk inside a container.
fn open_disk(path: &Path, image: &OpenImage) -> Result<Arc<dyn Device>, OpenError> {
    let file = open_file(path, &image.options)?;
    let content = probe(&file)?;
    let unsupported =
        |advice| Err(OpenError::Unsupported { path: path.to_owned(), name: content.name, advice });
    match content.class {
        Class::Qcow2 => {
            let follow = image.backing.then_some(image.options);
            Ok(Arc::new(Qcow2Device::open(file, path, follow)?))
        }
        // With an offset a raw image may begin with anything.
        Class::Container if image.offset.is_none() => unsupported(content.advice().unwrap_or_default()),
        _ => Ok(file),
    }
}

fn window(disk: Arc<dyn Device>, partition: &Partition) -> Result<Arc<dyn Device>, DeviceError> {
    let label = format!("partition {}", partition.number);
    Ok(Arc::new(WindowDevice::new(disk, partition.start, partition.length, label)?))
}

fn numbered_partition(disk: Arc<dyn Device>, number: u32) -> Result<Arc<dyn Device>, OpenError> {
    let all = partitions(&disk)?;
    match all.iter().find(|partition| partition.number == number) {
        Some(partition) => Ok(window(disk, partition)?),
        None => Err(OpenError::Partitions {
            device: disk.describe().into(),
            asked: Some(number),
            found: list(&disk, all),
        }),
    }
}

/// The disk itself unless it has a partition table; then the one partition that holds XFS.
fn only_partition(disk: Arc<dyn Device>) -> Result<Arc<dyn Device>, OpenError> {
    if probe(&disk)?.class != Class::PartitionTable {
        return Ok(disk);
    }
    let found = list(&disk, partitions(&disk)?);
    let mut with_xfs = found.iter().filter(|listed| listed.holds_xfs());
    match (with_xfs.next(), with_xfs.next()) {
        (Some(only), None) => Ok(window(disk, &only.partition)?),
        _ => Err(OpenError::Partitions { device: disk.describe().into(), asked: None, found }),
    }
}

/// Looks what each partition holds. One that lies outside the disk, or cannot be read, is listed without.
fn list(disk: &Arc<dyn Device>, all: Vec<Partition>) -> Vec<ListedPartition> {
    let look = |partition: Partition| {
        let content = window(disk.clone(), &partition).and_then(|part| probe(&part)).ok();
        ListedPartition { partition, content }
    };
    all.into_iter().map(look).collect()
}
