//! A model of file contents: all calls on contents, random calls, and the expected contents.
//!
//! | part | subject |
//! |---|---|
//! | [`Call`], [`FallocateMode`] | a call, as a value |
//! | [`SparseBytes`] | the contents of one file |
//! | [`Files`], [`Outcome`] | several files, and the effect of each call |
//! | [`Session`], [`Subject`], [`OpenFile`] | runs calls on a volume and on the model, and compares |
//! | [`CallGenerator`] | random calls, mostly valid, around all boundaries |

mod bytes;
mod call;
mod files;
mod generate;
mod session;
#[cfg(test)]
mod tests;

pub use bytes::SparseBytes;
pub use call::{Call, FallocateMode};
pub use files::{Files, Outcome};
pub use generate::{CallGenerator, fill};
pub use session::{OpenFile, Session, Subject};
