//! Volumes on object storage.

use std::sync::Arc;
use std::time::Duration;

use base::thread;
use block::Device;
use objects::{ObjectDevice, ObjectError, ObjectOptions, Opener, volume_info};
use store::{Location, Store, StoreOptions};

use crate::{RemoteError, RemoteOptions, RemoteVolume};

type Result<T> = std::result::Result<T, RemoteError>;

/// Pause between two attempts to open a volume that another writer has open.
const PAUSE: Duration = Duration::from_secs(1);

fn open_store(
    location: &Location,
    options: &RemoteOptions,
) -> std::result::Result<Arc<dyn Store>, ObjectError> {
    let mut store_options = StoreOptions::default();
    if let Some(timeout) = options.timeout {
        store_options.request_timeout = timeout.min(store_options.request_timeout);
    }
    Ok(store::open(&location.volume(), &store_options)?)
}

/// Opens parents of a clone: only those that lie in the same bucket, as the clone's head may come from anybody.
fn opener(location: &Location, options: &RemoteOptions) -> Opener {
    let (own, options) = (location.volume(), *options);
    Arc::new(move |url| {
        let refuse = |reason: &str| ObjectError::Refused { volume: url.into(), reason: reason.into() };
        let parent = Location::parse(url).map_err(|error| refuse(&error.to_string()))?;
        if (parent.scheme, &parent.authority) != (own.scheme, &own.authority) {
            return Err(refuse("a clone can share objects only with volumes in the same bucket"));
        }
        open_store(&parent, &options)
    })
}

fn object_options(location: &Location, options: &RemoteOptions) -> ObjectOptions {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut object_options = ObjectOptions {
        take_over: options.take_over,
        writer: format!("process {} on {host}", std::process::id()),
        opener: Some(opener(location, options)),
        ..ObjectOptions::default()
    };
    if let Some(timeout) = options.timeout {
        object_options.timeout = timeout;
    }
    object_options
}

/// Opens a volume.
pub fn open(location: &Location, options: &RemoteOptions) -> Result<RemoteVolume> {
    let object_options = object_options(location, options);
    let store = open_store(location, options)?;
    if !options.writable {
        let device = ObjectDevice::open_read_only(store, location.snapshot.as_deref(), object_options)?;
        let writer = device.writer().filter(|_| location.snapshot.is_none());
        return Ok(RemoteVolume { device: Arc::new(device), writer });
    }
    if location.snapshot.is_some() {
        let reason = "a snapshot can only be read".into();
        return Err(ObjectError::Refused { volume: location.to_string().into(), reason }.into());
    }
    let end = thread::elapsed().saturating_add(options.wait.unwrap_or_default());
    loop {
        match ObjectDevice::open(Arc::clone(&store), object_options.clone()) {
            Err(ObjectError::InUse { .. }) if thread::elapsed() < end => thread::sleep(PAUSE),
            opened => return Ok(RemoteVolume { device: Arc::new(opened?.close_on_drop()), writer: None }),
        }
    }
}

/// Whether a volume exists.
pub fn exists(location: &Location, options: &RemoteOptions) -> Result<bool> {
    match volume_info(open_store(location, options)?, &object_options(location, options)) {
        Ok(_) => Ok(true),
        Err(ObjectError::NoVolume { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Creates an empty volume, and opens it for changes.
pub fn create(location: &Location, size: u64, options: &RemoteOptions) -> Result<Arc<dyn Device>> {
    if location.snapshot.is_some() {
        let reason = "a snapshot cannot be created by its URL".into();
        return Err(ObjectError::Refused { volume: location.to_string().into(), reason }.into());
    }
    // Sectors of 512 bytes, as every image file has: one can become the other.
    let store = open_store(location, options)?;
    let device = ObjectDevice::create(store, size, 512, object_options(location, options))?;
    // From here on it exists: an error when it is closed must not lose it.
    device.checkpoint()?;
    Ok(Arc::new(device.close_on_drop()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use block::Durability;

    use super::*;
    use crate::RemoteUrl;

    #[test]
    fn a_volume_in_a_directory_is_created_opened_and_closed() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("file://{}/volume", folder.path().display());
        let url = RemoteUrl::new(Path::new(&text)).unwrap();
        let reading = RemoteOptions::default();
        let writing = RemoteOptions { writable: true, ..reading };
        assert!(!url.exists(&reading).unwrap());
        assert_eq!(url.open(&reading).unwrap_err().errno(), base::errno::ENOENT.get());
        let device = url.create(1 << 20, &writing).unwrap();
        assert_eq!(url.create(1 << 20, &writing).err().unwrap().errno(), base::errno::EEXIST.get());
        device.write_at(4096, b"text", Durability::Fua).unwrap();
        assert_eq!(url.open(&writing).unwrap_err().errno(), base::errno::EBUSY.get());
        let reader = url.open(&reading).unwrap();
        assert!(reader.writer.unwrap().starts_with("process "));
        drop(device);
        // It was closed: nobody has to take over.
        let volume = url.open(&writing).unwrap();
        let mut text = [0; 4];
        volume.device.read_at(4096, &mut text).unwrap();
        assert_eq!(&text, b"text");
        let snapshot = format!("file://{}/volume@none", folder.path().display());
        let snapshot = RemoteUrl::new(Path::new(&snapshot)).unwrap();
        assert!(snapshot.open(&writing).unwrap_err().to_string().contains("can only be read"));
        assert!(snapshot.open(&reading).unwrap_err().to_string().contains("no such snapshot"));
    }
}
