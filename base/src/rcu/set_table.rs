//! A set-associative hash table whose readers take no lock.
//!
//! A bucket is one cache line: a control word and seven entries. The control word has a lock, the clock hand, and for
//! each entry eight bits of its hash, so that a lookup usually reads one line of the table and one entry.
//!
//! The table is a cache: an insertion into a full bucket evicts an entry of that bucket. So its size is bounded without
//! a count or a list that insertions share, and nothing is gained by choosing keys that collide. Buckets get memory
//! when they are first used, some at a time, so that a table with few entries takes little.
//!
//! # Invariants
//! - An entry does not change, and stays in its place until it is removed. It is removed once.
//! - Buckets change under their lock. A reader that runs meanwhile may miss an entry that is being inserted or removed;
//!   it never misses one that was inserted before and is still there.
//!
//! # Locking
//! The lock of a bucket is a bit, held for a few instructions. No other lock is taken under it.

use std::fmt;
use std::ptr;
use std::sync::OnceLock;

use super::reader::Section;
use super::retired::{Removed, Retired};
use crate::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use crate::sync::{spin_loop, yield_now};

/// Entries of a bucket.
const WAYS: usize = 7;
/// Buckets that are allocated together.
const SEGMENT: usize = 16;
/// The fewest buckets of a table.
const BUCKETS_MIN: usize = 64;
/// Segments that were not allocated, which an eviction passes for each one that was.
const UNUSED_MAX: usize = 64;
/// The lock of a bucket, in its control word.
const LOCKED: u64 = 1;
/// The clock hand, in the control word.
const HAND_SHIFT: u32 = 1;
const HAND_MASK: u64 = 7 << HAND_SHIFT;
/// Attempts to lock a bucket before the thread yields.
const TRIES: u32 = 64;

/// What the table asks of its entries.
pub trait Cached {
    /// Whether the entry was used since the last call. A used one is not evicted.
    fn take_use(&self) -> bool;

    /// Memory that it takes.
    fn bytes(&self) -> usize
    where
        Self: Sized,
    {
        size_of::<Self>()
    }

    /// The entry is being removed: called once, with its bucket locked, before a lookup can miss it.
    fn removed(&self);
}

/// A hash table: see the module.
pub struct SetTable<T: Cached> {
    segments: Box<[Segment<T>]>,
    bucket_mask: usize,
    /// The segment from which entries are evicted next.
    hand: AtomicU64,
    /// Segments of which none was evicted since one was.
    fruitless: AtomicU64,
    retired: Retired<T>,
}

/// Change of a table's memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableChange {
    /// Allocated.
    pub added: usize,
    /// Removed. It is freed when no reader needs it.
    pub removed: usize,
}

impl TableChange {
    fn remove<T: Cached>(&mut self, removed: &Removed<T>) {
        self.removed += removed.object().bytes();
    }
}

/// Buckets, allocated when the first of them is used.
type Segment<T> = OnceLock<Box<[Bucket<T>; SEGMENT]>>;

#[repr(align(64))]
struct Bucket<T> {
    /// Bits 0-7: lock and clock hand. Then eight bits of hash for each entry.
    control: AtomicU64,
    entries: [AtomicPtr<T>; WAYS],
}

impl<T> Default for Bucket<T> {
    fn default() -> Self {
        Self { control: AtomicU64::new(0), entries: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())) }
    }
}

/// The bits of a hash that the control word keeps. The low bits select the bucket.
#[inline]
fn tag(hash: u64) -> u64 {
    hash >> 56
}

/// The entries whose tag may be that of `hash`: bit 7 of byte `way + 1` is set. Others may be included.
#[inline]
fn candidates(control: u64, hash: u64) -> u64 {
    const LOW_BITS: u64 = 0x0101_0101_0101_0101;
    const HIGH_BITS: u64 = LOW_BITS << 7;
    let differing = control ^ (tag(hash) * LOW_BITS);
    // A byte that is zero gets its high bit.
    (differing.wrapping_sub(LOW_BITS) & !differing & HIGH_BITS) & !0xff
}

#[allow(unsafe_code, reason = "entries live until a grace period after their removal")]
impl<T: Cached + Send + Sync> Bucket<T> {
    /// The entry in a way.
    ///
    /// # Safety
    /// The caller is in a section that lasts as long as the result is used, or has the bucket locked.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "ways come from `candidates` and the clock hand")]
    unsafe fn entry(&self, way: usize) -> Option<&T> {
        // SAFETY: it came from a box, and is freed after a grace period that begins after its removal, which needs the
        // lock.
        unsafe { self.entries[way].load(Ordering::Acquire).as_ref() }
    }

