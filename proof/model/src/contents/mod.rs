//! A model of what files hold: every call on contents, random ones, and what must be read afterwards.
//!
//! | part | subject |
//! |---|---|
//! | [`Call`], [`Reserve`] | one call, as a value |
//! | [`Bytes`] | the contents of one file |
//! | [`Files`], [`Outcome`] | several of them, and what a call does to them |
//! | [`Session`], [`Subject`], [`OpenFile`], [`Excused`] | a volume and its model in step |
//! | [`Calls`] | random calls, mostly sensible ones, around every boundary |

mod bytes;
mod call;
mod files;
mod generate;
mod session;
#[cfg(test)]
mod tests;

pub use bytes::{Bytes, PIECE};
pub use call::{Call, Reserve};
pub use files::{Files, Outcome};
pub use generate::{Calls, fill};
pub use session::{Excused, OpenFile, Session, Subject};
