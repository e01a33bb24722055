//! Snapshots: names for states in the head. Any program adds and removes them, also while a writer has the volume open:
//! it changes no other part of the head.
//!
//! A snapshot names the map of the last checkpoint. If there is a log behind it, which a writer has not closed, a map
//! of both is stored first: so a snapshot contains what was durable when it was begun.
//!
//! # Invariants
//! - The map of a snapshot is published only by the version of the head from which it was made: nothing that it refers
//!   to was retired before.
//! - Segments behind the checkpoint belong to the writer's map, not only to a snapshot: removing one retires none.
//! - Maps of snapshots have numbers from [`OWN_MAPS`] on, so that they meet none of a writer's.

use std::collections::HashSet;
use std::sync::Arc;

use store::Store;

use crate::checkpoint::{own_objects, read_directory};
use crate::claim::open_state;
use crate::client::Client;
use crate::collect::append;
use crate::error::{ObjectError, Result};
use crate::head::{Checkpoint, Head, Root, Snapshot};
use crate::names::Kind;
use crate::options::ObjectOptions;
use crate::publish::{Published, Swap, read_head, swap};
use crate::state::{Core, ObjectId, Origin};

/// Longest name of a snapshot.
const NAME_BYTES: usize = 255;
/// The first number of maps of snapshots.
const OWN_MAPS: u64 = 1 << 61;
/// How often a change is begun again because a checkpoint has deleted what it read.
const CHANGES: usize = 20;

/// Changes the head of a volume that may be open elsewhere. `change` is applied again if another program has changed
/// the head meanwhile.
pub fn change(
    client: &Client,
    options: &ObjectOptions,
    mut change: impl FnMut(&Published, &mut Head) -> Result<()>,
) -> Result<Head> {
    let mut found = read_head(client)?;
    let mut failures = 0;
    loop {
        let Some(published) = &found else {
            return Err(ObjectError::NoVolume { volume: client.name() });
        };
        let Published { head, version, .. } = published;
        let mut new = head.clone();
        if let Err(error) = change(published, &mut new) {
            // A checkpoint meanwhile may have deleted what was looked for.
            let now = read_head(client)?;
            let is_later = now.as_ref().is_some_and(|now| now.head.checkpoint != head.checkpoint);
            if !is_later || failures == CHANGES {
                return Err(error);
            }
            (found, failures) = (now, failures + 1);
            continue;
        }
        let is_more = (new.snapshots.len(), new.pins.len()) > (head.snapshots.len(), head.pins.len());
        if is_more && !new.leaves_space() {
            let reason = "it has too many snapshots, clones or parents";
            return Err(ObjectError::Refused { volume: client.name(), reason: reason.into() });
        }
        new.change = options.nonce();
        match swap(client, &new, Some(version), options)? {
            Swap::Done(_) => return Ok(new),
            Swap::Other(other) => found = other.map(|other| *other),
        }
    }
}

/// The state that a new name is for: a snapshot, or what is durable now.
pub struct StateSource {
    store: Arc<dyn Store>,
    /// What was stored for an earlier attempt: for a writer and its checkpoint.
    stored: Option<(u128, Checkpoint, Option<Root>)>,
}

impl StateSource {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, stored: None }
    }

    /// Size and map of a snapshot, or without a name of what is durable now.
    pub fn find(
        &mut self,
        client: &Client,
        published: &Published,
        snapshot: Option<&str>,
        options: &ObjectOptions,
    ) -> Result<(u64, Option<Root>)> {
        let head = &published.head;
        if let Some(name) = snapshot {
            let found = head.snapshots.iter().find(|found| found.name == name);
            let found = found.ok_or_else(|| refuse(client, name, "there is no such snapshot"))?;
            return Ok((found.size, found.root));
        }
        match &self.stored {
            Some((nonce, checkpoint, root)) if (nonce, checkpoint) == (&head.nonce, &head.checkpoint) => {
                return Ok((head.size, *root));
            }
            _ => {}
        }
        let core = open_state(client, Arc::clone(&self.store), published, None, options)?;
        let has_log = core.state.lock().unsaved.0 > 0;
        let root = if has_log { Some(core.store_map(options)?) } else { head.checkpoint.root };
        self.stored = Some((head.nonce, head.checkpoint.clone(), root));
        Ok((head.size, root))
    }
}

impl Core {
    /// Stores the map of a state that was opened for reading, with its log.
    fn store_map(&self, options: &ObjectOptions) -> Result<Root> {
        let mut publisher = self.publisher.lock();
        publisher.next_map = OWN_MAPS | options.random.next_u64() >> 4;
        let (frozen, ..) = self.freeze()?;
        Ok(self.write_map(&mut publisher, frozen)?.root)
    }
}

