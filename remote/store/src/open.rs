//! From a location to its store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::Store;
use crate::directory::DirectoryStore;
use crate::error::StoreError;
use crate::location::{Location, Scheme};

/// How to reach a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Longest time of one request, with its body.
    pub request_timeout: Duration,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { request_timeout: Duration::from_secs(120) }
    }
}

/// Opens the store of a volume's objects. No request is sent.
///
/// # Errors
/// The configuration lacks something, such as credentials, or the build lacks the kind of store.
pub fn open(location: &Location, options: &StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    match location.scheme {
        Scheme::File => Ok(Arc::new(DirectoryStore::new(Path::new(&location.path)))),
        _ => open_network(location, options),
    }
}

#[cfg(feature = "network")]
fn open_network(location: &Location, options: &StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    crate::network::open(location, options)
}

#[cfg(not(feature = "network"))]
fn open_network(location: &Location, _: &StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    use crate::error::{ErrorKind, Request};
    let reason = "this build has no stores behind a network (feature `network`)";
    Err(StoreError::new(ErrorKind::Unsupported, location.to_string(), Request::Open, "", reason))
}
