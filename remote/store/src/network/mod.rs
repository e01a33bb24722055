//! Stores behind a network, through `object_store` and its async runtime, which stays here.
//!
//! | file | subject |
//! |---|---|
//! | this file | the store |
//! | `build` | from a location and the environment to a client |
//! | `guard` | the HTTP client: bounds of what is read |
//! | `outcome` | what replies mean, and messages |
//! | `list` | one page of a list |
//! | `profile` | the AWS configuration files |
//!
//! # Invariants
//! - No request is repeated here: the caller knows what an unclear reply means.
//! - A reply is read into memory up to what is allowed, whatever length the server states.
//! - A caller may be a thread of another runtime: requests run on threads of this one.

mod build;
mod guard;
mod list;
mod outcome;
mod profile;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::future::Future;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{
    Extensions, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    PutPayload, UpdateVersion,
};
use tokio::runtime::{Builder, Runtime};

use self::build::{Client, Environment};
use self::guard::{CALL, Call, ObjectBytes};
use self::outcome::Outcome;
use crate::contract::{ListPage, Object, Store, Version, is_valid_key};
use crate::error::{ErrorKind, Request, StoreError};
use crate::location::{Location, Scheme};
use crate::open::StoreOptions;

/// Threads of the runtime. They only move bytes: callers have threads of their own.
const RUNTIME_THREADS: usize = 2;
/// Requests of one call. Each needs one, and more for credentials and the pages of a list: a server may have pages
/// without names, where many were deleted.
const REQUESTS: u32 = 1000;
/// Requests of a list without order, whose every page is read.
const REQUESTS_UNORDERED: u32 = 20_000;
/// Behind the end of any object, but small enough for any server.
const OFFSET_MAX: u64 = 1 << 62;

#[derive(Debug)]
struct NetworkStore {
    name: String,
    scheme: Scheme,
    prefix: String,
    inner: Arc<dyn ObjectStore>,
    /// Whether it lists names in their order.
    ordered: bool,
    runtime: &'static Runtime,
}

fn runtime() -> Result<&'static Runtime, Box<dyn Error + Send + Sync>> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    // Fails if the program has installed another one, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let new = Builder::new_multi_thread()
        .worker_threads(RUNTIME_THREADS)
        .thread_name("store")
        .enable_all()
        .build()?;
    if let Err(second) = RUNTIME.set(new) {
        // Another thread was faster. A runtime that is dropped waits for its threads, which panics in a thread of
        // another runtime.
        second.shutdown_background();
    }
    Ok(RUNTIME.get().ok_or("no runtime")?)
}

/// Opens a store. The configuration comes from the environment, as of each vendor's own tools.
pub fn open(location: &Location, options: &StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let environment = std::env::vars_os().filter_map(text).collect();
    Ok(Arc::new(open_in(location, options, &environment)?))
}

fn open_in(
    location: &Location,
    options: &StoreOptions,
    environment: &Environment,
) -> Result<NetworkStore, StoreError> {
    let volume = location.volume();
    let open = || -> Result<NetworkStore, Box<dyn Error + Send + Sync>> {
        let runtime = runtime()?;
        let Client { store, ordered } = build::client(&volume, options, environment)?;
        Ok(NetworkStore::new(&volume, store, ordered, runtime))
    };
    open()
        .map_err(|source| StoreError::new(ErrorKind::Invalid, volume.to_string(), Request::Open, "", source))
}

/// A call that failed.
struct Failed {
    outcome: Outcome,
    unsupported: bool,
    message: String,
}

impl Failed {
    fn kind(&self, request: Request, conflict: ErrorKind) -> ErrorKind {
        match self.unsupported {
            true => ErrorKind::Unsupported,
            false => self.outcome.kind(request, conflict),
        }
    }
}

fn modified(meta: &ObjectMeta) -> Duration {
    Duration::from_secs(u64::try_from(meta.last_modified.timestamp()).unwrap_or(0))
}

