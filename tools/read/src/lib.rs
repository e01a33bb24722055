//! One XFS volume, read only: inodes, extents, directories, attributes.

pub mod manifest;
