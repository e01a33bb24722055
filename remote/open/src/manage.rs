//! Snapshots and clones of volumes, new volumes, and the objects of a volume.

use std::sync::Arc;
use std::time::Duration;

use base::time::{Clock as _, SystemClock};
use block::HeaderLastDevice;
use objects::{
    Audit, CloneRequest, ObjectDevice, ObjectError, ObjectOptions, RequestCounts, StoredUse, VolumeInfo,
    begin_clone,
};
use rbd::{Pool, RbdDevice, RbdOptions, RbdUrl};
use store::{Location, Store};

use crate::in_store::{begin, object_options, open_for_changes, open_store};
use crate::new_volume::{Kind, NewImage, NewRemoteVolume};
use crate::{RemoteError, RemoteOptions, RemoteUrl, Storage, rbd_options};

type Result<T> = std::result::Result<T, RemoteError>;

/// A snapshot of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteSnapshot {
    /// Its name.
    pub name: String,
    /// When it was made, since 1970, by the clock of the maker; Ceph does not say it.
    pub made: Option<Duration>,
    /// Size of the volume in bytes.
    pub size: u64,
}

/// What a volume has in its store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredVolume {
    /// What the head says.
    pub info: VolumeInfo,
    /// What the map refers to.
    pub used: StoredUse,
    /// The requests that were needed to find out.
    pub requests: RequestCounts,
}

/// What cleaning has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Segments whose live blocks were written again.
    pub segments: u64,
    /// Objects that were deleted.
    pub deleted: u64,
    /// Objects that are not needed any more, and wait for the grace period to pass.
    pub retired: u64,
    /// Requests that this took.
    pub requests: RequestCounts,
}

/// A volume on object storage, and how to reach it.
struct Stored {
    location: Location,
    store: Arc<dyn Store>,
    options: ObjectOptions,
}

