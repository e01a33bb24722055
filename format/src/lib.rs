//! The on-disk structures of XFS v5: parse, verify, checksum.
