//! Random operations, weighted towards what is hard: directories that grow through every form and shrink again, names
//! of one hash, files that outlive their names, renames across directories, calls that must be refused.
//!
//! # Invariants
//! The operations follow from the seed and from the trees that the generator is shown, and from nothing else.

use base::time::Time;

use crate::names::Styles;
use crate::operation::{Change, HOME, How, Id, Kind, Name, New, Operation};
use crate::rng::Rng;
use crate::tree::Tree;

/// Major numbers of devices: those that Linux reads back. It keeps 14 bits on disk and then looks at nine of them.
const MAJORS: u64 = 512;

/// What a generator aims at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aim {
    /// Names.
    pub styles: Styles,
    /// One operation in so many is a sync; 0 for none.
    pub sync_in: u32,
    /// One in so many must be refused; 0 for none.
    pub refused_in: u32,
    /// One in so many only reads.
    pub reads_in: u32,
    /// One in so many works in the directory that was made last instead of any: 1 makes one directory large.
    pub hot_in: u32,
    /// Of a thousand files made, how many are directories.
    pub directories: u32,
    /// Files at which growth turns into shrinking, and how few end that.
    pub most: usize,
    /// Files at which shrinking turns into growth.
    pub fewest: usize,
    /// Files that are held open without a name at most.
    pub held: usize,
}

impl Aim {
    /// A bit of everything.
    pub const MIXED: Self = Self {
        styles: Styles { short: 6, long: 2, bytes: 1, equal: 1 },
        sync_in: 12,
        refused_in: 12,
        reads_in: 20,
        hot_in: 3,
        directories: 200,
        most: 120,
        fewest: 10,
        held: 6,
    };
    /// Few directories that grow large and shrink: all forms and back.
    pub const FORMS: Self = Self {
        styles: Styles { short: 3, long: 5, bytes: 1, equal: 3 },
        directories: 2,
        hot_in: 1,
        most: 900,
        fewest: 0,
        sync_in: 60,
        refused_in: 60,
        reads_in: 100,
        held: 2,
    };
    /// Many inodes made and freed, few names a directory.
    pub const INODES: Self = Self { directories: 500, hot_in: 8, most: 400, fewest: 4, ..Self::MIXED };
}

/// Makes operations.
#[derive(Clone, Debug)]
pub struct Generator {
    rng: Rng,
    aim: Aim,
    next_id: u32,
    growing: bool,
    directories: Vec<Id>,
    held: Vec<Id>,
}

impl Generator {
    /// A generator of all that `seed` decides.
    pub fn new(seed: u64, aim: Aim) -> Self {
        let rng = Rng::part(seed, 1);
        Self { rng, aim, next_id: 1, growing: true, directories: vec![HOME], held: Vec::new() }
    }

    /// The next operation on a tree as it is now.
    pub fn next(&mut self, tree: &Tree) -> Operation {
        self.directories.retain(|id| tree.node(*id).is_some_and(|node| node.facts.links > 0));
        self.held.retain(|id| tree.node(*id).is_some_and(|node| node.held > 0));
        if tree.len() >= self.aim.most {
            self.growing = false;
        } else if tree.len() <= self.aim.fewest + 1 {
            self.growing = true;
        }
        if self.rng.one_in(self.aim.sync_in) {
            return Operation::Sync;
        }
        if self.rng.one_in(self.aim.reads_in) {
            return self.read(tree);
        }
        if self.rng.one_in(self.aim.refused_in)
            && let Some(operation) = self.refused(tree)
        {
            return operation;
        }
        // So many of a hundred are made, the rest is spread over what else there is.
        let (make, take) = if self.growing { (55, 12) } else { (10, 55) };
        let drawn = self.rng.below(100);
        let operation = match drawn {
            _ if drawn < make => Some(self.create(tree)),
            _ if drawn < make + take => self.remove(tree),
            _ => match self.rng.below(100) {
                0..35 => self.rename(tree),
                35..60 => self.link(tree),
                60..80 => self.set(tree),
                80..92 => self.hold(tree),
                _ => self.release(),
            },
        };
        operation.unwrap_or_else(|| self.create(tree))
    }