impl RemoteUrl<'_> {
    /// The volume on object storage that the URL names. `what` is refused for others, with `advice`.
    fn stored(&self, options: &RemoteOptions, what: &'static str, advice: &'static str) -> Result<Stored> {
        match self.storage {
            Storage::Rbd => Err(RemoteError::Unsupported { url: self.to_string(), what, advice }),
            Storage::Objects => {
                let location: Location = self.url.parse()?;
                let store = open_store(&location, options)?;
                let options = object_options(&location, options)?;
                Ok(Stored { location, store, options })
            }
        }
    }

    fn pool(&self, options: &RemoteOptions) -> Result<(Pool, RbdUrl)> {
        let url: RbdUrl = self.url.parse()?;
        Ok((Pool::open(&url, options.timeout)?, url))
    }

    /// Whether it names a snapshot.
    ///
    /// # Errors
    /// It is not a URL of this kind of storage.
    pub fn names_snapshot(&self) -> Result<bool> {
        Ok(match self.storage {
            Storage::Rbd => self.url.parse::<RbdUrl>()?.snapshot.is_some(),
            Storage::Objects => self.url.parse::<Location>()?.snapshot.is_some(),
        })
    }

    /// The snapshots of the volume, the oldest first.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn snapshots(&self, options: &RemoteOptions) -> Result<Vec<RemoteSnapshot>> {
        if self.storage == Storage::Rbd {
            let (pool, url) = self.pool(options)?;
            let snapshots = pool.snapshots(&url)?.into_iter();
            return Ok(snapshots
                .map(|found| RemoteSnapshot { name: found.name, made: None, size: found.size })
                .collect());
        }
        let Stored { store, options, .. } = self.stored(options, "", "")?;
        let snapshots = objects::volume_info(store, &options)?.snapshots.into_iter();
        let snapshot = |found: objects::Snapshot| RemoteSnapshot {
            name: found.name,
            made: Some(Duration::from_secs(found.made)),
            size: found.size,
        };
        Ok(snapshots.map(snapshot).collect())
    }

    /// Makes the snapshot that the URL names. It contains what is durable, also if a client has the volume open for
    /// changes.
    ///
    /// # Errors
    /// [`RemoteError`]; the URL names no snapshot, or there is one of this name.
    pub fn make_snapshot(&self, options: &RemoteOptions) -> Result<()> {
        if self.storage == Storage::Rbd {
            let (pool, url) = self.pool(options)?;
            return Ok(pool.create_snapshot(&url)?);
        }
        let Stored { location, store, options } = self.stored(options, "", "")?;
        Ok(objects::make_snapshot(store, snapshot_of(&location)?, seconds_now(), &options)?)
    }

    /// Removes the snapshot that the URL names.
    ///
    /// # Errors
    /// [`RemoteError`]; the URL names no snapshot, or there is none of this name.
    pub fn remove_snapshot(&self, options: &RemoteOptions) -> Result<()> {
        if self.storage == Storage::Rbd {
            let (pool, url) = self.pool(options)?;
            return Ok(pool.remove_snapshot(&url)?);
        }
        let Stored { location, store, options } = self.stored(options, "", "")?;
        Ok(objects::remove_snapshot(store, snapshot_of(&location)?, &options)?)
    }

    /// Begins a volume of `size` bytes, which reads as zeros.
    ///
    /// # Errors
    /// [`RemoteError`], with `EEXIST` if there is one.
    pub fn begin(&self, size: u64, options: &RemoteOptions) -> Result<NewRemoteVolume> {
        match self.storage {
            Storage::Objects => {
                let device = begin(&self.url.parse()?, size, options)?;
                Ok(NewRemoteVolume::new(Kind::Objects(Arc::new(device))))
            }
            Storage::Rbd => {
                let (pool, url) = self.pool(options)?;
                pool.create(&url, size)?;
                let device = open_image(&pool, &url, options)?;
                let device = HeaderLastDevice::new(Arc::new(device)).map_err(RemoteError::Device)?;
                Ok(NewRemoteVolume::new(Kind::Image(NewImage { pool, url }, Arc::new(device))))
            }
        }
    }

    /// Begins a volume that shares the data of this one: a snapshot, or on object storage also what is durable now.
    ///
    /// # Errors
    /// [`RemoteError`], with `EEXIST` if there is a volume `child`.
    pub fn begin_clone(&self, child: &RemoteUrl<'_>, options: &RemoteOptions) -> Result<NewRemoteVolume> {
        match (self.storage, child.storage) {
            (Storage::Objects, Storage::Objects) => {
                let parent = self.stored(options, "", "")?;
                let child = child.stored(options, "", "")?;
                let (parent_url, url) = (parent.location.volume().to_string(), child.location.to_string());
                if child.location.snapshot.is_some() {
                    return Err(refused(&child.location, "a clone is a volume, not a snapshot"));
                }
                let snapshot = parent.location.snapshot.as_deref();
                let request = CloneRequest { parent: &parent_url, snapshot, url: &url, made: seconds_now() };
                let clone = begin_clone(parent.store, child.store, request, child.options)?;
                Ok(NewRemoteVolume::new(Kind::Clone(clone)))
            }
            (Storage::Rbd, Storage::Rbd) => {
                let parent: RbdUrl = self.url.parse()?;
                let url: RbdUrl = child.url.parse()?;
                let is_same_pool = (&parent.pool, &parent.namespace) == (&url.pool, &url.namespace);
                if parent.snapshot.is_none() || !is_same_pool || parent.options != url.options {
                    return Err(RemoteError::Unsupported {
                        url: self.to_string(),
                        what: "cloning",
                        advice: "the source must be a snapshot in the same pool: make one with `xebec snapshot \
                                 create`, or use `rbd clone`",
                    });
                }
                let (pool, url) = child.pool(options)?;
                pool.clone_from(&pool, &parent, &url)?;
                let device = open_image(&pool, &url, options)?;
                Ok(NewRemoteVolume::new(Kind::ImageClone(NewImage { pool, url }, Arc::new(device))))
            }
            _ => Err(RemoteError::Unsupported {
                url: child.to_string(),
                what: "cloning to another kind of storage",
                advice: "copy it with `xebec pull`, then `xebec push`",
            }),
        }
    }

    /// What the volume has in its store; `None` for an image of Ceph.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn stored_volume(&self, options: &RemoteOptions) -> Result<Option<StoredVolume>> {
        if self.storage == Storage::Rbd {
            return Ok(None);
        }
        let Stored { location, store, options } = self.stored(options, "", "")?;
        let info = objects::volume_info(Arc::clone(&store), &options)?;
        let device = ObjectDevice::open_read_only(store, location.snapshot.as_deref(), options)?;
        Ok(Some(StoredVolume { info, used: device.stored(), requests: device.counts() }))
    }

    /// Examines the objects of the volume. Nothing is changed.
    ///
    /// # Errors
    /// [`RemoteError`]; it is an image of Ceph.
    pub fn audit(&self, options: &RemoteOptions) -> Result<Audit> {
        let Stored { store, options, .. } =
            self.stored(options, "an audit of objects", "Ceph checks its objects itself: `ceph pg scrub`")?;
        Ok(objects::audit(store, &options)?)
    }

    /// Deletes objects that nothing refers to: those whose grace period has passed, and what crashes have left. With
    /// `moves`, live blocks are first moved out of segments that are mostly garbage. `progress` is called with the
    /// number of segments so far. Nobody else may have the volume open for changes.
    ///
    /// # Errors
    /// [`RemoteError`]; it is an image of Ceph.
    pub fn clean(
        &self,
        moves: bool,
        options: &RemoteOptions,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Cleaned> {
        let advice = "Ceph frees the space of discarded blocks at once: see `rbd sparsify`";
        let Stored { location, store, options: object_options } =
            self.stored(options, "cleaning objects", advice)?;
        let device = open_for_changes(&location, options)?;
        let cleaned = clean_device(&device, (store, &object_options), moves, progress);
        // Closed after an error, too, so that the next writer need not take over.
        let closed = device.close();
        let cleaned = cleaned?;
        closed?;
        Ok(Cleaned { requests: device.counts(), ..cleaned })
    }

    /// Removes the pin of a clone that is gone, so that what only it used is deleted.
    ///
    /// # Errors
    /// [`RemoteError`]; the clone exists, or has no pin.
    pub fn unpin(&self, clone: &RemoteUrl<'_>, options: &RemoteOptions) -> Result<()> {
        let advice = "clones of Ceph are removed with `rbd rm`";
        let Stored { store, options: own, .. } = self.stored(options, "removing pins", advice)?;
        let location: Location = clone.url.parse()?;
        if clone.exists(options)? {
            return Err(refused(&location, "it exists, and needs what it shares: remove its objects first"));
        }
        Ok(objects::remove_pin(store, &location.to_string(), &own)?)
    }
}

