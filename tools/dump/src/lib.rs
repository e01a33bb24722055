//! Print any XFS structure, every field by name.
