//! BufferEdit B+tree for all: free space by block and by size, inodes, free inodes, reverse mappings, reference counts,
//! and the extent maps of forks, whose root lies in the inode.
//!
//! | part | subject |
//! |---|---|
//! | [`BtreeType`] | how one kind of tree is searched and keyed, beside its layout in `format::btree` |
//! | [`BtreeOps`] | one tree at work: where its root lies, where blocks come from and go to |
//! | [`BtreeCursor`] | a position in a tree: lookups and steps (`cursor`), `insert`, `delete` |
//! | `blocks` | reading, verifying and making the blocks of a tree |
//! | [`RecordHint`] | where a record stands, to come back to it without a search |
//! | `keys` | a parent's keys after a child has changed |
//! | [`overlap`] | all records that touch a range, where records may overlap |
//! | [`page`] | changes of bytes within one block or between two |
//!
//! # Use
//! ```text
//! let mut cursor = BtreeCursor::new(tree);
//! if cursor.lookup_eq(tx, key)?.is_none() {
//!     cursor.insert(tx, &record)?;
//! }
//! ```
//!
//! # Invariants
//! - A descent ends: a block's level is what its parent promised, whatever the disk says. A step to a neighbour goes
//!   through the parents, and both blocks must name each other as siblings.
//! - No block but a root is less than half full after an insertion or deletion, as long as none was before; the single
//!   child of a root in an inode is exempt.
//! - Blocks shift and join only with a sibling under the same parent, which therefore is on the cursor's path.
//! - An edit logs the bytes that it changes, and no others.
//!
//! # Locking
//! The caller holds what guards the tree: the AGF or AGI buffer in the same transaction, or the inode. Blocks are
//! locked by the transaction as they are read, and stay so until it ends. Only who holds that guard waits for them, so
//! they may be taken in any order, which is what `Rank::Fork` stands for.
//!
//! # Errors
//! An error in the middle of a change leaves the tree half changed in the transaction, which must then be cancelled:
//! that shuts the volume down. Blocks for growth are therefore reserved before. After any error the cursor has no
//! position.

pub mod block;
mod blocks;
mod btree_type;
mod cursor;
mod delete;
mod hint;
mod insert;
mod keys;
mod ops;
pub mod overlap;
#[cfg(test)]
mod tests;

pub use btree_type::{BtreeType, RawPointer, RmapLookupKey};
pub use cursor::BtreeCursor;
pub use hint::RecordHint;
pub use ops::{BtreeOps, BtreeOwner, BtreeRoot};
