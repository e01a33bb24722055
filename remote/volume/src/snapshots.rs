//! Snapshots and clones: names for states in the head.
//!
//! # Invariants
//! - They name the state of the last checkpoint. A program that does not have the volume open for writing adds and
//!   removes them, too: it changes no other part of the head.
//! - A clone pins a state of its parent before it exists. A crash in between leaves a pin, which
//!   `volume_info` lists.

use std::collections::HashSet;
use std::sync::Arc;

use store::Store;

use crate::checkpoint::{own_objects, read_directory};
use crate::client::Client;
use crate::collect::append;
use crate::error::{ObjectError, Result};
use crate::head::{Checkpoint, Head, PARENTS, Parent, Root, Snapshot};
use crate::options::ObjectOptions;
use crate::publish::{Published, Swap, read_head, swap};
use crate::state::{ObjectId, Origin};

/// Longest name of a snapshot.
const NAME_BYTES: usize = 255;
/// Longest URL of a clone.
const URL_BYTES: usize = 4096;

/// Changes the head of a volume that may be open elsewhere.
fn change(
    client: &Client,
    options: &ObjectOptions,
    mut change: impl FnMut(&mut Head) -> Result<()>,
) -> Result<Head> {
    let mut found = read_head(client)?;
    loop {
        let Some(Published { head, version, .. }) = &found else {
            return Err(ObjectError::NoVolume { volume: client.name() });
        };
        let mut new = head.clone();
        change(&mut new)?;
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

fn refuse(client: &Client, name: &str, reason: &'static str) -> ObjectError {
    ObjectError::Snapshot { volume: client.name(), name: name.into(), reason }
}

/// Whether a text can name a snapshot in a URL.
fn is_name(name: &str) -> bool {
    let fits = |letter: char| !letter.is_control() && !matches!(letter, '/' | '@');
    !name.is_empty() && name.len() <= NAME_BYTES && name.chars().all(fits)
}

/// Names the last checkpoint.
pub fn make_snapshot(store: Arc<dyn Store>, name: &str, made: u64, options: &ObjectOptions) -> Result<()> {
    let client = Client::new(store, options.timeout);
    if !is_name(name) {
        return Err(refuse(&client, name, "a name has 1 to 255 bytes, and neither / nor @"));
    }
    change(&client, options, |head| {
        let is_ours = |snapshot: &Snapshot| snapshot.made == made && snapshot.root == head.checkpoint.root;
        match head.snapshots.iter().find(|snapshot| snapshot.name == name) {
            // A lost reply, and another change since.
            Some(snapshot) if is_ours(snapshot) => return Ok(()),
            Some(_) => return Err(refuse(&client, name, "there is a snapshot of this name")),
            None => {}
        }
        let (size, root) = (head.size, head.checkpoint.root);
        head.snapshots.push(Snapshot { name: name.into(), made, size, root });
        Ok(())
    })?;
    Ok(())
}

/// Removes a snapshot, and retires the objects that only it uses.
pub fn remove_snapshot(store: Arc<dyn Store>, name: &str, options: &ObjectOptions) -> Result<()> {
    remove(store, options, |client, head| {
        let at = head.snapshots.iter().position(|snapshot| snapshot.name == name);
        let at = at.ok_or_else(|| refuse(client, name, "there is no such snapshot"))?;
        Ok(head.snapshots.remove(at))
    })
}

/// Removes the pin of a clone that is gone, and retires the objects that only it uses.
pub fn remove_pin(store: Arc<dyn Store>, clone: &str, options: &ObjectOptions) -> Result<()> {
    remove(store, options, |client, head| {
        let at = head.pins.iter().position(|pin| pin.name == clone);
        let at = at.ok_or_else(|| refuse(client, clone, "no clone of this name pins a state"))?;
        Ok(head.pins.remove(at))
    })
}

fn remove(
    store: Arc<dyn Store>,
    options: &ObjectOptions,
    mut take: impl FnMut(&Client, &mut Head) -> Result<Snapshot>,
) -> Result<()> {
    let client = Arc::new(Client::new(store, options.timeout));
    let mut is_repeated = false;
    change(&client, options, |head| {
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

/// What a clone is made of.
#[derive(Clone, Copy, Debug)]
pub struct CloneRequest<'a> {
    /// URL of the parent.
    pub parent: &'a str,
    /// The snapshot; the last checkpoint without.
    pub snapshot: Option<&'a str>,
    /// URL of the clone.
    pub url: &'a str,
    /// When, in seconds since 1970.
    pub made: u64,
}

/// Makes a volume that shares the objects of another one. Nothing is copied.
pub fn make_clone(
    parent: Arc<dyn Store>,
    child: Arc<dyn Store>,
    request: CloneRequest<'_>,
    options: &ObjectOptions,
) -> Result<()> {
    let CloneRequest { parent: parent_url, snapshot, url, made } = request;
    let (parent, child) = (Client::new(parent, options.timeout), Client::new(child, options.timeout));
    if read_head(&child)?.is_some() {
        return Err(ObjectError::Exists { volume: child.name() });
    }
    let mut pinned = None;
    let head = change(&parent, options, |head| {
        let (size, root) = match snapshot {
            None => (head.size, head.checkpoint.root),
            Some(name) => {
                let found = head.snapshots.iter().find(|found| found.name == name);
                let found = found.ok_or_else(|| refuse(&parent, name, "there is no such snapshot"))?;
                (found.size, found.root)
            }
        };
        if head.parents.len() >= PARENTS || url.len() > URL_BYTES {
            return Err(refuse(&parent, url, "it has too many parents, or the URL is too long"));
        }
        let pin = Snapshot { name: url.into(), made, size, root };
        if !head.pins.contains(&pin) {
            head.pins.push(pin.clone());
        }
        pinned = Some(pin);
        Ok(())
    })?;
    let Some(Snapshot { size, root, .. }) = pinned else { return Ok(()) };
    let mut parents = head.parents.clone();
    parents.push(Parent { url: parent_url.into(), uuid: head.uuid });
    let origin = parents.len() as u16;
    // A directory that lies in a parent of the parent has the same number here.
    let root = root.map(|root| Root { origin: if root.origin == 0 { origin } else { root.origin }, ..root });
    let epoch = 1 + u64::from(options.random.next_u32());
    let new = Head {
        uuid: options.nonce().to_le_bytes(),
        size,
        sector: head.sector,
        epoch,
        nonce: options.nonce(),
        change: options.nonce(),
        writer: None,
        checkpoint: Checkpoint { epoch: epoch + 1, seq: 0, root },
        snapshots: Vec::new(),
        pins: Vec::new(),
        parents,
        retired: Vec::new(),
    };
    match swap(&child, &new, None, options)? {
        Swap::Done(_) => Ok(()),
        Swap::Other(_) => Err(ObjectError::Exists { volume: child.name() }),
    }
}
