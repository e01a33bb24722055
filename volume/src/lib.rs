//! XFS in user space: a volume that any number of threads open, read and change.
//!
//! | part | subject |
//! |---|---|
//! | [`Volume`] | an open volume: opening, syncing, unmounting |
//! | [`image`] | from a path to a volume: container, partition, lock, log |
//! | [`finish`] | unfinished operations of a dirty log, finished in memory for readers |
//! | [`options`] | how to open it |
//! | [`namespace`] | names: looking up, creating, linking, removing, renaming |
//! | [`new`], [`metadata`] | what a new file shall be, and what is known of one |
//! | [`glance`] | a look at a file that leaves nothing in memory |
//! | [`attributes`] | extended attributes |
//! | [`settings`] | flags, hints, the project |
//! | `guards` | what flags and projects forbid |
//! | [`file`](mod@file) | contents of files |
//! | [`filling`] | contents of new files, many at once |
//! | [`Dir`] | open directories |
//! | [`paths`] | the same by path |
//! | [`features`] | features that an existing volume can be given |
//! | [`identity`] | label and UUID |
//! | [`trim`] | free space, given back to the medium |
//! | [`resize`] | becoming larger and smaller |
//! | `superblock` | the superblock and its copies |
//! | [`statistics`] | space, inodes, and what the journal did |
//! | [`error`] | what can go wrong, each with an errno |
//!
//! # Invariants
//! - Nothing here is logic of the format: it puts together what the layers below do, in the order that keeps it whole.
//! - A change is one transaction, with what it defers: after a power cut it is there wholly or not at all, and so is
//!   every change before it that it could see.
//! - [`Volume::sync`] returns when everything that was done before survives a power cut.
//!
//! # Locking
//! A change reserves log space first, and then locks inodes: in ascending order of their numbers, or else only tried.
//! See `docs/locking.md`.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

pub mod attributes;
mod change;
mod contents;
mod dir;
pub mod error;
#[cfg(test)]
mod fault_tests;
pub mod features;
pub mod file;
pub mod filling;
pub mod finish;
pub mod glance;
mod guards;
pub mod identity;
pub mod image;
pub mod metadata;
pub mod namespace;
pub mod new;
mod open;
pub mod options;
#[cfg(test)]
mod order_tests;
pub mod paths;
mod recover;
mod reservations;
pub mod resize;
pub mod rights;
pub mod settings;
pub mod statistics;
mod superblock;
pub mod trim;
mod volume;

pub use attributes::SetAttribute;
pub use cache::Options as ContentsOptions;
pub use dir::Dir;
pub use error::Error;
pub use file::{File, OpenOptions};
pub use filling::Filling;
pub use glance::Glance;
pub use image::{Access, ImageError, ImageOptions, open_image, open_image_on};
pub use metadata::{Metadata, SetMetadata};
pub use namespace::handle::Handle;
pub use namespace::listing::{Cookie, Entry};
pub use namespace::rename::Rename;
pub use new::{Device, Kind, New};
pub use options::Options;
pub use settings::Settings;
pub use statistics::Statistics;
pub use volume::Volume;

/// What all of this returns.
pub type Result<T> = std::result::Result<T, Error>;
