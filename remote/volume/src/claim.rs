//! Opening: a reader takes a state as it is; a writer claims the next epoch, ends the logs of all older ones, and takes
//! over what they contain.
//!
//! # Invariants
//! - A claim reads a log up to a fence, its own or another's, and never beyond: what it applies is final.
//! - A fence of a higher epoch in an older log means that another claim is ahead.
//! - What a claim finds absent was not deleted: the head, read again afterwards, is still its own. A later claim could
//!   have stored the log in its map, and deleted it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use store::{Bytes, Store};

use crate::checkpoint::read_directory;
use crate::client::Client;
use crate::error::{Damage, ObjectError, Result};
use crate::head::{Head, SIZE_MAX};
use crate::map::{Map, Segment};
use crate::names;
#[cfg(test)]
use crate::options::Defect;
use crate::options::ObjectOptions;
use crate::parallel::{self, WIDTH};
use crate::publish::{Published, Swap, read_head, swap};
use crate::segment::{BLOCK, Entry, Stamp, encode_fence};
use crate::state::{Core, Origin, Publisher, Start};

/// Epochs without a checkpoint at most: each is a writer that ended before its first one.
pub const EPOCHS_MAX: u64 = 1 << 20;

/// The stores of a volume and its parents.
fn origins(store: Arc<dyn Store>, head: &Head, options: &ObjectOptions) -> Result<Vec<Origin>> {
    let origin = |store, uuid| Origin { client: Arc::new(Client::of_volume(store, &uuid, options)), uuid };
    let mut origins = vec![origin(store, head.uuid)];
    for parent in &head.parents {
        let opener = options.opener.as_ref().ok_or_else(|| ObjectError::Refused {
            volume: parent.url.as_str().into(),
            reason: "it is the parent of a clone, and cannot be opened here".into(),
        })?;
        origins.push(origin(opener(&parent.url)?, parent.uuid));
    }
    Ok(origins)
}

fn no_volume(client: &Client) -> ObjectError {
    ObjectError::NoVolume { volume: client.name() }
}

fn publisher(head: Head, version: Option<store::Version>) -> Publisher {
    Publisher { head, version, next_map: 0, kept: HashMap::new(), backlog: Vec::new() }
}

/// Attempts of a reader to read a state that no writer replaces meanwhile.
const READS: usize = 5;

/// Opens a snapshot, or without a name what is durable now, for reading.
pub fn open_for_reading(
    store: Arc<dyn Store>,
    snapshot: Option<&str>,
    options: ObjectOptions,
) -> Result<Core> {
    let client = Client::new(Arc::clone(&store), options.timeout);
    let mut attempts = 0;
    loop {
        attempts += 1;
        let found = read_head(&client)?.ok_or_else(|| no_volume(&client))?;
        let opened = open_state(&client, Arc::clone(&store), &found, snapshot, &options);
        if snapshot.is_some() || attempts == READS {
            return opened;
        }
        // A checkpoint meanwhile may have deleted what was looked for.
        let now = read_head(&client)?;
        if now.is_none_or(|now| now.head.checkpoint == found.head.checkpoint) {
            return opened;
        }
    }
}

/// Opens a state of a head: a snapshot, or without a name what is durable now.
pub fn open_state(
    client: &Client,
    store: Arc<dyn Store>,
    Published { head, version, .. }: &Published,
    snapshot: Option<&str>,
    options: &ObjectOptions,
) -> Result<Core> {
    let origins = origins(store, head, options)?;
    let (root, size) = match snapshot {
        None => (head.checkpoint.root, head.size),
        Some(name) => {
            let found = head.snapshots.iter().find(|snapshot| snapshot.name == name);
            let found = found.ok_or_else(|| ObjectError::Snapshot {
                volume: client.name(),
                name: name.into(),
                reason: "there is no such snapshot",
            })?;
            (found.root, found.size)
        }
    };
    let mut map = Map::new(root.map(|root| read_directory(&origins, &root)).transpose()?.unwrap_or_default());
    let mut recovered = 0;
    if snapshot.is_none() {
        let mut recovery = Recovery::new(head, &origins, &mut map);
        recovery.read_logs()?;
        recovered = recovery.segments;
    }
    let publisher = publisher(head.clone(), Some(version.clone()));
    let options = options.clone();
    Ok(Core::new(Start { origins, options, read_only: true, publisher, map, root, size, recovered }))
}

