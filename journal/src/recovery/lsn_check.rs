//! When metadata on disk is newer than the log, and stays.
//!
//! A block that was written back after a transaction committed already contains its change, and perhaps later ones that
//! the log contains as separate changes. Replaying an older change over it would be corrected by the later ones, but
//! not if the block has become something else meanwhile. So each block carries the LSN of its last change, which is
//! compared:
//!
//! | on disk | replayed? | reason |
//! |---|---|---|
//! | no known metadata block | yes | nothing is lost |
//! | a wrong checksum | yes | it is torn, or is no metadata block: its LSN is meaningless |
//! | a block of another volume or of another address | yes | it is left from an earlier use |
//! | no LSN | yes | it was not written since it was created |
//! | an LSN at or behind the log's head | yes | it lies in the future: the log was reset once |
//! | an LSN larger than the transaction's | **no** | it is newer |
//! | the transaction's LSN, or a smaller one | yes | it is older, or may be |
//!
//! *May be*: several transactions can start in one record and then have the same LSN. A block that was written between
//! two of them must still get the second change.
//!
//! # The compared state
//! The state of the block before recovery changed it. Transactions are replayed in the order of their commits, in
//! which old writers did not always start them; so LSNs written by recovery itself do not count.

use base::Lsn;
use format::Geometry;
use format::inode::{Dinode, RawInode};
use format::metadata_header::HeaderLayout;

use base::{Daddr, Ino};

/// The metadata on disk where an item is to be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskState {
    /// No known metadata block.
    Nothing,
    /// Wrong checksum.
    Torn,
    /// Belongs to another volume or another address.
    Foreign,
    /// No LSN.
    Unstamped,
    /// A valid LSN.
    Stamped(Lsn),
}

/// The rows of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LsnVerdict {
    /// No known metadata block.
    Nothing,
    /// Wrong checksum.
    Torn,
    /// Belongs to another volume or another address.
    Foreign,
    /// No LSN.
    Unstamped,
    /// LSN at or behind the log's head.
    Future,
    /// LSN larger than the transaction's.
    Newer,
    /// The transaction's LSN, or a smaller one.
    NotNewer,
}

/// The table: row, and whether the item is replayed.
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
    /// The state of a buffer.
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

    /// The state of an inode.
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

    /// The row for a transaction.
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
    fn only_valid_newer_lsns_stay() {
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
