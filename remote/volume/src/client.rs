//! Requests that are repeated until their result is clear.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use base::thread;
use store::{Bytes, ErrorKind, Listed, Object, Store, StoreError, Version};

use crate::disk_cache::VolumeCache;
use crate::error::{Damage, ObjectError, Result};
use crate::names;
use crate::options::ObjectOptions;
use crate::parallel;
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

/// A store whose requests are retried until their result is known.
#[derive(Debug)]
pub struct Client {
    /// The store itself.
    pub store: Arc<dyn Store>,
    timeout: Duration,
    /// No attempt follows: the volume is being closed.
    stopped: AtomicBool,
    counters: Counters,
    cache: Option<VolumeCache>,
}

/// Pauses between attempts, which grow until a time has passed.
pub struct Attempts<'a> {
    client: &'a Client,
    pause: Duration,
    end: Duration,
}

impl Attempts<'_> {
    /// Waits before the next attempt. Returns whether there may be one: not after the time, nor while the volume is
    /// being closed.
    pub fn wait(&mut self) -> bool {
        if self.client.stopped.load(Relaxed) || thread::elapsed() >= self.end {
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
        Self { store, timeout, stopped: AtomicBool::new(false), counters: Counters::default(), cache: None }
    }

    /// A client that keeps what it reads of a volume on the local disk, if the options say so.
    pub fn of_volume(store: Arc<dyn Store>, uuid: &[u8; 16], options: &ObjectOptions) -> Self {
        let cache = options.cache.as_ref().map(|cache| VolumeCache::new(cache, uuid, &store.describe()));
        Self { cache, ..Self::new(store, options.timeout) }
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

    /// The attempts of a request that is repeated for `time`.
    pub fn attempts(&self, time: Duration) -> Attempts<'_> {
        let end = thread::elapsed().saturating_add(time);
        Attempts { client: self, pause: Duration::from_millis(20), end }
    }

    /// Repeats a request while its result is unclear.
    fn repeat<T>(
        &self,
        request: impl Fn() -> std::result::Result<T, StoreError>,
    ) -> std::result::Result<T, StoreError> {
        let mut attempts = self.attempts(self.timeout);
        loop {
            match request() {
                Err(error) if error.kind == ErrorKind::Unclear && attempts.wait() => {}
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

    /// As [`Self::get_decoded`], for a part that is known to exist, and whose checksum covers its place: it may come
    /// from the local disk.
    pub fn get_part<T>(
        &self,
        key: &str,
        offset: u64,
        length: u64,
        decode: impl Fn(&Bytes) -> std::result::Result<T, Damage>,
    ) -> Result<T> {
        let Some(cache) = &self.cache else { return self.get_decoded(key, offset, length, decode) };
        let cached = cache.read(key, offset, length);
        if let Some(decoded) = cached.and_then(|bytes| decode(&bytes).ok()) {
            return Ok(decoded);
        }
        let with_bytes = |bytes: &Bytes| Ok((decode(bytes)?, bytes.clone()));
        let (decoded, bytes) = self.get_decoded(key, offset, length, with_bytes)?;
        cache.write(key, offset, &bytes);
        Ok(decoded)
    }

    /// Keeps an object of this client on the local disk.
    pub fn keep(&self, key: &str, object: &[u8]) {
        if let Some(cache) = &self.cache {
            cache.write(key, 0, object);
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

    /// Writes an object unless there is one, and repeats that for a time until it is clear what is there: `own`, or
    /// what `find` reads, which returns `None` if there is no object.
    fn put_until_clear<T>(
        &self,
        key: &str,
        bytes: &Bytes,
        (own, time): (T, Duration),
        find: impl Fn() -> Result<Option<T>>,
    ) -> Result<T> {
        let mut attempts = self.attempts(time);
        loop {
            let error = match self.put_if_absent(key, bytes.clone()) {
                Ok(_) => return Ok(own),
                Err(error) if error.kind == ErrorKind::Precondition => match find() {
                    Ok(Some(found)) => return Ok(found),
                    Ok(None) => error,
                    Err(ObjectError::Store(error)) if error.kind == ErrorKind::Unclear => error,
                    Err(error) => return Err(error),
                },
                Err(error) if error.kind == ErrorKind::Unclear => error,
                Err(error) => return Err(error.into()),
            };
            if !attempts.wait() {
                return Err(error.into());
            }
        }
    }

    /// Writes an object that only this writer can have written before, in an earlier attempt.
    pub fn put_own(&self, key: &str, bytes: &Bytes) -> Result<()> {
        self.put_until_clear(key, bytes, ((), self.timeout), || {
            match self.get_decoded(key, 0, 1, |_| Ok(())) {
                Err(ObjectError::Store(error)) if error.kind == ErrorKind::Absent => Ok(None),
                found => found.map(Some),
            }
        })
    }

    /// Writes an object of the log, and repeats that until it is clear who wrote it, or the volume is closed. Returns
    /// the stamp of the object that is there: another one than `stamp` if another writer was faster.
    pub fn put_stamped(&self, stamp: &Stamp, bytes: &Bytes, for_ever: bool) -> Result<Stamp> {
        let key = names::segment(stamp.epoch, stamp.seq);
        let time = if for_ever { Duration::MAX } else { self.timeout };
        self.put_until_clear(&key, bytes, (*stamp, time), || {
            Ok(self.get_segment(stamp.epoch, stamp.seq)?.map(|(found, ..)| found))
        })
    }

    /// Calls a function for each object below prefixes.
    pub fn for_each_listed(
        &self,
        prefixes: &[impl AsRef<str>],
        mut body: impl FnMut(&Listed) -> Result<()>,
    ) -> Result<()> {
        for prefix in prefixes {
            let mut after: Option<String> = None;
            loop {
                let page = self.list(prefix.as_ref(), after.as_deref())?;
                page.objects.iter().try_for_each(&mut body)?;
                after = page.objects.last().map(|listed| listed.key.clone());
                if !page.more || after.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Deletes objects, several at the same time. Returns the results, in order.
    pub fn delete_all(self: &Arc<Self>, keys: Vec<String>) -> Vec<Result<()>> {
        let request = |key: String| {
            let client = Arc::clone(self);
            move || client.delete(&key)
        };
        parallel::all(keys.into_iter().map(request).collect())
    }

    /// Names below a prefix.
    fn list(&self, prefix: &str, after: Option<&str>) -> Result<store::ListPage> {
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
