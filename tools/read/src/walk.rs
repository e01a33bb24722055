//! Walks over a whole tree: paths, and protection against cycles.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use base::Ino;

/// Maximum depth of directories. A deeper one is reported and left out: no program could open its path.
pub const DEPTH_MAX: usize = 4096;

/// The directories that a walk has visited. A damaged tree may contain a cycle.
#[derive(Debug, Default)]
pub struct Visited(Mutex<HashSet<Ino>>);

impl Visited {
    /// Enters a directory.
    ///
    /// # Errors
    /// A message if the directory was entered before, or is nested too deeply.
    pub fn enter(&self, ino: Ino, depth: usize) -> Result<(), &'static str> {
        if depth > DEPTH_MAX {
            return Err("directories are nested too deeply; name this one to list it");
        }
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(ino) {
            true => Ok(()),
            false => Err(
                "this directory has been listed under another name already: the tree is damaged; run \"xebec check\"",
            ),
        }
    }
}

/// Joins a path and a name.
pub fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(path.len() + 1 + name.len());
    joined.extend_from_slice(path);
    if !path.is_empty() && path.last() != Some(&b'/') {
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    joined
}
