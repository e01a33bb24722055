//! Clones: volumes that share the objects of another one.
//!
//! # Invariants
//! - A clone pins a state of its parent before it exists. A crash in between leaves a pin, which `volume_info` lists.
//! - A pin is removed only by whoever made it, before the clone could exist, or by order of the user.

use std::sync::Arc;

use store::Store;

use crate::checkpoint::read_directory;
use crate::claim::begin_new;
use crate::client::Client;
use crate::create::{new_head, probe};
use crate::device::ObjectDevice;
use crate::error::{ObjectError, Result};
use crate::head::{Checkpoint, Head, PARENTS, Parent, Root, Snapshot};
use crate::map::Map;
use crate::options::ObjectOptions;
use crate::publish::read_head;
use crate::snapshots::{StateSource, change, refuse, remove};
use crate::state::Origin;

/// Longest URL of a clone.
const URL_BYTES: usize = 4096;

/// What a clone is made of.
#[derive(Clone, Copy, Debug)]
pub struct CloneRequest<'a> {
    /// URL of the parent.
    pub parent: &'a str,
    /// The snapshot; without, what is durable now.
    pub snapshot: Option<&'a str>,
    /// URL of the clone.
    pub url: &'a str,
    /// When, in seconds since 1970.
    pub made: u64,
}

/// A clone that is being made: its device can be changed, and nobody finds it until [`finish`](Self::finish).
pub struct NewClone {
    device: Arc<ObjectDevice>,
    pin: Pin,
}

/// A state of the parent that is kept for a clone.
struct Pin {
    store: Arc<dyn Store>,
    state: Snapshot,
    options: ObjectOptions,
}

impl Pin {
    fn remove(&self) -> Result<()> {
        remove(Arc::clone(&self.store), &self.options, |client, head| {
            let at = head.pins.iter().position(|pin| *pin == self.state);
            let at = at.ok_or_else(|| refuse(client, &self.state.name, "its pin is gone"))?;
            Ok(head.pins.remove(at))
        })
    }
}

/// Begins a volume that shares the objects of another one. Nothing is copied.
///
/// # Errors
/// There is a volume already, or no such parent or snapshot; the store's errors.
pub fn begin_clone(
    parent: Arc<dyn Store>,
    child: Arc<dyn Store>,
    request: CloneRequest<'_>,
    options: ObjectOptions,
) -> Result<NewClone> {
    let CloneRequest { parent: parent_url, snapshot, url, made } = request;
    let client = Client::new(Arc::clone(&parent), options.timeout);
    let child_client = Client::new(Arc::clone(&child), options.timeout);
    probe(&child_client, &options)?;
    if read_head(&child_client)?.is_some() {
        return Err(ObjectError::Exists { volume: child_client.name() });
    }
    let mut source = StateSource::new(Arc::clone(&parent));
    let mut pinned: Option<Snapshot> = None;
    let head = change(&client, &options, |published, head| {
        if let Some(pin) = &pinned
            && head.pins.contains(pin)
        {
            // A lost reply, and another change since.
            return Ok(());
        }
        let (size, root) = source.find(&client, published, snapshot, &options)?;
        if head.parents.len() >= PARENTS || url.len() > URL_BYTES {
            return Err(refuse(&client, url, "it has too many parents, or the URL is too long"));
        }
        let pin = Snapshot { name: url.into(), made, size, root };
        head.pins.push(pin.clone());
        pinned = Some(pin);
        Ok(())
    })?;
    let Some(state) = pinned else { return Err(ObjectError::NoVolume { volume: client.name() }) };
    let pin = Pin { store: parent, state, options: options.clone() };
    match begin(child, parent_url, &head, &pin.state, options) {
        Ok(device) => Ok(NewClone { device: Arc::new(device), pin }),
        Err(error) => {
            let _ = pin.remove();
            Err(error)
        }
    }
}

/// The volume of a clone, which has no head yet.
fn begin(
    child: Arc<dyn Store>,
    parent_url: &str,
    parent: &Head,
    pin: &Snapshot,
    options: ObjectOptions,
) -> Result<ObjectDevice> {
    let mut parents = parent.parents.clone();
    parents.push(Parent { url: parent_url.into(), uuid: parent.uuid });
    let origin = parents.len() as u16;
    // A directory that lies in a parent of the parent has the same number here.
    let root =
        pin.root.map(|root| Root { origin: if root.origin == 0 { origin } else { root.origin }, ..root });
    let mut head = new_head(pin.size, parent.sector, &options);
    head.checkpoint = Checkpoint { root, ..head.checkpoint };
    head.parents = parents;
    let read = |origins: &[Origin]| {
        Ok(Map::new(root.map(|root| read_directory(origins, &root)).transpose()?.unwrap_or_default()))
    };
    ObjectDevice::start(begin_new(child, head, read, options)?)
}

impl NewClone {
    /// Its device.
    pub fn device(&self) -> &Arc<ObjectDevice> {
        &self.device
    }

    /// Makes the clone durable: from here on it exists. It is closed.
    ///
    /// # Errors
    /// There is a volume already; the store's errors. The clone may exist if it is not clear whether the store has
    /// received its head: then its pin is kept.
    pub fn finish(self) -> Result<()> {
        self.device.close()
    }

    /// Removes what was stored of the clone, and its pin.
    ///
    /// # Errors
    /// The store's errors.
    pub fn abandon(self) -> Result<()> {
        self.device.abandon()?;
        self.pin.remove()
    }
}
