//! The file or device around a volume: a partition table, a qcow2 image, and the final name.

use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use block::{
    Device, FileDevice, HeaderLastDevice, Io, NewFile, OpenError, OpenOptions, ReplacedFile, WindowDevice,
    write_gpt, write_qcow2,
};
use volume::image::retry_while_ending;

use super::seed::Seed;
use super::{Container, ImageBuilder};
use crate::progress::{Notice, NoticeKind};
use crate::{Error, Result};

/// Start of the partition, and size of the space after it for the backup table.
const PARTITION_ALIGNMENT: u64 = 1 << 20;

/// Where an image is created.
pub struct Target<'t> {
    image: &'t Path,
    container: Container,
    /// The existing file that will be replaced.
    replaced: Option<Arc<ReplacedFile>>,
    /// The block device that will hold the volume.
    device: Option<Arc<FileDevice>>,
    /// The device that the caller has created for the image, and whether it was written to.
    given: Option<(Arc<dyn Device>, AtomicBool)>,
}

impl<'t> Target<'t> {
    /// Opens a block device, and locks a file that will be replaced: it must not be in use.
    pub fn open(image: &'t Path, builder: &ImageBuilder<'_>) -> Result<Self> {
        let container = builder.container;
        if let Some(device) = &builder.device {
            if container.qcow2 {
                return Err(Error::option("format", "only raw is possible here"));
            }
            let given = Some((Arc::clone(device), AtomicBool::new(false)));
            return Ok(Self { image, container, replaced: None, device: None, given });
        }
        let metadata = std::fs::metadata(image);
        let is_device = metadata.is_ok_and(|metadata| metadata.file_type().is_block_device());
        if is_device && container.qcow2 {
            return Err(Error::option("format", "only raw is possible on a device"));
        }
        let options =
            OpenOptions { io: Io::Pread, writable: true, wait: builder.wait, ..OpenOptions::default() };
        let (mut device, mut replaced) = (None, None);
        if is_device {
            device = Some(Arc::new(retry(image, builder, || FileDevice::open(image, &options))?));
        } else if builder.replace {
            replaced = Some(Arc::new(retry(image, builder, || ReplacedFile::lock(image, builder.wait))?));
        }
        Ok(Self { image, container, replaced, device, given: None })
    }

    /// Bytes of the image outside of the volume.
    pub fn overhead(&self) -> u64 {
        if self.container.gpt { 2 * PARTITION_ALIGNMENT } else { 0 }
    }

    /// Size of the block device.
    pub fn device_size(&self) -> Option<u64> {
        self.device.as_ref().map(|device| device.size())
    }

    /// Sector size in bytes.
    pub fn sector_size(&self) -> u32 {
        self.device.as_ref().map_or(512, |device| device.logical_sector_size())
    }

    /// Creates an image without a name for a volume of this size.
    pub fn create(&self, size: u64) -> Result<NewImage> {
        let bytes = size + self.overhead();
        if let Some((device, is_used)) = &self.given {
            if is_used.swap(true, Relaxed) {
                device.zero(0, device.size()).map_err(Error::Device)?;
            }
            device.set_size(bytes).map_err(Error::Device)?;
            let volume = self.volume(Arc::clone(device), size)?;
            return Ok(NewImage { disk: Disk::Given(Arc::clone(device)), volume });
        }
        let disk = match &self.device {
            Some(device) => {
                Disk::Device(Arc::new(HeaderLastDevice::new(device.clone()).map_err(Error::Device)?))
            }
            // The disk of a qcow2 image is copied at the end, and never gets a name itself.
            None if self.container.qcow2 => {
                Disk::File(NewFile::scratch(self.image, bytes, &self.options()).map_err(Error::Open)?)
            }
            None => Disk::File(self.new_file(bytes)?),
        };
        let volume = self.volume(disk.device(), size)?;
        Ok(NewImage { disk, volume })
    }

    /// A file that will get the image's name.
    fn new_file(&self, size: u64) -> Result<NewFile> {
        let file = match &self.replaced {
            Some(replaced) => NewFile::replacing(replaced, size, &self.options()),
            None => NewFile::create(self.image, size, &self.options()),
        };
        file.map_err(Error::Open)
    }

    /// Contents that are not read again leave the page cache.
    fn options(&self) -> OpenOptions {
        OpenOptions { writable: true, uncached: !self.container.qcow2, ..OpenOptions::default() }
    }

    fn volume(&self, disk: Arc<dyn Device>, size: u64) -> Result<Arc<dyn Device>> {
        if !self.container.gpt {
            return Ok(disk);
        }
        let window = WindowDevice::new(disk, PARTITION_ALIGNMENT, size, "partition 1");
        Ok(Arc::new(window.map_err(Error::Device)?))
    }

    /// Truncates the image to a volume of this size.
    pub fn truncate(&self, image: &mut NewImage, size: u64) -> Result<()> {
        let disk = image.disk.device();
        disk.set_size(size + self.overhead()).map_err(Error::Device)?;
        image.volume = self.volume(disk, size)?;
        Ok(())
    }

    /// Completes the image and gives it its name; returns the size of the disk. The UUIDs are those of the partition
    /// table.
    pub fn finish(&self, image: NewImage, uuids: [Seed; 2]) -> Result<u64> {
        let NewImage { disk, volume } = image;
        let size = volume.size();
        drop(volume);
        let failed = |part| move |source| Error::Container { part, source };
        if self.container.gpt {
            let partition = PARTITION_ALIGNMENT..PARTITION_ALIGNMENT + size;
            write_gpt(&*disk.device(), partition, uuids).map_err(failed("the partition table"))?;
        }
        let size = disk.device().size();
        match disk {
            Disk::Device(device) => device.finish().map_err(Error::Device)?,
            Disk::Given(device) => device.flush().map_err(Error::Device)?,
            Disk::File(disk) if self.container.qcow2 => {
                let image = self.new_file(0)?;
                write_qcow2(disk.device(), image.device().clone()).map_err(failed("the qcow2 image"))?;
                image.publish().map_err(Error::Open)?;
            }
            Disk::File(file) => file.publish().map_err(Error::Open)?,
        }
        Ok(size)
    }
}

/// Opens or locks a file; waits while the server of an unmounted image still writes to it.
fn retry<T>(
    image: &Path,
    builder: &ImageBuilder<'_>,
    open: impl FnMut() -> std::result::Result<T, OpenError>,
) -> Result<T> {
    use std::os::unix::ffi::OsStrExt as _;
    let name = image.as_os_str().as_bytes();
    let mut report = |notice: volume::image::ImageNotice<'_>| {
        builder.progress.notice(&Notice::new(NoticeKind::Waiting, name, notice));
    };
    retry_while_ending(image, builder.wait, &mut report, open).map_err(Error::Image)
}

/// An image without a name.
pub struct NewImage {
    disk: Disk,
    /// The device of the volume.
    pub volume: Arc<dyn Device>,
}

enum Disk {
    File(NewFile),
    Device(Arc<HeaderLastDevice>),
    /// One of the caller.
    Given(Arc<dyn Device>),
}

impl Disk {
    fn device(&self) -> Arc<dyn Device> {
        match self {
            Self::File(file) => file.device().clone(),
            Self::Device(device) => device.clone(),
            Self::Given(device) => device.clone(),
        }
    }
}
