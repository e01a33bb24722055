//! The files that the rules read.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use super::exceptions;
use super::rust::Rust;

/// All text files of a checkout, by their path from its root.
pub struct Tree {
    files: BTreeMap<String, File>,
    /// Paths of files that are not UTF-8 text. Links may name them; no other rule reads them.
    binaries: Vec<String>,
}

/// One text file.
pub struct File {
    /// Path from the root, with `/`.
    pub path: String,
    /// Contents.
    pub text: String,
    /// Syntax of a `.rs` file that parses.
    pub rust: Option<Rust>,
}

impl File {
    /// Whether the project writes this file (see [`exceptions::FOREIGN_TEXT`]).
    pub fn ours(&self) -> bool {
        let foreign =
            |&(path, _): &(&str, _)| self.path == path || path.ends_with('/') && self.path.starts_with(path);
        !exceptions::FOREIGN_TEXT.iter().any(foreign)
    }

    /// Lines with their numbers, from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Whether the path ends in `.EXTENSION`.
    pub fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }
}

impl Tree {
    /// Reads the files that git tracks, and those that it would track, so that rules apply before a commit.
    pub fn of_checkout(root: &Path) -> anyhow::Result<Self> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("git ls-files")?;
        if !output.status.success() {
            bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let list = String::from_utf8(output.stdout).context("a file name that is not UTF-8")?;
        let mut tree = Self { files: BTreeMap::new(), binaries: Vec::new() };
        for path in list.split_terminator('\0') {
            let full = root.join(path);
            // Deleted but not staged, or a symbolic link.
            if !full.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
                continue;
            }
            let bytes = std::fs::read(&full).with_context(|| path.to_string())?;
            match String::from_utf8(bytes) {
                Ok(text) if !text.contains('\0') => tree.insert(path, text),
                _ => tree.binaries.push(path.to_string()),
            }
        }
        Ok(tree)
    }

    /// A tree of the given files, to test rules.
    #[cfg(test)]
    pub fn of_files<const N: usize>(files: [(&str, String); N]) -> Self {
        let mut tree = Self { files: BTreeMap::new(), binaries: Vec::new() };
        for (path, text) in files {
            tree.insert(path, text);
        }
        tree
    }

    fn insert(&mut self, path: &str, text: String) {
        let rust = if path.ends_with(".rs") { Rust::parse(&text).ok() } else { None };
        let path = path.to_string();
        self.files.insert(path.clone(), File { path, text, rust });
    }

    /// All text files, ordered by path.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.files.values()
    }

    /// Rust files that parse, each with its syntax.
    pub fn rust_files(&self) -> impl Iterator<Item = (&File, &Rust)> {
        self.files().filter_map(|file| Some((file, file.rust.as_ref()?)))
    }

    /// The file with this path.
    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.get(path)
    }

    /// Whether the tree has a file or directory with this path.
    pub fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self.files.range(folder.clone()..).next().is_some_and(|(next, _)| next.starts_with(&folder))
            || self.binaries.iter().any(|binary| binary == path || binary.starts_with(&folder))
    }
}

/// Resolves `relative` against the directory of the file `from`; `None` if it leaves the tree.
pub fn join(from: &str, relative: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}
