//! Creates XFS v5 volumes, like `mkfs.xfs` 6.13: with the same options all bytes are the same except UUIDs, times and
//! inode generations.
//!
//! | part | subject |
//! |---|---|
//! | [`options`] | the options |
//! | [`plan`] | computes the geometry from the options |
//! | `write` | writes a volume to a device |
//! | `random` | UUID and inode generations from a seed |
//! | [`error`] | errors |
//!
//! ```
//! let device = block::MemoryDevice::new(64 << 20);
//! let options = xebec_mkfs::Options { block_size: 1024, ..xebec_mkfs::Options::default() };
//! let geometry = xebec_mkfs::format(&device, &options)?;
//! assert_eq!(geometry.ag_count(), 4);
//! # Ok::<(), xebec_mkfs::MkfsError>(())
//! ```
//!
//! # Invariants
//! - The crate reads no clock and no random numbers: seed and time are options, so equal options give equal bytes.
//! - The primary superblock is written last, after a flush: until then the device contains no volume.
//! - The number of written bytes depends on the number of AGs, not on the size of the volume.
//!
//! # Locking
//! None: the caller must have exclusive use of the device.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

pub mod error;
pub mod options;
pub mod plan;
mod random;
mod write;

use block::Device;
use format::Geometry;

pub use error::MkfsError;
pub use options::{LogLocation, LogOptions, Options, Stripe};
pub use plan::Plan;

/// Creates a volume on `device` and flushes it. Old contents are lost.
///
/// # Errors
/// [`MkfsError::Option`], before anything is written, and [`MkfsError::Device`].
pub fn format(device: &dyn Device, options: &Options) -> Result<Geometry, MkfsError> {
    let plan = Plan::new(options, device.size(), device.logical_sector_size())?;
    write(device, None, &plan)
}

/// Writes the volume of a plan to `device`, and an external log to `log`.
///
/// # Errors
/// [`MkfsError::Device`], or [`MkfsError::Option`] if the external log is missing.
pub fn write(device: &dyn Device, log: Option<&dyn Device>, plan: &Plan) -> Result<Geometry, MkfsError> {
    write::volume(device, log, plan)
}