/// An error about a snapshot, or a clone.
pub fn refuse(client: &Client, name: &str, reason: &'static str) -> ObjectError {
    ObjectError::Snapshot { volume: client.name(), name: name.into(), reason }
}

/// Whether a text can name a snapshot in a URL.
fn is_name(name: &str) -> bool {
    let fits = |letter: char| !letter.is_control() && !matches!(letter, '/' | '@');
    !name.is_empty() && name.len() <= NAME_BYTES && name.chars().all(fits)
}

/// Creates a snapshot of the durable state.
///
/// # Errors
/// There is a snapshot of this name, or the name is not valid; the store's errors.
pub fn make_snapshot(store: Arc<dyn Store>, name: &str, made: u64, options: &ObjectOptions) -> Result<()> {
    let client = Client::new(Arc::clone(&store), options.timeout);
    if !is_name(name) {
        return Err(refuse(&client, name, "a name has 1 to 255 bytes, and neither / nor @"));
    }
    let mut source = StateSource::new(store);
    let mut pushed: Option<Snapshot> = None;
    change(&client, options, |published, head| {
        match head.snapshots.iter().find(|snapshot| snapshot.name == name) {
            // A lost reply, and another change since.
            Some(snapshot) if Some(snapshot) == pushed.as_ref() => return Ok(()),
            Some(_) => return Err(refuse(&client, name, "there is a snapshot of this name")),
            None => {}
        }
        let (size, root) = source.find(&client, published, None, options)?;
        let snapshot = Snapshot { name: name.into(), made, size, root };
        head.snapshots.push(snapshot.clone());
        pushed = Some(snapshot);
        Ok(())
    })?;
    Ok(())
}

/// Removes a snapshot, and retires the objects that only it uses.
///
/// # Errors
/// There is no such snapshot; the store's errors.
pub fn remove_snapshot(store: Arc<dyn Store>, name: &str, options: &ObjectOptions) -> Result<()> {
    remove(store, options, |client, head| {
        let at = head.snapshots.iter().position(|snapshot| snapshot.name == name);
        let at = at.ok_or_else(|| refuse(client, name, "there is no such snapshot"))?;
        Ok(head.snapshots.remove(at))
    })
}

/// Removes the pin of a clone that is gone, and retires the objects that only it uses.
///
/// # Errors
/// There is no such pin; the store's errors.
pub fn remove_pin(store: Arc<dyn Store>, clone: &str, options: &ObjectOptions) -> Result<()> {
    remove(store, options, |client, head| {
        let at = head.pins.iter().position(|pin| pin.name == clone);
        let at = at.ok_or_else(|| refuse(client, clone, "no clone of this name pins a state"))?;
        Ok(head.pins.remove(at))
    })
}

/// Removes a snapshot or pin that `take` takes out of a head, and retires the objects that only it uses.
pub fn remove(
    store: Arc<dyn Store>,
    options: &ObjectOptions,
    mut take: impl FnMut(&Client, &mut Head) -> Result<Snapshot>,
) -> Result<()> {
    let client = Arc::new(Client::new(store, options.timeout));
    let mut is_repeated = false;
    change(&client, options, |_, head| {
        let removed = match take(&client, head) {
            // The reply to an earlier attempt was lost, and there was another change since.
            Err(_) if is_repeated => return Ok(()),
            removed => removed?,
        };
        is_repeated = true;
        let origins = [Origin { client: Arc::clone(&client), uuid: head.uuid }];
        // Objects of parents are not this volume's to retire; nor is a directory that lies there.
        let own = |root: &Root| match root.origin {
            0 => read_directory(&origins, root).map(|directory| own_objects(&directory, root)),
            _ => Ok(HashSet::new()),
        };
        let Some(root) = removed.root else { return Ok(()) };
        let mut unused: HashSet<ObjectId> = own(&root)?;
        let Checkpoint { epoch, seq, .. } = head.checkpoint;
        unused.retain(|(kind, e, number)| *kind == Kind::Map || (*e, *number) < (epoch, seq));
        for kept in head.kept_roots().chain(head.checkpoint.root) {
            let kept = own(&kept)?;
            unused.retain(|id| !kept.contains(id));
        }
        let mut unused: Vec<ObjectId> = unused.into_iter().collect();
        unused.sort_unstable();
        // `audit` finds those for which the list has no space.
        append(&mut head.retired, Vec::new(), &unused);
        Ok(())
    })?;
    Ok(())
}
