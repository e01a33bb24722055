//! The file system under test: formats, opens, recovers and judges volumes.

use std::sync::Arc;

use block::Device;
use model::{ObservedTree, Subject};

use crate::image::Image;

/// A file system under test.
pub trait Target: Sync {
    /// An open volume. Dropping it writes nothing, as after a power cut.
    type Volume: Subject;

    /// Formats a volume, always with the same contents.
    ///
    /// # Errors
    /// Those of the target.
    fn format(&self) -> Result<Image, String>;

    /// Opens a volume, and recovers it if it was not unmounted.
    ///
    /// # Errors
    /// Those of the target.
    fn open(&self, device: Arc<dyn Device>) -> Result<Self::Volume, String>;

    /// Opens and recovers a volume for a short use, as cheaply as possible.
    ///
    /// # Errors
    /// Those of the target.
    fn recover(&self, device: Arc<dyn Device>) -> Result<Self::Volume, String> {
        self.open(device)
    }

    /// Unmounts a volume.
    ///
    /// # Errors
    /// Those of the target.
    fn unmount(&self, volume: Self::Volume) -> Result<(), String>;

    /// Judges an unmounted volume independently of the engine, and reads the trees below some directories.
    ///
    /// # Errors
    /// What is wrong with it.
    fn judge(&self, device: Arc<dyn Device>, homes: &[u64], times: bool)
    -> Result<Vec<ObservedTree>, String>;
}
