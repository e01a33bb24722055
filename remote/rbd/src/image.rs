//! An open image: its handle, its lock, its snapshots.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::time::Duration;

use base::errno::{EBUSY, EINVAL, ENOENT, ERANGE, EROFS, Errno};
use base::thread;

use crate::cluster::{Pool, c_string, check, text};
use crate::error::RbdError;
use crate::library::{
    FEATURE_EXCLUSIVE_LOCK, LOCK_MODE_EXCLUSIVE, RawImage, RawInfo, RawSnapshot, RawWatcher, Rbd,
};
use crate::url::RbdUrl;

/// An image that is open. It is closed, and its lock released, when this is dropped.
pub struct Image {
    pool: Pool,
    raw: *mut RawImage,
    url: RbdUrl,
}

// SAFETY: functions of librbd may be called from any thread, at the same time.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

/// A snapshot of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Ceph's number of the snapshot, which grows with time.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Size of the image at that time, in bytes.
    pub size: u64,
}

/// Who has the exclusive lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockOwner {
    /// Address of the client.
    pub address: String,
    /// Whether the client has the image open. If it does not, it has died, and the lock is free.
    pub is_alive: bool,
    /// Whether it is this client.
    pub is_own: bool,
}

/// A client that has the image open, except read-only.
pub struct Watcher {
    /// Address of the client.
    pub address: String,
    /// Its [`Pool::client_number`].
    client: u64,
}

/// Time between two attempts to take a lock.
const RETRY: Duration = Duration::from_millis(200);
/// Owners that are locked out to take the lock over, one after the other.
const TAKEOVERS_MAX: u32 = 10;

impl Image {
    /// Opens an image without its lock, or a snapshot.
    pub fn open_read_only(pool: &Pool, url: &RbdUrl) -> Result<Self, RbdError> {
        Self::open(pool, url, pool.libraries().rbd.rbd_open_read_only)
    }

    /// Opens an image for changes of its snapshots, and for [`lock`](Self::lock).
    pub fn open_writable(pool: &Pool, url: &RbdUrl) -> Result<Self, RbdError> {
        match url.snapshot {
            Some(_) => Err(image_error(url, "open the snapshot for changes", EROFS)),
            None => Self::open(pool, url, pool.libraries().rbd.rbd_open),
        }
    }

    fn open(
        pool: &Pool,
        url: &RbdUrl,
        open: unsafe extern "C" fn(
            *mut crate::library::RawPool,
            *const c_char,
            *mut *mut RawImage,
            *const c_char,
        ) -> c_int,
    ) -> Result<Self, RbdError> {
        let failed = |errno| image_error(url, "open the image", errno);
        let name = c_string(&url.image).ok_or_else(|| failed(EINVAL))?;
        let snapshot = match &url.snapshot {
            Some(snapshot) => Some(c_string(snapshot).ok_or_else(|| failed(EINVAL))?),
            None => None,
        };
        let snapshot = snapshot.as_ref().map_or(ptr::null(), |snapshot| snapshot.as_ptr());
        let mut raw = ptr::null_mut();
        // SAFETY: the pool is open; the names are C strings (a null snapshot is the image itself), and `raw` is a place
        // for the handle.
        check(unsafe { open(pool.raw(), name.as_ptr(), &mut raw, snapshot) }).map_err(failed)?;
        Ok(Self { pool: pool.clone(), raw, url: url.clone() })
    }

