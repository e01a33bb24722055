//! The XFS journal: decoding and recovery.
