//! Paths as arguments.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A path or a name in a volume: any bytes but NUL, with slashes between the names. Implemented for strings, byte
/// strings and the paths of the standard library.
pub trait AsPath {
    /// The bytes of the path.
    fn as_path(&self) -> &[u8];
}

/// Implements the trait for types of which a method returns the bytes.
macro_rules! as_path {
    ($($type:ty: $bytes:expr,)*) => {
        $(impl AsPath for $type {
            fn as_path(&self) -> &[u8] {
                let bytes: fn(&$type) -> &[u8] = $bytes;
                bytes(self)
            }
        })*
    };
}

as_path! {
    [u8]: |path| path,
    Vec<u8>: |path| path,
    str: str::as_bytes,
    String: String::as_bytes,
    OsStr: OsStr::as_bytes,
    OsString: |path| OsStr::as_bytes(path),
    Path: |path| path.as_os_str().as_bytes(),
    PathBuf: |path| path.as_os_str().as_bytes(),
}

impl<const N: usize> AsPath for [u8; N] {
    fn as_path(&self) -> &[u8] {
        self
    }
}

impl<T: AsPath + ?Sized> AsPath for &T {
    fn as_path(&self) -> &[u8] {
        (*self).as_path()
    }
}

impl<T: AsPath + ToOwned + ?Sized> AsPath for Cow<'_, T> {
    fn as_path(&self) -> &[u8] {
        (**self).as_path()
    }
}
