//! A block device whose bytes are objects in a store: log-structured segments, a map, and a head that is replaced by
//! comparing versions. One writer, fenced by epochs; any number of readers; snapshots and clones without copying.
//!
//! `docs/remote-format.md` describes the objects, `docs/design/remote.md` the reasons.
//!
//! | file | subject |
//! |---|---|
//! | `device` | [`ObjectDevice`]: the volume as a [`block::Device`], and its threads |
//! | `options`, `error` | [`ObjectOptions`], [`ObjectError`] |
//! | `claim`, `create` | opening for reading and for writing; new volumes |
//! | `state` | what an open volume has in memory, and its locks |
//! | `log`, `read` | writing segments in order; reading frames |
//! | `checkpoint`, `publish` | storing the map; replacing the head |
//! | `collect`, `clean`, `audit` | deleting what nothing refers to; moving live blocks; examining objects |
//! | `snapshots`, `clones` | names for states; volumes that share objects |
//! | `usage` | what a volume has in its store, and where its data is |
//! | `segment`, `head`, `map`, `names`, `codec` | stored forms |
//! | `client`, `parallel` | requests that are repeated until they are clear; several at the same time |
//! | `frames`, `disk_cache` | frames in memory; parts of objects on the local disk |
#![forbid(unsafe_code)]

mod audit;
mod checkpoint;
mod claim;
mod clean;
mod client;
mod clones;
mod codec;
mod collect;
mod create;
mod device;
mod disk_cache;
mod error;
mod frames;
mod head;
mod log;
mod map;
mod names;
mod options;
mod parallel;
mod publish;
mod read;
mod segment;
mod snapshots;
mod state;
#[cfg(test)]
mod tests;
mod usage;

pub use audit::{Audit, audit, delete_orphans};
pub use client::RequestCounts;
pub use clones::{CloneRequest, NewClone, begin_clone};
pub use device::{ObjectDevice, VolumeInfo, volume_info};
pub use disk_cache::DiskCache;
pub use error::{Damage, ObjectError, Result};
pub use head::{Parent, Snapshot};
pub use options::{ObjectOptions, Opener};
pub use snapshots::{make_snapshot, remove_pin, remove_snapshot};
pub use usage::StoredUse;
