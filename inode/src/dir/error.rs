//! What operations on directories return.

pub use journal::engine::Error;

/// What operations on directories return.
pub type Result<T> = std::result::Result<T, Error>;