    /// Functions of the library.
    pub fn rbd(&self) -> &'static Rbd {
        &self.pool.libraries().rbd
    }

    /// Valid as long as this value.
    pub fn raw(&self) -> *mut RawImage {
        self.raw
    }

    /// The image, or snapshot.
    pub fn url(&self) -> &RbdUrl {
        &self.url
    }

    /// Size in bytes.
    pub fn size(&self) -> Result<u64, Errno> {
        let mut size = 0;
        // SAFETY: the image is open, and `size` is a place for the result.
        check(unsafe { (self.rbd().rbd_get_size)(self.raw, &mut size) })?;
        Ok(size)
    }

    /// Changes the size.
    pub fn resize(&self, size: u64) -> Result<(), Errno> {
        // SAFETY: the image is open.
        check(unsafe { (self.rbd().rbd_resize)(self.raw, size) })
    }

    /// Ranges at multiples of this number of bytes consist of whole objects.
    pub fn object_period(&self) -> Result<u64, Errno> {
        let mut info = RawInfo {
            size: 0,
            object_size: 0,
            objects: 0,
            order: 0,
            block_name_prefix: [0; 24],
            parent_pool: 0,
            parent_name: [0; 96],
        };
        let mut stripes = 0;
        // SAFETY: the image is open, and `info` and `stripes` are places for the results.
        unsafe {
            check((self.rbd().rbd_stat)(self.raw, &mut info, size_of::<RawInfo>()))?;
            check((self.rbd().rbd_get_stripe_count)(self.raw, &mut stripes))?;
        }
        info.object_size.checked_mul(stripes).filter(|period| *period > 0).ok_or(EINVAL)
    }

    /// Takes the exclusive lock, and keeps it until the image is closed. If another client has it, tries again until
    /// `wait` is over, or takes it from that client.
    ///
    /// The lock is asked for only if no other client has it: most clients, as QEMU and the kernel, hand it over
    /// silently, and would write again later.
    pub fn lock(&self, wait: Duration, take_over: bool) -> Result<(), RbdError> {
        let failed = |errno| image_error(&self.url, "lock the image", errno);
        if self.features().map_err(failed)? & FEATURE_EXCLUSIVE_LOCK == 0 {
            return Err(RbdError::NoExclusiveLock { image: self.url.to_string() });
        }
        let started = thread::elapsed();
        let mut takeovers = if take_over { TAKEOVERS_MAX } else { 0 };
        loop {
            let owner = self.lock_owner().map_err(failed)?;
            match &owner {
                Some(owner) if owner.is_own && take_over => {
                    return Err(RbdError::Own { image: self.url.to_string() });
                }
                Some(owner) if takeovers > 0 => {
                    takeovers -= 1;
                    self.break_lock(&owner.address)?;
                    continue;
                }
                Some(owner) if owner.is_alive => {}
                _ => {
                    // The library breaks the lock of a client that has died.
                    if let Some(dead) = &owner {
                        self.fence(&dead.address)?;
                    }
                    match self.acquire() {
                        Err(EROFS | EBUSY) => {}
                        acquired => return acquired.map_err(failed),
                    }
                }
            }
            let waited = thread::elapsed().saturating_sub(started);
            if waited >= wait {
                let owner = owner.map(|owner| owner.address);
                return Err(RbdError::Locked { image: self.url.to_string(), owner });
            }
            thread::sleep(RETRY.min(wait - waited));
        }
    }

    fn features(&self) -> Result<u64, Errno> {
        let mut features = 0;
        // SAFETY: the image is open, and `features` is a place for the result.
        check(unsafe { (self.rbd().rbd_get_features)(self.raw, &mut features) })?;
        Ok(features)
    }

    fn acquire(&self) -> Result<(), Errno> {
        // SAFETY: the image is open.
        check(unsafe { (self.rbd().rbd_lock_acquire)(self.raw, LOCK_MODE_EXCLUSIVE) })
    }

    /// Breaks the lock of a client, which is locked out of the cluster: its writes fail from now on, also those in
    /// flight.
    fn break_lock(&self, owner: &str) -> Result<(), RbdError> {
        self.fence(owner)?;
        let failed = |errno| image_error(&self.url, "take the image over", errno);
        let owner = c_string(owner).ok_or_else(|| failed(EINVAL))?;
        // SAFETY: the image is open, and the owner is a C string.
        match check(unsafe { (self.rbd().rbd_lock_break)(self.raw, LOCK_MODE_EXCLUSIVE, owner.as_ptr()) }) {
            // The client released it meanwhile, or another one has it now.
            Err(ENOENT | EBUSY) => Ok(()),
            broken => broken.map_err(failed),
        }
    }

    fn fence(&self, owner: &str) -> Result<(), RbdError> {
        let fenced = self.pool.fence(owner);
        fenced.map_err(|errno| RbdError::Fence {
            image: self.url.to_string(),
            owner: owner.to_owned(),
            errno,
        })
    }

    /// The owner of the exclusive lock.
    pub fn lock_owner(&self) -> Result<Option<LockOwner>, Errno> {
        let Some(address) = self.lock_address()? else { return Ok(None) };
        let own = self.pool.client_number();
        let watchers = self.watchers()?;
        let is_own = watchers.iter().any(|watcher| watcher.address == address && watcher.client == own);
        let is_alive = watchers.iter().any(|watcher| watcher.address == address);
        // A client that closes the image releases the lock first: it has not died.
        if !is_alive && self.lock_address()?.as_ref() != Some(&address) {
            return Ok(None);
        }
        Ok(Some(LockOwner { address, is_alive, is_own }))
    }

    /// Address of the owner of the exclusive lock.
    fn lock_address(&self) -> Result<Option<String>, Errno> {
        /// An exclusive lock has one owner.
        const OWNERS: usize = 1;
        let (mut mode, mut owners, mut count) = (0, [ptr::null_mut(); OWNERS], OWNERS);
        // SAFETY: the image is open, and `owners` is a place for `count` strings.
        let found = check(unsafe {
            (self.rbd().rbd_lock_get_owners)(self.raw, &mut mode, owners.as_mut_ptr(), &mut count)
        });
        match found {
            Err(ENOENT) => return Ok(None),
            found => found?,
        }
        let count = count.min(OWNERS);
        let address = owners.first().filter(|owner| count > 0 && !owner.is_null()).map(|owner| {
            // SAFETY: the library has stored a C string there.
            text(unsafe { CStr::from_ptr(*owner) })
        });
        // SAFETY: the strings are those that the library has stored, and are not used any more.
        unsafe { (self.rbd().rbd_lock_get_owners_cleanup)(owners.as_mut_ptr(), count) };
        Ok(address)
    }

    /// Clients that have the image open, except read-only.
    pub fn watchers(&self) -> Result<Vec<Watcher>, Errno> {
        let mut places = 16;
        loop {
            let mut watchers: Vec<RawWatcher> =
                (0..places).map(|_| RawWatcher { address: ptr::null_mut(), id: 0, cookie: 0 }).collect();
            let mut count = places;
            // SAFETY: the image is open, and `watchers` has `count` places.
            let found =
                check(unsafe { (self.rbd().rbd_watchers_list)(self.raw, watchers.as_mut_ptr(), &mut count) });
            match found {
                Err(ERANGE) => {
                    places = count.max(places * 2);
                    continue;
                }
                found => found?,
            }
            let count = count.min(places);
            let found = watchers.iter().take(count).filter(|watcher| !watcher.address.is_null());
            let clients = found.map(|watcher| Watcher {
                // SAFETY: the library has stored C strings in the first `count` places.
                address: text(unsafe { CStr::from_ptr(watcher.address) }),
                client: watcher.id.cast_unsigned(),
            });
            let clients = clients.collect();
            // SAFETY: the watchers are those that the library has stored, and are not used any more.
            unsafe { (self.rbd().rbd_watchers_list_cleanup)(watchers.as_mut_ptr(), count) };
            return Ok(clients);
        }
    }

    /// All snapshots, the oldest first.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>, RbdError> {
        let mut places: c_int = 16;
        loop {
            // The list ends at the first place without a name, so that there must be one more than the library knows
            // of.
            let mut list: Vec<RawSnapshot> =
                (0..=places).map(|_| RawSnapshot { id: 0, size: 0, name: ptr::null() }).collect();
            let mut count = places;
            // SAFETY: the image is open, and `list` has `count` places and one more.
            let found = unsafe { (self.rbd().rbd_snap_list)(self.raw, list.as_mut_ptr(), &mut count) };
            match check(found) {
                Err(ERANGE) => {
                    places = count.max(places.saturating_mul(2));
                    continue;
                }
                found => found.map_err(|errno| image_error(&self.url, "list snapshots", errno))?,
            }
            let found = list.iter().take_while(|snapshot| !snapshot.name.is_null());
            let mut snapshots: Vec<Snapshot> = found
                .map(|snapshot| Snapshot {
                    id: snapshot.id,
                    size: snapshot.size,
                    // SAFETY: the library has stored a C string there.
                    name: text(unsafe { CStr::from_ptr(snapshot.name) }),
                })
                .collect();
            // SAFETY: the list is that of the library, with a place without a name behind it, and is not used any more.
            unsafe { (self.rbd().rbd_snap_list_end)(list.as_mut_ptr()) };
            snapshots.sort_by_key(|snapshot| snapshot.id);
            return Ok(snapshots);
        }
    }

    /// Takes a snapshot. If another client has the lock, that client takes it: after all writes that it has flushed.
    pub fn create_snapshot(&self, name: &str) -> Result<(), RbdError> {
        self.change_snapshot(name, "take the snapshot", self.rbd().rbd_snap_create)
    }

    /// Removes a snapshot. Clones of it keep its data.
    pub fn remove_snapshot(&self, name: &str) -> Result<(), RbdError> {
        self.change_snapshot(name, "remove the snapshot", self.rbd().rbd_snap_remove)
    }

    fn change_snapshot(
        &self,
        name: &str,
        action: &'static str,
        change: unsafe extern "C" fn(*mut RawImage, *const c_char) -> c_int,
    ) -> Result<(), RbdError> {
        let url = RbdUrl { snapshot: Some(name.to_owned()), ..self.url.clone() };
        let failed = |errno| image_error(&url, action, errno);
        let name: CString = c_string(name).ok_or_else(|| failed(EINVAL))?;
        // SAFETY: the image is open, and the name is a C string.
        check(unsafe { change(self.raw, name.as_ptr()) }).map_err(failed)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // An error has no consequence: the data that was flushed is stable, and the lock of a client that is gone is
        // free.
        // SAFETY: the handle is valid, and no operation is in flight: each borrows this value.
        let _ = unsafe { (self.rbd().rbd_close)(self.raw) };
    }
}

/// A failed operation on an image.
pub fn image_error(url: &RbdUrl, action: &'static str, errno: Errno) -> RbdError {
    RbdError::Image { action, image: url.to_string(), errno }
}
