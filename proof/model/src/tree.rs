//! The model: a tree with hard links, and what each operation does to it.
//!
//! | part | subject |
//! |---|---|
//! | [`Tree`] | all files by identity, and the fingerprint of all that can be reached |
//! | [`Node`] | one file |
//! | [`Outcome`] | what an operation answers |
//!
//! # Invariants
//! - A refused operation changes nothing.
//! - A file with links can be reached from [`HOME`]; one without lives as long as it is held.
//! - The fingerprint is that of the reachable files as they are.

use std::collections::{BTreeMap, HashMap};

use base::time::Time;

use crate::facts::{Facts, Times, entry_print, file_print};
use crate::operation::{Change, HOME, Id, Name, New, Operation};
use crate::refusal::Refusal;

/// Bytes of a name at most.
pub const NAME_MAX: usize = 255;
/// Bytes of a symlink's target at most: XFS keeps room for a final NUL in its 1,024.
pub const TARGET_MAX: usize = 1023;
/// Bytes of a path, its final NUL included, that a system call takes.
const PATH_MAX: usize = 4096;

/// The two names that every directory has, and that nobody makes or takes away.
pub(crate) fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What `stat` tells.
    pub facts: Facts,
    /// The number that the subject gave it.
    pub number: u64,
    /// A directory's entries.
    pub entries: BTreeMap<Name, Id>,
    /// A directory's parent.
    pub parent: Id,
    /// How often it is open.
    pub held: u32,
    /// Never had a name: may get one.
    pub anonymous: bool,
    /// The sum of the entries' fingerprints.
    entries_print: u64,
}

/// What an operation answers where it is not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing but that it is done.
    Done,
    /// A file that was found, or made.
    File(Id),
    /// What it is.
    Facts(Facts),
    /// What it lists.
    Entries(BTreeMap<Name, Id>),
}

/// A tree of files.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: HashMap<Id, Node>,
    times: bool,
    print: u64,
}

impl Tree {
    /// A tree of one empty directory, as `facts` describe it. Where they carry no times, no times are kept.
    pub fn new(facts: Facts, number: u64) -> Self {
        let times = facts.times.is_some();
        let mut tree = Self { nodes: HashMap::new(), times, print: 0 };
        tree.insert(HOME, Node::new(facts, number));
        tree
    }

    /// A file, while it lives.
    pub fn node(&self, id: Id) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// All files, those without a name included.
    pub fn nodes(&self) -> impl Iterator<Item = (Id, &Node)> {
        self.nodes.iter().map(|(id, node)| (*id, node))
    }

    /// How many files there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is nothing but [`HOME`].
    pub fn is_empty(&self) -> bool {
        self.nodes.len() <= 1
    }

    /// One number for all that can be reached: names, numbers, facts.
    pub fn fingerprint(&self) -> u64 {
        self.print
    }

    /// The path of a directory from [`HOME`], as names.
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

    /// What an operation would answer.
    ///
    /// # Errors
    /// The refusal of the first rule that it breaks, in the order in which Linux looks.
    pub fn judge(&self, operation: &Operation) -> Result<(), Refusal> {
        match operation {
            Operation::Create { dir, name, new, .. } => self.judge_create(*dir, name, new),
            Operation::Link { id, dir, name } => self.judge_link(*id, *dir, name),
            Operation::Unlink { dir, name } => self.judge_unlink(*dir, name),
            Operation::Rmdir { dir, name } => self.judge_rmdir(*dir, name),
            Operation::Rename { from, name, to, to_name, how } => {
                self.judge_rename((*from, name), (*to, to_name), *how).map(|_| ())
            }
            Operation::Anonymous { dir, .. } => self.directory(*dir).map(|_| ()),
            Operation::List { dir } => self.living_directory(*dir).map(|_| ()),
            Operation::Hold { id }
            | Operation::Release { id }
            | Operation::Set { id, .. }
            | Operation::Stat { id } => self.living(*id).map(|_| ()),
            Operation::Lookup { dir, name } => self.child(*dir, name).map(|_| ()),
            Operation::Sync => Ok(()),
        }
    }