impl NetworkStore {
    fn new(
        location: &Location,
        inner: Arc<dyn ObjectStore>,
        ordered: bool,
        runtime: &'static Runtime,
    ) -> Self {
        let (name, scheme, prefix) = (location.to_string(), location.scheme, location.path.clone());
        Self { name, scheme, prefix, inner, ordered, runtime }
    }

    fn error(&self, kind: ErrorKind, request: Request, key: &str, reason: impl Into<String>) -> StoreError {
        StoreError::new(kind, self.describe(), request, key, reason.into())
    }

    fn path(&self, request: Request, key: &str) -> Result<Path, StoreError> {
        if !is_valid_key(key) {
            return Err(self.error(ErrorKind::Invalid, request, key, "not a name of an object"));
        }
        let path = Path::parse(format!("{}/{key}", self.prefix));
        path.map_err(|error| self.error(ErrorKind::Invalid, request, key, error.to_string()))
    }

    /// Waits for a call, which runs on the runtime.
    fn run<T: Send + 'static>(
        &self,
        requests: u32,
        work: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> Result<T, Failed> {
        use object_store::Error as E;
        let call = Arc::new(Call::new(requests));
        let work = CALL.scope(Arc::clone(&call), work);
        let (done, result) = sync_channel(1);
        self.runtime.spawn(async move {
            // The caller waits.
            let _ = done.send(work.await);
        });
        match result.recv() {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Failed {
                outcome: call.outcome(),
                unsupported: matches!(error, E::NotSupported { .. } | E::NotImplemented { .. }),
                message: outcome::message(&error),
            }),
            Err(_) => {
                let message = "the transport cannot handle the reply (this is a bug)".into();
                Err(Failed { outcome: Outcome::Unusable, unsupported: false, message })
            }
        }
    }

    /// Reads what the server offers, if it is not longer than allowed. Nothing is behind the end of an object.
    fn read(
        &self,
        key: &str,
        range: Option<GetRange>,
        limit: u64,
    ) -> Result<Option<(Bytes, ObjectMeta)>, StoreError> {
        let path = self.path(Request::Get, key)?;
        let ranged = range.is_some();
        let mut extensions = Extensions::new();
        extensions.insert(ObjectBytes(limit));
        let options = GetOptions { range, extensions, ..GetOptions::default() };
        let inner = Arc::clone(&self.inner);
        let read = self.run(REQUESTS, async move {
            let result = inner.get_opts(&path, options).await?;
            let (length, meta) = (result.range.end.saturating_sub(result.range.start), result.meta.clone());
            Ok((length, result.bytes().await?, meta))
        });
        match read {
            Ok((length, bytes, meta)) if bytes.len() as u64 == length => Ok(Some((bytes, meta))),
            Ok((length, bytes, _)) => {
                let reason = format!("the reply has {} bytes of {length}", bytes.len());
                Err(self.error(ErrorKind::Invalid, Request::Get, key, reason))
            }
            Err(Failed { outcome: Outcome::Answered { status: 416, .. }, .. }) if ranged => Ok(None),
            Err(failed) => {
                let kind = failed.kind(Request::Get, ErrorKind::Unclear);
                Err(self.error(kind, Request::Get, key, failed.message))
            }
        }
    }

    fn refuse_writes(&self, request: Request, key: &str) -> Result<(), StoreError> {
        match self.is_read_only() {
            true => Err(self.error(ErrorKind::Unsupported, request, key, "a web server is read-only")),
            false => Ok(()),
        }
    }

    fn put(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<Version, StoreError> {
        let path = self.path(Request::Put, key)?;
        self.refuse_writes(Request::Put, key)?;
        let creates = mode == PutMode::Create;
        let options = PutOptions { mode, ..PutOptions::default() };
        let inner = Arc::clone(&self.inner);
        let put =
            self.run(
                REQUESTS,
                async move { inner.put_opts(&path, PutPayload::from_bytes(bytes), options).await },
            );
        let result = put.map_err(|failed| {
            let kind = match failed.outcome {
                // Azure says this of an object that exists; elsewhere two writers met, of whom one may succeed.
                Outcome::Answered { status: 409, .. } if creates && self.scheme == Scheme::Azure => {
                    ErrorKind::Precondition
                }
                // S3 says this of an object that is to be replaced, and does not exist.
                Outcome::Answered { status: 404, .. } if !creates => ErrorKind::Precondition,
                _ => failed.kind(Request::Put, ErrorKind::Unclear),
            };
            self.error(kind, Request::Put, key, failed.message)
        })?;
        Ok(Version { etag: result.e_tag, generation: result.version })
    }
}

