//! The error type of directory operations.

pub use error::Error;

/// Result of a directory operation.
pub type Result<T> = std::result::Result<T, Error>;