    /// Does it. `number` is the number that the subject gave to the file that the operation makes, if it makes one.
    ///
    /// # Errors
    /// As [`Tree::judge`]; the tree is then unchanged.
    pub fn perform(&mut self, operation: &Operation, now: Time, number: u64) -> Result<Outcome, Refusal> {
        self.judge(operation)?;
        match operation {
            Operation::Create { dir, name, new, id } => {
                let parent = self.living(*dir)?.facts.clone();
                self.insert(*id, Node::made(new, number, *dir, self.times.then_some(now), &parent));
                self.add_entry(*dir, name, *id, now);
                return Ok(Outcome::File(*id));
            }
            Operation::Anonymous { new, id, dir } => {
                let parent = self.living(*dir)?.facts.clone();
                let mut node = Node::made(new, number, HOME, self.times.then_some(now), &parent);
                (node.facts.links, node.held, node.anonymous) = (0, 1, true);
                self.insert(*id, node);
                return Ok(Outcome::File(*id));
            }
            Operation::Link { id, dir, name } => {
                self.change(*id, |node| {
                    node.facts.links += 1;
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
            Operation::Rename { from, name, to, to_name, how } => {
                self.rename((*from, name), (*to, to_name), *how, now, number)?;
            }
            Operation::Hold { id } => self.change(*id, |node| node.held += 1),
            Operation::Release { id } => {
                self.change(*id, |node| node.held = 0);
                self.forget_unless_used(*id);
            }
            Operation::Set { id, change } => self.change(*id, |node| node.set(change, now)),
            Operation::Lookup { dir, name } => return Ok(Outcome::File(self.child(*dir, name)?)),
            Operation::Stat { id } => return Ok(Outcome::Facts(self.living(*id)?.facts.clone())),
            Operation::List { dir } => return Ok(Outcome::Entries(self.directory(*dir)?.entries.clone())),
            Operation::Sync => (),
        }
        Ok(Outcome::Done)
    }

    fn judge_create(&self, dir: Id, name: &[u8], new: &New) -> Result<(), Refusal> {
        match &new.kind {
            // What is longer than any path, or empty, is looked at before the name.
            crate::Kind::Symlink(target) if target.is_empty() => Err(Refusal::NoEntry),
            crate::Kind::Symlink(target) if target.len() >= PATH_MAX => Err(Refusal::NameTooLong),
            crate::Kind::Symlink(target) if target.len() > TARGET_MAX => {
                self.free_name(dir, name)?;
                Err(Refusal::NameTooLong)
            }
            _ => self.free_name(dir, name),
        }
    }

    fn judge_link(&self, id: Id, dir: Id, name: &[u8]) -> Result<(), Refusal> {
        let node = self.living(id)?;
        self.free_name(dir, name)?;
        match node {
            node if node.is_directory() => Err(Refusal::NotPermitted),
            node if node.facts.links == 0 && !node.anonymous => Err(Refusal::NoEntry),
            _ => Ok(()),
        }
    }

    fn judge_unlink(&self, dir: Id, name: &[u8]) -> Result<(), Refusal> {
        self.directory(dir)?;
        if is_dots(name) {
            return Err(Refusal::IsDirectory);
        }
        let child = self.child(dir, name)?;
        if self.living(child)?.is_directory() { Err(Refusal::IsDirectory) } else { Ok(()) }
    }

    fn judge_rmdir(&self, dir: Id, name: &[u8]) -> Result<(), Refusal> {
        self.directory(dir)?;
        match name {
            b"." => return Err(Refusal::Invalid),
            b".." => return Err(Refusal::NotEmpty),
            _ => (),
        }
        let child = self.living(self.child(dir, name)?)?;
        match child.is_directory() {
            false => Err(Refusal::NotDirectory),
            true if !child.entries.is_empty() => Err(Refusal::NotEmpty),
            true => Ok(()),
        }
    }

    /// A file that can still be spoken of.
    pub(crate) fn living(&self, id: Id) -> Result<&Node, Refusal> {
        self.nodes.get(&id).ok_or(Refusal::NoEntry)
    }

    /// A directory, though it may be one that was removed.
    pub(crate) fn directory(&self, id: Id) -> Result<&Node, Refusal> {
        let node = self.living(id)?;
        if node.is_directory() { Ok(node) } else { Err(Refusal::NotDirectory) }
    }

    /// A directory that was not removed.
    fn living_directory(&self, id: Id) -> Result<&Node, Refusal> {
        let node = self.directory(id)?;
        if node.facts.links > 0 { Ok(node) } else { Err(Refusal::NoEntry) }
    }

    /// What a name stands for.
    pub(crate) fn child(&self, dir: Id, name: &[u8]) -> Result<Id, Refusal> {
        let node = self.living_directory(dir)?;
        match name {
            b"." => return Ok(dir),
            b".." => return Ok(node.parent),
            _ if name.len() > NAME_MAX => return Err(Refusal::NameTooLong),
            _ => (),
        }
        node.entries.get(name).copied().ok_or(Refusal::NoEntry)
    }

    /// That a name can be made: its directory lives and has none like it.
    pub(crate) fn free_name(&self, dir: Id, name: &[u8]) -> Result<(), Refusal> {
        self.directory(dir)?;
        if is_dots(name) {
            return Err(Refusal::Exists);
        }
        self.living_directory(dir)?;
        match self.child(dir, name) {
            Ok(_) => Err(Refusal::Exists),
            Err(Refusal::NoEntry) => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    /// Adds an entry, and a directory's link to its parent.
    pub(crate) fn add_entry(&mut self, dir: Id, name: &[u8], id: Id, now: Time) {
        let is_directory = self.node(id).is_some_and(Node::is_directory);
        let number = self.node(id).map_or(0, |node| node.number);
        self.change(dir, |node| {
            node.entries.insert(name.to_vec(), id);
            node.entries_print = node.entries_print.wrapping_add(entry_print(name, number));
            node.facts.links += u32::from(is_directory);
            node.stamp(now, true);
        });
        if is_directory {
            self.change(id, |node| node.parent = dir);
        }
    }

    /// Takes an entry away, and a directory's link to its parent.
    pub(crate) fn remove_entry(&mut self, dir: Id, name: &[u8], now: Time) {
        let Some(id) = self.node(dir).and_then(|node| node.entries.get(name)).copied() else { return };
        let is_directory = self.node(id).is_some_and(Node::is_directory);
        let number = self.node(id).map_or(0, |node| node.number);
        self.change(dir, |node| {
            node.entries.remove(name);
            node.entries_print = node.entries_print.wrapping_sub(entry_print(name, number));
            node.facts.links -= u32::from(is_directory);
            node.stamp(now, true);
        });
    }

    /// Takes a link away from a file, all of them from a directory.
    pub(crate) fn drop_link(&mut self, id: Id, now: Time) {
        self.change(id, |node| {
            node.facts.links = if node.is_directory() { 0 } else { node.facts.links - 1 };
            node.stamp(now, false);
        });
        self.forget_unless_used(id);
    }

    fn forget_unless_used(&mut self, id: Id) {
        if self.node(id).is_some_and(|node| node.facts.links == 0 && node.held == 0) {
            self.nodes.remove(&id);
        }
    }

    /// Adds a file.
    pub(crate) fn insert(&mut self, id: Id, node: Node) {
        self.print = self.print.wrapping_add(node.print());
        self.nodes.insert(id, node);
    }

    /// Changes a file and keeps the fingerprint right.
    pub(crate) fn change(&mut self, id: Id, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.nodes.get_mut(&id) {
            self.print = self.print.wrapping_sub(node.print());
            change(node);
            self.print = self.print.wrapping_add(node.print());
        }
    }

    /// Whether times are kept.
    pub(crate) fn keeps_times(&self) -> bool {
        self.times
    }
}

impl Node {
    fn new(facts: Facts, number: u64) -> Self {
        Self {
            facts,
            number,
            entries: BTreeMap::new(),
            parent: HOME,
            held: 0,
            anonymous: false,
            entries_print: 0,
        }
    }

    /// A file with its first link, which inherits from its directory what Linux lets it inherit: in a directory with
    /// set-gid its group, and a directory also the bit.
    pub(crate) fn made(new: &New, number: u64, dir: Id, now: Option<Time>, parent: &Facts) -> Self {
        let times = now.map(|now| Times { accessed: now, modified: now, changed: now, born: now });
        let is_directory = new.kind.is_directory();
        let inherits = parent.mode & SET_GID != 0;
        let facts = Facts {
            kind: new.kind.clone(),
            mode: new.mode | if inherits && is_directory { SET_GID } else { 0 },
            uid: new.uid,
            gid: if inherits { parent.gid } else { new.gid },
            links: if is_directory { 2 } else { 1 },
            times,
        };
        Self { parent: dir, ..Self::new(facts, number) }
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.facts.kind.is_directory()
    }

    /// Stamps a change of the inode, and of its contents where `contents` says so.
    pub(crate) fn stamp(&mut self, now: Time, contents: bool) {
        if let Some(times) = &mut self.facts.times {
            times.changed = now;
            if contents {
                times.modified = now;
            }
        }
    }

    fn set(&mut self, change: &Change, now: Time) {
        let facts = &mut self.facts;
        facts.mode = change.mode.unwrap_or(facts.mode);
        facts.uid = change.uid.unwrap_or(facts.uid);
        facts.gid = change.gid.unwrap_or(facts.gid);
        if let Some(times) = &mut facts.times {
            times.accessed = change.accessed.unwrap_or(times.accessed);
            times.modified = change.modified.unwrap_or(times.modified);
        }
        self.stamp(now, false);
    }

    /// Nothing for a file that cannot be reached.
    fn print(&self) -> u64 {
        if self.facts.links == 0 { 0 } else { file_print(self.number, &self.facts, self.entries_print) }
    }
}

const SET_GID: u16 = 0o2000;
