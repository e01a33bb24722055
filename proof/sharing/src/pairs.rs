//! The table: pairs of operations that commute, and what they may share.

use crate::operations::*;
use crate::reasons::Reason::{self, *};

/// Where the two sides of a pair work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On one file, or in one directory.
    Same,
    /// On two files in one directory.
    Beside,
    /// In two directories of one AG.
    Near,
    /// In two directories of two AGs.
    Far,
}

/// Two operations that commute: called in either order, they have the same results.
#[derive(Debug)]
pub struct Pair {
    /// The operations of both sides.
    pub operations: [&'static Operation; 2],
    /// Where they work.
    pub place: Place,
    /// Why they share lines; empty if they do not.
    pub reasons: &'static [Reason],
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::Same => "one file",
            Self::Beside => "two files in one directory",
            Self::Near => "two directories of one AG",
            Self::Far => "two AGs",
        }
    }
}

impl Pair {
    /// Name in reports, unique in the table.
    pub fn name(&self) -> String {
        let [first, second] = self.operations.map(|operation| operation.name);
        format!("{first} / {second}: {}", self.place.name())
    }

    /// The operation of a side; of more sides alternately.
    pub fn operation(&self, side: usize) -> &'static Operation {
        self.operations[side % 2]
    }

    /// Rounds before the measured ones.
    pub fn warm(&self) -> usize {
        // A pair with a change is warm after few rounds: its reads happen beside many changes.
        let [first, second] = self.operations.map(|operation| operation.cost);
        first.max(second).warm()
    }
}

const fn pair(
    first: &'static Operation,
    second: &'static Operation,
    place: Place,
    reasons: &'static [Reason],
) -> Pair {
    Pair { operations: [first, second], place, reasons }
}

use Place::{Beside, Far, Near, Same};

