//! Unlinked lists: inodes without a name that are still referenced, or not freed yet.
//!
//! On disk each AGI has 64 buckets. A bucket is the head of a singly linked list: each inode stores the number of the
//! next one. A new inode is inserted at the head, which changes the AGI and the inode's cluster. Removing an inode
//! changes the inode before it; so that no list must be walked, the lists are also kept in memory, linked in both
//! directions.
//!
//! # Invariants
//! After [`load`], the links in memory are those on disk.
//!
//! # Locking
//! The AGI's buffer protects the lists of its AG, on disk and in memory. Inode clusters are locked after it.

use std::collections::HashMap;

use base::lock::{Mutex, Rank};
use base::{AgIno, AgNumber, AppendList, Ino};
use error::{Error, Result};
use format::Geometry;
use format::agi::{NULL_AG_INO, RawAgi, UNLINKED_BUCKETS};
use format::checksum::ChecksummedField;
use format::damage::{Damage, Place};
use format::inode::{CRC_OFFSET, RawInode};
use format::ondisk::OnDisk;
use journal::engine::{BufferId, DiskExtent, Transaction};
use rustc_hash::FxBuildHasher;

use crate::cluster;
use crate::inactive;
use crate::inode::LockedInode;
use crate::inode_cache::InodeCache;
use crate::shared::Shared;
use crate::space::ChunkInodes;

const LINK_OFFSET: usize = std::mem::offset_of!(RawInode, next_unlinked);
const BUCKETS_OFFSET: usize = std::mem::offset_of!(RawAgi, unlinked);
const NAME: &str = "unlinked list";

/// Neighbours of an inode in its list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Links {
    prev: Option<AgIno>,
    next: Option<AgIno>,
}

type Lists = HashMap<u32, Links, FxBuildHasher>;

/// The unlinked lists of one AG in memory, on cache lines of their own: removing files in different AGs shares none.
#[derive(Debug)]
#[repr(align(128))]
struct AgLists(Mutex<Lists>);

/// The unlinked lists of all AGs in memory.
#[derive(Debug)]
pub struct UnlinkedLists {
    groups: AppendList<AgLists>,
    /// The field `next_unlinked` of an inode in its cluster.
    links: ChecksummedField,
}

impl UnlinkedLists {
    /// Empty lists. [`load`] reads them.
    pub(crate) fn new(geometry: &Geometry) -> Self {
        Self {
            groups: AppendList::new(geometry.ags().map(|_| AgLists::empty()).collect()),
            links: ChecksummedField::new(geometry.inode_size as usize, LINK_OFFSET, CRC_OFFSET),
        }
    }

    /// Adds lists for new AGs of a volume that grew. Calls must not overlap.
    pub fn grow(&self, ag_count: u32) {
        while self.groups.len() < ag_count as usize && self.groups.push(AgLists::empty()).is_ok() {}
    }

    fn with<R>(&self, ag: AgNumber, use_lists: impl FnOnce(&mut Lists) -> R) -> Option<R> {
        self.groups.get(ag.get() as usize).map(|lists| use_lists(&mut lists.0.lock()))
    }

    /// Number of inodes on the lists.
    pub fn len(&self) -> usize {
        self.groups.iter().map(|lists| lists.0.lock().len()).sum()
    }

    /// Whether no inode is on a list.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl AgLists {
    fn empty() -> Self {
        Self(Mutex::new(Rank::Group, Lists::default()))
    }
}

fn bucket_of(ino: AgIno) -> usize {
    ino.get() as usize % UNLINKED_BUCKETS
}

fn to_raw(ino: Option<AgIno>) -> u32 {
    ino.map_or(NULL_AG_INO, AgIno::get)
}

fn from_raw(raw: u32) -> Option<AgIno> {
    (raw != NULL_AG_INO).then_some(AgIno(raw))
}

/// Inserts an inode without names into its list. It is freed when its last reference is dropped.
///
/// # Errors
/// [`Error::Damaged`], [`Error::Device`].
pub fn insert(shared: &Shared, tx: &mut Transaction, inode: &mut LockedInode) -> Result<()> {
    let (ag, ino) = locate(shared, inode.ino())?;
    let agi = read_agi(shared, tx, ag)?;
    let head = bucket(tx, agi, bucket_of(ino));
    let damaged = shared.unlinked.with(ag, |lists| {
        let has_head = head.is_none_or(|head| lists.contains_key(&head.get()));
        !has_head || lists.contains_key(&ino.get())
    });
    if damaged != Some(false) {
        let found = head.map_or("none".to_string(), |head| head.to_string());
        let damage = Damage::new(NAME, "unlinked", format_args!("a list without inode {ino}"), found);
        return Err(Error::damaged(Place::ag(ag), damage));
    }
    // Otherwise `next_unlinked` of the inode is already "none".
    if head.is_some() {
        set_link(shared, tx, (ag, ino), head)?;
    }
    set_bucket(tx, agi, bucket_of(ino), Some(ino));
    shared.unlinked.with(ag, |lists| {
        lists.insert(ino.get(), Links { prev: None, next: head });
        if let Some(links) = head.and_then(|head| lists.get_mut(&head.get())) {
            links.prev = Some(ino);
        }
    });
    inode.inode().set_unlinked(true);
    Ok(())
}

