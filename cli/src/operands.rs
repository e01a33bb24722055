//! Operands that name existing files of a volume: paths and shell patterns.
//!
//! | in a pattern | matches |
//! |---|---|
//! | `*`, `?`, `[...]` | see [`glob`](crate::glob); never a slash |
//! | `\` | quotes the next character |
//!
//! # Invariants
//! - A path that exists literally is not expanded, also if it contains `*`, `?`, `[` or `\`; neither is such a name
//!   within a pattern.
//! - `*`, `?` and `[...]` do not match a dot at the start of a name.
//! - All operands of a command are expanded before its first change.
//! - Names of files that a command creates are never expanded.

use std::fmt;

use read::{FinalSymlink, Listing, resolve};
use xebec::errno::{self, Errno};

use crate::failure::AtPath;
use crate::glob::{Pattern, is_pattern};
use crate::names::quoted;

/// A directory tree to match patterns with.
pub trait Tree {
    /// Whether a path exists. A symbolic link at its end may be dangling.
    fn exists(&self, path: &[u8]) -> bool;

    /// Passes the names in a directory to `visit`, except `.` and `..`; none if the path is not a directory.
    fn names(&self, dir: &[u8], visit: &mut dyn FnMut(&[u8])) -> anyhow::Result<()>;
}

impl Tree for read::Volume {
    fn exists(&self, path: &[u8]) -> bool {
        resolve(self, path, FinalSymlink::Keep).is_ok()
    }

    fn names(&self, dir: &[u8], visit: &mut dyn FnMut(&[u8])) -> anyhow::Result<()> {
        let inode = match resolve(self, dir, FinalSymlink::Follow) {
            Err(error) if is_missing(error.errno()) => return Ok(()),
            found => found?,
        };
        if inode.dinode().file_type() != Some(format::inode::FileType::Directory) {
            return Ok(());
        }
        let mut damage = None;
        let listing = Listing::read(self, &inode.dinode(), |error| damage = damage.take().or(Some(error)));
        listing.items().iter().for_each(|entry| visit(listing.name(entry)));
        damage.map_or(Ok(()), |error| Err(error.into()))
    }
}

impl Tree for xebec::Volume {
    fn exists(&self, path: &[u8]) -> bool {
        self.resolve(path, false).is_ok()
    }

    fn names(&self, dir: &[u8], visit: &mut dyn FnMut(&[u8])) -> anyhow::Result<()> {
        let read = self.resolve(dir, true).and_then(|ino| {
            self.read_dir(ino, xebec::Cookie::default(), &mut |entry| {
                if !matches!(entry.name, b"." | b"..") {
                    visit(entry.name);
                }
                true
            })
        });
        match read {
            Err(error) if is_missing(error.errno()) => Ok(()),
            read => Ok(read?),
        }
    }
}

/// Whether an errno means that there is no such directory. Other errors are reported.
fn is_missing(errno: Errno) -> bool {
    matches!(errno, errno::ENOENT | errno::ENOTDIR | errno::ELOOP | errno::ENAMETOOLONG)
}

/// No file matches a pattern.
#[derive(Clone, Copy, Debug)]
pub struct NoMatch;

impl fmt::Display for NoMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no file matches this pattern")
    }
}

impl std::error::Error for NoMatch {}

/// Expands operands, in their order; the paths of one pattern are sorted by their bytes. Operands that cannot be
/// expanded are passed to `fail`. A path that is not a pattern is returned even if it does not exist.
pub fn paths<'o, T: Tree>(
    tree: &T,
    operands: impl IntoIterator<Item = &'o [u8]>,
    fail: &mut dyn FnMut(&[u8], anyhow::Error),
) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for operand in operands {
        match expand(tree, operand) {
            Ok(found) => all.extend(found),
            Err(error) => fail(operand, error),
        }
    }
    all
}

/// Expands an operand that must name one path.
///
/// # Errors
/// A pattern that no file matches, or several; a directory that cannot be read.
pub fn path<T: Tree>(tree: &T, operand: &[u8]) -> anyhow::Result<Vec<u8>> {
    let found = expand(tree, operand).and_then(|found| match <[_; 1]>::try_from(found) {
        Ok([path]) => Ok(path),
        Err(found) => {
            let names: Vec<_> = found.iter().take(2).map(|path| quoted(path)).collect();
            anyhow::bail!(
                "pattern matches {} files, such as {}: name one of them",
                found.len(),
                names.join(" and ")
            )
        }
    });
    found.map_err(|error| error.context(AtPath(operand.to_vec())))
}

