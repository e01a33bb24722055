//! A subject that is the model itself, behind a lock and with numbers of its own: what the judges are tried on.
//!
//! It proves nothing about the model's rules, but that sessions, generators and the crash simulator work.
//!
//! # Locking
//! One mutex around everything.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::time::{Clock, Time};

use crate::clock::ThreadClock;
use crate::facts::{Facts, Times};
use crate::operation::{Change, HOME, How, Id, Kind, Name, New, Operation};
use crate::subject::{Answer, Failure, Subject};
use crate::tree::{Outcome, Tree};

/// The number of the root.
const ROOT: u64 = 128;

/// Called with every change that was done, in their order: operation, time, number of the file made.
pub type Hook = Box<dyn Fn(&Operation, Time, u64) -> Answer<()> + Send + Sync>;

struct State {
    tree: Tree,
    ids: HashMap<u64, Id>,
    next: u32,
    hook: Option<Hook>,
}

/// A tree in memory.
pub struct StandIn {
    state: Mutex<State>,
}

impl Default for StandIn {
    fn default() -> Self {
        Self::new()
    }
}

impl StandIn {
    /// An empty tree.
    pub fn new() -> Self {
        let facts = Facts {
            kind: Kind::Directory,
            mode: 0o755,
            uid: 0,
            gid: 0,
            links: 2,
            times: Some(Times::default()),
        };
        let tree = Tree::new(facts, ROOT);
        let state = State { tree, ids: HashMap::from([(ROOT, HOME)]), next: 1, hook: None };
        Self { state: Mutex::new(state) }
    }

    /// The same tree, with every change from now on told to `hook`.
    pub fn with_hook(self, hook: Hook) -> Self {
        self.lock().hook = Some(hook);
        self
    }

    /// Does again what a hook was told.
    ///
    /// # Errors
    /// Where the model refuses it.
    pub fn replay(&self, operation: &Operation, now: Time, number: u64) -> Answer<()> {
        let mut state = self.lock();
        state.tree.perform(operation, now, number).map_err(|refusal| failure(refusal.errno()))?;
        if let Operation::Create { id, .. }
        | Operation::Anonymous { id, .. }
        | Operation::Rename { how: How::Whiteout(id), .. } = operation
        {
            state.ids.insert(number, *id);
            state.next = state.next.max(id.0 + 1);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn id(&self, number: u64) -> Answer<Id> {
        self.ids.get(&number).copied().ok_or_else(|| failure(2))
    }

    /// An identity and the number that goes with it. Numbers come back, as inode numbers do.
    fn fresh(&mut self) -> (Id, u64) {
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

    fn make(&mut self, (id, number): (Id, u64), operation: &Operation) -> Answer<u64> {
        self.perform(operation, number)?;
        self.ids.insert(number, id);
        Ok(number)
    }
}

fn failure(errno: i32) -> Failure {
    Failure { errno, message: "the stand-in refuses".into() }
}

impl Subject for StandIn {
    fn root(&self) -> u64 {
        ROOT
    }

    fn lookup(&self, dir: u64, name: &[u8]) -> Answer<u64> {
        let mut state = self.lock();
        let operation = Operation::Lookup { dir: state.id(dir)?, name: name.to_vec() };
        match state.perform(&operation, 0)? {
            Outcome::File(id) => Ok(state.tree.node(id).map_or(0, |node| node.number)),
            _ => Err(failure(5)),
        }
    }

    fn create(&self, dir: u64, name: &[u8], new: &New) -> Answer<u64> {
        let mut state = self.lock();
        let (id, number) = state.fresh();
        let dir = state.id(dir)?;
        let operation = Operation::Create { dir, name: name.to_vec(), new: new.clone(), id };
        state.make((id, number), &operation)
    }

    fn link(&self, number: u64, dir: u64, name: &[u8]) -> Answer<()> {
        let mut state = self.lock();
        let (id, dir) = (state.id(number)?, state.id(dir)?);
        state.perform(&Operation::Link { id, dir, name: name.to_vec() }, 0).map(drop)
    }

    fn unlink(&self, dir: u64, name: &[u8]) -> Answer<()> {
        let mut state = self.lock();
        let dir = state.id(dir)?;
        state.perform(&Operation::Unlink { dir, name: name.to_vec() }, 0).map(drop)
    }

    fn rmdir(&self, dir: u64, name: &[u8]) -> Answer<()> {
        let mut state = self.lock();
        let dir = state.id(dir)?;
        state.perform(&Operation::Rmdir { dir, name: name.to_vec() }, 0).map(drop)
    }

    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), how: How) -> Answer<()> {
        let mut state = self.lock();
        let fresh = state.fresh();
        let operation = Operation::Rename {
            from: state.id(from.0)?,
            name: from.1.to_vec(),
            to: state.id(to.0)?,
            to_name: to.1.to_vec(),
            how: if let How::Whiteout(_) = how { How::Whiteout(fresh.0) } else { how },
        };
        state.make(fresh, &operation).map(drop)
    }

    fn anonymous(&self, dir: u64, new: &New) -> Answer<u64> {
        let mut state = self.lock();
        let (id, number) = state.fresh();
        let dir = state.id(dir)?;
        state.make((id, number), &Operation::Anonymous { dir, new: new.clone(), id })
    }

    fn hold(&self, number: u64) -> Answer<()> {
        let mut state = self.lock();
        let id = state.id(number)?;
        state.perform(&Operation::Hold { id }, 0).map(drop)
    }

    fn release(&self, number: u64) -> Answer<()> {
        let mut state = self.lock();
        let id = state.id(number)?;
        state.perform(&Operation::Release { id }, 0).map(drop)
    }

    fn stat(&self, number: u64) -> Answer<Facts> {
        let mut state = self.lock();
        let id = state.id(number)?;
        match state.perform(&Operation::Stat { id }, 0)? {
            Outcome::Facts(facts) => Ok(facts),
            _ => Err(failure(5)),
        }
    }

    fn list(&self, dir: u64) -> Answer<BTreeMap<Name, u64>> {
        let mut state = self.lock();
        let dir = state.id(dir)?;
        let Outcome::Entries(entries) = state.perform(&Operation::List { dir }, 0)? else {
            return Err(failure(5));
        };
        let number = |id| state.tree.node(id).map_or(0, |node| node.number);
        Ok(entries.into_iter().map(|(name, id)| (name, number(id))).collect())
    }

    fn set(&self, number: u64, change: &Change) -> Answer<()> {
        let mut state = self.lock();
        let id = state.id(number)?;
        state.perform(&Operation::Set { id, change: change.clone() }, 0).map(drop)
    }

    fn sync(&self) -> Answer<()> {
        Ok(())
    }
}
