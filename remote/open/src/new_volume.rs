//! Volumes that are being made: nobody takes them for a volume before they are finished.

use std::sync::Arc;

use block::{Device, HeaderLastDevice};
use objects::{NewClone, ObjectDevice};
use rbd::{Pool, RbdUrl};

use crate::RemoteError;

type Result<T> = std::result::Result<T, RemoteError>;

/// A volume that is being made. If it is dropped before [`finish`](Self::finish), what was stored is removed. If
/// `finish` fails, nothing is removed.
pub struct NewRemoteVolume(Option<Kind>);

pub(crate) enum Kind {
    /// Objects without a head.
    Objects(Arc<ObjectDevice>),
    /// The same, of which most belong to the parent.
    Clone(NewClone),
    /// An image of Ceph, whose first bytes are written last.
    Image(NewImage, Arc<HeaderLastDevice>),
    /// A clone of an image.
    ImageClone(NewImage, Arc<dyn Device>),
}

/// An image that was created, and how to remove it.
pub(crate) struct NewImage {
    pub pool: Pool,
    pub url: RbdUrl,
}

impl NewRemoteVolume {
    pub(crate) fn new(kind: Kind) -> Self {
        Self(Some(kind))
    }

    /// Its device, which can be written.
    pub fn device(&self) -> Arc<dyn Device> {
        match &self.0 {
            Some(Kind::Objects(device)) => device.clone(),
            Some(Kind::Clone(clone)) => clone.device().clone(),
            Some(Kind::Image(_, device)) => device.clone(),
            Some(Kind::ImageClone(_, device)) => device.clone(),
            None => Arc::new(block::MemoryDevice::new(0)),
        }
    }

    /// Makes the volume durable, and lets others find it. Nobody else may have its device any more.
    ///
    /// # Errors
    /// [`RemoteError`]. Whether the volume exists is not clear then, if the store did not answer: nothing is removed.
    pub fn finish(mut self) -> Result<()> {
        match self.0.take() {
            Some(Kind::Objects(device)) => Ok(device.close()?),
            Some(Kind::Clone(clone)) => Ok(clone.finish()?),
            Some(Kind::Image(_, device)) => device.finish().map_err(RemoteError::Device),
            Some(Kind::ImageClone(_, device)) => device.flush().map_err(RemoteError::Device),
            None => Ok(()),
        }
    }

    /// Removes what was stored of the volume.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn abandon(mut self) -> Result<()> {
        self.remove()
    }

    fn remove(&mut self) -> Result<()> {
        match self.0.take() {
            Some(Kind::Objects(device)) => Ok(device.abandon()?),
            Some(Kind::Clone(clone)) => Ok(clone.abandon()?),
            Some(Kind::Image(NewImage { pool, url }, device)) => {
                drop(device);
                Ok(pool.remove(&url)?)
            }
            Some(Kind::ImageClone(NewImage { pool, url }, device)) => {
                drop(device);
                Ok(pool.remove(&url)?)
            }
            None => Ok(()),
        }
    }
}

impl Drop for NewRemoteVolume {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}
