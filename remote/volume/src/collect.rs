//! Deleting objects that nothing refers to.
//!
//! The head that no longer refers to an object lists it as retired. A later head adds the time at which, as the store
//! says, the earlier one was written. When the present head was written a grace period after that, the object is
//! deleted. So readers have the grace period to read a newer head, and no clock but the store's is used.
//!
//! # Invariants
//! - A fence is never retired, and so never deleted: the writer that it stops may still send a segment of that name.
//! - What a published head retires, no later head refers to: a writer that was fenced can delete it, too.

use std::collections::HashSet;
use std::collections::hash_map::Entry;

use crate::checkpoint::{own_objects, read_directory};
use crate::error::Result;
use crate::head::{Head, RETIRED, Retired, Root};
use crate::names;
use crate::parallel::WIDTH;
use crate::publish::read_head;
use crate::state::{Core, ObjectId, Publisher};

/// What becomes of the retired objects of a head in the next one.
#[derive(Debug, Default)]
pub struct Expired {
    /// Deleted.
    deleted: HashSet<ObjectId>,
    /// When the present head was written, if it is known.
    dated: Option<u64>,
}

impl Expired {
    /// Whether nothing was deleted.
    pub fn is_empty(&self) -> bool {
        self.deleted.is_empty()
    }

    /// Updates the list for a new head.
    pub fn update(&self, retired: &mut Vec<Retired>) {
        retired.retain(|retired| !self.deleted.contains(&id(retired)));
        if let Some(dated) = self.dated {
            retired.iter_mut().filter(|retired| retired.since == 0).for_each(|retired| retired.since = dated);
        }
    }
}

fn id(retired: &Retired) -> ObjectId {
    (retired.kind, retired.epoch, retired.number)
}

/// Adds objects to the list of a head, as far as there is space. Returns those that wait for a later one.
pub fn append(list: &mut Vec<Retired>, backlog: Vec<Retired>, new: &[ObjectId]) -> Vec<Retired> {
    let new = new.iter().map(|(kind, epoch, number)| Retired {
        kind: *kind,
        epoch: *epoch,
        number: *number,
        since: 0,
    });
    let mut waiting = Vec::new();
    let mut listed: HashSet<ObjectId> = list.iter().map(id).collect();
    for retired in backlog.into_iter().chain(new) {
        if !listed.insert(id(&retired)) {
            continue;
        }
        match list.len() < RETIRED {
            true => list.push(retired),
            false => waiting.push(retired),
        }
    }
    waiting
}

impl Core {
    /// Deletes retired objects whose grace period has passed, `limit` at most.
    pub fn delete_expired(&self, publisher: &mut Publisher, limit: usize) -> Result<Expired> {
        if publisher.head.retired.is_empty() || publisher.version.is_none() {
            return Ok(Expired::default());
        }
        // The head itself is not replaced here: the next change finds out whether it is still this writer's.
        let Some(published) = read_head(self.client()?)? else { return Ok(Expired::default()) };
        if published.head.change != publisher.head.change {
            return Ok(Expired::default());
        }
        let now = published.modified;
        let grace = self.options.grace.as_secs();
        let is_expired = |retired: &&Retired| {
            let since = if retired.since == 0 { now } else { retired.since };
            since.saturating_add(grace) <= now
        };
        let mut expired = Expired { deleted: HashSet::new(), dated: Some(now) };
        let retired: Vec<&Retired> = publisher.head.retired.iter().filter(is_expired).take(limit).collect();
        for batch in retired.chunks(WIDTH) {
            let key = |retired: &&Retired| names::name(retired.kind, retired.epoch, retired.number);
            let results = self.origin(0)?.client.delete_all(batch.iter().map(key).collect());
            let deleted = batch.iter().zip(&results).filter(|(_, result)| result.is_ok());
            expired.deleted.extend(deleted.map(|(retired, _)| id(retired)));
            // The store may keep objects for longer, or the credentials may not allow it: no reason to fail. They stay
            // in the list.
            if results.iter().any(Result::is_err) {
                break;
            }
        }
        Ok(expired)
    }

    /// Makes sure that the objects of all snapshots and pins of a head are known.
    pub fn load_kept(&self, publisher: &mut Publisher, head: &Head) -> Result<()> {
        let roots: HashSet<Root> = head.kept_roots().collect();
        publisher.kept.retain(|root, _| roots.contains(root));
        for root in roots {
            if let Entry::Vacant(place) = publisher.kept.entry(root) {
                place.insert(own_objects(&read_directory(&self.origins, &root)?, &root));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Kind;

    #[test]
    fn what_does_not_fit_waits() {
        let mut list = Vec::new();
        let new: Vec<ObjectId> = (0..RETIRED as u64 + 5).map(|n| (Kind::Segment, 1, n)).collect();
        let waiting = append(&mut list, Vec::new(), &new);
        assert_eq!((list.len(), waiting.len()), (RETIRED, 5));
        let expired = Expired { deleted: HashSet::from([(Kind::Segment, 1, 0)]), dated: Some(9) };
        expired.update(&mut list);
        assert!(list.len() == RETIRED - 1 && list.iter().all(|retired| retired.since == 9));
        assert_eq!(append(&mut list, waiting, &[]).len(), 4);
    }
}
