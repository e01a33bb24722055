//! Requests that are repeated until their result is clear.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use base::thread;
use store::{Bytes, ErrorKind, Object, Store, StoreError, Version};

use crate::error::{Damage, ObjectError, Result};
use crate::names;
use crate::segment::{self, Entry, INDEX_BYTES, Stamp};

/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Numbers of requests and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Reads of objects.
    pub gets: u64,
    /// Writes of objects.
    pub puts: u64,
    /// Lists of names.
    pub lists: u64,
    /// Deletions.
    pub deletes: u64,
    /// Bytes read.
    pub received: u64,
    /// Bytes written.
    pub sent: u64,
}

#[derive(Debug, Default)]
struct Counters {
    gets: AtomicU64,
    puts: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

/// A store, with patience.
#[derive(Debug)]
pub struct Client {
    /// The store itself.
    pub store: Arc<dyn Store>,
    timeout: Duration,
    /// No attempt follows: the volume is being closed.
    stopped: AtomicBool,
    counters: Counters,
}

/// Pauses between attempts, which grow until a time has passed.
struct Attempts {
    pause: Duration,
    end: Duration,
}

impl Attempts {
    fn new(timeout: Duration) -> Self {
        Self { pause: Duration::from_millis(20), end: thread::elapsed().saturating_add(timeout) }
    }

    /// Waits before the next attempt. Returns whether there may be one.
    fn next(&mut self) -> bool {
        if thread::elapsed() >= self.end {
            return false;
        }
        thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }
}

impl Client {
    /// A client whose requests are repeated for `timeout`.
    pub fn new(store: Arc<dyn Store>, timeout: Duration) -> Self {
        Self { store, timeout, stopped: AtomicBool::new(false), counters: Counters::default() }
    }

    /// The volume, for messages.
    pub fn name(&self) -> Box<str> {
        self.store.describe().into()
    }

    /// Ends all attempts.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    /// Requests so far.
    pub fn counts(&self) -> RequestCounts {
        let Counters { gets, puts, lists, deletes, received, sent } = &self.counters;
        let [gets, puts, lists, deletes, received, sent] =
            [gets, puts, lists, deletes, received, sent].map(|counter| counter.load(Relaxed));
        RequestCounts { gets, puts, lists, deletes, received, sent }
    }

    /// Repeats a request while its result is unclear.
    fn repeat<T>(
        &self,
        request: impl Fn() -> std::result::Result<T, StoreError>,
    ) -> std::result::Result<T, StoreError> {
        let mut attempts = Attempts::new(self.timeout);
        loop {
            match request() {
                Err(error) if error.kind == ErrorKind::Unclear => {
                    if self.stopped.load(Relaxed) || !attempts.next() {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }

    /// Reads an object.
    pub fn get(&self, key: &str, limit: u64) -> std::result::Result<Object, StoreError> {
        self.repeat(|| {
            self.counters.gets.fetch_add(1, Relaxed);
            let object = self.store.get(key, limit)?;
            self.counters.received.fetch_add(object.bytes.len() as u64, Relaxed);
            Ok(object)
        })
    }

    /// Reads a part of an object and decodes it. What cannot be decoded is read once more, as a reply may be damaged.
    pub fn get_decoded<T>(
        &self,
        key: &str,
        offset: u64,
        length: u64,
        decode: impl Fn(&Bytes) -> std::result::Result<T, Damage>,
    ) -> Result<T> {
        let mut attempts = 0;
        loop {
            let bytes = self.repeat(|| {
                self.counters.gets.fetch_add(1, Relaxed);
                self.store.get_range(key, offset, length)
            })?;
            self.counters.received.fetch_add(bytes.len() as u64, Relaxed);
            match decode(&bytes) {
                Ok(decoded) => return Ok(decoded),
                Err(_) if attempts < 3 => attempts += 1,
                Err(damage) => {
                    return Err(ObjectError::Damaged { volume: self.name(), key: key.into(), damage });
                }
            }
        }
    }

    /// Start of an object of the log; `None` if there is none.
    pub fn get_segment(&self, epoch: u64, seq: u64) -> Result<Option<(Stamp, Vec<Entry>, u64)>> {
        let key = names::segment(epoch, seq);
        let wrong = Damage { what: "segment header", reason: "it belongs elsewhere" };
        let decode = |bytes: &Bytes| {
            let decoded = segment::decode(bytes)?;
            if (decoded.0.epoch, decoded.0.seq) == (epoch, seq) { Ok(decoded) } else { Err(wrong) }
        };
        match self.get_decoded(&key, 0, INDEX_BYTES, decode) {
            Ok(found) => Ok(Some(found)),
            Err(ObjectError::Store(error)) if error.kind == ErrorKind::Absent => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// One attempt to write an object that does not exist.
    pub fn put_if_absent(&self, key: &str, bytes: Bytes) -> std::result::Result<Version, StoreError> {
        self.counters.puts.fetch_add(1, Relaxed);
        self.counters.sent.fetch_add(bytes.len() as u64, Relaxed);
        self.store.put_if_absent(key, bytes)
    }

    /// One attempt to replace an object.
    pub fn put_if_match(
        &self,
        key: &str,
        bytes: Bytes,
        version: &Version,
    ) -> std::result::Result<Version, StoreError> {
        self.counters.puts.fetch_add(1, Relaxed);
        self.counters.sent.fetch_add(bytes.len() as u64, Relaxed);
        self.store.put_if_match(key, bytes, version)
    }

    /// Writes an object that only this writer can have written before, in an earlier attempt.
    pub fn put_own(&self, key: &str, bytes: &Bytes) -> Result<()> {
        match self.repeat(|| self.put_if_absent(key, bytes.clone())) {
            Err(error) if error.kind != ErrorKind::Precondition => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Writes an object of the log, and repeats that until it is clear who wrote it, or the volume is closed. Returns
    /// the stamp of the object that is there: another one than `stamp` if another writer was faster.
    pub fn put_stamped(&self, stamp: &Stamp, bytes: &Bytes, for_ever: bool) -> Result<Stamp> {
        let key = names::segment(stamp.epoch, stamp.seq);
        let mut attempts = Attempts::new(if for_ever { Duration::MAX } else { self.timeout });
        loop {
            let error = match self.put_if_absent(&key, bytes.clone()) {
                Ok(_) => return Ok(*stamp),
                Err(error) if error.kind == ErrorKind::Precondition => {
                    if let Some((found, ..)) = self.get_segment(stamp.epoch, stamp.seq)? {
                        return Ok(found);
                    }
                    error
                }
                Err(error) if error.kind == ErrorKind::Unclear => error,
                Err(error) => return Err(error.into()),
            };
            if self.stopped.load(Relaxed) || !attempts.next() {
                return Err(error.into());
            }
        }
    }

    /// Names below a prefix.
    pub fn list(&self, prefix: &str, after: Option<&str>) -> Result<store::ListPage> {
        Ok(self.repeat(|| {
            self.counters.lists.fetch_add(1, Relaxed);
            self.store.list(prefix, after)
        })?)
    }

    /// Deletes an object.
    pub fn delete(&self, key: &str) -> Result<()> {
        Ok(self.repeat(|| {
            self.counters.deletes.fetch_add(1, Relaxed);
            self.store.delete(key)
        })?)
    }
}
