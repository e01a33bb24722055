//! Errors of a store, by what the caller can do about them.

use std::error::Error;
use std::fmt;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Reading an object or a part of it.
    Get,
    /// Writing an object.
    Put,
    /// Listing names.
    List,
    /// Deleting an object.
    Delete,
    /// Finding the store.
    Open,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "read",
            Self::Put => "write",
            Self::List => "list",
            Self::Delete => "delete",
            Self::Open => "open",
        })
    }
}

/// What a failure means for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// There is no such object (404).
    Absent,
    /// The condition of a write does not hold (412): the object exists, or has another version. The caller's own
    /// earlier attempt may be the reason.
    Precondition,
    /// The request may or may not have been carried out (timeout, lost connection, 409, 5xx): repeat it.
    Unclear,
    /// The credentials do not allow it (401, 403). Repeating does not help.
    Denied,
    /// The store cannot do it.
    Unsupported,
    /// The reply or the name is not valid. Repeating does not help.
    Invalid,
}

/// A request that failed.
#[derive(Debug)]
pub struct StoreError {
    /// What it means.
    pub kind: ErrorKind,
    /// The store.
    pub store: Box<str>,
    /// The request.
    pub request: Request,
    /// The object, or the prefix of a list.
    pub key: Box<str>,
    /// The reason.
    pub source: Box<dyn Error + Send + Sync>,
}

impl StoreError {
    /// An error with its reason.
    pub fn new(
        kind: ErrorKind,
        store: impl Into<Box<str>>,
        request: Request,
        key: &str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { kind, store: store.into(), request, key: key.into(), source: source.into() }
    }

    /// What the user can do.
    fn advice(&self) -> &'static str {
        match self.kind {
            ErrorKind::Absent => " (no such object)",
            ErrorKind::Precondition => " (another writer was faster)",
            ErrorKind::Unclear => " (the store does not answer, or asks to try again later)",
            ErrorKind::Denied => " (check the credentials, and what they allow)",
            ErrorKind::Unsupported => " (the store cannot do this)",
            ErrorKind::Invalid => "",
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, request, key, source, .. } = self;
        let separator = if key.is_empty() { "" } else { "/" };
        write!(f, "{store}{separator}{key}: cannot {request}: {source}{}", self.advice())
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.source.as_ref())
    }
}
