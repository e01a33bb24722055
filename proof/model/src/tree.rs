//! The model: a tree with hard links, and the effect of each operation.
//!
//! | part | subject |
//! |---|---|
//! | [`Tree`] | all files by identity, and the fingerprint of the reachable ones |
//! | [`Node`] | one file |
//! | [`Outcome`] | result of an operation |
//!
//! # Invariants
//! - A refused operation changes nothing.
//! - A file with links is reachable from [`HOME`]; one without exists while it is open.
//! - The fingerprint always covers the current state of all reachable files.

use std::collections::{BTreeMap, HashMap};

use base::time::Time;

use crate::operation::{HOME, Id, Name, NewFile, Operation, SetAttr};
use crate::refusal::Refusal;
use crate::stat::{Stat, Times, entry_fingerprint, file_fingerprint};

/// Maximum length of a name in bytes.
pub const NAME_MAX: usize = 255;
/// Maximum length of a symlink's target in bytes: 1,024 of XFS, less a final NUL.
pub const TARGET_MAX: usize = 1023;
/// Maximum length of a path in a system call, including the final NUL.
const PATH_MAX: usize = 4096;

/// Returns true for `.` and `..`, which every directory has and which cannot be created or removed.
pub(crate) fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Result of `stat`.
    pub stat: Stat,
    /// Inode number in the subject.
    pub number: u64,
    /// Entries of a directory.
    pub entries: BTreeMap<Name, Id>,
    /// Parent of a directory.
    pub parent: Id,
    /// Number of times that it is open.
    pub open_count: u32,
    /// It has never had a name, so it may get one.
    pub anonymous: bool,
    /// Sum of the entries' fingerprints.
    entries_fingerprint: u64,
}

/// Result of an operation that is not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success without a result.
    Done,
    /// A file that was found or created.
    File(Id),
    /// Metadata.
    Stat(Stat),
    /// Directory entries.
    Entries(BTreeMap<Name, Id>),
}

/// A tree of files.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: HashMap<Id, Node>,
    times: bool,
    fingerprint: u64,
}

impl Tree {
    /// Creates a tree of one empty directory. Timestamps are kept only if `stat` has them.
    pub fn new(stat: Stat, number: u64) -> Self {
        let times = stat.times.is_some();
        let mut tree = Self { nodes: HashMap::new(), times, fingerprint: 0 };
        tree.insert(HOME, Node::new(stat, number));
        tree
    }

    /// Returns a file that exists.
    pub fn node(&self, id: Id) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// Returns all files, including those without a name.
    pub fn nodes(&self) -> impl Iterator<Item = (Id, &Node)> {
        self.nodes.iter().map(|(id, node)| (*id, node))
    }

    /// Returns the number of files.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns true if there is only [`HOME`].
    pub fn is_empty(&self) -> bool {
        self.nodes.len() <= 1
    }

    /// Returns the fingerprint of all reachable files: names, inode numbers and metadata.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Returns the path of a directory from [`HOME`].
    pub fn path(&self, mut dir: Id) -> Vec<Name> {
        let mut path = Vec::new();
        while dir != HOME {
            let Some(node) = self.nodes.get(&dir) else { break };
            let parent = self.nodes.get(&node.parent);
            let name = parent.and_then(|up| up.entries.iter().find(|(_, id)| **id == dir));
            path.extend(name.map(|(name, _)| name.clone()));
            dir = node.parent;
        }
        path.reverse();
        path
    }

    /// Checks an operation without running it.
    ///
    /// # Errors
    /// The refusal of the first rule that it violates, in the order in which Linux checks.
    pub fn check(&self, operation: &Operation) -> Result<(), Refusal> {
        match operation {
            Operation::Create { dir, name, new, .. } => self.check_create(*dir, name, new),
            Operation::Link { id, dir, name } => self.check_link(*id, *dir, name),
            Operation::Unlink { dir, name } => self.check_unlink(*dir, name),
            Operation::Rmdir { dir, name } => self.check_rmdir(*dir, name),
            Operation::Rename { from, name, to, to_name, mode } => {
                self.check_rename((*from, name), (*to, to_name), *mode).map(|_| ())
            }
            Operation::Anonymous { dir, .. } => self.directory(*dir).map(|_| ()),
            Operation::List { dir } => self.linked_directory(*dir).map(|_| ()),
            Operation::Open { id }
            | Operation::Close { id }
            | Operation::Set { id, .. }
            | Operation::Stat { id } => self.existing(*id).map(|_| ()),
            Operation::Lookup { dir, name } => self.child(*dir, name).map(|_| ()),
            Operation::Sync => Ok(()),
        }
    }

