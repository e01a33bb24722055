//! Changes of attributes, as bytes. Whatever these functions are given, they stay within the block and end; where bytes
//! do not make sense, they say so before they write.
//!
//! | part | subject |
//! |---|---|
//! | [`leaf`] | leaves |
//! | [`shortform`] | attributes within the inode |
//!
//! Nodes are changed by [`crate::dabtree::edit`], since directories have them too.

pub mod leaf;
pub mod shortform;

#[cfg(test)]
mod tests;