/// Opens a volume for writing.
pub fn open_for_writing(store: Arc<dyn Store>, options: ObjectOptions) -> Result<Core> {
    let client = Client::new(Arc::clone(&store), options.timeout);
    if store.is_read_only() {
        let reason = "this kind of store can only be read".into();
        return Err(ObjectError::Refused { volume: client.name(), reason });
    }
    let Published { mut head, mut version, .. } = claim_epoch(&client, &options)?;
    let origins = origins(store, &head, &options)?;
    let root = head.checkpoint.root;
    let mut map = Map::new(root.map(|root| read_directory(&origins, &root)).transpose()?.unwrap_or_default());
    let mut recovery = Recovery::new(&head, &origins, &mut map);
    recovery.end_logs(&options)?;
    let recovered = recovery.segments;
    if head.checkpoint.epoch < head.epoch {
        let found = read_head(&client)?.filter(|found| found.head.nonce == head.nonce);
        let found = found.ok_or_else(|| ObjectError::Fenced { volume: client.name() })?;
        (head, version) = (found.head, found.version);
    }
    let size = head.size;
    let publisher = publisher(head, Some(version));
    Ok(Core::new(Start { origins, options, read_only: false, publisher, map, root, size, recovered }))
}

/// A volume that has no head yet: it exists from its first checkpoint on. `read_map` reads its map, with the stores of
/// the volume and its parents.
pub fn begin_new(
    store: Arc<dyn Store>,
    head: Head,
    read_map: impl FnOnce(&[Origin]) -> Result<Map>,
    options: ObjectOptions,
) -> Result<Core> {
    let origins = origins(store, &head, &options)?;
    let map = read_map(&origins)?;
    let (size, root) = (head.size, head.checkpoint.root);
    let start = Start {
        origins,
        options,
        read_only: false,
        publisher: publisher(head, None),
        map,
        root,
        size,
        recovered: 0,
    };
    Ok(Core::new(start))
}

/// Writes a head with the next epoch.
fn claim_epoch(client: &Client, options: &ObjectOptions) -> Result<Published> {
    let mut found = read_head(client)?.ok_or_else(|| no_volume(client))?;
    let nonce = options.nonce();
    loop {
        let Published { head, version, .. } = &found;
        if head.nonce == nonce {
            // The reply to an earlier attempt was lost, and a snapshot was made or removed since.
            return Ok(found);
        }
        if let Some(writer) = head.writer.as_ref().filter(|_| !options.take_over) {
            return Err(ObjectError::InUse { volume: client.name(), writer: writer.as_str().into() });
        }
        let next = head
            .epoch
            .checked_add(1)
            .filter(|epoch| epoch.saturating_sub(head.checkpoint.epoch) < EPOCHS_MAX);
        let epoch = next.ok_or_else(|| ObjectError::Damaged {
            volume: client.name(),
            key: names::HEAD.into(),
            damage: Damage { what: "head", reason: "there are too many epochs behind its checkpoint" },
        })?;
        let writer = Some(options.writer.clone());
        let mut new = Head { epoch, nonce, change: options.nonce(), writer, ..head.clone() };
        // What the last head of a writer that has closed the volume no longer refers to.
        for retired in new.retired.iter_mut().filter(|retired| retired.since == 0) {
            retired.since = found.modified;
        }
        match swap(client, &new, Some(version), options)? {
            Swap::Done(version) => return Ok(Published { head: new, version, modified: 0 }),
            Swap::Other(None) => return Err(no_volume(client)),
            Swap::Other(Some(other)) => found = *other,
        }
    }
}

/// Applies logs behind a checkpoint to its map.
struct Recovery<'a> {
    head: &'a Head,
    origins: &'a [Origin],
    map: &'a mut Map,
    segments: u64,
    /// What was found at the next positions.
    ahead: VecDeque<(Position, Found)>,
    /// Positions that the last requests asked for.
    width: usize,
}

/// Epoch and number of a segment.
type Position = (u64, u64);
/// Result of reading the start of a segment.
type Found = Result<Option<(Stamp, Vec<Entry>, u64)>>;

/// What is at a position of a log.
enum Next {
    Segment,
    /// A fence, by the writer of this epoch.
    Fence(u64),
    Nothing,
}

impl<'a> Recovery<'a> {
    fn new(head: &'a Head, origins: &'a [Origin], map: &'a mut Map) -> Self {
        Self { head, origins, map, segments: 0, ahead: VecDeque::new(), width: 0 }
    }

    fn client(&self) -> Result<&Arc<Client>> {
        let origin = self.origins.first().map(|origin| &origin.client);
        origin.ok_or_else(|| ObjectError::NoVolume { volume: Box::default() })
    }

