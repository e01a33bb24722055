//! Stores behind a network, through `object_store` and its async runtime, which stays here.
//!
//! # Invariants
//! - No request is repeated here: the caller knows what an unclear reply means.
//! - A reply is read into memory only if its length, which the server states first, is allowed.

mod profile;

use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{
    ClientOptions, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode,
    PutOptions, PutPayload, RetryConfig, UpdateVersion,
};
use tokio::runtime::{Builder, Runtime};

use crate::contract::{LIST_PAGE, ListPage, Listed, Object, Store, Version, is_valid_key};
use crate::error::{ErrorKind, Request, StoreError};
use crate::location::{Location, Scheme};
use crate::open::StoreOptions;

/// Threads of the runtime. They only move bytes: callers have threads of their own.
const RUNTIME_THREADS: usize = 2;

#[derive(Debug)]
struct NetworkStore {
    name: String,
    prefix: String,
    inner: Box<dyn ObjectStore>,
    runtime: &'static Runtime,
    read_only: bool,
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
    Ok(RUNTIME.get_or_init(|| new))
}

/// Opens a store. The configuration comes from the environment, as of each vendor's own tools.
pub fn open(location: &Location, options: &StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    let volume = location.volume();
    let open = || -> Result<NetworkStore, Box<dyn Error + Send + Sync>> {
        Ok(NetworkStore {
            name: volume.to_string(),
            prefix: volume.path.clone(),
            inner: build(&volume, options)?,
            runtime: runtime()?,
            read_only: matches!(volume.scheme, Scheme::Http | Scheme::Https),
        })
    };
    match open() {
        Ok(store) => Ok(Arc::new(store)),
        Err(source) => {
            Err(StoreError::new(ErrorKind::Invalid, volume.to_string(), Request::Open, "", source))
        }
    }
}

fn build(
    location: &Location,
    options: &StoreOptions,
) -> Result<Box<dyn ObjectStore>, Box<dyn Error + Send + Sync>> {
    let client = ClientOptions::new()
        .with_timeout(options.request_timeout)
        .with_connect_timeout(Duration::from_secs(10).min(options.request_timeout));
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let bucket = location.authority.as_str();
    Ok(match location.scheme {
        Scheme::S3 => {
            let mut builder = AmazonS3Builder::from_env().with_retry(retry);
            for (key, value) in profile::settings()? {
                if builder.get_config_value(&key).is_none() {
                    builder = builder.with_config(key, value);
                }
            }
            let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint).unwrap_or_default();
            // Named by the user: a local server, mostly.
            let client = client.with_allow_http(endpoint.starts_with("http://"));
            Box::new(builder.with_client_options(client).with_bucket_name(bucket).build()?)
        }
        Scheme::Gcs => {
            let builder = GoogleCloudStorageBuilder::from_env().with_retry(retry);
            Box::new(builder.with_client_options(client).with_bucket_name(bucket).build()?)
        }
        Scheme::Azure => {
            let builder = MicrosoftAzureBuilder::from_env().with_retry(retry);
            Box::new(builder.with_client_options(client).with_container_name(bucket).build()?)
        }
        Scheme::Http | Scheme::Https => {
            let client = client.with_allow_http(location.scheme == Scheme::Http);
            let url = format!("{}://{bucket}", location.scheme.name());
            Box::new(HttpBuilder::new().with_url(url).with_retry(retry).with_client_options(client).build()?)
        }
        Scheme::File => return Err("a directory is no store behind a network".into()),
    })
}

fn kind_of(error: &object_store::Error) -> ErrorKind {
    use object_store::Error as E;
    match error {
        E::NotFound { .. } => ErrorKind::Absent,
        E::AlreadyExists { .. } | E::Precondition { .. } => ErrorKind::Precondition,
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => ErrorKind::Denied,
        E::NotSupported { .. } | E::NotImplemented { .. } => ErrorKind::Unsupported,
        E::InvalidPath { .. } | E::UnknownConfigurationKey { .. } => ErrorKind::Invalid,
        _ => ErrorKind::Unclear,
    }
}

fn modified(meta: &ObjectMeta) -> Duration {
    Duration::from_secs(u64::try_from(meta.last_modified.timestamp()).unwrap_or(0))
}

impl NetworkStore {
    fn error(&self, request: Request, key: &str) -> impl Fn(object_store::Error) -> StoreError {
        move |error| StoreError::new(kind_of(&error), self.describe(), request, key, error)
    }

