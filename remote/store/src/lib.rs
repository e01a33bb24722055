//! Objects in a store: named sequences of bytes that are written as a whole, with conditions.
//!
//! This layer moves objects. It does not know what they contain.
//!
//! | file | subject |
//! |---|---|
//! | `contract` | the trait [`Store`] and its guarantees |
//! | `error` | [`StoreError`]: what a caller can do about a failure |
//! | `location` | [`Location`]: URLs of volumes |
//! | `directory` | [`DirectoryStore`]: a directory of the host |
//! | `memory` | [`MemoryStore`]: in memory, shared by its clones |
//! | `faulty` | [`FaultyStore`]: a client of a memory store whose requests fail as those of a network do |
//! | `network` | S3 and compatible, GCS, Azure, HTTPS (feature `network`) |
//! | `open` | [`open`]: from a location to its store |
//!
//! # Invariants
//! - Calls block; threads share a store. The async runtime that the transport needs stays inside `network`.
//! - Bytes from a store are untrusted: no reply makes this layer panic, or allocate more than the caller allowed.
#![forbid(unsafe_code)]

mod contract;
mod directory;
mod error;
pub mod faulty;
mod location;
mod memory;
#[cfg(feature = "network")]
mod network;
mod open;
#[cfg(test)]
mod tests;

pub use bytes::Bytes;
pub use contract::{LIST_PAGE, ListPage, Listed, Object, Store, Version};
pub use directory::DirectoryStore;
pub use error::{ErrorKind, Request, StoreError};
pub use faulty::FaultyStore;
pub use location::{Location, LocationError, Scheme};
pub use memory::MemoryStore;
pub use open::{StoreOptions, open};