    /// The entry that matches, and its way.
    ///
    /// # Safety
    /// The caller is in a section that lasts as long as the result is used, or has the bucket locked.
    #[inline]
    unsafe fn find(&self, hash: u64, mut matches: impl FnMut(&T) -> bool) -> Option<(usize, &T)> {
        let mut candidates = candidates(self.control.load(Ordering::Acquire), hash);
        while candidates != 0 {
            let way = (candidates.trailing_zeros() / 8) as usize - 1;
            candidates &= candidates - 1;
            // SAFETY: as the caller says.
            if let Some(entry) = unsafe { self.entry(way) }
                && matches(entry)
            {
                return Some((way, entry));
            }
        }
        None
    }

    /// Whether it has no entries.
    fn is_empty(&self) -> bool {
        self.entries.iter().all(|entry| entry.load(Ordering::Relaxed).is_null())
    }

    /// Locks the bucket.
    fn lock(&self) -> LockedBucket<'_, T> {
        loop {
            for _ in 0..TRIES {
                let control = self.control.fetch_or(LOCKED, Ordering::Acquire);
                if control & LOCKED == 0 {
                    return LockedBucket { bucket: self, control };
                }
                spin_loop();
            }
            yield_now();
        }
    }
}

/// A bucket with its lock held.
struct LockedBucket<'b, T> {
    bucket: &'b Bucket<T>,
    /// The control word that unlocking stores.
    control: u64,
}

impl<T> Drop for LockedBucket<'_, T> {
    fn drop(&mut self) {
        self.bucket.control.store(self.control & !LOCKED, Ordering::Release);
    }
}

#[allow(unsafe_code, reason = "the bucket is locked")]
#[expect(clippy::indexing_slicing, reason = "ways come from `candidates` and the clock hand")]
impl<T: Cached + Send + Sync> LockedBucket<'_, T> {
    fn find(&self, hash: u64, matches: impl FnMut(&T) -> bool) -> Option<usize> {
        // SAFETY: the bucket is locked.
        unsafe { self.bucket.find(hash, matches) }.map(|(way, _)| way)
    }

    fn remove(&mut self, way: usize) -> Option<Removed<T>> {
        // SAFETY: the bucket is locked.
        unsafe { self.bucket.entry(way) }?.removed();
        let entry = self.bucket.entries[way].swap(ptr::null_mut(), Ordering::AcqRel);
        Some(Removed::new(entry))
    }

    /// Removes an entry that was not used since it was last looked at.
    fn remove_unused(&mut self, way: usize) -> Option<Removed<T>> {
        // SAFETY: the bucket is locked.
        let is_used = unsafe { self.bucket.entry(way) }?.take_use();
        if is_used { None } else { self.remove(way) }
    }

    /// A way for a new entry: an empty one, or that of an entry that was not used since the clock hand last passed it.
    fn choose_way(&mut self) -> usize {
        let hand = ((self.control & HAND_MASK) >> HAND_SHIFT) as usize % WAYS;
        let ways = (0..WAYS).map(|step| (hand + step) % WAYS);
        let is_empty = |way: &usize| self.bucket.entries[*way].load(Ordering::Relaxed).is_null();
        if let Some(way) = ways.clone().find(is_empty) {
            return way;
        }
        // SAFETY: the bucket is locked.
        let is_unused = |way: &usize| !unsafe { self.bucket.entry(*way) }.is_some_and(Cached::take_use);
        let way = ways.clone().find(is_unused).unwrap_or(hand);
        let next = ((way + 1) % WAYS) as u64;
        self.control = self.control & !HAND_MASK | next << HAND_SHIFT;
        way
    }

    fn put(&mut self, way: usize, hash: u64, entry: T) {
        // Before its tag is visible.
        self.bucket.entries[way].store(Box::into_raw(Box::new(entry)), Ordering::Release);
        let shift = 8 * (way as u32 + 1);
        self.control = self.control & !(0xff << shift) | tag(hash) << shift;
    }
}

impl<T: Cached + Send + Sync> SetTable<T> {
    /// An empty table for at most this many entries, or those of one segment. Memory is allocated as buckets are used.
    pub fn new(entries: usize) -> Self {
        let buckets = 1 << (entries / WAYS).max(BUCKETS_MIN).ilog2();
        Self {
            segments: (0..buckets / SEGMENT).map(|_| OnceLock::new()).collect(),
            bucket_mask: buckets - 1,
            hand: AtomicU64::new(0),
            fruitless: AtomicU64::new(0),
            retired: Retired::default(),
        }
    }

    #[inline]
    fn segment(&self, hash: u64) -> &Segment<T> {
        let bucket = hash as usize & self.bucket_mask;
        #[expect(clippy::indexing_slicing, reason = "the mask is that of all buckets")]
        &self.segments[bucket / SEGMENT]
    }

    /// The bucket of a hash, if its segment is allocated.
    #[inline]
    fn bucket(&self, hash: u64) -> Option<&Bucket<T>> {
        self.segment(hash).get()?.get(hash as usize % SEGMENT)
    }

    /// The entry with this hash for which `matches`.
    #[inline]
    #[allow(unsafe_code, reason = "entries live until the end of the section")]
    pub fn find<'s>(&'s self, _: &'s Section, hash: u64, matches: impl FnMut(&T) -> bool) -> Option<&'s T> {
        // SAFETY: the section lasts as long as the result.
        unsafe { self.bucket(hash)?.find(hash, matches) }.map(|(_, entry)| entry)
    }