/// Locks the list of an inode, for an operation that locks AGFs before it inserts or [removes](remove) the inode.
///
/// # Errors
/// [`Error::Damaged`], [`Error::Device`].
pub fn lock(shared: &Shared, tx: &mut Transaction, ino: Ino) -> Result<()> {
    let (ag, _) = locate(shared, ino)?;
    read_agi(shared, tx, ag).map(|_| ())
}

/// Removes an inode from its list, because it gets a name or is being freed.
///
/// # Errors
/// [`Error::Damaged`], [`Error::Device`].
pub fn remove(shared: &Shared, tx: &mut Transaction, inode: &mut LockedInode) -> Result<()> {
    remove_from_list(shared, tx, inode, None)
}

/// Removes an inode that this transaction frees. `removed_chunk` is the inode chunk that the transaction removes, if
/// any: all its inodes on the lists are being freed, and their clusters are not changed.
///
/// # Errors
/// As [`remove`].
pub(crate) fn remove_freed(
    shared: &Shared,
    tx: &mut Transaction,
    inode: &mut LockedInode,
    removed_chunk: Option<ChunkInodes>,
) -> Result<()> {
    remove_from_list(shared, tx, inode, removed_chunk)
}

fn remove_from_list(
    shared: &Shared,
    tx: &mut Transaction,
    inode: &mut LockedInode,
    removed_chunk: Option<ChunkInodes>,
) -> Result<()> {
    let (ag, ino) = locate(shared, inode.ino())?;
    let agi = read_agi(shared, tx, ag)?;
    let links = shared.unlinked.with(ag, |lists| lists.get(&ino.get()).copied()).flatten();
    let Some(Links { prev, next }) = links else {
        let damage = Damage::new(NAME, "unlinked", format_args!("inode {ino} in a list"), "none");
        return Err(Error::damaged(Place::ino(inode.ino()), damage));
    };
    let exists = |ino| removed_chunk.is_none_or(|chunk| !chunk.contains(shared.geometry.ino(ag, ino)));
    if next.is_some() && exists(ino) {
        set_link(shared, tx, (ag, ino), None)?;
    }
    match prev {
        Some(prev) if exists(prev) => set_link(shared, tx, (ag, prev), next)?,
        Some(_) => {}
        None => {
            let head = bucket(tx, agi, bucket_of(ino));
            if head != Some(ino) {
                let damage = Damage::new(NAME, "unlinked", ino, to_raw(head));
                return Err(Error::damaged(Place::ag(ag), damage));
            }
            set_bucket(tx, agi, bucket_of(ino), next);
        }
    }
    shared.unlinked.with(ag, |lists| {
        lists.remove(&ino.get());
        if let Some(links) = prev.and_then(|prev| lists.get_mut(&prev.get())) {
            links.next = next;
        }
        if let Some(links) = next.and_then(|next| lists.get_mut(&next.get())) {
            links.prev = prev;
        }
    });
    inode.inode().set_unlinked(false);
    Ok(())
}

fn locate(shared: &Shared, ino: Ino) -> Result<(AgNumber, AgIno)> {
    shared.geometry.split_ino(ino).ok_or_else(|| {
        let damage = Damage::new("inode", "ino", "an inode of the volume", ino);
        Error::damaged(Place::ino(ino), damage)
    })
}

fn read_agi(shared: &Shared, tx: &mut Transaction, ag: AgNumber) -> Result<BufferId> {
    let geometry = &shared.geometry;
    let at = DiskExtent { daddr: geometry.ag_header_daddr(ag, 2), bytes: geometry.sector_size };
    tx.read(at, Rank::Agi(ag.get()), |bytes| RawAgi::verify(bytes, geometry, ag).map(|_| ()))
}

fn bucket(tx: &Transaction, agi: BufferId, bucket: usize) -> Option<AgIno> {
    RawAgi::view(tx.bytes(agi)).and_then(|agi| agi.unlinked.get(bucket)).and_then(|raw| from_raw(raw.get()))
}

fn set_bucket(tx: &mut Transaction, agi: BufferId, bucket: usize, to: Option<AgIno>) {
    let start = BUCKETS_OFFSET + bucket * 4;
    tx.bytes_mut(agi, start..start + 4).copy_from_slice(&to_raw(to).to_be_bytes());
}

