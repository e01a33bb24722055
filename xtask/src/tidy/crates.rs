//! Rules about crates: the layering, reasons for dependencies, `forbid(unsafe_code)`.
//!
//! Manifests are read line by line. Each dependency must be one line: tables of a single dependency
//! (`[dependencies.name]`) are refused.

use super::Complaints;
use super::tree::{File, Tree};

/// Tools that check the engine, or are used when it is broken, and the crates that they may depend on.
const OFFLINE: &[(&str, &[&str])] = &[
    ("tools/read", &["base", "format", "block"]),
    ("tools/check", &["base", "format", "block"]),
    ("tools/dump", &["base", "format", "block", "tools/read"]),
];

/// Crates that may contain `unsafe`, and why.
const MAY_BE_UNSAFE: &[(&str, &str)] = &[
    ("base", "lock guards that own a reference to their lock; pooled memory; signal masks"),
    ("block", "io_uring, aligned buffers, system calls"),
    ("remote/rbd", "calls of librados and librbd"),
    ("proof/races", "the sources of `base` that it includes"),
    ("proof/fuzz", "a macro defines libFuzzer's entry point, a C function"),
];

/// The crate outside the workspace: cargo-fuzz builds it with its own flags.
const EXCLUDED: &str = "proof/fuzz";

/// A crate's manifest.
pub struct Manifest<'a> {
    /// Directory of the crate; empty for the root of the workspace.
    pub dir: &'a str,
    /// `Cargo.toml`.
    pub file: &'a File,
}

/// One dependency in a manifest.
struct Dependency<'a> {
    line: usize,
    /// Name in the crate.
    name: &'a str,
    /// Whether a comment above or behind it gives the reason.
    has_reason: bool,
    /// Whether it is a dev-dependency.
    for_tests: bool,
}

/// All manifests of the tree.
pub fn manifests(tree: &Tree) -> impl Iterator<Item = Manifest<'_>> {
    tree.files().filter_map(|file| {
        let dir = file.path.strip_suffix("Cargo.toml")?;
        Some(Manifest { dir: dir.strip_suffix('/').unwrap_or(dir), file })
    })
}

impl<'a> Manifest<'a> {
    /// Every line with the name of its section.
    fn lines(&self) -> impl Iterator<Item = (usize, &'a str, &'a str)> + use<'a> {
        let mut section = "";
        self.file.lines().filter_map(move |(number, line)| {
            let line = line.trim();
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = name.trim_matches(['[', ']']);
                return None;
            }
            Some((number, section, line))
        })
    }

    /// The lines of normal, development and build dependencies, for any target.
    fn dependencies(&self) -> Vec<Dependency<'a>> {
        let mut found = Vec::new();
        let mut comment_above = false;
        for (line, section, text) in self.lines() {
            let is_comment = text.starts_with('#');
            if section.ends_with("dependencies")
                && !section.starts_with("workspace")
                && !is_comment
                && let Some((key, _)) = text.split_once('=')
            {
                let name = key.trim().split('.').next().unwrap_or_default();
                let has_reason = comment_above || text.contains(" # ");
                found.push(Dependency {
                    line,
                    name,
                    has_reason,
                    for_tests: section.ends_with("dev-dependencies"),
                });
            }
            comment_above = is_comment;
        }
        found
    }

    /// The quoted values of `key` in all sections, each with the first key of its line.
    pub fn values_of(&self, key: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.lines().filter_map(move |(_, _, text)| {
            let (name, rest) = text.split_once('=')?;
            let value = if name.trim() == key { rest } else { text.split_once(&format!("{key} = "))?.1 };
            Some((name.trim(), value.split('"').nth(1)?))
        })
    }
}

fn root(tree: &Tree) -> Option<Manifest<'_>> {
    Some(Manifest { dir: "", file: tree.file("Cargo.toml")? })
}

/// The workspace's members in order: line, directory, and whether a comment follows.
fn member_list(tree: &Tree) -> Vec<(usize, &str, bool)> {
    let mut inside = false;
    let mut members = Vec::new();
    for (number, _, text) in root(tree).iter().flat_map(Manifest::lines) {
        inside = (inside || text.starts_with("members = [")) && !text.starts_with(']');
        if let Some(member) = text.split('"').nth(1).filter(|_| inside && text.starts_with('"')) {
            members.push((number, member, text.contains(" # ")));
        }
    }
    members
}

