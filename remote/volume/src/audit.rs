//! Examining the objects of a volume: what is missing, and what nothing refers to.

use std::collections::HashSet;
use std::sync::Arc;

use store::{Listed, Store};

use crate::checkpoint::{own_objects, read_directory};
use crate::claim::EPOCHS_MAX;
use crate::client::Client;
use crate::error::{ObjectError, Result};
use crate::head::Head;
use crate::names::{self, Kind};
use crate::options::ObjectOptions;
use crate::publish::{Published, read_head};
use crate::state::{ObjectId, Origin};

/// The objects of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Number of objects.
    pub objects: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Objects that are needed and absent: the volume is damaged.
    pub missing: Vec<String>,
    /// Objects that wait for their grace period to pass.
    pub retired: u64,
    /// Objects that nothing refers to: what crashes have left. Those of a volume at the same place whose creation was
    /// interrupted are known by an epoch that this one will not reach.
    pub orphans: Vec<String>,
    /// Bytes in orphans.
    pub orphan_bytes: u64,
    /// Fences.
    pub fences: u64,
}

/// Examines the objects of a volume. Nothing is changed.
pub fn audit(store: Arc<dyn Store>, options: &ObjectOptions) -> Result<Audit> {
    let client = Arc::new(Client::new(store, options.timeout));
    let Some(Published { head, .. }) = read_head(&client)? else {
        return Err(ObjectError::NoVolume { volume: client.name() });
    };
    let needed = needed(&client, &head)?;
    let retired: HashSet<ObjectId> =
        head.retired.iter().map(|retired| (retired.kind, retired.epoch, retired.number)).collect();
    let mut audit = Audit { retired: retired.len() as u64, ..Audit::default() };
    let (mut found, mut above) = (HashSet::new(), Vec::new());
    client.for_each_listed(&["log/", "map/", "probe/"], |listed| {
        let name = names::parse(&listed.key);
        if name.is_none() && !names::is_probe(&listed.key) {
            // Of others: the objects of a volume whose URL has one more part, for example.
            return Ok(());
        }
        audit.objects += 1;
        audit.bytes = audit.bytes.saturating_add(listed.size);
        match name {
            Some(id) if needed.contains(&id) => drop(found.insert(id)),
            Some(id) if retired.contains(&id) => {}
            Some((_, epoch, _)) if epoch > head.epoch => above.push(listed.clone()),
            Some(id) => audit.judge(&client, &head, id, listed)?,
            None => audit.orphan(listed),
        }
        Ok(())
    })?;
    if !above.is_empty() {
        // A writer of a later epoch has replaced the head before it wrote.
        let last = read_head(&client)?.map_or(head.epoch, |now| now.head.epoch);
        let is_reached = |listed: &Listed| {
            names::parse(&listed.key).is_none_or(|(_, epoch, _)| epoch <= last.saturating_add(EPOCHS_MAX))
        };
        above.iter().filter(|listed| !is_reached(listed)).for_each(|listed| audit.orphan(listed));
    }
    let mut missing: Vec<ObjectId> = needed.difference(&found).copied().collect();
    missing.sort_unstable();
    for (kind, epoch, number) in missing {
        let key = names::name(kind, epoch, number);
        // A list may be stale.
        if let Err(error) = client.get_decoded(&key, 0, 1, |_| Ok(())) {
            match error {
                ObjectError::Store(error) if error.kind == store::ErrorKind::Absent => {
                    audit.missing.push(key)
                }
                error => return Err(error),
            }
        }
    }
    Ok(audit)
}

/// Deletes what [`audit`] found to be orphans, of which none can become part of the volume again.
pub fn delete_orphans(store: Arc<dyn Store>, audit: &Audit, options: &ObjectOptions) -> Result<()> {
    let client = Arc::new(Client::new(store, options.timeout));
    client.delete_all(audit.orphans.clone()).into_iter().collect()
}

/// The volume's own objects that its checkpoint, snapshots and pins need.
fn needed(client: &Arc<Client>, head: &Head) -> Result<HashSet<ObjectId>> {
    let origins = [Origin { client: Arc::clone(client), uuid: head.uuid }];
    let mut needed = HashSet::new();
    for root in head.kept_roots().chain(head.checkpoint.root).filter(|root| root.origin == 0) {
        let directory = read_directory(&origins, &root)?;
        needed.extend(own_objects(&directory, &root));
    }
    Ok(needed)
}

impl Audit {
    fn orphan(&mut self, listed: &Listed) {
        self.orphans.push(listed.key.clone());
        self.orphan_bytes = self.orphan_bytes.saturating_add(listed.size);
    }

    /// An object that no checkpoint needs: a fence, a part of the log that a writer would take over, an object that a
    /// writer has just written, or an orphan.
    fn judge(&mut self, client: &Client, head: &Head, id: ObjectId, listed: &Listed) -> Result<()> {
        let (kind, epoch, number) = id;
        let is_old = match kind {
            Kind::Segment => (epoch, number) < (head.checkpoint.epoch, head.checkpoint.seq),
            Kind::Map => epoch < head.epoch,
        };
        if !is_old {
            return Ok(());
        }
        let is_fence = kind == Kind::Segment
            && client.get_segment(epoch, number)?.is_some_and(|(stamp, ..)| stamp.is_fence());
        match is_fence {
            true => self.fences += 1,
            false => self.orphan(listed),
        }
        Ok(())
    }
}
