//! Who owns each block: what every part of the check claims, kept sorted within a memory budget, and laid against
//! free space, reverse mappings and reference counts.
//!
//! | part | subject |
//! |---|---|
//! | [`claim`] | one run of blocks and its owner |
//! | [`store`] | sorted runs of claims, in memory or in a temporary file, merged per allocation group |
//! | [`sweep`] | one allocation group from its first block to its last |
//! | [`rmap`] | claims against the reverse-mapping tree |
//! | [`refcount`] | overlapping claims against the reference-count tree |

pub(crate) mod claim;
pub(crate) mod refcount;
pub(crate) mod rmap;
pub(crate) mod store;
pub(crate) mod sweep;
