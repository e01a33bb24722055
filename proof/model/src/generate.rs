//! Random operations, weighted towards hard cases: directories that grow through every format and shrink again, names
//! with the same hash, open files without a name, renames across directories, operations that must be refused.
//!
//! # Invariants
//! The operations depend only on the seed and on the trees passed to the generator.

use base::time::Time;

use crate::names::NameStyles;
use crate::operation::{FileKind, HOME, Id, Name, NewFile, Operation, RenameMode, SetAttr};
use crate::rng::Rng;
use crate::tree::Tree;

/// Major device numbers that Linux reads back. It keeps 14 bits on disk and uses nine of them.
const MAJORS: u64 = 512;

/// What a generator generates, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationMix {
    /// Styles of names.
    pub names: NameStyles,
    /// One operation in this number is a sync; 0 for none.
    pub sync_in: u32,
    /// One in this number must be refused; 0 for none.
    pub refused_in: u32,
    /// One in this number only reads; 0 for none.
    pub reads_in: u32,
    /// One in this number uses the newest directory instead of a random one: 1 makes one directory large.
    pub hot_in: u32,
    /// Directories among 1,000 created files.
    pub directories_per_mille: u32,
    /// Number of files at which the tree begins to shrink.
    pub files_max: usize,
    /// Number of files at which the tree begins to grow again.
    pub files_min: usize,
    /// Maximum number of open files.
    pub open_max: usize,
}

impl OperationMix {
    /// All operations.
    pub const MIXED: Self = Self {
        names: NameStyles { short: 6, long: 2, bytes: 1, same_hash: 1 },
        sync_in: 12,
        refused_in: 12,
        reads_in: 20,
        hot_in: 3,
        directories_per_mille: 200,
        files_max: 120,
        files_min: 10,
        open_max: 6,
    };
    /// Few directories that grow through all formats and shrink again.
    pub const DIRECTORY_FORMATS: Self = Self {
        names: NameStyles { short: 3, long: 5, bytes: 1, same_hash: 3 },
        directories_per_mille: 2,
        hot_in: 1,
        files_max: 900,
        files_min: 0,
        sync_in: 60,
        refused_in: 60,
        reads_in: 100,
        open_max: 2,
    };
    /// Many inodes created and freed, few names per directory.
    pub const INODES: Self =
        Self { directories_per_mille: 500, hot_in: 8, files_max: 400, files_min: 4, ..Self::MIXED };
}

/// Generates random operations.
#[derive(Clone, Debug)]
pub struct Generator {
    rng: Rng,
    mix: OperationMix,
    next_id: u32,
    growing: bool,
    directories: Vec<Id>,
    open: Vec<Id>,
}

impl Generator {
    /// Creates a generator from a seed.
    pub fn new(seed: u64, mix: OperationMix) -> Self {
        let rng = Rng::stream(seed, 1);
        Self { rng, mix, next_id: 1, growing: true, directories: vec![HOME], open: Vec::new() }
    }

    /// Returns the next operation on the current tree.
    pub fn next(&mut self, tree: &Tree) -> Operation {
        self.directories.retain(|id| tree.node(*id).is_some_and(|node| node.stat.links > 0));
        self.open.retain(|id| tree.node(*id).is_some_and(|node| node.open_count > 0));
        if tree.len() >= self.mix.files_max {
            self.growing = false;
        } else if tree.len() <= self.mix.files_min + 1 {
            self.growing = true;
        }
        if self.rng.one_in(self.mix.sync_in) {
            return Operation::Sync;
        }
        if self.rng.one_in(self.mix.reads_in) {
            return self.read(tree);
        }
        if self.rng.one_in(self.mix.refused_in)
            && let Some(operation) = self.refused(tree)
        {
            return operation;
        }
        // Percentages of creations and removals; the rest is spread over the other operations.
        let (make, take) = if self.growing { (55, 12) } else { (10, 55) };
        let drawn = self.rng.below(100);
        let operation = match drawn {
            _ if drawn < make => Some(self.create(tree)),
            _ if drawn < make + take => self.remove(tree),
            _ => match self.rng.below(100) {
                0..35 => self.rename(tree),
                35..60 => self.link(tree),
                60..80 => self.set(tree),
                80..92 => self.open(tree),
                _ => self.close(),
            },
        };
        operation.unwrap_or_else(|| self.create(tree))
    }

    /// Makes the tree shrink from now on, until few files are left: the volume is full.
    pub fn shrink(&mut self) {
        self.growing = false;
    }

    fn new_id(&mut self) -> Id {
        let id = Id(self.next_id);
        self.next_id += 1;
        id
    }

