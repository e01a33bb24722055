//! A subject that is the model itself, behind a lock and with its own inode numbers, for tests of the test tools.
//!
//! It proves nothing about the model's rules; it shows that sessions, generators and the crash simulator work.
//!
//! # Locking
//! One mutex around everything.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::time::{Clock, Time};

use crate::clock::ThreadClock;
use crate::operation::{HOME, Id, Name, NewFile, Operation, RenameMode, SetAttr};
use crate::stat::Stat;
use crate::subject::{Answer, Failure, Subject};
use crate::tree::{Outcome, Tree};

/// Inode number of the root.
const ROOT: u64 = 128;

/// Called in order with every change: operation, time, inode number of the created file.
pub type Hook = Box<dyn Fn(&Operation, Time, u64) -> Answer<()> + Send + Sync>;

struct Inner {
    tree: Tree,
    ids: HashMap<u64, Id>,
    next: u32,
    hook: Option<Hook>,
}

/// A file tree in memory.
pub struct MemorySubject {
    inner: Mutex<Inner>,
}

impl Default for MemorySubject {
    fn default() -> Self {
        Self::new()
    }
}

impl MemorySubject {
    /// Creates an empty tree.
    pub fn new() -> Self {
        let tree = Tree::new(Stat::directory(), ROOT);
        let inner = Inner { tree, ids: HashMap::from([(ROOT, HOME)]), next: 1, hook: None };
        Self { inner: Mutex::new(inner) }
    }

    /// Sets the hook that is called with every change.
    pub fn with_hook(self, hook: Hook) -> Self {
        self.lock().hook = Some(hook);
        self
    }

    /// Repeats a change that was passed to a hook.
    ///
    /// # Errors
    /// The model refuses it.
    pub fn replay(&self, operation: &Operation, now: Time, number: u64) -> Answer<()> {
        let mut inner = self.lock();
        inner.tree.perform(operation, now, number).map_err(|refusal| failure(refusal.errno()))?;
        if let Operation::Create { id, .. }
        | Operation::Anonymous { id, .. }
        | Operation::Rename { mode: RenameMode::Whiteout(id), .. } = operation
        {
            inner.ids.insert(number, *id);
            inner.next = inner.next.max(id.0 + 1);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn id(&self, number: u64) -> Answer<Id> {
        self.ids.get(&number).copied().ok_or_else(|| failure(2))
    }

    /// Returns a new identity and the lowest free inode number. Unlike identities, inode numbers are reused.
    fn allocate(&mut self) -> (Id, u64) {
        let id = Id(self.next);
        self.next += 1;
        let used: Vec<u64> = self.tree.nodes().map(|(_, node)| node.number).collect();
        let number = (ROOT + 1..).find(|number| !used.contains(number)).unwrap_or(ROOT);
        (id, number)
    }

    fn perform(&mut self, operation: &Operation, number: u64) -> Answer<Outcome> {
        let now: Time = ThreadClock.now();
        let outcome = self.tree.perform(operation, now, number);
        let outcome = outcome.map_err(|refusal| failure(refusal.errno()))?;
        if let (Some(hook), Outcome::Done | Outcome::File(_)) = (&self.hook, &outcome) {
            hook(operation, now, number)?;
        }
        Ok(outcome)
    }

    fn make(&mut self, id: Id, number: u64, operation: &Operation) -> Answer<u64> {
        self.perform(operation, number)?;
        self.ids.insert(number, id);
        Ok(number)
    }
}

fn failure(errno: i32) -> Failure {
    Failure { errno, message: "refused by the model".into() }
}

impl Subject for MemorySubject {
    fn root(&self) -> u64 {
        ROOT
    }

    fn lookup(&self, dir: u64, name: &[u8]) -> Answer<u64> {
        let mut inner = self.lock();
        let operation = Operation::Lookup { dir: inner.id(dir)?, name: name.to_vec() };
        match inner.perform(&operation, 0)? {
            Outcome::File(id) => Ok(inner.tree.node(id).map_or(0, |node| node.number)),
            _ => Err(failure(5)),
        }
    }

    fn create(&self, dir: u64, name: &[u8], new: &NewFile) -> Answer<u64> {
        let mut inner = self.lock();
        let (id, number) = inner.allocate();
        let dir = inner.id(dir)?;
        let operation = Operation::Create { dir, name: name.to_vec(), new: new.clone(), id };
        inner.make(id, number, &operation)
    }

    fn link(&self, number: u64, dir: u64, name: &[u8]) -> Answer<()> {
        let mut inner = self.lock();
        let (id, dir) = (inner.id(number)?, inner.id(dir)?);
        inner.perform(&Operation::Link { id, dir, name: name.to_vec() }, 0).map(drop)
    }

    fn unlink(&self, dir: u64, name: &[u8]) -> Answer<()> {
        let mut inner = self.lock();
        let dir = inner.id(dir)?;
        inner.perform(&Operation::Unlink { dir, name: name.to_vec() }, 0).map(drop)
    }

    fn rmdir(&self, dir: u64, name: &[u8]) -> Answer<()> {
        let mut inner = self.lock();
        let dir = inner.id(dir)?;
        inner.perform(&Operation::Rmdir { dir, name: name.to_vec() }, 0).map(drop)
    }

    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), mode: RenameMode) -> Answer<()> {
        let mut inner = self.lock();
        let (id, number) = inner.allocate();
        let operation = Operation::Rename {
            from: inner.id(from.0)?,
            name: from.1.to_vec(),
            to: inner.id(to.0)?,
            to_name: to.1.to_vec(),
            mode: if let RenameMode::Whiteout(_) = mode { RenameMode::Whiteout(id) } else { mode },
        };
        inner.make(id, number, &operation).map(drop)
    }

    fn anonymous(&self, dir: u64, new: &NewFile) -> Answer<u64> {
        let mut inner = self.lock();
        let (id, number) = inner.allocate();
        let dir = inner.id(dir)?;
        inner.make(id, number, &Operation::Anonymous { dir, new: new.clone(), id })
    }

    fn open(&self, number: u64) -> Answer<()> {
        let mut inner = self.lock();
        let id = inner.id(number)?;
        inner.perform(&Operation::Open { id }, 0).map(drop)
    }

    fn close(&self, number: u64) -> Answer<()> {
        let mut inner = self.lock();
        let id = inner.id(number)?;
        inner.perform(&Operation::Close { id }, 0).map(drop)
    }

    fn stat(&self, number: u64) -> Answer<Stat> {
        let mut inner = self.lock();
        let id = inner.id(number)?;
        match inner.perform(&Operation::Stat { id }, 0)? {
            Outcome::Stat(stat) => Ok(stat),
            _ => Err(failure(5)),
        }
    }

    fn list(&self, dir: u64) -> Answer<BTreeMap<Name, u64>> {
        let mut inner = self.lock();
        let dir = inner.id(dir)?;
        let Outcome::Entries(entries) = inner.perform(&Operation::List { dir }, 0)? else {
            return Err(failure(5));
        };
        let number = |id| inner.tree.node(id).map_or(0, |node| node.number);
        Ok(entries.into_iter().map(|(name, id)| (name, number(id))).collect())
    }

    fn set(&self, number: u64, change: &SetAttr) -> Answer<()> {
        let mut inner = self.lock();
        let id = inner.id(number)?;
        inner.perform(&Operation::Set { id, change: change.clone() }, 0).map(drop)
    }

    fn sync(&self) -> Answer<()> {
        Ok(())
    }
}