impl Store for NetworkStore {
    fn get(&self, key: &str, limit: u64) -> Result<Object, StoreError> {
        let absent = || self.error(ErrorKind::Invalid, Request::Get, key, "the reply has no object");
        let (bytes, meta) = self.read(key, None, limit)?.ok_or_else(absent)?;
        let modified = modified(&meta);
        Ok(Object { bytes, version: Version { etag: meta.e_tag, generation: meta.version }, modified })
    }

    fn get_range(&self, key: &str, offset: u64, length: u64) -> Result<Bytes, StoreError> {
        let offset = offset.min(OFFSET_MAX);
        // No range is empty. The reply says whether the object exists.
        let asked = length.clamp(1, OFFSET_MAX);
        let range = GetRange::Bounded(offset..offset.saturating_add(asked));
        let read = self.read(key, Some(range), asked)?;
        let bytes = read.map_or_else(Bytes::new, |(bytes, _)| bytes);
        Ok(if length == 0 { Bytes::new() } else { bytes })
    }

    fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<Version, StoreError> {
        self.put(key, bytes, PutMode::Create)
    }

    fn put_if_match(&self, key: &str, bytes: Bytes, version: &Version) -> Result<Version, StoreError> {
        let version = UpdateVersion { e_tag: version.etag.clone(), version: version.generation.clone() };
        self.put(key, bytes, PutMode::Update(version))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<ListPage, StoreError> {
        let error = |kind, reason: String| self.error(kind, Request::List, prefix, reason);
        let invalid = |error: object_store::path::Error| {
            self.error(ErrorKind::Invalid, Request::List, prefix, error.to_string())
        };
        let full = format!("{}/{}", self.prefix, prefix.trim_end_matches('/'));
        let full = Path::parse(full.trim_end_matches('/')).map_err(invalid)?;
        let offset = after.map(|after| Path::parse(format!("{}/{after}", self.prefix)));
        let offset = offset.transpose().map_err(invalid)?;
        let names = match &offset {
            Some(offset) => self.inner.list_with_offset(Some(&full), offset),
            None => self.inner.list(Some(&full)),
        };
        let requests = if self.ordered { REQUESTS } else { REQUESTS_UNORDERED };
        let page = list::Page::new(self.ordered, format!("{}/", self.prefix), format!("{full}/"), after);
        self.run(requests, page.read(names))
            .map_err(|failed| error(failed.kind(Request::List, ErrorKind::Unclear), failed.message))
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        let path = self.path(Request::Delete, key)?;
        self.refuse_writes(Request::Delete, key)?;
        let inner = Arc::clone(&self.inner);
        match self.run(REQUESTS, async move { inner.delete(&path).await }) {
            Err(Failed { outcome: Outcome::Answered { status: 404, .. }, .. }) | Ok(()) => Ok(()),
            Err(failed) => {
                let kind = failed.kind(Request::Delete, ErrorKind::Unclear);
                Err(self.error(kind, Request::Delete, key, failed.message))
            }
        }
    }

    fn is_read_only(&self) -> bool {
        matches!(self.scheme, Scheme::Http | Scheme::Https)
    }

    fn describe(&self) -> String {
        self.name.clone()
    }
}
