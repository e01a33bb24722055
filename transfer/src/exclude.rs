//! Patterns of files to skip.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// Patterns as in `.gitignore`; the last match decides. `*.o` and `cache/` match at any depth, `/proc` and `usr/*/doc`
/// below the root of the source, `**` across directories, and `!` includes again. A pattern with a trailing slash
/// matches only directories. Excluded directories are not entered. Clones share the patterns.
#[derive(Clone, Debug, Default)]
pub struct Excludes(Option<Arc<Gitignore>>);

impl Excludes {
    /// Parses patterns; empty lines and lines that begin with `#` are ignored.
    ///
    /// # Errors
    /// A message that names the invalid pattern.
    pub fn new<'p>(patterns: impl IntoIterator<Item = &'p str>) -> Result<Self, String> {
        let mut builder = GitignoreBuilder::new("");
        // An unclosed bracket is an error.
        builder.allow_unclosed_class(false);
        for pattern in patterns {
            builder.add_line(None, pattern).map_err(|error| format!("`{pattern}`: {error}"))?;
        }
        let patterns = builder.build().map_err(|error| error.to_string())?;
        Ok(Self((!patterns.is_empty()).then(|| Arc::new(patterns))))
    }

    /// Whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether a file with this path below the root is excluded, given that its parent directories are not.
    pub fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        let path = Path::new(OsStr::from_bytes(path));
        self.0.as_ref().is_some_and(|patterns| patterns.matched(path, is_directory).is_ignore())
    }

    /// Like [`matches`](Self::matches), but calls `is_directory` only if a pattern depends on the file type, so that
    /// unreadable files can be excluded.
    ///
    /// # Errors
    /// That of `is_directory`.
    pub fn matches_with<E>(
        &self,
        path: &[u8],
        is_directory: impl FnOnce() -> Result<bool, E>,
    ) -> Result<bool, E> {
        match (self.matches(path, false), self.matches(path, true)) {
            (as_file, as_directory) if as_file == as_directory => Ok(as_file),
            (as_file, as_directory) => Ok(if is_directory()? { as_directory } else { as_file }),
        }
    }

    /// Whether a file with this path below the root, or one of its parent directories, is excluded.
    pub fn matches_within(&self, path: &[u8], is_directory: bool) -> bool {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let above = |end| path.get(..end).is_some_and(|above| self.matches(above, true));
        !self.is_empty() && (ends.into_iter().any(above) || self.matches(path, is_directory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_git() {
        let excludes =
            Excludes::new(["*.o", "!keep.o", "/proc", "cache/", "usr/*/doc", "# none", "", "**/tmp/x"]);
        let excludes = excludes.unwrap();
        for (path, is_directory, wanted) in [
            ("a.o", false, true),
            ("deep/er/a.o", false, true),
            ("deep/keep.o", false, false),
            ("proc", true, true),
            ("proc/1/stat", false, true),
            ("home/proc", true, false),
            ("home/cache", true, true),
            ("home/cache", false, false),
            ("home/cache/file", false, true),
            ("usr/share/doc", true, true),
            ("usr/a/b/doc", true, false),
            ("tmp/x", false, true),
            ("a/tmp/x", false, true),
            ("# none", false, false),
            ("", true, false),
        ] {
            assert_eq!(excludes.matches_within(path.as_bytes(), is_directory), wanted, "{path}");
        }
        assert!(Excludes::new(["a[b"]).is_err());
        let asked = |path: &[u8], answer| excludes.matches_with(path, || answer);
        assert_eq!(asked(b"a.o", Err(())), Ok(true), "no matter what it is");
        assert_eq!(asked(b"a.c", Err(())), Ok(false));
        assert_eq!((asked(b"cache", Ok(true)), asked(b"cache", Ok(false))), (Ok(true), Ok(false)));
        assert_eq!(asked(b"cache", Err(())), Err(()));
        assert!(!Excludes::default().matches_within(b"a.o", false));
        // Bytes that are no UTF-8.
        assert!(excludes.matches_within(b"\xff\xfe.o", false));
    }
}
