//! A store in memory, for tests and short-lived volumes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use base::lock::{Mutex, Rank};
use bytes::Bytes;

use crate::contract::{LIST_PAGE, ListPage, Listed, Object, Store, Version, is_valid_key};
use crate::error::{ErrorKind, Request, StoreError};

/// An object.
#[derive(Clone, Debug)]
struct Stored {
    bytes: Bytes,
    version: u64,
    modified: Duration,
}

#[derive(Debug)]
struct Shared {
    objects: Mutex<BTreeMap<String, Stored>>,
    versions: AtomicU64,
    /// Seconds of the store's clock.
    clock: AtomicU64,
}

/// A store in memory. Clones share the objects.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        let objects = Mutex::new(Rank::Leaf, BTreeMap::new());
        Self { shared: Arc::new(Shared { objects, versions: AtomicU64::new(1), clock: AtomicU64::new(1) }) }
    }
}

impl MemoryStore {
    /// Moves the store's clock, which otherwise stands still.
    pub fn advance(&self, seconds: u64) {
        self.shared.clock.fetch_add(seconds, Relaxed);
    }

    /// All objects now, in a store of their own.
    pub fn copy(&self) -> Self {
        let copy = Self::default();
        let objects = self.shared.objects.lock().clone();
        *copy.shared.objects.lock() = objects;
        copy.shared.versions.store(self.shared.versions.load(Relaxed), Relaxed);
        copy.shared.clock.store(self.shared.clock.load(Relaxed), Relaxed);
        copy
    }

    /// Replaces the contents of an object, or makes it, without a condition: damage, for tests.
    pub fn overwrite(&self, key: &str, bytes: impl Into<Bytes>) {
        let stored = self.stored(bytes.into());
        self.shared.objects.lock().insert(key.to_owned(), stored);
    }

    /// The names of all objects.
    pub fn keys(&self) -> Vec<String> {
        self.shared.objects.lock().keys().cloned().collect()
    }

    /// Bytes in all objects.
    pub fn bytes(&self) -> u64 {
        self.shared.objects.lock().values().map(|stored| stored.bytes.len() as u64).sum()
    }

    fn stored(&self, bytes: Bytes) -> Stored {
        let version = self.shared.versions.fetch_add(1, Relaxed);
        Stored { bytes, version, modified: Duration::from_secs(self.shared.clock.load(Relaxed)) }
    }

    fn error(&self, kind: ErrorKind, request: Request, key: &str, reason: &'static str) -> StoreError {
        StoreError::new(kind, self.describe(), request, key, reason)
    }

    fn find(&self, key: &str) -> Result<Stored, StoreError> {
        let found = self.shared.objects.lock().get(key).cloned();
        found.ok_or_else(|| self.error(ErrorKind::Absent, Request::Get, key, "absent"))
    }

    /// Writes if the version of the present object is `expected`.
    fn put(&self, key: &str, bytes: Bytes, expected: Option<&Version>) -> Result<Version, StoreError> {
        if !is_valid_key(key) {
            return Err(self.error(ErrorKind::Invalid, Request::Put, key, "not a name of an object"));
        }
        let stored = self.stored(bytes);
        let version = version(stored.version);
        let mut objects = self.shared.objects.lock();
        let present = objects.get(key).map(|stored| self::version(stored.version));
        if present.as_ref() != expected {
            drop(objects);
            return Err(self.error(
                ErrorKind::Precondition,
                Request::Put,
                key,
                "the condition does not hold",
            ));
        }
        objects.insert(key.to_owned(), stored);
        Ok(version)
    }
}

fn version(number: u64) -> Version {
    Version { etag: Some(number.to_string()), generation: None }
}

impl Store for MemoryStore {
    fn get(&self, key: &str, limit: u64) -> Result<Object, StoreError> {
        let Stored { bytes, version: number, modified } = self.find(key)?;
        if bytes.len() as u64 > limit {
            return Err(self.error(ErrorKind::Invalid, Request::Get, key, "it is too large"));
        }
        Ok(Object { bytes, version: version(number), modified })
    }

    fn get_range(&self, key: &str, offset: u64, length: u64) -> Result<Bytes, StoreError> {
        let bytes = self.find(key)?.bytes;
        let start = offset.min(bytes.len() as u64);
        let end = start.saturating_add(length).min(bytes.len() as u64);
        Ok(bytes.slice(start as usize..end as usize))
    }

    fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<Version, StoreError> {
        self.put(key, bytes, None)
    }

    fn put_if_match(&self, key: &str, bytes: Bytes, version: &Version) -> Result<Version, StoreError> {
        self.put(key, bytes, Some(version))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<ListPage, StoreError> {
        let objects = self.shared.objects.lock();
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let mut found = objects
            .range::<str, _>((from, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, stored)| Listed {
                key: key.clone(),
                size: stored.bytes.len() as u64,
                modified: stored.modified,
            });
        let page = found.by_ref().take(LIST_PAGE).collect();
        Ok(ListPage { objects: page, more: found.next().is_some() })
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.shared.objects.lock().remove(key);
        Ok(())
    }

    fn describe(&self) -> String {
        "a store in memory".into()
    }
}
