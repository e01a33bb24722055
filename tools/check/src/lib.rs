//! An independent checker for XFS volumes.
