//! Volumes on object storage.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::thread;
use block::Device;
use objects::{DiskCache, ObjectDevice, ObjectError, ObjectOptions, Opener, volume_info};
use store::{Location, Scheme, Store, StoreOptions};

use crate::{CacheOptions, RemoteError, RemoteOptions, RemoteVolume};

type Result<T> = std::result::Result<T, RemoteError>;

/// Pause between two attempts to open a volume that another writer has open.
const PAUSE: Duration = Duration::from_secs(1);

/// Opens the store of a volume. No request is sent.
pub fn open_store(
    location: &Location,
    options: &RemoteOptions,
) -> std::result::Result<Arc<dyn Store>, ObjectError> {
    let mut store_options = StoreOptions::default();
    if let Some(timeout) = options.timeout {
        store_options.request_timeout = timeout.min(store_options.request_timeout);
    }
    Ok(store::open(&location.volume(), &store_options)?)
}

/// Opens parents of a clone: only those beside it, as the clone's head may come from anybody.
fn opener(location: &Location, options: &RemoteOptions) -> Opener {
    let (own, options) = (location.volume(), options.clone());
    Arc::new(move |url| {
        let refuse = |reason: &str| ObjectError::Refused {
            volume: Location::shown(url).into(),
            reason: reason.into(),
        };
        let parent = Location::parse(url).map_err(|error| refuse(error.reason()))?;
        if !is_beside(&own, &parent) {
            return Err(refuse(
                "it is the parent of a clone, which may share objects only with volumes in the same bucket, or in \
                 the same directory",
            ));
        }
        open_store(&parent, &options)
    })
}

/// Whether a volume lies in the same bucket as another one; of directories, in the same one, and is no symbolic link to
/// one elsewhere.
fn is_beside(own: &Location, other: &Location) -> bool {
    let [own_path, path] = [own, other].map(|location| Path::new(&location.path));
    let fits = || match own.scheme {
        Scheme::File => own_path.parent() == path.parent() && !path.is_symlink(),
        _ => own.authority == other.authority,
    };
    own.scheme == other.scheme && fits()
}

/// How to open a volume.
pub fn object_options(location: &Location, options: &RemoteOptions) -> Result<ObjectOptions> {
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
    if let Some(CacheOptions { folder, bytes }) = &options.cache {
        let opened = DiskCache::open(folder, *bytes).map_err(|error| ObjectError::Refused {
            volume: location.to_string().into(),
            reason: format!("the cache {} cannot be used: {error}", folder.display()).into(),
        });
        object_options.cache = Some(Arc::new(opened?));
    }
    Ok(object_options)
}

/// Opens a volume.
pub fn open(location: &Location, options: &RemoteOptions) -> Result<RemoteVolume> {
    if options.writable {
        let device = open_for_changes(location, options)?;
        return Ok(RemoteVolume { device: Arc::new(device.close_on_drop()), writer: None });
    }
    let device = open_for_reading(location, options)?;
    let writer = device.writer().filter(|_| location.snapshot.is_none());
    Ok(RemoteVolume { device: Arc::new(device), writer })
}

/// Opens a volume or snapshot for reading.
pub fn open_for_reading(location: &Location, options: &RemoteOptions) -> Result<ObjectDevice> {
    let store = open_store(location, options)?;
    let snapshot = location.snapshot.as_deref();
    Ok(ObjectDevice::open_read_only(store, snapshot, object_options(location, options)?)?)
}

/// Opens a volume for changes.
pub fn open_for_changes(location: &Location, options: &RemoteOptions) -> Result<ObjectDevice> {
    if location.snapshot.is_some() {
        let reason = "a snapshot can only be read".into();
        return Err(ObjectError::Refused { volume: location.to_string().into(), reason }.into());
    }
    let (store, object_options) = (open_store(location, options)?, object_options(location, options)?);
    let end = thread::elapsed().saturating_add(options.wait.unwrap_or_default());
    loop {
        match ObjectDevice::open(Arc::clone(&store), object_options.clone()) {
            Err(ObjectError::InUse { .. }) if thread::elapsed() < end => thread::sleep(PAUSE),
            opened => return Ok(opened?),
        }
    }
}

/// Whether a volume exists.
pub fn exists(location: &Location, options: &RemoteOptions) -> Result<bool> {
    match volume_info(open_store(location, options)?, &object_options(location, options)?) {
        Ok(_) => Ok(true),
        Err(ObjectError::NoVolume { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Begins an empty volume, which exists from its first checkpoint on.
pub fn begin(location: &Location, size: u64, options: &RemoteOptions) -> Result<ObjectDevice> {
    if location.snapshot.is_some() {
        let reason = "a snapshot cannot be created by its URL".into();
        return Err(ObjectError::Refused { volume: location.to_string().into(), reason }.into());
    }
    // Sectors of 512 bytes, as every image file has: one can become the other.
    let store = open_store(location, options)?;
    Ok(ObjectDevice::create(store, size, 512, object_options(location, options)?)?)
}

/// Creates an empty volume, and opens it for changes.
pub fn create(location: &Location, size: u64, options: &RemoteOptions) -> Result<Arc<dyn Device>> {
    let device = begin(location, size, options)?;
    // From here on it exists: an error when it is closed must not lose it.
    device.checkpoint()?;
    Ok(Arc::new(device.close_on_drop()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use block::Durability;

    use super::*;
    use crate::RemoteUrl;

    #[test]
    fn a_volume_in_a_directory_is_created_opened_and_closed() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("file://{}/volume", folder.path().display());
        let url = RemoteUrl::new(Path::new(&text)).unwrap();
        let reading = RemoteOptions::default();
        let writing = RemoteOptions { writable: true, ..reading.clone() };
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

    /// A volume in a directory could name any other one on the machine as its parent, and show what is in it.
    #[test]
    fn a_clone_reads_only_parents_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = format!("file://{}", folder.path().display());
        let location = |name: &str| Location::parse(&format!("{root}/{name}")).unwrap();
        let reading = RemoteOptions::default();
        let parent = location("parent");
        let device = create(&parent, 1 << 20, &RemoteOptions { writable: true, ..reading.clone() }).unwrap();
        device.write_at(4096, b"text", Durability::Fua).unwrap();
        drop(device);
        symlink(folder.path().join("parent"), folder.path().join("link")).unwrap();
        let clone_of = |parent: &str, name: &str| {
            let [parent, child] = [parent, name].map(|name| format!("{root}/{name}"));
            let [parent, child] = [&parent, &child].map(|url| RemoteUrl::new(Path::new(url)).unwrap());
            parent.begin_clone(&child, &reading)?.finish()?;
            child.open(&reading)
        };
        let mut text = [0; 4];
        clone_of("parent", "child").unwrap().device.read_at(4096, &mut text).unwrap();
        assert_eq!(&text, b"text");
        for (parent, child) in [("parent", "other/child"), ("link", "of-link")] {
            let error = clone_of(parent, child).unwrap_err().to_string();
            assert!(error.contains("only with volumes in the same bucket"), "{error}");
        }
    }

    #[test]
    fn a_bucket_is_that_of_one_scheme() {
        let is_beside = |one, other| {
            let [one, other] = [one, other].map(|url| Location::parse(url).unwrap());
            super::is_beside(&one, &other)
        };
        assert!(is_beside("s3://bucket/a/volume", "s3://bucket/volume"));
        assert!(!is_beside("s3://bucket/a", "s3://other/a"));
        assert!(!is_beside("s3://bucket/a", "gs://bucket/a"));
        assert!(!is_beside("s3://bucket/a", "file:///bucket/a"));
    }
}