    /// Runs an operation. `number` is the subject's inode number of the file that the operation creates, if any.
    ///
    /// # Errors
    /// Those of [`Tree::check`]; the tree is then unchanged.
    pub fn perform(&mut self, operation: &Operation, now: Time, number: u64) -> Result<Outcome, Refusal> {
        self.check(operation)?;
        match operation {
            Operation::Create { dir, name, new, id } => {
                let parent = self.existing(*dir)?.stat.clone();
                self.insert(*id, Node::create(new, number, *dir, self.times.then_some(now), &parent));
                self.add_entry(*dir, name, *id, now);
                return Ok(Outcome::File(*id));
            }
            Operation::Anonymous { new, id, dir } => {
                let parent = self.existing(*dir)?.stat.clone();
                let mut node = Node::create(new, number, HOME, self.times.then_some(now), &parent);
                (node.stat.links, node.open_count, node.anonymous) = (0, 1, true);
                self.insert(*id, node);
                return Ok(Outcome::File(*id));
            }
            Operation::Link { id, dir, name } => {
                self.change(*id, |node| {
                    node.stat.links += 1;
                    node.anonymous = false;
                    node.stamp(now, false);
                });
                self.add_entry(*dir, name, *id, now);
            }
            Operation::Unlink { dir, name } | Operation::Rmdir { dir, name } => {
                let id = self.child(*dir, name)?;
                self.remove_entry(*dir, name, now);
                self.drop_link(id, now);
            }
            Operation::Rename { from, name, to, to_name, mode } => {
                self.rename((*from, name), (*to, to_name), *mode, now, number)?;
            }
            Operation::Open { id } => self.change(*id, |node| node.open_count += 1),
            Operation::Close { id } => {
                self.change(*id, |node| node.open_count = 0);
                self.drop_if_unused(*id);
            }
            Operation::Set { id, change } => self.change(*id, |node| node.set(change, now)),
            Operation::Lookup { dir, name } => return Ok(Outcome::File(self.child(*dir, name)?)),
            Operation::Stat { id } => return Ok(Outcome::Stat(self.existing(*id)?.stat.clone())),
            Operation::List { dir } => return Ok(Outcome::Entries(self.directory(*dir)?.entries.clone())),
            Operation::Sync => (),
        }
        Ok(Outcome::Done)
    }

    fn check_create(&self, dir: Id, name: &[u8], new: &NewFile) -> Result<(), Refusal> {
        match &new.kind {
            // A target that is empty or longer than any path is refused before the name is checked.
            crate::FileKind::Symlink(target) if target.is_empty() => Err(Refusal::NoEntry),
            crate::FileKind::Symlink(target) if target.len() >= PATH_MAX => Err(Refusal::NameTooLong),
            crate::FileKind::Symlink(target) if target.len() > TARGET_MAX => {
                self.free_name(dir, name)?;
                Err(Refusal::NameTooLong)
            }
            _ => self.free_name(dir, name),
        }
    }

    fn check_link(&self, id: Id, dir: Id, name: &[u8]) -> Result<(), Refusal> {
        let node = self.existing(id)?;
        self.free_name(dir, name)?;
        match node {
            node if node.is_directory() => Err(Refusal::NotPermitted),
            node if node.stat.links == 0 && !node.anonymous => Err(Refusal::NoEntry),
            _ => Ok(()),
        }
    }

    fn check_unlink(&self, dir: Id, name: &[u8]) -> Result<(), Refusal> {
        self.directory(dir)?;
        if is_dots(name) {
            return Err(Refusal::IsDirectory);
        }
        let child = self.child(dir, name)?;
        if self.existing(child)?.is_directory() { Err(Refusal::IsDirectory) } else { Ok(()) }
    }

    fn check_rmdir(&self, dir: Id, name: &[u8]) -> Result<(), Refusal> {
        self.directory(dir)?;
        match name {
            b"." => return Err(Refusal::Invalid),
            b".." => return Err(Refusal::NotEmpty),
            _ => (),
        }
        let child = self.existing(self.child(dir, name)?)?;
        match child.is_directory() {
            false => Err(Refusal::NotDirectory),
            true if !child.entries.is_empty() => Err(Refusal::NotEmpty),
            true => Ok(()),
        }
    }

    /// Returns a file that exists.
    pub(crate) fn existing(&self, id: Id) -> Result<&Node, Refusal> {
        self.nodes.get(&id).ok_or(Refusal::NoEntry)
    }

    /// Returns a directory, which may have been removed.
    pub(crate) fn directory(&self, id: Id) -> Result<&Node, Refusal> {
        let node = self.existing(id)?;
        if node.is_directory() { Ok(node) } else { Err(Refusal::NotDirectory) }
    }

    /// Returns a directory that was not removed.
    fn linked_directory(&self, id: Id) -> Result<&Node, Refusal> {
        let node = self.directory(id)?;
        if node.stat.links > 0 { Ok(node) } else { Err(Refusal::NoEntry) }
    }

    /// Looks up a name.
    pub(crate) fn child(&self, dir: Id, name: &[u8]) -> Result<Id, Refusal> {
        let node = self.linked_directory(dir)?;
        match name {
            b"." => return Ok(dir),
            b".." => return Ok(node.parent),
            _ if name.len() > NAME_MAX => return Err(Refusal::NameTooLong),
            _ => (),
        }
        node.entries.get(name).copied().ok_or(Refusal::NoEntry)
    }

