//! Lays out a new volume of XFS v5, as `mkfs.xfs` 6.13 does: with equal options every byte is the same but for UUIDs,
//! times and inode generations.
//!
//! | part | subject |
//! |---|---|
//! | [`options`] | what a caller may choose |
//! | [`plan`] | from options to every size and place; computes, writes nothing |
//! | `write` | from a plan to bytes on a device |
//! | `random` | UUID and inode generations from a seed |
//! | [`error`] | what can go wrong |
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
//! - Nothing here reads a clock or asks for randomness: seed and time are options, so that equal options give equal
//!   bytes.
//! - The first superblock is written last, after a flush: until then the device holds no volume.
//! - What is written does not grow with the volume but with the number of its AGs.
//!
//! # Locking
//! None: the device belongs to the caller, who has it alone.
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
pub use options::{LogOptions, LogPlace, Options, Stripe};
pub use plan::Plan;

/// Makes a volume on `device`, whatever it held, and makes it stable. An option that is not given is chosen as
/// `mkfs.xfs` chooses it.
///
/// # Errors
/// [`MkfsError::Option`] where options contradict each other or the device, before anything is written;
/// [`MkfsError::Device`] where the device fails.
pub fn format(device: &dyn Device, options: &Options) -> Result<Geometry, MkfsError> {
    let plan = Plan::new(options, device.size(), device.logical_sector_size())?;
    write(device, None, &plan)
}

/// Carries out a plan: writes the volume to `device`, and the log to `log` where the plan has it there.
///
/// # Errors
/// As [`format()`].
pub fn write(device: &dyn Device, log: Option<&dyn Device>, plan: &Plan) -> Result<Geometry, MkfsError> {
    write::volume(device, log, plan)
}