/// Changes `next_unlinked` of an inode in its cluster buffer. Only this field is logged with the buffer; metadata
/// writeback of the inode writes the other fields.
fn set_link(
    shared: &Shared,
    tx: &mut Transaction,
    (ag, within): (AgNumber, AgIno),
    to: Option<AgIno>,
) -> Result<()> {
    let geometry = &shared.geometry;
    let ino = geometry.ino(ag, within);
    let damaged = |damage| Error::damaged(Place::ino(ino), damage);
    let place = cluster::locate(geometry, ino)
        .ok_or_else(|| damaged(Damage::new(NAME, "next_unlinked", "an inode of the volume", ino)))?;
    let id = tx.read(place.cluster, Rank::Buffer, |bytes| cluster::verify(bytes, geometry))?;
    tx.inode_buffer(id);
    let start = place.offset as usize;
    let edit = tx.buffer_mut(id);
    let size = geometry.inode_size as usize;
    let slot = edit.all_mut().get_mut(start..start + size).unwrap_or(&mut []);
    let found = RawInode::view(slot).map_or(0, |core| core.ino.get());
    if found != ino.get() {
        return Err(damaged(Damage::new("inode", "ino", ino, found)));
    }
    // The inode was not verified: update the checksum for this field alone.
    shared.unlinked.links.store(slot, to_raw(to));
    edit.log(start + LINK_OFFSET..start + LINK_OFFSET + 4);
    Ok(())
}

/// Result of [`load`].
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// Number of unlinked inodes, which are now freed in the background.
    pub inodes: u64,
    /// Damaged lists. Their buckets were cleared: their inodes are lost until a repair.
    pub damaged: Vec<(AgNumber, Damage)>,
}

/// Reads the lists of all AGs, and queues all their inodes for inactivation. To be called once, before the first change
/// of the volume.
///
/// # Errors
/// [`Error::Device`], and damage of an AGI. A damaged list is not an error.
pub fn load(cache: &InodeCache) -> Result<Loaded> {
    let shared = cache.shared();
    let mut loaded = Loaded::default();
    for ag in shared.geometry.ags() {
        for bucket in nonempty_buckets(shared, ag)? {
            inactive::throttle(shared);
            match load_bucket(cache, ag, bucket) {
                Ok(inodes) => loaded.inodes += inodes,
                Err(Error::Damaged { damage, .. }) => {
                    clear_bucket(shared, ag, bucket)?;
                    loaded.damaged.push((ag, damage));
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(loaded)
}

/// Numbers of the buckets of an AG that are not empty.
fn nonempty_buckets(shared: &Shared, ag: AgNumber) -> Result<Vec<usize>> {
    let mut tx = shared.reader();
    let agi = read_agi(shared, &mut tx, ag)?;
    Ok((0..UNLINKED_BUCKETS).filter(|n| bucket(&tx, agi, *n).is_some()).collect())
}

fn load_bucket(cache: &InodeCache, ag: AgNumber, number: usize) -> Result<u64> {
    let shared = cache.shared();
    let mut tx = shared.reader();
    let agi = read_agi(shared, &mut tx, ag)?;
    let mut at = bucket(&tx, agi, number);
    drop(tx);
    let mut found: Vec<(AgIno, Links)> = Vec::new();
    let mut seen = Lists::default();
    let mut references = Vec::new();
    while let Some(within) = at {
        let ino = shared.geometry.ino(ag, within);
        let links = Links { prev: found.last().map(|(prev, _)| *prev), next: None };
        let damage = |expected: &str| {
            Error::damaged(Place::ino(ino), Damage::new(NAME, "next_unlinked", expected, within))
        };
        if bucket_of(within) != number {
            return Err(damage(&format!("an inode of bucket {number}")));
        }
        // The list has a cycle.
        if seen.insert(within.get(), links).is_some() {
            return Err(damage("an inode that is in the list once"));
        }
        let inode = cache.get(ino).map_err(|error| match error {
            Error::Refused { .. } => damage("an inode that is in use"),
            other => other,
        })?;
        at = from_raw(inode.read().core().next_unlinked.get());
        found.push((within, Links { next: at, ..links }));
        references.push(inode);
    }
    let count = found.len() as u64;
    shared.unlinked.with(ag, |lists| lists.extend(found.into_iter().map(|(ino, links)| (ino.get(), links))));
    // Each inode goes to inactivation when its only reference is dropped here.
    for reference in references {
        reference.set_unlinked(true);
    }
    Ok(count)
}

fn clear_bucket(shared: &Shared, ag: AgNumber, bucket: usize) -> Result<()> {
    let mut tx = shared.begin(shared.reservations.bucket)?;
    let agi = read_agi(shared, &mut tx, ag)?;
    set_bucket(&mut tx, agi, bucket, None);
    tx.commit(&mut [])
}