    /// Checks that a name can be created: its directory was not removed and does not contain it.
    pub(crate) fn free_name(&self, dir: Id, name: &[u8]) -> Result<(), Refusal> {
        self.directory(dir)?;
        if is_dots(name) {
            return Err(Refusal::Exists);
        }
        self.linked_directory(dir)?;
        match self.child(dir, name) {
            Ok(_) => Err(Refusal::Exists),
            Err(Refusal::NoEntry) => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    /// Adds an entry; if it is a directory, also its link to the parent.
    pub(crate) fn add_entry(&mut self, dir: Id, name: &[u8], id: Id, now: Time) {
        let is_directory = self.node(id).is_some_and(Node::is_directory);
        let number = self.node(id).map_or(0, |node| node.number);
        self.change(dir, |node| {
            node.entries.insert(name.to_vec(), id);
            node.entries_fingerprint = node.entries_fingerprint.wrapping_add(entry_fingerprint(name, number));
            node.stat.links += u32::from(is_directory);
            node.stamp(now, true);
        });
        if is_directory {
            self.change(id, |node| node.parent = dir);
        }
    }

    /// Removes an entry; if it is a directory, also its link to the parent.
    pub(crate) fn remove_entry(&mut self, dir: Id, name: &[u8], now: Time) {
        let Some(id) = self.node(dir).and_then(|node| node.entries.get(name)).copied() else { return };
        let is_directory = self.node(id).is_some_and(Node::is_directory);
        let number = self.node(id).map_or(0, |node| node.number);
        self.change(dir, |node| {
            node.entries.remove(name);
            node.entries_fingerprint = node.entries_fingerprint.wrapping_sub(entry_fingerprint(name, number));
            node.stat.links -= u32::from(is_directory);
            node.stamp(now, true);
        });
    }

    /// Removes one link of a file, or all links of a directory.
    pub(crate) fn drop_link(&mut self, id: Id, now: Time) {
        self.change(id, |node| {
            node.stat.links = if node.is_directory() { 0 } else { node.stat.links - 1 };
            node.stamp(now, false);
        });
        self.drop_if_unused(id);
    }

    fn drop_if_unused(&mut self, id: Id) {
        if self.node(id).is_some_and(|node| node.stat.links == 0 && node.open_count == 0) {
            self.nodes.remove(&id);
        }
    }

    /// Adds a file.
    pub(crate) fn insert(&mut self, id: Id, node: Node) {
        self.fingerprint = self.fingerprint.wrapping_add(node.fingerprint());
        self.nodes.insert(id, node);
    }

    /// Changes a file and updates the fingerprint.
    pub(crate) fn change(&mut self, id: Id, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.nodes.get_mut(&id) {
            self.fingerprint = self.fingerprint.wrapping_sub(node.fingerprint());
            change(node);
            self.fingerprint = self.fingerprint.wrapping_add(node.fingerprint());
        }
    }

    /// Returns true if timestamps are kept.
    pub(crate) fn keeps_times(&self) -> bool {
        self.times
    }
}

impl Node {
    fn new(stat: Stat, number: u64) -> Self {
        Self {
            stat,
            number,
            entries: BTreeMap::new(),
            parent: HOME,
            open_count: 0,
            anonymous: false,
            entries_fingerprint: 0,
        }
    }

    /// Creates a file with its first link. It inherits from its directory as on Linux: in a directory with set-gid its
    /// group, and a directory also the bit.
    pub(crate) fn create(new: &NewFile, number: u64, dir: Id, now: Option<Time>, parent: &Stat) -> Self {
        let times = now.map(|now| Times { accessed: now, modified: now, changed: now, born: now });
        let is_directory = new.kind.is_directory();
        let inherits = parent.mode & SET_GID != 0;
        let stat = Stat {
            kind: new.kind.clone(),
            mode: new.mode | if inherits && is_directory { SET_GID } else { 0 },
            uid: new.uid,
            gid: if inherits { parent.gid } else { new.gid },
            links: if is_directory { 2 } else { 1 },
            times,
        };
        Self { parent: dir, ..Self::new(stat, number) }
    }

    /// Returns true for a directory.
    pub fn is_directory(&self) -> bool {
        self.stat.kind.is_directory()
    }

    /// Updates ctime, and mtime if `contents` is true.
    pub(crate) fn stamp(&mut self, now: Time, contents: bool) {
        if let Some(times) = &mut self.stat.times {
            times.changed = now;
            if contents {
                times.modified = now;
            }
        }
    }

    fn set(&mut self, change: &SetAttr, now: Time) {
        let stat = &mut self.stat;
        stat.mode = change.mode.unwrap_or(stat.mode);
        stat.uid = change.uid.unwrap_or(stat.uid);
        stat.gid = change.gid.unwrap_or(stat.gid);
        if let Some(times) = &mut stat.times {
            times.accessed = change.accessed.unwrap_or(times.accessed);
            times.modified = change.modified.unwrap_or(times.modified);
        }
        self.stamp(now, false);
    }

    /// Returns the fingerprint of a file; 0 if it is not reachable.
    fn fingerprint(&self) -> u64 {
        if self.stat.links == 0 {
            0
        } else {
            file_fingerprint(self.number, &self.stat, self.entries_fingerprint)
        }
    }
}

const SET_GID: u16 = 0o2000;
