//! When what lies on disk is newer than the log, and stays.
//!
//! A block that was written after a transaction committed already holds its change, and perhaps later ones whose parts
//! the log tells one by one. Putting the older change over it would be undone by the later ones in the end, but not if
//! the block meanwhile became something else. So each block carries the LSN of its last change, and is compared:
//!
//! | what lies on disk | replayed? | because |
//! |---|---|---|
//! | no block of any known kind | yes | there is nothing to lose |
//! | its checksum is wrong | yes | it was torn, or never was a block: its LSN is noise |
//! | it belongs to another volume, or says that it lies elsewhere | yes | it is left over from before |
//! | it has no LSN | yes | it was not written since it was made |
//! | its LSN lies at or behind the log's head | yes | that has not happened yet: the log was once reset |
//! | its LSN is larger than the transaction's | **no** | it is newer |
//! | its LSN is the transaction's, or smaller | yes | it is older, or may be |
//!
//! *May be*: several transactions can start in one record, and then have the same LSN. A block that was written between
//! two of them must still get the second.
//!
//! # What is compared
//! What lay there when recovery first met it. Transactions are replayed in the order of their commits, in which old
//! writers did not always start them; so what recovery itself stamped decides nothing.

use base::Lsn;
use format::Geometry;
use format::inode::{Dinode, RawInode};
use format::metadata_header::HeaderLayout;

use base::{Daddr, Ino};

/// What lies on disk where an item is to be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskState {
    /// No block of any known kind.
    Nothing,
    /// Its checksum is wrong.
    Torn,
    /// It belongs to another volume, or lies elsewhere.
    Foreign,
    /// It has no LSN.
    Unstamped,
    /// It has one, that can be believed.
    Stamped(Lsn),
}

/// How a believable LSN compares, and the other rows of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LsnVerdict {
    /// No block of any known kind.
    Nothing,
    /// Its checksum is wrong.
    Torn,
    /// It belongs to another volume, or lies elsewhere.
    Foreign,
    /// It has no LSN.
    Unstamped,
    /// Its LSN lies at or behind the log's head.
    Future,
    /// Its LSN is larger than the transaction's.
    Newer,
    /// Its LSN is the transaction's, or smaller.
    NotNewer,
}

/// The table: what was found, and whether the item is replayed.
pub const TABLE: &[(LsnVerdict, bool)] = &[
    (LsnVerdict::Nothing, true),
    (LsnVerdict::Torn, true),
    (LsnVerdict::Foreign, true),
    (LsnVerdict::Unstamped, true),
    (LsnVerdict::Future, true),
    (LsnVerdict::Newer, false),
    (LsnVerdict::NotNewer, true),
];

impl DiskState {
    /// Looks at a buffer.
    pub fn block(bytes: &[u8], geometry: &Geometry, daddr: Daddr) -> Self {
        let Some(stamp) = HeaderLayout::of(bytes) else { return Self::Nothing };
        if !stamp.checksum_holds(bytes) {
            return Self::Torn;
        }
        if !stamp.belongs_to(bytes, &geometry.uuid) || !stamp.lies_at(bytes, daddr) {
            return Self::Foreign;
        }
        stamp.lsn(bytes).map_or(Self::Unstamped, Self::Stamped)
    }

    /// Looks at an inode's slot.
    pub fn inode(slot: &[u8], geometry: &Geometry, ino: Ino) -> Self {
        let magic = |core: &RawInode| core.magic.get() == format::inode::MAGIC;
        let Some(view) = Dinode::view(slot, geometry).filter(|inode| magic(inode.core)) else {
            return Self::Nothing;
        };
        if format::checksum::verify("inode", slot, format::inode::CRC_OFFSET).is_err() {
            return Self::Torn;
        }
        if Dinode::identify(slot, geometry, ino).is_err() {
            return Self::Foreign;
        }
        match view.core.lsn.get() {
            0 | u64::MAX => Self::Unstamped,
            lsn => Self::Stamped(Lsn(lsn)),
        }
    }

    /// The table's row for a transaction.
    pub fn row(self, transaction: Lsn, head: Lsn) -> LsnVerdict {
        match self {
            Self::Nothing => LsnVerdict::Nothing,
            Self::Torn => LsnVerdict::Torn,
            Self::Foreign => LsnVerdict::Foreign,
            Self::Unstamped => LsnVerdict::Unstamped,
            Self::Stamped(lsn) if lsn >= head => LsnVerdict::Future,
            Self::Stamped(lsn) if lsn > transaction => LsnVerdict::Newer,
            Self::Stamped(_) => LsnVerdict::NotNewer,
        }
    }
}

impl LsnVerdict {
    /// Whether the item is replayed.
    pub fn is_replayed(self) -> bool {
        TABLE.iter().find(|(row, _)| *row == self).is_none_or(|(_, replayed)| *replayed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_believably_newer_stays() {
        let (head, now) = (Lsn::new(5, 100), Lsn::new(5, 40));
        let replayed = |found: DiskState| found.row(now, head).is_replayed();
        for found in [DiskState::Nothing, DiskState::Torn, DiskState::Foreign, DiskState::Unstamped] {
            assert!(replayed(found), "{found:?}");
        }
        for (lsn, expected) in [
            (Lsn::new(4, 900), true),
            (Lsn::new(5, 39), true),
            (now, true),
            (Lsn::new(5, 41), false),
            (Lsn::new(5, 99), false),
            (head, true),
            (Lsn::new(9, 0), true),
        ] {
            assert_eq!(replayed(DiskState::Stamped(lsn)), expected, "{lsn:?}");
        }
        assert_eq!(TABLE.iter().filter(|(_, replayed)| !replayed).count(), 1);
    }
}
