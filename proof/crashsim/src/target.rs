//! What the simulator tests: something that opens a device, recovers it, and can be judged afterwards.

use std::sync::Arc;

use block::Device;
use model::{Seen, Subject};

use crate::image::Image;

/// A kind of volume under test, in one shape.
pub trait Target: Sync {
    /// An open volume. Dropped, it ends as after a power cut: nothing more is written.
    type Volume: Subject;

    /// A fresh volume. The same each time.
    ///
    /// # Errors
    /// In words.
    fn format(&self) -> Result<Image, String>;

    /// Opens a volume, and recovers it where it crashed.
    ///
    /// # Errors
    /// In words.
    fn open(&self, device: Arc<dyn Device>) -> Result<Self::Volume, String>;

    /// The same for a volume that is looked at and ended soon: as cheap as it can be had.
    ///
    /// # Errors
    /// In words.
    fn recover(&self, device: Arc<dyn Device>) -> Result<Self::Volume, String> {
        self.open(device)
    }

    /// Ends in good order.
    ///
    /// # Errors
    /// In words.
    fn unmount(&self, volume: Self::Volume) -> Result<(), String>;

    /// Judges a volume that was unmounted by other means than its own, and reads the trees below some directories.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    fn judge(&self, device: Arc<dyn Device>, homes: &[u64], times: bool) -> Result<Vec<Seen>, String>;
}