fn clean_device(
    device: &ObjectDevice,
    (store, options): (Arc<dyn Store>, &ObjectOptions),
    moves: bool,
    progress: &mut dyn FnMut(u64),
) -> std::result::Result<Cleaned, ObjectError> {
    device.checkpoint()?;
    let segments = if moves { move_live_blocks(device, progress)? } else { 0 };
    let deletions = device.counts().deletes;
    let audit = objects::audit(Arc::clone(&store), options)?;
    objects::delete_orphans(store, &audit, options)?;
    let deleted = deletions + audit.orphans.len() as u64;
    Ok(Cleaned { segments, deleted, retired: audit.retired, ..Cleaned::default() })
}

/// Cleans until at least the share of live blocks is reached that cleaning keeps up. Returns the number of segments.
fn move_live_blocks(
    device: &ObjectDevice,
    progress: &mut dyn FnMut(u64),
) -> std::result::Result<u64, ObjectError> {
    let mut segments = 0;
    loop {
        let cleaned = device.clean()?;
        device.checkpoint()?;
        if cleaned == 0 {
            return Ok(segments);
        }
        segments += cleaned as u64;
        progress(segments);
    }
}

/// Opens an image that was just created, and removes it if that is not possible.
fn open_image(pool: &Pool, url: &RbdUrl, options: &RemoteOptions) -> Result<RbdDevice> {
    let options = RbdOptions { writable: true, ..rbd_options(options) };
    RbdDevice::open_in(pool, url, &options).map_err(|error| {
        let _ = pool.remove(url);
        error.into()
    })
}

fn refused(location: &Location, reason: &str) -> RemoteError {
    ObjectError::Refused { volume: location.to_string().into(), reason: reason.into() }.into()
}

fn snapshot_of(location: &Location) -> Result<&str> {
    let name = location.snapshot.as_deref();
    name.ok_or_else(|| refused(location, "name the snapshot behind the volume: URL@NAME"))
}

fn seconds_now() -> u64 {
    SystemClock.now().seconds.try_into().unwrap_or(0)
}
