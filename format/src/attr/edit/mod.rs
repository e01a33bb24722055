//! Changes of attributes. For any input, these functions stay within the block and terminate; they report inconsistent
//! bytes before writing.
//!
//! | part | subject |
//! |---|---|
//! | [`leaf`] | leaf blocks |
//! | [`shortform`] | shortform attributes |
//!
//! Nodes are changed by [`crate::dabtree::edit`], which directories share.

pub mod leaf;
pub mod shortform;

#[cfg(test)]
mod tests;
