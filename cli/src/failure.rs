//! Error messages, with the path and the errno.

use std::error::Error;
use std::fmt;
use std::io;

use crate::names::quoted;
use crate::operands::NoMatch;

/// The path that an error is about, as a context of `anyhow`.
#[derive(Clone, Debug)]
pub struct AtPath(pub Vec<u8>);

impl fmt::Display for AtPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quoted(&self.0))
    }
}

/// The text and the errno of an error.
#[derive(Clone, Debug)]
pub struct Described {
    /// The text.
    pub text: String,
    /// Errno, if known.
    pub errno: Option<i32>,
}

impl fmt::Display for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Described {}

/// An error message.
#[derive(Clone, Debug, Default)]
pub struct Failure {
    /// Text, including the path.
    pub text: String,
    /// Path in the image or on the host, if known.
    pub path: Option<Vec<u8>>,
    /// Errno, if known.
    pub errno: Option<i32>,
}

impl Failure {
    /// An error about a path.
    pub fn at(path: &[u8], error: impl Into<Self>) -> Self {
        let Self { text, errno, .. } = error.into();
        Self { text: format!("{}: {text}", quoted(path)), path: Some(path.to_vec()), errno }
    }

    /// An error whose text names the path already.
    pub fn naming(path: &[u8], error: &(dyn Error + 'static)) -> Self {
        Self { text: error.to_string(), path: Some(path.to_vec()), errno: errno_of(error) }
    }

    /// Replaces the text.
    pub fn with_text(self, text: String) -> Self {
        Self { text, ..self }
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<fmt::Arguments<'_>> for Failure {
    fn from(text: fmt::Arguments<'_>) -> Self {
        text.to_string().into()
    }
}

impl From<&anyhow::Error> for Failure {
    fn from(error: &anyhow::Error) -> Self {
        let path = error.downcast_ref::<AtPath>().map(|path| path.0.clone());
        Self { text: format!("{error:#}"), path, errno: error.chain().find_map(errno_of) }
    }
}

impl From<read::Error> for Failure {
    fn from(error: read::Error) -> Self {
        Self { text: error.to_string(), path: None, errno: Some(error.errno().get()) }
    }
}

/// Errno of an error, if its type has one.
fn errno_of(error: &(dyn Error + 'static)) -> Option<i32> {
    if let Some(error) = error.downcast_ref::<xebec::Error>() {
        Some(error.errno().get())
    } else if let Some(error) = error.downcast_ref::<xebec::ImageError>() {
        Some(error.errno().get())
    } else if let Some(error) = error.downcast_ref::<read::Error>() {
        Some(error.errno().get())
    } else if let Some(error) = error.downcast_ref::<xebec::TransferError>() {
        error.errno().map(xebec::errno::Errno::get)
    } else if let Some(error) = error.downcast_ref::<xebec::device::OpenError>() {
        Some(error.errno())
    } else if let Some(error) = error.downcast_ref::<xebec::device::DeviceError>() {
        Some(error.errno())
    } else if let Some(error) = error.downcast_ref::<remote::RemoteError>() {
        Some(error.errno())
    } else if let Some(described) = error.downcast_ref::<Described>() {
        described.errno
    } else if error.is::<NoMatch>() {
        Some(xebec::errno::ENOENT.get())
    } else if let Some(error) = error.downcast_ref::<rustix::io::Errno>() {
        Some(error.raw_os_error())
    } else {
        error.downcast_ref::<io::Error>()?.raw_os_error()
    }
}
