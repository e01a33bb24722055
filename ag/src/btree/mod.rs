//! The generic B+tree of XFS, with cursors over a transaction's buffers. It serves the free-space trees (bnobt, cntbt),
//! the inode trees (inobt, finobt), rmapbt, refcountbt, and the bmbt of a fork, whose root lies in the inode.
//!
//! | part | subject |
//! |---|---|
//! | [`BtreeType`] | keys and record order of one btree type; its layout is in `format::btree` |
//! | [`BtreeOps`] | one btree instance: root, block allocation and freeing |
//! | [`BtreeCursor`] | a position in a btree: lookups and steps (`cursor`), `insert`, `delete` |
//! | `blocks` | reading, verifying and initializing btree blocks |
//! | [`RecordHint`] | where a record was last found, to update it without a lookup |
//! | `keys` | updating parent keys after a child has changed |
//! | [`overlap`] | all records that intersect a range, where records may overlap |
//! | [`block`] | byte edits within one block or between two |
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
//! - A descent terminates: a child's level must be its parent's level minus one, whatever the disk says. A step to a
//!   sibling goes through the parents, and both blocks must name each other as siblings.
//! - After an insertion or deletion every block but the root is at least half full, if all were before. The single
//!   child of a root in an inode is exempt.
//! - Entries move only between siblings under the same parent, which is on the cursor's path.
//! - An edit logs only the bytes that it changes.
//!
//! # Locking
//! The caller holds the lock that protects the tree: the AGF or AGI buffer in the same transaction, or the inode. The
//! transaction locks each block when it reads it and keeps it locked until it ends. Only the holder of the tree's lock
//! takes block locks, so their order is free; they have `Rank::Fork`.
//!
//! # Errors
//! An error in the middle of a change leaves the tree half changed in the transaction. The transaction must then be
//! cancelled, which shuts the volume down. Blocks for growth must therefore be reserved before the change. After any
//! error the cursor has no position.

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