fn expand<T: Tree>(tree: &T, operand: &[u8]) -> anyhow::Result<Vec<Vec<u8>>> {
    if !is_pattern(operand) || tree.exists(operand) {
        return Ok(vec![operand.to_vec()]);
    }
    let mut found = vec![Vec::new()];
    for component in operand.split_inclusive(|byte| *byte == b'/') {
        let name = component.strip_suffix(b"/").unwrap_or(component);
        if !is_pattern(name) {
            found.iter_mut().for_each(|path| path.extend_from_slice(component));
            continue;
        }
        let (pattern, slash) = (Pattern::new(name, false), component.get(name.len()..).unwrap_or_default());
        let matches_hidden = name.starts_with(b".") || name.starts_with(b"\\.");
        let mut next = Vec::new();
        for dir in &found {
            let path = |name: &[u8]| [dir, name, slash].concat();
            if tree.exists(&path(name)) {
                next.push(path(name));
                continue;
            }
            let dir = if dir.is_empty() { b"/" } else { &dir[..] };
            tree.names(dir, &mut |name| {
                if (matches_hidden || !name.starts_with(b".")) && pattern.matches(name) {
                    next.push(path(name));
                }
            })?;
        }
        found = next;
    }
    found.retain(|path| tree.exists(path));
    found.sort();
    if !found.is_empty() {
        Ok(found)
    } else if operand.iter().any(|byte| b"*?[".contains(byte)) {
        Err(NoMatch.into())
    } else {
        // Only a backslash: the literal name does not exist.
        Ok(vec![operand.to_vec()])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Paths of files; their directories exist.
    struct Files(&'static [&'static str]);

    impl Files {
        fn components(path: &[u8]) -> Vec<&[u8]> {
            path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect()
        }
    }

    impl Tree for Files {
        fn exists(&self, path: &[u8]) -> bool {
            let components = Self::components(path);
            self.0.iter().map(|file| Self::components(file.as_bytes())).any(|file| {
                file.starts_with(&components) && (!path.ends_with(b"/") || file.len() > components.len())
            })
        }

        fn names(&self, dir: &[u8], visit: &mut dyn FnMut(&[u8])) -> anyhow::Result<()> {
            let dir = Self::components(dir);
            let files = self.0.iter().map(|file| Self::components(file.as_bytes()));
            let below =
                files.filter(|file| file.starts_with(&dir)).filter_map(|file| file.get(dir.len()).copied());
            below.collect::<BTreeSet<_>>().into_iter().rev().for_each(visit);
            Ok(())
        }
    }

    #[track_caller]
    fn expect(tree: &Files, operand: &str, found: &[&str]) {
        let paths = expand(tree, operand.as_bytes()).unwrap_or_default();
        let paths: Vec<_> = paths.iter().map(|path| String::from_utf8_lossy(path)).collect();
        assert_eq!(paths, found, "{operand}");
    }

    #[test]
    fn expands_patterns_as_a_shell_does() {
        let tree =
            Files(&["/etc/a.conf", "/etc/b.conf", "/etc/.c.conf", "/etc/a.d/x", "/etc-old/a.conf", "/f"]);
        expect(&tree, "/etc/*.conf", &["/etc/a.conf", "/etc/b.conf"]);
        expect(&tree, "etc/?.conf", &["etc/a.conf", "etc/b.conf"]);
        expect(&tree, "/etc/[b-z].*", &["/etc/b.conf"]);
        expect(&tree, "/etc/.*", &["/etc/.c.conf"]);
        expect(&tree, "/etc/\\.*", &["/etc/.c.conf"]);
        expect(&tree, "/etc/[.]*", &[]);
        expect(&tree, "/etc*/a.conf", &["/etc-old/a.conf", "/etc/a.conf"]);
        expect(&tree, "/*/*/x", &["/etc/a.d/x"]);
        expect(&tree, "/*/", &["/etc-old/", "/etc/"]);
        expect(&tree, "//etc//a*", &["//etc//a.conf", "//etc//a.d"]);
        expect(&tree, "*", &["etc", "etc-old", "f"]);
        expect(&tree, "/f/*", &[]);
        expect(&tree, "/none/*", &[]);
        expect(&tree, "/none", &["/none"]);
        expect(&tree, "", &[""]);
    }

    #[test]
    fn prefers_literal_names_and_honours_backslashes() {
        let tree = Files(&["/*", "/a", "/x\\y", "/p[1]/a", "/p[1]/b", "/p1/a", "/[", "/b\\*"]);
        expect(&tree, "/*", &["/*"]);
        expect(&tree, "/\\*", &["/*"]);
        expect(&tree, "/[*]", &["/*"]);
        expect(&tree, "/x\\y", &["/x\\y"]);
        expect(&tree, "/p[1]/*", &["/p[1]/a", "/p[1]/b"]);
        expect(&tree, "/p\\[1]/?", &["/p[1]/a", "/p[1]/b"]);
        expect(&tree, "/[", &["/["]);
        expect(&tree, "/b\\*", &["/b\\*"]);
        expect(&tree, "/\\a", &["/a"]);
        expect(&tree, "/q\\r", &["/q\\r"]);
        assert!(path(&tree, b"/p?1]/*").is_err() && path(&tree, b"/p1/*").is_ok());
    }
}