    fn invalid(&self, request: Request, key: &str, reason: impl Into<String>) -> StoreError {
        StoreError::new(ErrorKind::Invalid, self.describe(), request, key, reason.into())
    }

    fn path(&self, request: Request, key: &str) -> Result<Path, StoreError> {
        if !is_valid_key(key) {
            return Err(self.invalid(request, key, "not a name of an object"));
        }
        let path = Path::parse(format!("{}/{key}", self.prefix));
        path.map_err(|error| self.invalid(request, key, error.to_string()))
    }

    /// Reads what the server offers, if it is not longer than allowed.
    fn read(
        &self,
        key: &str,
        range: Option<GetRange>,
        limit: u64,
    ) -> Result<(Bytes, ObjectMeta), StoreError> {
        let path = self.path(Request::Get, key)?;
        let options = GetOptions { range, ..GetOptions::default() };
        let read = async {
            let result: GetResult = self.inner.get_opts(&path, options).await?;
            let (length, meta) = (result.range.end.saturating_sub(result.range.start), result.meta.clone());
            let bytes = if length <= limit { Some(result.bytes().await?) } else { None };
            Ok((bytes, meta))
        };
        let (bytes, meta) = self.runtime.block_on(read).map_err(self.error(Request::Get, key))?;
        match bytes {
            Some(bytes) if bytes.len() as u64 <= limit => Ok((bytes, meta)),
            _ => Err(self.invalid(Request::Get, key, format!("it is larger than {limit} bytes"))),
        }
    }

    fn put(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<Version, StoreError> {
        let path = self.path(Request::Put, key)?;
        let options = PutOptions { mode, ..PutOptions::default() };
        let put = self.inner.put_opts(&path, PutPayload::from_bytes(bytes), options);
        let result = self.runtime.block_on(put).map_err(self.error(Request::Put, key))?;
        Ok(Version { etag: result.e_tag, generation: result.version })
    }
}

impl Store for NetworkStore {
    fn get(&self, key: &str, limit: u64) -> Result<Object, StoreError> {
        let (bytes, meta) = self.read(key, None, limit)?;
        let modified = modified(&meta);
        Ok(Object { bytes, version: Version { etag: meta.e_tag, generation: meta.version }, modified })
    }

    fn get_range(&self, key: &str, offset: u64, length: u64) -> Result<Bytes, StoreError> {
        let range = GetRange::Bounded(offset..offset.saturating_add(length));
        self.read(key, Some(range), length).map(|(bytes, _)| bytes)
    }

    fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<Version, StoreError> {
        self.put(key, bytes, PutMode::Create)
    }

    fn put_if_match(&self, key: &str, bytes: Bytes, version: &Version) -> Result<Version, StoreError> {
        let version = UpdateVersion { e_tag: version.etag.clone(), version: version.generation.clone() };
        self.put(key, bytes, PutMode::Update(version))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<ListPage, StoreError> {
        let invalid =
            |error: object_store::path::Error| self.invalid(Request::List, prefix, error.to_string());
        let full = format!("{}/{}", self.prefix, prefix.trim_end_matches('/'));
        let full = Path::parse(full.trim_end_matches('/')).map_err(invalid)?;
        let offset = after
            .map(|after| Path::parse(format!("{}/{after}", self.prefix)))
            .transpose()
            .map_err(invalid)?;
        let listed = async {
            let mut listed = match &offset {
                Some(offset) => self.inner.list_with_offset(Some(&full), offset),
                None => self.inner.list(Some(&full)),
            };
            let mut metas = Vec::new();
            while metas.len() <= LIST_PAGE
                && let Some(meta) = listed.next().await
            {
                metas.push(meta?);
            }
            Ok(metas)
        };
        let mut metas = self.runtime.block_on(listed).map_err(self.error(Request::List, prefix))?;
        let more = metas.len() > LIST_PAGE;
        metas.truncate(LIST_PAGE);
        let own = format!("{}/", self.prefix);
        let listed = metas.iter().filter_map(|meta| {
            let key = meta.location.as_ref().strip_prefix(&own)?.to_owned();
            Some(Listed { key, size: meta.size, modified: modified(meta) })
        });
        Ok(ListPage { objects: listed.collect(), more })
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        let path = self.path(Request::Delete, key)?;
        match self.runtime.block_on(self.inner.delete(&path)) {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            deleted => deleted.map_err(self.error(Request::Delete, key)),
        }
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn describe(&self) -> String {
        self.name.clone()
    }
}