/// All pairs.
pub static PAIRS: &[Pair] = &[
    pair(&STAT, &STAT, Same, &[]),
    pair(&STAT, &STAT, Beside, &[]),
    pair(&STAT, &STAT_MISSING, Same, &[]),
    pair(&STAT_MISSING, &STAT_MISSING, Same, &[]),
    pair(&STAT, &STAT_DIRECTORY, Same, &[]),
    pair(&STAT, &CREATE, Same, &[]),
    pair(&STAT, &CHMOD, Beside, &[]),
    pair(&STAT, &WRITE, Beside, &[]),
    pair(&STAT, &UNLINK, Same, &[]),
    pair(&STAT, &RENAME, Same, &[]),
    pair(&STAT_LINK, &STAT_LINK, Same, &[]),
    pair(&STAT_PARENT, &STAT_PARENT, Same, &[]),
    pair(&FSTAT, &FSTAT, Same, &[]),
    pair(&FSTAT, &READ, Same, &[]),
    pair(&STAT_INO, &STAT_INO, Same, &[]),
    pair(&LOOKUP, &LOOKUP, Same, &[]),
    pair(&LOOKUP, &LOOKUP, Beside, &[]),
    pair(&LOOKUP, &LOOKUP_MISSING, Same, &[]),
    pair(&LOOKUP, &OPEN_CLOSE, Same, &[]),
    pair(&LOOKUP, &CREATE, Same, &[ReferenceCount, InodeTable]),
    pair(&LOOKUP, &CREATE, Near, &[InodeTable]),
    pair(&READLINK, &READLINK, Same, &[]),
    pair(&READLINK_BLOCK, &READLINK_BLOCK, Same, &[]),
    pair(&READDIR, &READDIR, Same, &[]),
    pair(&READDIR_BLOCKS, &READDIR_BLOCKS, Same, &[]),
    pair(&READDIR, &READDIR, Near, &[]),
    pair(&READDIR, &STAT, Same, &[]),
    pair(&READDIR, &CREATE, Near, &[InodeTable]),
    pair(&OPEN, &OPEN, Same, &[]),
    pair(&OPEN, &OPEN, Beside, &[]),
    pair(&OPEN, &OPEN, Near, &[]),
    pair(&OPEN, &CREATE, Same, &[ReferenceCount]),
    pair(&OPEN_CLOSE, &OPEN_CLOSE, Same, &[]),
    pair(&OPEN_CLOSE, &OPEN_CLOSE, Beside, &[]),
    pair(&OPEN_CLOSE, &STAT, Same, &[]),
    pair(&CLOSE, &CLOSE, Same, &[]),
    pair(&CLOSE, &CLOSE, Beside, &[]),
    pair(&CLOSE, &OPEN, Same, &[]),
    pair(&READ, &READ, Same, &[]),
    pair(&READ, &READ_OWN, Same, &[]),
    pair(&READ, &READ, Beside, &[]),
    pair(&READ, &WRITE, Beside, &[]),
    pair(&READ, &OPEN_CLOSE, Same, &[]),
    pair(&SEEK, &SEEK, Same, &[]),
    pair(&GET_ATTRIBUTE, &GET_ATTRIBUTE, Same, &[]),
    pair(&GET_LEAF_ATTRIBUTE, &GET_LEAF_ATTRIBUTE, Same, &[]),
    pair(&GET_REMOTE_ATTRIBUTE, &GET_REMOTE_ATTRIBUTE, Same, &[]),
    pair(&GET_ATTRIBUTE, &GET_ATTRIBUTE, Beside, &[]),
    pair(&GET_ATTRIBUTE, &STAT, Same, &[]),
    pair(&GET_ATTRIBUTE, &SET_ATTRIBUTE, Beside, &[InodeTable]),
    pair(&LIST_ATTRIBUTES, &LIST_ATTRIBUTES, Same, &[]),
    pair(&LIST_LEAF_ATTRIBUTES, &LIST_LEAF_ATTRIBUTES, Same, &[]),
    pair(&SET_ATTRIBUTE, &SET_ATTRIBUTE, Beside, &[LogOrder, InodeTable]),
    pair(&SET_ATTRIBUTE, &SET_ATTRIBUTE, Far, &[LogOrder, InodeTable]),
    pair(&SET_ATTRIBUTE, &SET_OWN_ATTRIBUTE, Same, &[LogOrder, ReferenceCount, InodeTable, OneFile]),
    pair(&STATFS, &STATFS, Same, &[Statistics]),
    pair(&STATFS, &STAT, Same, &[]),
    pair(&WRITE, &WRITE_OWN, Same, &[OneFile]),
    pair(&WRITE, &WRITE, Beside, &[]),
    pair(&WRITE, &WRITE, Far, &[]),
    pair(&WRITE, &READ_OWN, Same, &[PageLock]),
    pair(&DIRTY, &DIRTY, Beside, &[]),
    pair(&DIRTY, &DIRTY, Far, &[]),
    pair(&DIRTY, &READ, Beside, &[]),
    pair(&APPEND, &APPEND, Beside, &[]),
    pair(&APPEND, &APPEND, Far, &[]),
    pair(&TRUNCATE, &TRUNCATE, Beside, &[LogOrder]),
    pair(&TRUNCATE, &TRUNCATE, Far, &[LogOrder]),
    pair(&ALLOCATE, &ALLOCATE, Near, &[LogOrder, OneAg]),
    pair(&ALLOCATE, &ALLOCATE, Far, &[LogOrder]),
    pair(&PUNCH, &PUNCH, Far, &[LogOrder]),
    pair(&FSYNC, &FSYNC, Beside, &[StableStorage]),
    pair(&FSYNC, &FSYNC, Far, &[StableStorage]),
    pair(&FSYNC_CLEAN, &FSYNC_CLEAN, Same, &[]),
    pair(&FSYNC_CLEAN, &FSYNC_CLEAN, Beside, &[]),
    pair(&CHMOD, &CHMOD, Beside, &[LogOrder]),
    pair(&CHMOD, &CHMOD, Far, &[LogOrder]),
    pair(&CREATE, &CREATE, Same, &[LogOrder, ReferenceCount, InodeTable, OneDirectory, OneAg]),
    pair(&CREATE, &CREATE, Near, &[LogOrder, InodeTable, OneAg]),
    pair(&CREATE, &CREATE, Far, &[LogOrder, InodeTable]),
    pair(&CREATE, &UNLINK, Near, &[LogOrder, InodeTable, OneAg]),
    pair(&CREATE, &UNLINK, Far, &[LogOrder, InodeTable]),
    pair(&CREATE, &WRITE, Far, &[]),
    pair(&MKDIR, &MKDIR, Near, &[LogOrder, InodeTable]),
    pair(&MKDIR, &MKDIR, Far, &[LogOrder, InodeTable]),
    pair(&RMDIR, &RMDIR, Far, &[LogOrder, InodeTable]),
    pair(&SYMLINK, &SYMLINK, Far, &[LogOrder, InodeTable]),
    pair(&TMPFILE, &TMPFILE, Near, &[LogOrder, InodeTable]),
    pair(&TMPFILE, &TMPFILE, Far, &[LogOrder, InodeTable]),
    pair(&UNLINK, &UNLINK, Same, &[LogOrder, ReferenceCount, InodeTable, OneDirectory]),
    pair(&UNLINK, &UNLINK, Near, &[LogOrder, InodeTable, OneAg]),
    pair(&UNLINK, &UNLINK, Far, &[LogOrder, InodeTable]),
    pair(&RENAME, &RENAME, Same, &[LogOrder, ReferenceCount, InodeTable, OneDirectory]),
    pair(&RENAME, &RENAME, Near, &[LogOrder, InodeTable]),
    pair(&RENAME, &RENAME, Far, &[LogOrder, InodeTable]),
    pair(&LINK, &LINK, Near, &[LogOrder, InodeTable]),
    pair(&LINK, &LINK, Far, &[LogOrder, InodeTable]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<String> = PAIRS.iter().map(Pair::name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PAIRS.len());
    }
}
