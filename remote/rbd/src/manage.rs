//! Images as a whole: create, clone, remove, and their snapshots.

use std::ffi::CString;
use std::ptr;

use base::errno::{EINVAL, ENOENT};

use crate::cluster::{Pool, c_string, check};
use crate::error::RbdError;
use crate::image::{Image, Snapshot, image_error};
use crate::library::{
    FEATURE_EXCLUSIVE_LOCK, FEATURE_LAYERING, OPTION_CLONE_FORMAT, OPTION_FEATURES_SET, RawImageOptions, Rbd,
};
use crate::url::RbdUrl;

/// Clones of this format keep the data of a snapshot that is removed, so that it need not be protected.
const CLONE_FORMAT: u64 = 2;

/// Options of a new image.
struct ImageOptions {
    rbd: &'static Rbd,
    raw: *mut RawImageOptions,
}

impl ImageOptions {
    /// The cluster's defaults, with an exclusive lock, and clones by [`CLONE_FORMAT`].
    fn new(rbd: &'static Rbd) -> Result<Self, base::errno::Errno> {
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is a place for the handle.
        unsafe { (rbd.rbd_image_options_create)(&mut raw) };
        let options = Self { rbd, raw };
        options.set(OPTION_FEATURES_SET, FEATURE_LAYERING | FEATURE_EXCLUSIVE_LOCK)?;
        Ok(options)
    }

    fn set(&self, option: i32, value: u64) -> Result<(), base::errno::Errno> {
        // SAFETY: the handle is valid.
        check(unsafe { (self.rbd.rbd_image_options_set_uint64)(self.raw, option, value) })
    }
}

impl Drop for ImageOptions {
    fn drop(&mut self) {
        // SAFETY: the handle is valid, and not used any more.
        unsafe { (self.rbd.rbd_image_options_destroy)(self.raw) }
    }
}

impl Pool {
    /// Creates an image of `size` bytes, which reads as zeros.
    ///
    /// # Errors
    /// [`RbdError::Image`], with `EEXIST` if there is one; [`RbdError::Snapshot`] if `url` names a snapshot.
    pub fn create(&self, url: &RbdUrl, size: u64) -> Result<(), RbdError> {
        const ACTION: &str = "create the image";
        let failed = |errno| image_error(url, ACTION, errno);
        let name = image_name(url, ACTION)?;
        let rbd = &self.libraries().rbd;
        let options = ImageOptions::new(rbd).map_err(failed)?;
        // SAFETY: the pool is open, the name is a C string, and the options are valid.
        check(unsafe { (rbd.rbd_create4)(self.raw(), name.as_ptr(), size, options.raw) }).map_err(failed)
    }

    /// Whether an image, or the snapshot that `url` names, exists.
    ///
    /// # Errors
    /// [`RbdError::Image`].
    pub fn exists(&self, url: &RbdUrl) -> Result<bool, RbdError> {
        match Image::open_read_only(self, url) {
            Err(RbdError::Image { errno: ENOENT, .. }) => Ok(false),
            opened => opened.map(|_| true),
        }
    }

    /// Creates an image with the contents of a snapshot, in this pool, without copying them. `parent` names the
    /// snapshot; its pool may be another one of the same cluster.
    ///
    /// # Errors
    /// [`RbdError::Image`], with `EEXIST` if there is an image `child`; [`RbdError::Snapshot`] if `child` names a
    /// snapshot.
    pub fn clone_from(&self, parent_pool: &Self, parent: &RbdUrl, child: &RbdUrl) -> Result<(), RbdError> {
        const ACTION: &str = "clone the image";
        let failed = |errno| image_error(child, ACTION, errno);
        let name = image_name(child, ACTION)?;
        let snapshot = parent.snapshot.as_deref().ok_or_else(|| failed(EINVAL))?;
        let names = [&parent.image, snapshot].map(c_string);
        let [Some(image), Some(snapshot)] = &names else { return Err(failed(EINVAL)) };
        let rbd = &self.libraries().rbd;
        let options = ImageOptions::new(rbd).map_err(failed)?;
        options.set(OPTION_CLONE_FORMAT, CLONE_FORMAT).map_err(failed)?;
        // SAFETY: both pools are open, the names are C strings, and the options are valid.
        check(unsafe {
            (rbd.rbd_clone3)(
                parent_pool.raw(),
                image.as_ptr(),
                snapshot.as_ptr(),
                self.raw(),
                name.as_ptr(),
                options.raw,
            )
        })
        .map_err(failed)
    }

    /// Removes an image.
    ///
    /// # Errors
    /// [`RbdError::Image`], with `EBUSY` if a client has it open for changes, and `ENOTEMPTY` if it has snapshots;
    /// [`RbdError::Snapshot`] if `url` names a snapshot.
    pub fn remove(&self, url: &RbdUrl) -> Result<(), RbdError> {
        const ACTION: &str = "remove the image";
        let failed = |errno| image_error(url, ACTION, errno);
        let name = image_name(url, ACTION)?;
        // SAFETY: the pool is open, and the name is a C string.
        check(unsafe { (self.libraries().rbd.rbd_remove)(self.raw(), name.as_ptr()) }).map_err(failed)
    }

    /// The snapshots of an image, the oldest first.
    ///
    /// # Errors
    /// [`RbdError::Image`].
    pub fn snapshots(&self, url: &RbdUrl) -> Result<Vec<Snapshot>, RbdError> {
        Image::open_read_only(self, &url.without_snapshot())?.snapshots()
    }

    /// Takes the snapshot that `url` names. If a client has the image open for changes, that client takes it: the
    /// snapshot contains what it has flushed, as after a power cut.
    ///
    /// # Errors
    /// [`RbdError::Image`], with `EEXIST` if there is one.
    pub fn create_snapshot(&self, url: &RbdUrl) -> Result<(), RbdError> {
        let name = snapshot_name(url, "take the snapshot")?;
        Image::open_writable(self, &url.without_snapshot())?.create_snapshot(name)
    }

    /// Removes the snapshot that `url` names. Clones keep its contents.
    ///
    /// # Errors
    /// [`RbdError::Image`].
    pub fn remove_snapshot(&self, url: &RbdUrl) -> Result<(), RbdError> {
        let name = snapshot_name(url, "remove the snapshot")?;
        Image::open_writable(self, &url.without_snapshot())?.remove_snapshot(name)
    }
}

/// The name of an image as a whole: what is meant for a snapshot must not happen to its image.
fn image_name(url: &RbdUrl, action: &'static str) -> Result<CString, RbdError> {
    if url.snapshot.is_some() {
        return Err(RbdError::Snapshot { action, image: url.to_string() });
    }
    c_string(&url.image).ok_or_else(|| image_error(url, action, EINVAL))
}

fn snapshot_name<'u>(url: &'u RbdUrl, action: &'static str) -> Result<&'u str, RbdError> {
    url.snapshot.as_deref().ok_or_else(|| image_error(url, action, EINVAL))
}
