//! Trees into and out of volumes, with all metadata.
//!
//! | part | subject |
//! |---|---|
//! | [`image`] | builds images: estimates the size, creates a volume, imports sources, names the file |
//! | [`item`] | what sources yield: entries, and contents of files |
//! | [`directory`] | a directory of the host as a source, read by many threads |
//! | [`difference`] | finds what differs between two trees |
//! | [`sync`] | synchronizes a tree in a volume to a directory: only differences are written |
//! | [`archive`] | a tar stream as a source, compressed or not |
//! | [`oci`] | layers of an OCI image layout |
//! | `digest` | verification of blobs by their descriptors |
//! | [`exclude`] | patterns of files to skip |
//! | [`labels`] | SELinux labels by path |
//! | `options` | methods that set options |
//! | [`overrides`] | overrides of owners, modes, devices and times |
//! | [`writer`] | writes items to an open volume |
//! | `tree` | paths below a directory of a volume |
//! | `syscalls` | system calls on files of the host |
//! | [`survey`] | counts files, and estimates the space that they need |
//! | [`extract`] | the other direction: a tree of a volume to a directory or an archive |
//! | [`copy`] | copies files and trees between the host and volumes, as GNU cp does |
//! | [`progress`] | progress, messages and cancellation of both directions |
//! | [`error`] | errors |
//!
//! A source yields items in an order that does not depend on the number of threads; one receiver takes them. So the
//! same source makes the same calls of the engine, and, with a fixed clock and without background threads, the same
//! bytes.
//!
//! # Invariants
//! - Sources are only read. A file that changes while it is read is an error.
//! - Metadata that is not preserved is counted and reported ([`Loss`]).
//! - No name leads outside of the source or the target directory: `..` is refused, symlinks in a source are not
//!   followed, and those in the volume are resolved within the target directory.
//!
//! # Locking
//! Only that of `base::pipeline`.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

pub mod archive;
pub mod copy;
pub mod difference;
mod digest;
pub mod directory;
pub mod error;
pub mod exclude;
pub mod extract;
pub mod image;
pub mod item;
pub mod labels;
pub mod oci;
mod options;
pub mod overrides;
pub mod progress;
pub mod survey;
mod syscalls;
mod tree;
pub mod writer;

pub use archive::Archive;
pub use copy::{
    CopyError, CopyEvent, CopyInto, CopyReason, CopyReport, CopyRules, CopySide, CopySource, CopyTarget,
    Follow, Preserve, TreeCopy,
};
pub use difference::TreeDifference;
pub use directory::Directory;
pub use directory::sync::{self, TreeSync};
pub use error::{Error, Result};
pub use exclude::Excludes;
pub use extract::compress::{Compressed, Compression};
pub use extract::{ExtractReport, Extraction};
pub use image::{BuiltImage, Container, FreeSpace, ImageBuilder};
pub use item::{Data, Entry, EntryKind, EntryMetadata, Item, Loss, Receiver, SharedRange, StoredSize};
pub use labels::Labels;
pub use overrides::Overrides;
pub use progress::{Cancel, Counts, Notice, NoticeKind, Phase, Progress};
pub use survey::{SpaceEstimate, Survey};
pub use writer::{ImportReport, Writer};

/// The source of an import.
pub trait Source {
    /// Yields all files to `receiver`, with contents if `contents` is set, on up to `threads` threads.
    ///
    /// # Errors
    /// Unreadable or changing files, and the errors of the receiver.
    fn read(&self, contents: bool, threads: usize, receiver: &mut dyn Receiver) -> Result<()>;

    /// Counts all files as fast as possible: attributes, which rarely need blocks, may be sampled.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn survey(&self, threads: usize, survey: &mut Survey) -> Result<()> {
        self.read(false, threads, survey)
    }
}