/// Directory of the workspace crate that is imported as `name`; `None` for an external crate.
fn folder_of<'a>(tree: &'a Tree, name: &str) -> Option<&'a str> {
    root(tree)?.values_of("path").find_map(|(import, path)| (import == name).then_some(path))
}

/// A crate depends only on crates above it in the list of members. Only `proof` and `xtask` depend on `proof`.
/// Dev-dependencies are free.
pub fn layering(tree: &Tree, complaints: &mut Complaints) {
    let members = member_list(tree);
    let layer = |dir: &str| members.iter().position(|(_, member, _)| *member == dir);
    for manifest in manifests(tree) {
        for dependency in manifest.dependencies() {
            let Some(folder) = folder_of(tree, dependency.name).filter(|_| !dependency.for_tests) else {
                continue;
            };
            if let (Some(own), Some(other)) = (layer(manifest.dir), layer(folder))
                && other >= own
            {
                let message =
                    format!("{} may not depend on {folder}, a later member in Cargo.toml", manifest.dir);
                complaints.add(&manifest.file.path, dependency.line, message);
            }
            if folder.starts_with("proof/") && !manifest.dir.starts_with("proof/") && manifest.dir != "xtask"
            {
                complaints.add(&manifest.file.path, dependency.line, "shipped crates do not depend on proof");
            }
        }
    }
}

/// The tools of [`OFFLINE`] depend only on what is listed there, so that they do not share bugs of the engine.
pub fn offline_tools(tree: &Tree, complaints: &mut Complaints) {
    for manifest in manifests(tree) {
        let Some((_, allowed)) = OFFLINE.iter().find(|(dir, _)| *dir == manifest.dir) else { continue };
        for dependency in manifest.dependencies() {
            let Some(folder) = folder_of(tree, dependency.name) else { continue };
            if !allowed.contains(&folder) {
                let message = format!("{} may depend only on {}", manifest.dir, allowed.join(", "));
                complaints.add(&manifest.file.path, dependency.line, message);
            }
        }
    }
}

/// Each dependency on an external crate has a comment with its reason.
pub fn reasons(tree: &Tree, complaints: &mut Complaints) {
    for manifest in manifests(tree) {
        for dependency in manifest.dependencies() {
            let ours = folder_of(tree, dependency.name).is_some();
            if !ours && !dependency.has_reason {
                let message = format!("`{}` has no comment that gives its purpose", dependency.name);
                complaints.add(&manifest.file.path, dependency.line, message);
            }
        }
        for (number, section, _) in manifest.lines() {
            if section.contains("dependencies.") {
                complaints.add(&manifest.file.path, number, "write a dependency as one line");
            }
        }
    }
}

/// Every crate root forbids `unsafe`, except those of [`MAY_BE_UNSAFE`].
pub fn forbid_unsafe(tree: &Tree, complaints: &mut Complaints) {
    for manifest in manifests(tree).filter(|manifest| !manifest.dir.is_empty()) {
        if MAY_BE_UNSAFE.iter().any(|(dir, _)| *dir == manifest.dir) {
            continue;
        }
        let [lib, main, bin] =
            ["lib.rs", "main.rs", "bin/"].map(|name| format!("{}/src/{name}", manifest.dir));
        let is_root = |path: &str| path == lib || path == main || path.starts_with(&bin);
        for file in tree.files().filter(|file| is_root(&file.path)) {
            if !file.rust.as_ref().is_some_and(|rust| rust.forbids_unsafe) {
                complaints.add(&file.path, 1, "lacks #![forbid(unsafe_code)]");
            }
        }
    }
}

/// Each listed member exists and has a comment with its purpose, and each crate is listed or is [`EXCLUDED`].
pub fn members(tree: &Tree, complaints: &mut Complaints) {
    let members = member_list(tree);
    for (number, member, has_comment) in &members {
        if tree.file(&format!("{member}/Cargo.toml")).is_none() {
            complaints.add("Cargo.toml", *number, format_args!("{member} has no manifest"));
        }
        if !has_comment {
            complaints.add(
                "Cargo.toml",
                *number,
                format_args!("{member} has no comment that gives its purpose"),
            );
        }
    }
    for manifest in manifests(tree).filter(|manifest| !manifest.dir.is_empty()) {
        let listed = members.iter().any(|(_, member, _)| *member == manifest.dir);
        if !listed && manifest.dir != EXCLUDED {
            complaints.add(&manifest.file.path, 1, "is not a member of the workspace");
        }
    }
}