    /// Inserts an entry, and removes the one for which `matches`. May evict another one.
    pub fn insert(&self, hash: u64, entry: T, matches: impl FnMut(&T) -> bool) -> TableChange {
        let mut change = TableChange { added: entry.bytes(), removed: 0 };
        let segment = self.segment(hash).get_or_init(|| {
            change.added += size_of::<Bucket<T>>() * SEGMENT;
            Box::new(std::array::from_fn(|_| Bucket::default()))
        });
        let Some(bucket) = segment.get(hash as usize % SEGMENT) else { return change };
        let mut locked = bucket.lock();
        let way = locked.find(hash, matches).unwrap_or_else(|| locked.choose_way());
        let old = locked.remove(way);
        locked.put(way, hash, entry);
        drop(locked);
        self.retire(old, &mut change);
        change
    }

    /// Frees an entry later.
    #[inline]
    fn retire(&self, old: Option<Removed<T>>, change: &mut TableChange) {
        if let Some(old) = old {
            change.remove(&old);
            self.retired.push(old);
        }
    }

    /// Removes the entry for which `matches`.
    #[inline]
    pub fn remove(&self, hash: u64, matches: impl FnMut(&T) -> bool) -> TableChange {
        let mut change = TableChange::default();
        let Some(bucket) = self.bucket(hash) else { return change };
        // Only inserting threads add a tag, and the caller excludes those of its own key.
        if candidates(bucket.control.load(Ordering::Acquire), hash) == 0 {
            return change;
        }
        let mut locked = bucket.lock();
        let old = locked.find(hash, matches).and_then(|way| locked.remove(way));
        drop(locked);
        self.retire(old, &mut change);
        change
    }

    /// Looks at the entries of some segments, and evicts those that were not used since they were last looked at.
    /// Returns whether another call may evict more: not if all entries were looked at twice since one was evicted. Must
    /// not be called in a read section.
    pub fn evict(&self, segments: usize) -> (TableChange, bool) {
        let (mut change, all) = (TableChange::default(), self.segments.len() as u64);
        let mut left = segments;
        for _ in 0..segments.saturating_mul(UNUSED_MAX) {
            let at = self.hand.fetch_add(1, Ordering::Relaxed) % all.max(1);
            let looked = self.segments.get(at as usize).and_then(OnceLock::get);
            let before = change.removed;
            for bucket in looked.iter().flat_map(|segment| segment.iter()) {
                self.evict_unused(bucket, &mut change);
            }
            match change.removed > before {
                true => self.fruitless.store(0, Ordering::Relaxed),
                false => drop(self.fruitless.fetch_add(1, Ordering::Relaxed)),
            }
            left -= usize::from(looked.is_some());
            if left == 0 {
                break;
            }
        }
        let has_more = self.fruitless.load(Ordering::Relaxed) <= 2 * all;
        if !has_more {
            self.fruitless.store(0, Ordering::Relaxed);
        }
        (change, has_more)
    }

    fn evict_unused(&self, bucket: &Bucket<T>, change: &mut TableChange) {
        if bucket.is_empty() {
            return;
        }
        let mut locked = bucket.lock();
        let removed: [_; WAYS] = std::array::from_fn(|way| locked.remove_unused(way));
        drop(locked);
        removed.into_iter().for_each(|old| self.retire(old, change));
    }

    /// Removes all entries, and waits until they are freed. Must not be called in a read section.
    pub fn clear(&self) -> TableChange {
        let mut change = TableChange::default();
        for bucket in self.segments.iter().filter_map(OnceLock::get).flat_map(|segment| segment.iter()) {
            let mut locked = bucket.lock();
            let removed: [_; WAYS] = std::array::from_fn(|way| locked.remove(way));
            drop(locked);
            removed.into_iter().for_each(|old| self.retire(old, &mut change));
        }
        self.retired.drain();
        change
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        let buckets = self.segments.iter().filter_map(OnceLock::get).flat_map(|segment| segment.iter());
        let entries = buckets.flat_map(|bucket| &bucket.entries);
        entries.filter(|entry| !entry.load(Ordering::Relaxed).is_null()).count()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Cached> Drop for SetTable<T> {
    #[allow(unsafe_code, reason = "entries came from boxes")]
    fn drop(&mut self) {
        for bucket in
            self.segments.iter_mut().filter_map(OnceLock::get_mut).flat_map(|segment| segment.iter_mut())
        {
            for entry in &mut bucket.entries {
                let entry = entry.swap(ptr::null_mut(), Ordering::AcqRel);
                if !entry.is_null() {
                    // SAFETY: readers borrow the table, so there are none.
                    drop(unsafe { Box::from_raw(entry) });
                }
            }
        }
    }
}

impl<T: Cached> fmt::Debug for SetTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SetTable({} buckets)", self.bucket_mask + 1)
    }
}
