//! The one place that chooses between the ways of reaching a raw file or block device.

use std::path::Path;
use std::sync::Arc;

use crate::device::Device;
use crate::file::{FileDevice, Io, OpenOptions};
use crate::open_error::OpenError;

/// Opens a raw file or block device as [`OpenOptions::io`] asks. Containers and partitions are not looked
/// for: that is [`open_image`](crate::open_image).
///
/// # Errors
/// As [`FileDevice::open`], and [`OpenError::NoUring`] if io_uring was asked for by name and cannot be had.
pub fn open_file(path: &Path, options: &OpenOptions) -> Result<Arc<dyn Device>, OpenError> {
    let file = FileDevice::open(path, options)?;
    match options.io {
        Io::Pread => Ok(Arc::new(file)),
        Io::Auto => with_rings(file).or_else(|(file, _)| Ok(Arc::new(file))),
        Io::Uring => with_rings(file)
            .map_err(|(file, source)| OpenError::NoUring { path: file.path().to_owned(), source }),
    }
}

#[cfg(all(feature = "io-uring", target_os = "linux"))]
fn with_rings(file: FileDevice) -> Result<Arc<dyn Device>, (FileDevice, std::io::Error)> {
    crate::uring::UringDevice::over(file).map(|device| Arc::new(device) as Arc<dyn Device>)
}

#[cfg(not(all(feature = "io-uring", target_os = "linux")))]
fn with_rings(file: FileDevice) -> Result<Arc<dyn Device>, (FileDevice, std::io::Error)> {
    Err((file, std::io::Error::new(std::io::ErrorKind::Unsupported, "this build was made without it")))
}