    /// Reads the start of a segment. Positions that follow are read at the same time, twice as many each time, as a log
    /// may be long. What was absent then may be there when it is its turn: then no fence can be put there.
    fn get(&mut self, position: Position) -> Found {
        if let Some((_, found)) = self.ahead.pop_front().filter(|(at, _)| *at == position) {
            return found;
        }
        let (epoch, first) = position;
        // Another log, or a position that is read once more.
        let goes_on = self.ahead.is_empty() && first > self.start(epoch);
        self.width = if goes_on { (2 * self.width).clamp(1, WIDTH) } else { 1 };
        let client = self.client()?;
        let request = |seq| {
            let client = Arc::clone(client);
            move || client.get_segment(epoch, seq)
        };
        let positions = first..first.saturating_add(self.width as u64);
        let found = parallel::all(positions.clone().map(request).collect());
        self.ahead = positions.map(|seq| (epoch, seq)).zip(found).collect();
        self.ahead.pop_front().map_or(Ok(None), |(_, found)| found)
    }

    /// Where the log of an epoch begins.
    fn start(&self, epoch: u64) -> u64 {
        if epoch == self.head.checkpoint.epoch { self.head.checkpoint.seq } else { 0 }
    }

    /// For a writer: ends the logs of all epochs before its own.
    fn end_logs(&mut self, options: &ObjectOptions) -> Result<()> {
        let own = self.head.epoch;
        for epoch in self.head.checkpoint.epoch..own {
            let mut seq = self.start(epoch);
            loop {
                match self.next(epoch, seq)? {
                    Next::Segment => seq += 1,
                    Next::Fence(by) if by <= own => break,
                    Next::Fence(_) => return Err(ObjectError::Fenced { volume: self.client()?.name() }),
                    #[cfg(test)]
                    Next::Nothing if options.has(Defect::NoFence) => break,
                    Next::Nothing if self.fence(epoch, seq)? => break,
                    Next::Nothing => {}
                }
            }
            #[cfg(test)]
            if options.has(Defect::FencesDeleted) {
                self.client()?.delete(&names::segment(epoch, seq))?;
            }
            #[cfg(not(test))]
            let _ = options;
        }
        Ok(())
    }

    /// Puts a fence where there was nothing. Returns whether it is there; otherwise another writer was faster, and what
    /// it wrote is read next.
    fn fence(&self, epoch: u64, seq: u64) -> Result<bool> {
        let Head { uuid, nonce, epoch: by, .. } = *self.head;
        let stamp = Stamp { uuid, epoch, seq, nonce, by };
        let found = self.client()?.put_stamped(&stamp, &Bytes::from(encode_fence(&stamp)), false)?;
        Ok(found == stamp)
    }

    /// For a reader: reads logs up to the first that no fence ends.
    fn read_logs(&mut self) -> Result<()> {
        for epoch in self.head.checkpoint.epoch..=self.head.epoch {
            let mut seq = self.start(epoch);
            loop {
                match self.next(epoch, seq)? {
                    Next::Segment => seq += 1,
                    Next::Fence(_) => break,
                    Next::Nothing => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// Reads and applies what is at a position.
    fn next(&mut self, epoch: u64, seq: u64) -> Result<Next> {
        let Some((stamp, entries, bytes)) = self.get((epoch, seq))? else { return Ok(Next::Nothing) };
        let damaged = |client: &Client, reason| ObjectError::Damaged {
            volume: client.name(),
            key: names::segment(epoch, seq).into(),
            damage: Damage { what: "segment header", reason },
        };
        if stamp.uuid != self.head.uuid {
            return Err(damaged(self.client()?, "it belongs to another volume"));
        }
        if stamp.is_fence() {
            return Ok(Next::Fence(stamp.by));
        }
        // Not the size in the head: the volume may have been larger when the segment was written. A later segment of
        // the log contains the holes behind the new end.
        let end = SIZE_MAX / BLOCK as u64;
        let is_inside = |entry: &Entry| match *entry {
            Entry::Hole { block, count } | Entry::Data { block, count, .. } => {
                block + u64::from(count) <= end
            }
        };
        if !entries.iter().all(is_inside) {
            return Err(damaged(self.client()?, "a block is behind the end of the largest volume"));
        }
        let count = |entry: &Entry| if let Entry::Data { count, .. } = entry { *count } else { 0 };
        let blocks = entries.iter().map(count).sum();
        let segment = Segment { origin: 0, epoch, seq, blocks, live: 0, bytes };
        let Some(slot) = self.map.stored.segments.add(segment) else {
            return Err(damaged(self.client()?, "there are too many segments"));
        };
        self.map.apply(slot, &entries);
        self.segments += 1;
        Ok(Next::Segment)
    }
}
