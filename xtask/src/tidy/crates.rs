//! Rules about crates: the layering, arguments for dependencies, `forbid(unsafe_code)`.
//!
//! Manifests are read line by line, as this repository writes them: one dependency a line. A table of a single
//! dependency (`[dependencies.name]`) is not written here, and is a complaint.

use super::Complaints;
use super::tree::{File, Tree};

/// Tools that judge the engine, or are used when it is broken: what they may stand on.
const OFFLINE: &[(&str, &[&str])] = &[
    ("tools/read", &["base", "format", "block"]),
    ("tools/check", &["base", "format", "block"]),
    ("tools/dump", &["base", "format", "block", "tools/read"]),
];

/// The crates that may hold `unsafe`, and why.
const MAY_BE_UNSAFE: &[(&str, &str)] = &[
    ("base", "a lock's guard that keeps the lock alive, which transactions hold; signal masks"),
    ("block", "io_uring's queues and the buffers that the kernel fills"),
    ("proof/fuzz", "libFuzzer's entry point is a C function, which a macro writes"),
];

/// The one crate that is no member: cargo-fuzz builds it with its own flags.
const APART: &str = "proof/fuzz";

/// A crate's manifest.
pub struct Manifest<'a> {
    /// The crate's folder; empty for the workspace's root.
    pub dir: &'a str,
    /// The file.
    pub file: &'a File,
}

/// One dependency as a manifest writes it.
struct Dependency<'a> {
    line: usize,
    /// The name by which the crate imports it.
    name: &'a str,
    /// Whether a comment stands above it or behind it.
    argued: bool,
    /// Whether only tests use it.
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
    /// Every line with its section's name.
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
                let argued = comment_above || text.contains(" # ");
                found.push(Dependency {
                    line,
                    name,
                    argued,
                    for_tests: section.ends_with("dev-dependencies"),
                });
            }
            comment_above = is_comment;
        }
        found
    }

    /// The quoted values of `key`, anywhere, with the name of the line's own key.
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

/// The members in the order of the root's list: line, folder, and whether a comment follows.
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

/// The folder of the workspace crate that is imported as `name`; `None` for a crate from elsewhere.
fn folder_of<'a>(tree: &'a Tree, name: &str) -> Option<&'a str> {
    root(tree)?.values_of("path").find_map(|(import, path)| (import == name).then_some(path))
}

/// A crate depends only on crates above it in the root's list of members; nothing that is shipped depends on `proof`.
/// Tests may use what they like.
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
                let what = format!("{} may not depend on {folder}: it stands below it", manifest.dir);
                complaints.add(&manifest.file.path, dependency.line, what);
            }
            if folder.starts_with("proof/") && !manifest.dir.starts_with("proof/") && manifest.dir != "xtask"
            {
                complaints.add(
                    &manifest.file.path,
                    dependency.line,
                    "nothing that is shipped depends on proof",
                );
            }
        }
    }
}

/// The tools of [`OFFLINE`] stand on what is listed there, so that an engine bug cannot hide from its judge.
pub fn offline_tools(tree: &Tree, complaints: &mut Complaints) {
    for manifest in manifests(tree) {
        let Some((_, allowed)) = OFFLINE.iter().find(|(dir, _)| *dir == manifest.dir) else { continue };
        for dependency in manifest.dependencies() {
            let Some(folder) = folder_of(tree, dependency.name) else { continue };
            if !allowed.contains(&folder) {
                let what = format!("{} stands on {} alone", manifest.dir, allowed.join(", "));
                complaints.add(&manifest.file.path, dependency.line, what);
            }
        }
    }
}

/// Each dependency on a crate from elsewhere says why, in the line above.
pub fn arguments(tree: &Tree, complaints: &mut Complaints) {
    for manifest in manifests(tree) {
        for dependency in manifest.dependencies() {
            let ours = folder_of(tree, dependency.name).is_some();
            if !ours && !dependency.argued {
                let what = format!("`{}` has no comment that says what it is for", dependency.name);
                complaints.add(&manifest.file.path, dependency.line, what);
            }
        }
        for (number, section, _) in manifest.lines() {
            if section.contains("dependencies.") {
                complaints.add(&manifest.file.path, number, "write a dependency as one line");
            }
        }
    }
}

/// Every crate root forbids `unsafe`, but for [`MAY_BE_UNSAFE`].
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

/// Each member of the root's list exists and says in a comment what it is, and each crate is a member or stands apart.
pub fn members(tree: &Tree, complaints: &mut Complaints) {
    let members = member_list(tree);
    for (number, member, argued) in &members {
        if tree.file(&format!("{member}/Cargo.toml")).is_none() {
            complaints.add("Cargo.toml", *number, format_args!("{member} has no manifest"));
        }
        if !argued {
            complaints.add(
                "Cargo.toml",
                *number,
                format_args!("{member} has no comment that says what it is"),
            );
        }
    }
    for manifest in manifests(tree).filter(|manifest| !manifest.dir.is_empty()) {
        let listed = members.iter().any(|(_, member, _)| *member == manifest.dir);
        if !listed && manifest.dir != APART {
            complaints.add(&manifest.file.path, 1, "is no member of the workspace");
        }
    }
}
