//! Trees from outside, into an open volume, with everything that they have.
//!
//! | part | subject |
//! |---|---|
//! | [`item`] | what sources give: entries, and the contents of files |
//! | [`directory`] | a directory of this machine as a source, read by many threads |
//! | [`sync`] | a tree in a volume made equal to one, by what differs alone |
//! | [`archive`] | a tar stream as a source, compressed or not |
//! | [`oci`] | layers of an OCI image layout |
//! | `digest` | blobs as their descriptors promise them |
//! | [`exclude`] | patterns of what is left out |
//! | [`labels`] | SELinux labels by paths |
//! | [`overrides`] | what the user wants otherwise: owners, modes, devices, times |
//! | [`writer`] | what an open volume makes of the items |
//! | [`image`] | builds images |
//! | [`extract`] | the other direction: a tree of a volume, into a directory or an archive |
//! | [`progress`] | progress, messages and cancellation |
//! | `tree` | paths below a directory of a volume |
//! | `file_id` | which file it is, however long that is remembered |
//! | [`survey`] | how much there is, and how large a volume holds it |
//! | [`error`] | what can go wrong |
//!
//! A source gives items in an order that is its own and that no number of threads changes; one receiver takes them, one
//! after the other. So the same source makes the same calls of the engine, and, with a clock that stands still and
//! without threads of the engine's own, the same bytes.
//!
//! # Invariants
//! - Sources are only read. A file that changes while it is read is an error, not a mixture.
//! - What is not kept of a file is counted and told ([`Lost`]), never left out silently.
//! - A name leads to nothing outside, neither of the source nor of the directory that it goes to: `..` is refused, no
//!   link in a source is followed, and those in the volume are followed within that directory.
//!
//! # Locking
//! None of its own but that of `base::pipeline`.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

pub mod archive;
mod digest;
pub mod directory;
pub mod error;
pub mod exclude;
pub mod extract;
mod file_id;
pub mod image;
pub mod item;
pub mod labels;
pub mod oci;
pub mod overrides;
pub mod progress;
pub mod survey;
mod tree;
pub mod writer;

pub use archive::Archive;
pub use directory::Directory;
pub use directory::sync::{self, TreeSync};
pub use error::{Error, Result};
pub use exclude::Excludes;
pub use extract::{ExtractReport, Extraction};
pub use image::{BuiltImage, Container, FreeSpace, ImageBuilder};
pub use item::{Alike, Data, Entry, Facts, Item, Kind, Lost, Receiver, Stored};
pub use labels::Labels;
pub use overrides::Overrides;
pub use progress::{Cancel, Counts, Notice, NoticeKind, Phase, Progress};
pub use survey::{SpaceEstimate, Survey};
pub use writer::{ImportReport, Writer};

/// Where a tree comes from.
pub trait Source {
    /// Gives all of it to `receiver`, contents of files only if `contents`, on so many threads.
    ///
    /// # Errors
    /// What cannot be read, what changed meanwhile, and what the receiver meets.
    fn read(&self, contents: bool, threads: usize, receiver: &mut dyn Receiver) -> Result<()>;

    /// Counts what there is, as fast as that goes: attributes, which rarely take blocks, may be counted by samples.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn look(&self, threads: usize, survey: &mut Survey) -> Result<()> {
        self.read(false, threads, survey)
    }
}
