//! Rust files that no crate compiles.

use std::collections::{BTreeMap, BTreeSet};

use super::Complaints;
use super::crates::manifests;
use super::rust::Module;
use super::tree::{Tree, join};

/// Every `.rs` file is reached through `mod` from the root of a crate.
pub fn files(tree: &Tree, complaints: &mut Complaints) {
    let reached = reached(tree);
    for file in tree.files().filter(|file| file.has_extension("rs") && file.ours()) {
        if !reached.contains_key(&file.path) {
            complaints.add(&file.path, 1, "no `mod` declares this file");
        }
    }
}

/// Files outside libraries and programs: tests, examples, benches, and modules under `#[cfg(test)]`.
pub fn test_files(tree: &Tree) -> BTreeSet<String> {
    reached(tree).into_iter().filter_map(|(path, test)| test.then_some(path)).collect()
}

/// Files that a crate compiles, each with whether only tests use it.
fn reached(tree: &Tree) -> BTreeMap<String, bool> {
    let mut reached = BTreeMap::new();
    for (path, test) in roots(tree) {
        follow(tree, &path, true, test, &mut reached);
    }
    reached
}

/// Crate roots: those at Cargo's default paths, and those that a manifest names.
fn roots(tree: &Tree) -> Vec<(String, bool)> {
    let mut roots = Vec::new();
    for manifest in manifests(tree) {
        let dir = manifest.dir;
        for file in tree.files() {
            let Some(inside) = file.path.strip_prefix(dir).map(|path| path.trim_start_matches('/')) else {
                continue;
            };
            let parts: Vec<&str> = inside.split('/').collect();
            let (is_root, test) = match parts.as_slice() {
                ["build.rs"] | ["src", "lib.rs" | "main.rs"] => (true, false),
                ["src", "bin", name] => (name.ends_with(".rs"), false),
                ["src", "bin", _, "main.rs"] => (true, false),
                ["tests" | "examples" | "benches", name] => (name.ends_with(".rs"), true),
                ["tests" | "examples" | "benches", _, "main.rs"] => (true, true),
                _ => (false, false),
            };
            if is_root {
                roots.push((file.path.clone(), test));
            }
        }
        let named = manifest.values_of("path").filter(|(_, path)| path.ends_with(".rs"));
        roots.extend(named.filter_map(|(_, path)| Some((join(&manifest.file.path, path)?, false))));
    }
    roots
}

/// Adds a file and its modules. `is_root`: a crate root or a `mod.rs`, whose modules are in its own directory.
fn follow(tree: &Tree, path: &str, is_root: bool, test: bool, reached: &mut BTreeMap<String, bool>) {
    let Some(file) = tree.file(path) else { return };
    match reached.get(path) {
        // Visited before, as code or also as a test.
        Some(&only_test) if test || !only_test => return,
        _ => reached.insert(path.to_string(), test),
    };
    let Some(rust) = &file.rust else { return };
    let own = if is_root { String::new() } else { format!("{}/", stem(path)) };
    for module in &rust.modules {
        for (candidate, is_root) in candidates(path, &own, module) {
            if tree.file(&candidate).is_some() {
                follow(tree, &candidate, is_root, test || module.test, reached);
            }
        }
    }
}

fn candidates(path: &str, own: &str, module: &Module) -> Vec<(String, bool)> {
    if let Some(file) = &module.file {
        return join(path, file).map(|path| (path, true)).into_iter().collect();
    }
    let below = format!("{own}{}", module.path.join("/"));
    let beside = join(path, &format!("{below}.rs")).map(|path| (path, false));
    let inside = join(path, &format!("{below}/mod.rs")).map(|path| (path, true));
    beside.into_iter().chain(inside).collect()
}

fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.strip_suffix(".rs").unwrap_or(name)
}
