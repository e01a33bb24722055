//! Why operations that commute share cache lines: a named entry for each reason.
//!
//! A reason is recognized by the function that writes a line. What else reads the line does not matter: it reads what
//! is written, or is a neighbour of it.

use std::rc::Rc;

use crate::symbols::{inner, owner};

/// A reason for sharing lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Each transaction takes the next order ID of the CIL and reserves log space at the grant head.
    LogOrder,
    /// Operations make data stable: both write the log, wait for it, and flush the device.
    StableStorage,
    /// Both change one directory: its lock, its blocks, its inode, and their log items.
    OneDirectory,
    /// Both change one AG: its headers, its btrees, and their buffers.
    OneAg,
    /// Both change one file: its inode and its contents.
    OneFile,
    /// Who locks an inode or a buffer has a reference to it, which is counted in one word.
    ReferenceCount,
    /// Looking an inode up by its number locks a shard of the inode cache, if the shard was changed a short time ago.
    /// Two inodes are in one shard by chance.
    InodeTable,
    /// Readers of a file lock the index of its pages, and the page, if they were written a short time ago.
    PageLock,
    /// `statfs` sums counters under locks.
    Statistics,
}

/// A function that writes a line because of a reason. Functions are `file name`, as in [`crate::symbols`]; each text is
/// the beginning of one.
#[derive(Clone, Copy, Debug)]
enum Writer {
    /// The function that says why memory is accessed.
    Is(&'static str),
    /// A function of a library, such as a lock, that was called by that function.
    Through(&'static str, &'static str),
    /// Any function in the chain of calls.
    Below(&'static str),
}

use Reason::*;
use Writer::{Below, Is, Through};

const ARC: &str = "library/alloc/src/sync.rs";

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        LogOrder,
        StableStorage,
        OneDirectory,
        OneAg,
        OneFile,
        ReferenceCount,
        InodeTable,
        PageLock,
        Statistics,
    ];

    /// Whether it can be mended, so that it will leave the table.
    pub fn is_known_fault(self) -> bool {
        matches!(self, ReferenceCount | InodeTable | PageLock)
    }

    /// Whether a pair needs it only in some runs: it depends on numbers of inodes. It must be needed by one of all
    /// pairs.
    pub fn depends_on_chance(self) -> bool {
        self == InodeTable
    }

    /// The functions that write lines because of it.
    fn writers(self) -> &'static [Writer] {
        match self {
            LogOrder => &[Is("journal/src/engine/grant.rs"), Is("journal/src/engine/cil/")],
            StableStorage => &[
                Is("journal/src/engine/"),
                Is("format/src/log/"),
                Is("block/src/"),
                Is("cache/src/limits.rs"),
            ],
            OneDirectory => &[
                Is("format/src/dir/"),
                Is("format/src/edit.rs"),
                Is("inode/src/"),
                Is("volume/src/namespace/"),
                Is("journal/src/engine/"),
            ],
            OneAg => &[Below("ag/src/"), Is("journal/src/engine/"), Is("inode/src/unlinked.rs")],
            OneFile => &[
                Is("format/src/attr/"),
                Is("inode/src/"),
                Is("cache/src/"),
                Is("volume/src/attributes/"),
                Is("journal/src/engine/"),
            ],
            ReferenceCount => &[Through(ARC, "")],
            InodeTable => &[Is("inode/src/inode_cache.rs")],
            PageLock => &[Is("cache/src/")],
            Statistics => &[Below("volume/src/statistics.rs")],
        }
    }

    /// Whether it explains that these functions, the innermost first, write a line.
    pub fn explains(self, functions: &[Rc<str>]) -> bool {
        self.writers().iter().any(|writer| match writer {
            Is(function) => owner(functions).starts_with(function),
            Through(library, function) => {
                owner(functions).starts_with(function)
                    && inner(functions).iter().any(|name| name.starts_with(library))
            }
            Below(function) => functions.iter().any(|name| name.starts_with(function)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_explains_its_writers() {
        let count = ["library/alloc/src/sync.rs clone", "ag/src/group.rs get"].map(Rc::from);
        assert!(ReferenceCount.explains(&count) && OneAg.explains(&count));
        assert!(!ReferenceCount.explains(&count[1..]), "it is not a count");
        assert!(!LogOrder.explains(&count) && !LogOrder.explains(&[]));
    }
}
