//! Owners of blocks: the claims of all structures are kept sorted within a memory budget, and compared with free space,
//! reverse mappings and reference counts.
//!
//! | part | subject |
//! |---|---|
//! | [`claim`] | contiguous blocks and their owner |
//! | [`store`] | sorted runs of claims, in memory or in a temporary file, merged per allocation group |
//! | [`sweep`] | one allocation group from its first block to its last |
//! | [`rmap`] | claims, compared with the rmapbt |
//! | [`refcount`] | overlapping claims, compared with the refcountbt |

pub(crate) mod claim;
pub(crate) mod refcount;
pub(crate) mod rmap;
pub(crate) mod store;
pub(crate) mod sweep;
