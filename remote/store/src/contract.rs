//! The trait of this layer.
//!
//! # Invariants
//! - An object is replaced as a whole: a reader sees the old or the new bytes.
//! - A read that begins after a write returned sees that write, or a later one. A list may lag behind.
//! - A write whose reply says [`ErrorKind::Unclear`](crate::ErrorKind::Unclear) may have happened, may happen later, or
//!   never. A refused precondition may be due to the caller's own earlier attempt, because transports repeat requests.

use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;

use crate::error::StoreError;

/// Largest number of objects in a page of a list.
pub const LIST_PAGE: usize = 1000;

/// Identifies the contents of an object, as the store defines it (ETag, generation).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// ETag.
    pub etag: Option<String>,
    /// Generation, where the store compares it instead of the ETag.
    pub generation: Option<String>,
}

/// An object that was read.
#[derive(Clone, Debug)]
pub struct Object {
    /// Contents.
    pub bytes: Bytes,
    /// Version, for [`Store::put_if_match`].
    pub version: Version,
    /// Time of the last change by the store's clock, since 1970.
    pub modified: Duration,
}

/// An object in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Name.
    pub key: String,
    /// Length in bytes.
    pub size: u64,
    /// Time of the last change by the store's clock, since 1970.
    pub modified: Duration,
}

/// A page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// Objects in the order of their names, at most [`LIST_PAGE`].
    pub objects: Vec<Listed>,
    /// Whether there may be more behind the last one.
    pub more: bool,
}

/// Largest number of parts of a name.
const MAX_PARTS: usize = 8;

/// A store of objects below one prefix. Names are relative to it: at most 8 parts of letters, digits, `-`, `_` and `.`,
/// separated by `/`.
pub trait Store: Send + Sync + Debug {
    /// Reads a whole object of at most `limit` bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Absent`](crate::ErrorKind::Absent); [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if it is
    /// larger.
    fn get(&self, key: &str, limit: u64) -> Result<Object, StoreError>;

    /// Reads at most `length` bytes from `offset` on; fewer, or none, if the object ends before.
    ///
    /// # Errors
    /// As [`Self::get`].
    fn get_range(&self, key: &str, offset: u64, length: u64) -> Result<Bytes, StoreError>;

    /// Writes an object that does not exist.
    ///
    /// # Errors
    /// [`ErrorKind::Precondition`](crate::ErrorKind::Precondition) if it exists.
    fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<Version, StoreError>;

    /// Replaces an object that has this version.
    ///
    /// # Errors
    /// [`ErrorKind::Precondition`](crate::ErrorKind::Precondition) if it has another one, or does not exist.
    fn put_if_match(&self, key: &str, bytes: Bytes, version: &Version) -> Result<Version, StoreError>;

    /// Names below a prefix (whole parts, such as `log/`), behind `after`.
    ///
    /// # Errors
    /// Those of the store.
    fn list(&self, prefix: &str, after: Option<&str>) -> Result<ListPage, StoreError>;

    /// Deletes an object. An absent one is no error.
    ///
    /// # Errors
    /// Those of the store.
    fn delete(&self, key: &str) -> Result<(), StoreError>;

    /// Whether the store refuses all writes by its kind, as HTTPS does.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Where the store is, for messages: `s3://bucket/volume`.
    fn describe(&self) -> String;
}

/// Whether `key` has the form that [`Store`] requires, so that it can be a path below a directory.
pub(crate) fn is_valid_key(key: &str) -> bool {
    let is_valid_part = |part: &str| {
        let named = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        named && (1..=255).contains(&part.len()) && !part.starts_with('.')
    };
    key.len() <= 512 && key.split('/').count() <= MAX_PARTS && key.split('/').all(is_valid_part)
}