    fn directory(&mut self) -> Id {
        let newest = self.directories.last().copied().unwrap_or(HOME);
        if self.rng.one_in(self.mix.hot_in) {
            return newest;
        }
        self.rng.pick(&self.directories).copied().unwrap_or(HOME)
    }

    /// Returns a name that does not exist in its directory.
    fn free_name(&mut self, tree: &Tree, dir: Id) -> Name {
        loop {
            let name = self.mix.names.name(&mut self.rng);
            if tree.node(dir).is_none_or(|node| !node.entries.contains_key(&name)) {
                return name;
            }
        }
    }

    /// Returns a random entry of a random directory.
    fn entry(&mut self, tree: &Tree) -> Option<(Id, Name, Id)> {
        for attempt in 0..8 {
            // The preferred directory may be empty.
            let dir = match attempt {
                0 | 1 => self.directory(),
                _ => *self.rng.pick(&self.directories)?,
            };
            let entries = &tree.node(dir)?.entries;
            let from = self.mix.names.name(&mut self.rng);
            if let Some((name, id)) = entries.range(from..).next().or_else(|| entries.iter().next()) {
                return Some((dir, name.clone(), *id));
            }
        }
        None
    }

    fn random_file(&mut self) -> NewFile {
        if self.rng.below(1000) < self.mix.directories_per_mille.into() {
            return NewFile::directory();
        }
        let kind = match self.rng.below(20) {
            0..13 => FileKind::File,
            13..17 => {
                // Targets inside the inode and in a block of their own, up to the maximum length.
                let length = match self.rng.below(4) {
                    0 => 1 + self.rng.index(crate::tree::TARGET_MAX),
                    1 => crate::tree::TARGET_MAX,
                    _ => 1 + self.rng.index(60),
                };
                FileKind::Symlink((0..length).map(|_| b'a' + self.rng.below(26) as u8).collect())
            }
            17 => FileKind::CharDevice(self.rng.below(MAJORS) as u32, self.rng.below(1 << 18) as u32),
            18 => FileKind::BlockDevice(self.rng.below(MAJORS) as u32, self.rng.below(1 << 18) as u32),
            _ if self.rng.one_in(2) => FileKind::Fifo,
            _ => FileKind::Socket,
        };
        let mode = if matches!(kind, FileKind::Symlink(_)) { 0o777 } else { self.rng.below(0o1000) as u16 };
        NewFile { kind, mode, uid: self.rng.below(3) as u32 * 1000, gid: self.rng.below(3) as u32 * 1000 }
    }

    fn create(&mut self, tree: &Tree) -> Operation {
        let dir = self.directory();
        let (new, id) = (self.random_file(), self.new_id());
        if new.kind == FileKind::File && self.open.len() < self.mix.open_max && self.rng.one_in(20) {
            self.open.push(id);
            return Operation::Anonymous { dir, new, id };
        }
        if new.kind.is_directory() {
            self.directories.push(id);
        }
        Operation::Create { dir, name: self.free_name(tree, dir), new, id }
    }

    /// Removes a name; if it is that of a directory with entries, mostly an entry below it instead.
    fn remove(&mut self, tree: &Tree) -> Option<Operation> {
        let (mut dir, mut name, mut id) = self.entry(tree)?;
        while let Some((below, to)) = tree.node(id)?.entries.first_key_value() {
            if self.rng.one_in(20) {
                break;
            }
            (dir, name, id) = (id, below.clone(), *to);
        }
        let is_directory = tree.node(id)?.is_directory();
        Some(if is_directory { Operation::Rmdir { dir, name } } else { Operation::Unlink { dir, name } })
    }

    fn rename(&mut self, tree: &Tree) -> Option<Operation> {
        let (from, name, _) = self.entry(tree)?;
        let (to, to_name) = match self.rng.below(3) {
            0 => self.entry(tree).map(|(dir, name, _)| (dir, name))?,
            _ => {
                let to = if self.rng.one_in(2) { from } else { self.directory() };
                (to, self.free_name(tree, to))
            }
        };
        let mode = match self.rng.below(10) {
            0..5 => RenameMode::Replace,
            5 => RenameMode::NoReplace,
            6 | 7 => RenameMode::Whiteout(self.new_id()),
            _ => RenameMode::Exchange,
        };
        // Both names of an exchange must exist.
        let exists = tree.node(to).is_some_and(|node| node.entries.contains_key(&to_name));
        let mode = if mode == RenameMode::Exchange && !exists { RenameMode::Replace } else { mode };
        Some(Operation::Rename { from, name, to, to_name, mode })
    }