    /// Removes more than it makes from now on, until few files are left: the volume is full.
    pub fn shrink(&mut self) {
        self.growing = false;
    }

    fn fresh(&mut self) -> Id {
        let id = Id(self.next_id);
        self.next_id += 1;
        id
    }

    fn directory(&mut self) -> Id {
        let newest = self.directories.last().copied().unwrap_or(HOME);
        if self.rng.one_in(self.aim.hot_in) {
            return newest;
        }
        self.rng.pick(&self.directories).copied().unwrap_or(HOME)
    }

    /// A name that its directory lacks.
    fn free_name(&mut self, tree: &Tree, dir: Id) -> Name {
        loop {
            let name = self.aim.styles.name(&mut self.rng);
            if tree.node(dir).is_none_or(|node| !node.entries.contains_key(&name)) {
                return name;
            }
        }
    }

    /// An entry of some directory: the next one at or behind a name drawn at random.
    fn entry(&mut self, tree: &Tree) -> Option<(Id, Name, Id)> {
        for attempt in 0..8 {
            // Where the favourite is empty, in any.
            let dir = match attempt {
                0 | 1 => self.directory(),
                _ => *self.rng.pick(&self.directories)?,
            };
            let entries = &tree.node(dir)?.entries;
            let from = self.aim.styles.name(&mut self.rng);
            if let Some((name, id)) = entries.range(from..).next().or_else(|| entries.iter().next()) {
                return Some((dir, name.clone(), *id));
            }
        }
        None
    }

    fn draw(&mut self) -> New {
        if self.rng.below(1000) < self.aim.directories.into() {
            return New { kind: Kind::Directory, mode: 0o755, uid: 0, gid: 0 };
        }
        let kind = match self.rng.below(20) {
            0..13 => Kind::File,
            13..17 => {
                // Targets within the inode and outside of it, up to the longest.
                let length = match self.rng.below(4) {
                    0 => 1 + self.rng.index(crate::tree::TARGET_MAX),
                    1 => crate::tree::TARGET_MAX,
                    _ => 1 + self.rng.index(60),
                };
                Kind::Symlink((0..length).map(|_| b'a' + self.rng.below(26) as u8).collect())
            }
            17 => Kind::CharDevice(self.rng.below(MAJORS) as u32, self.rng.below(1 << 18) as u32),
            18 => Kind::BlockDevice(self.rng.below(MAJORS) as u32, self.rng.below(1 << 18) as u32),
            _ if self.rng.one_in(2) => Kind::Fifo,
            _ => Kind::Socket,
        };
        let mode = if matches!(kind, Kind::Symlink(_)) { 0o777 } else { self.rng.below(0o1000) as u16 };
        New { kind, mode, uid: self.rng.below(3) as u32 * 1000, gid: self.rng.below(3) as u32 * 1000 }
    }

    fn create(&mut self, tree: &Tree) -> Operation {
        let dir = self.directory();
        let (new, id) = (self.draw(), self.fresh());
        if new.kind == Kind::File && self.held.len() < self.aim.held && self.rng.one_in(20) {
            self.held.push(id);
            return Operation::Anonymous { dir, new, id };
        }
        if new.kind.is_directory() {
            self.directories.push(id);
        }
        Operation::Create { dir, name: self.free_name(tree, dir), new, id }
    }

