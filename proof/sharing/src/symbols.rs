//! Functions of instruction addresses, with the functions that were inlined there.
//!
//! A function is named by its source file and its name, such as `journal/src/engine/grant.rs reserve`: debug
//! information that has line tables only does not have the paths of inlined functions.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use addr2line::{Frame, Loader};
use rustc_hash::FxHashMap;

use crate::lines::CallChain;

/// The symbols of a program.
pub struct Symbols {
    loader: Loader,
    /// Address of an instruction in memory minus that in the file.
    load_address: u64,
    known: RefCell<FxHashMap<u64, Rc<[Rc<str>]>>>,
}

/// The repository, as source files are named in debug information.
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
/// Where source files of the standard library are, and their short name.
const STANDARD: [(&str, &str); 2] = [("/rust/deps/", "library/deps/"), ("/library/", "library/")];
/// Files whose functions say how memory is accessed, not why: locks, counters, lists; and the functions of operations.
const LIBRARIES: [&str; 4] = ["library/", "registry/", "base/", "backing/src/no_space.rs"];

impl Symbols {
    /// Reads the debug information of a program that is loaded at an address.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn new(program: &Path, load_address: u64) -> anyhow::Result<Self> {
        let loader = Loader::new(program);
        let loader = loader.map_err(|error| anyhow::anyhow!("{}: {error}", program.display()))?;
        Ok(Self { loader, load_address, known: RefCell::default() })
    }

    /// The functions of a chain of calls, the innermost first. Code outside of the program has none.
    pub fn functions(&self, chain: &CallChain) -> Vec<Rc<str>> {
        let address = |(depth, address): (usize, &u64)| match depth {
            0 => *address,
            // A return address is behind its call.
            _ => address.saturating_sub(1),
        };
        chain.addresses.iter().enumerate().flat_map(|at| self.at(address(at)).to_vec()).collect()
    }

    fn at(&self, address: u64) -> Rc<[Rc<str>]> {
        let mut known = self.known.borrow_mut();
        Rc::clone(known.entry(address).or_insert_with(|| self.find(address).into()))
    }

    fn find(&self, address: u64) -> Vec<Rc<str>> {
        let mut found = Vec::new();
        let Some(address) = address.checked_sub(self.load_address) else { return found };
        let Ok(mut frames) = self.loader.find_frames(address) else { return found };
        while let Ok(Some(frame)) = frames.next() {
            found.extend(function(&frame).map(Rc::from));
        }
        found
    }
}

/// The name of a function.
fn function<R: addr2line::gimli::Reader>(frame: &Frame<'_, R>) -> Option<String> {
    let file = short_path(frame.location.as_ref()?.file?);
    let name = frame.function.as_ref()?.raw_name().ok()?;
    Some(format!("{file} {}", without_parameters(&name)))
}

/// A short name of a source file: its path within the repository, the standard library, or the registry.
fn short_path(file: &str) -> String {
    let root = REPOSITORY.trim_end_matches("proof/sharing/../../");
    // Cargo names files of the workspace relative to it.
    if let Some(own) = file.strip_prefix(root) {
        return own.into();
    }
    // Below `registry/src` is a folder for each registry.
    let crate_file = file.split_once("/registry/src/").and_then(|(_, rest)| rest.split_once('/'));
    if let Some((_, crate_file)) = crate_file {
        return format!("registry/{crate_file}");
    }
    let other =
        STANDARD.iter().find_map(|(place, name)| Some(format!("{name}{}", file.split_once(place)?.1)));
    other.unwrap_or_else(|| file.to_owned())
}

/// The name of a function without type parameters.
fn without_parameters(name: &str) -> &str {
    name.split_once('<').map_or(name, |(name, _)| name)
}

/// The part of a chain up to the function that says why memory is accessed: the innermost one that is not of a library.
pub fn inner(functions: &[Rc<str>]) -> &[Rc<str>] {
    let is_library = |function: &str| LIBRARIES.iter().any(|library| function.starts_with(library));
    let owner = functions.iter().position(|function| !is_library(function));
    functions.get(..owner.map_or(functions.len(), |owner| owner + 1)).unwrap_or_default()
}

/// The function that says why memory is accessed.
pub fn owner(functions: &[Rc<str>]) -> &str {
    inner(functions).last().map_or("?", |function| function)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_short_names() {
        let root = REPOSITORY.trim_end_matches("proof/sharing/../../");
        assert_eq!(short_path(&format!("{root}ag/src/group.rs")), "ag/src/group.rs");
        assert_eq!(short_path("ag/src/group.rs"), "ag/src/group.rs");
        assert_eq!(short_path("/rustc/1/library/core/src/cell.rs"), "library/core/src/cell.rs");
        assert_eq!(short_path("/.cargo/registry/src/i/scc-3/src/lib.rs"), "registry/scc-3/src/lib.rs");
    }

    #[test]
    fn locks_and_counters_are_not_owners() {
        let functions = ["base/src/lock/mutex.rs lock", "inode/src/inode.rs lock", "volume/src/open.rs open"];
        let functions = functions.map(Rc::from);
        assert_eq!(owner(&functions), "inode/src/inode.rs lock");
        assert_eq!(inner(&functions).len(), 2);
        assert_eq!(owner(&functions[..1]), "base/src/lock/mutex.rs lock");
        assert_eq!(owner(&[]), "?");
    }

    #[test]
    fn names_have_no_type_parameters() {
        assert_eq!(without_parameters("get_or_insert<u64, base::Ino>"), "get_or_insert");
        assert_eq!(without_parameters("{closure#0}"), "{closure#0}");
    }
}