    fn link(&mut self, tree: &Tree) -> Option<Operation> {
        let nameless = self.open.iter().copied().find(|id| tree.node(*id).is_some_and(|node| node.anonymous));
        let id = match nameless {
            Some(id) if self.rng.one_in(3) => id,
            _ => self.entry(tree).map(|(_, _, id)| id)?,
        };
        let dir = self.directory();
        Some(Operation::Link { id, dir, name: self.free_name(tree, dir) })
    }

    fn set(&mut self, tree: &Tree) -> Option<Operation> {
        let (_, _, id) = self.entry(tree)?;
        let mut change = SetAttr::default();
        let is_symlink = matches!(tree.node(id)?.stat.kind, FileKind::Symlink(_));
        if !is_symlink && self.rng.one_in(2) {
            change.mode = Some(self.rng.below(0o1000) as u16);
        }
        if self.rng.one_in(3) {
            change.uid = Some(self.rng.below(1 << 32) as u32);
            change.gid = Some(self.rng.below(70_000) as u32);
        }
        if self.rng.one_in(3) || change == SetAttr::default() {
            // Within the range of inodes without bigtime.
            let seconds = self.rng.below(1 << 31) as i64 - (1 << 30);
            change.modified = Some(Time { seconds, nanos: self.rng.below(1_000_000_000) as u32 });
            change.accessed = Some(Time { seconds: seconds + 1, nanos: 0 });
        }
        Some(Operation::Set { id, change })
    }

    /// Opens a file, or removes a name of an open file, so that files often exist without a name.
    fn open(&mut self, tree: &Tree) -> Option<Operation> {
        if let Some(id) = self.open.last().copied()
            && self.open.len() >= self.mix.open_max
        {
            return self.unlink_open(tree, id);
        }
        let (_, _, id) = self.entry(tree)?;
        self.open.push(id);
        Some(Operation::Open { id })
    }

    fn unlink_open(&mut self, tree: &Tree, id: Id) -> Option<Operation> {
        let named = |dir: &Id| {
            let entries = &tree.node(*dir)?.entries;
            entries.iter().find(|(_, to)| **to == id).map(|(name, _)| (*dir, name.clone()))
        };
        let (dir, name) = self.directories.iter().find_map(named)?;
        let is_directory = tree.node(id)?.is_directory();
        Some(if is_directory { Operation::Rmdir { dir, name } } else { Operation::Unlink { dir, name } })
    }

    fn close(&mut self) -> Option<Operation> {
        let at = self.rng.index(self.open.len());
        (at < self.open.len()).then(|| Operation::Close { id: self.open.swap_remove(at) })
    }

    fn read(&mut self, tree: &Tree) -> Operation {
        let found = self.entry(tree);
        match (self.rng.below(4), found) {
            (0, _) | (_, None) => Operation::List { dir: self.directory() },
            (1, _) => {
                let dir = self.directory();
                Operation::Lookup { dir, name: self.free_name(tree, dir) }
            }
            (2, Some((dir, name, _))) => Operation::Lookup { dir, name },
            (_, Some((_, _, id))) => Operation::Stat { id },
        }
    }

    /// Returns an operation that violates one rule.
    fn refused(&mut self, tree: &Tree) -> Option<Operation> {
        let (dir, name, id) = self.entry(tree)?;
        let is_directory = tree.node(id)?.is_directory();
        let fresh = self.free_name(tree, dir);
        Some(match self.rng.below(9) {
            0 => Operation::Create { dir, name, new: self.random_file(), id: self.new_id() },
            1 => Operation::Create { dir, name: vec![b'n'; 256], new: self.random_file(), id: self.new_id() },
            2 if is_directory => Operation::Unlink { dir, name },
            2 => Operation::Rmdir { dir, name },
            3 => Operation::Unlink { dir, name: fresh },
            4 if is_directory => Operation::Link { id, dir, name: fresh },
            4 => Operation::Create { dir: id, name, new: self.random_file(), id: self.new_id() },
            5 => Operation::Rename {
                from: dir,
                name: fresh,
                to: HOME,
                to_name: name,
                mode: RenameMode::Replace,
            },
            6 if is_directory => Operation::Rename {
                from: dir,
                name,
                to: id,
                to_name: b"within itself".to_vec(),
                mode: RenameMode::Replace,
            },
            6 => Operation::Link { id, dir, name },
            7 => {
                let (to, to_name, _) = self.entry(tree)?;
                Operation::Rename { from: dir, name, to, to_name, mode: RenameMode::NoReplace }
            }
            _ => Operation::Rename { from: dir, name, to: dir, to_name: fresh, mode: RenameMode::Exchange },
        })
    }
}
