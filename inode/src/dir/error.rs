//! The error type of directory operations.

pub use journal::engine::Error;

/// Result of a directory operation.
pub type Result<T> = std::result::Result<T, Error>;