    /// Takes a name away; of a directory that is not empty mostly one below it.
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
        let how = match self.rng.below(10) {
            0..5 => How::Replace,
            5 => How::NoReplace,
            6 | 7 => How::Whiteout(self.fresh()),
            _ => How::Exchange,
        };
        // Only what exists can be exchanged.
        let exists = tree.node(to).is_some_and(|node| node.entries.contains_key(&to_name));
        let how = if how == How::Exchange && !exists { How::Replace } else { how };
        Some(Operation::Rename { from, name, to, to_name, how })
    }

    fn link(&mut self, tree: &Tree) -> Option<Operation> {
        let nameless = self.held.iter().copied().find(|id| tree.node(*id).is_some_and(|node| node.anonymous));
        let id = match nameless {
            Some(id) if self.rng.one_in(3) => id,
            _ => self.entry(tree).map(|(_, _, id)| id)?,
        };
        let dir = self.directory();
        Some(Operation::Link { id, dir, name: self.free_name(tree, dir) })
    }

    fn set(&mut self, tree: &Tree) -> Option<Operation> {
        let (_, _, id) = self.entry(tree)?;
        let mut change = Change::default();
        let is_symlink = matches!(tree.node(id)?.facts.kind, Kind::Symlink(_));
        if !is_symlink && self.rng.one_in(2) {
            change.mode = Some(self.rng.below(0o1000) as u16);
        }
        if self.rng.one_in(3) {
            change.uid = Some(self.rng.below(1 << 32) as u32);
            change.gid = Some(self.rng.below(70_000) as u32);
        }
        if self.rng.one_in(3) || change == Change::default() {
            // Within what inodes without bigtime can hold.
            let seconds = self.rng.below(1 << 31) as i64 - (1 << 30);
            change.modified = Some(Time { seconds, nanos: self.rng.below(1_000_000_000) as u32 });
            change.accessed = Some(Time { seconds: seconds + 1, nanos: 0 });
        }
        Some(Operation::Set { id, change })
    }

    /// Opens a file and takes a name from it, so that it often lives on without any.
    fn hold(&mut self, tree: &Tree) -> Option<Operation> {
        if let Some(id) = self.held.last().copied()
            && self.held.len() >= self.aim.held
        {
            return self.unlink_held(tree, id);
        }
        let (_, _, id) = self.entry(tree)?;
        self.held.push(id);
        Some(Operation::Hold { id })
    }

    fn unlink_held(&mut self, tree: &Tree, id: Id) -> Option<Operation> {
        let named = |dir: &Id| {
            let entries = &tree.node(*dir)?.entries;
            entries.iter().find(|(_, to)| **to == id).map(|(name, _)| (*dir, name.clone()))
        };
        let (dir, name) = self.directories.iter().find_map(named)?;
        let is_directory = tree.node(id)?.is_directory();
        Some(if is_directory { Operation::Rmdir { dir, name } } else { Operation::Unlink { dir, name } })
    }

    fn release(&mut self) -> Option<Operation> {
        let at = self.rng.index(self.held.len());
        (at < self.held.len()).then(|| Operation::Release { id: self.held.swap_remove(at) })
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

    /// Something that breaks one rule.
    fn refused(&mut self, tree: &Tree) -> Option<Operation> {
        let (dir, name, id) = self.entry(tree)?;
        let is_directory = tree.node(id)?.is_directory();
        let fresh = self.free_name(tree, dir);
        Some(match self.rng.below(9) {
            0 => Operation::Create { dir, name, new: self.draw(), id: self.fresh() },
            1 => Operation::Create { dir, name: vec![b'n'; 256], new: self.draw(), id: self.fresh() },
            2 if is_directory => Operation::Unlink { dir, name },
            2 => Operation::Rmdir { dir, name },
            3 => Operation::Unlink { dir, name: fresh },
            4 if is_directory => Operation::Link { id, dir, name: fresh },
            4 => Operation::Create { dir: id, name, new: self.draw(), id: self.fresh() },
            5 => Operation::Rename { from: dir, name: fresh, to: HOME, to_name: name, how: How::Replace },
            6 if is_directory => Operation::Rename {
                from: dir,
                name,
                to: id,
                to_name: b"within itself".to_vec(),
                how: How::Replace,
            },
            6 => Operation::Link { id, dir, name },
            7 => {
                let (to, to_name, _) = self.entry(tree)?;
                Operation::Rename { from: dir, name, to, to_name, how: How::NoReplace }
            }
            _ => Operation::Rename { from: dir, name, to: dir, to_name: fresh, how: How::Exchange },
        })
    }
}
