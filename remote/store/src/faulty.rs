//! Clients of a store in memory whose requests fail as those of a network do; for tests.
//!
//! Several [`FaultyStore`]s share one [`Network`]. A seed decides each fault, and in a simulation
//! ([`base::simulation`]) how long requests and replies travel, in virtual time.
//!
//! # Invariants
//! - A read that begins after a write returned successfully sees it: the store itself is consistent, as S3 is. Only
//!   lists are stale.
//! - A write is applied whole or not at all, any time after its request was sent, at most twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use base::lock::{Mutex, Rank};
use base::random::Random;
use base::{simulation, thread};
use bytes::Bytes;

use crate::contract::{ListPage, Object, Store, Version};
use crate::error::{ErrorKind, Request, StoreError};
use crate::memory::MemoryStore;

/// Rates of faults, per mille of the requests that they apply to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A write that never arrives; the client sees a timeout.
    pub lost: u64,
    /// A write that arrives after the client saw a timeout.
    pub late: u64,
    /// A write that arrives twice, the second time later.
    pub duplicate: u64,
    /// A write whose reply is lost.
    pub reply_lost: u64,
    /// A write that the transport repeated after a lost reply: it was carried out, and its condition is reported as
    /// refused.
    pub repeated: u64,
    /// A reply 409, 500 or 503 to any request, which is not carried out.
    pub refused: u64,
    /// A read that returns fewer bytes.
    pub short: u64,
    /// A read that returns a wrong byte.
    pub corrupt: u64,
    /// A list that lacks the newest objects, or has deleted ones.
    pub stale: u64,
    /// The longest time that a request or a reply usually travels; a few take a hundred times as long.
    pub delay: Duration,
}

impl Faults {
    /// All faults, often.
    pub const HOSTILE: Self = Self {
        lost: 30,
        late: 40,
        duplicate: 30,
        reply_lost: 30,
        repeated: 20,
        refused: 40,
        short: 0,
        corrupt: 0,
        stale: 200,
        delay: Duration::from_millis(40),
    };
}

/// A write that arrives later.
#[derive(Clone, Debug)]
enum Write {
    Create(String, Bytes),
    Replace(String, Bytes, Version),
    Delete(String),
}

/// What the clients of a store share: its objects, and requests that still travel.
#[derive(Debug)]
pub struct Network {
    objects: MemoryStore,
    /// Each with the number of the request before which it arrives.
    late: Mutex<Vec<(u64, Write)>>,
    requests: AtomicU64,
    /// What stale lists show.
    before: Mutex<MemoryStore>,
}

impl Network {
    /// A network around a store.
    pub fn new(objects: MemoryStore) -> Arc<Self> {
        let before = Mutex::new(Rank::Leaf, objects.copy());
        let late = Mutex::new(Rank::Leaf, Vec::new());
        Arc::new(Self { objects, late, requests: AtomicU64::new(0), before })
    }

    /// The store itself.
    pub fn objects(&self) -> &MemoryStore {
        &self.objects
    }

    /// Number of requests of all clients.
    pub fn requests(&self) -> u64 {
        self.requests.load(SeqCst)
    }

    /// Lets all writes arrive that still travel.
    pub fn settle(&self) {
        let late = std::mem::take(&mut *self.late.lock());
        late.into_iter().for_each(|(_, write)| self.apply(write));
    }

    /// Counts a request, and lets the writes arrive that are due before it.
    fn arrive(&self) {
        let now = self.requests.fetch_add(1, SeqCst);
        let due: Vec<Write> = {
            let mut late = self.late.lock();
            let (due, rest) = late.drain(..).partition(|(at, _)| *at <= now);
            *late = rest;
            let due: Vec<(u64, Write)> = due;
            due.into_iter().map(|(_, write)| write).collect()
        };
        due.into_iter().for_each(|write| self.apply(write));
    }

    fn apply(&self, write: Write) {
        // The reply to a late request reaches nobody.
        let _ = self.carry_out(write);
    }

    fn carry_out(&self, write: Write) -> Result<Option<Version>, StoreError> {
        match write {
            Write::Create(key, bytes) => self.objects.put_if_absent(&key, bytes).map(Some),
            Write::Replace(key, bytes, version) => self.objects.put_if_match(&key, bytes, &version).map(Some),
            Write::Delete(key) => self.objects.delete(&key).map(|()| None),
        }
    }

    fn postpone(&self, write: Write, requests: u64) {
        let at = self.requests.load(SeqCst) + requests;
        self.late.lock().push((at, write));
    }
}

/// Where a client loses its power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Number of requests of this client that are answered before.
    pub after: u64,
    /// Whether the last request, which is not answered, is carried out.
    pub carried_out: bool,
}

/// A client of a [`Network`].
#[derive(Debug)]
pub struct FaultyStore {
    network: Arc<Network>,
    faults: Faults,
    random: Random,
    cut: Option<Cut>,
    requests: AtomicU64,
    is_cut: AtomicBool,
}

impl FaultyStore {
    /// A client whose faults the seed decides.
    pub fn new(network: Arc<Network>, faults: Faults, seed: u64) -> Self {
        Self::with_cut(network, faults, seed, None)
    }

    /// A client that loses its power at a request: that one and all later ones fail for good.
    pub fn with_cut(network: Arc<Network>, faults: Faults, seed: u64, cut: Option<Cut>) -> Self {
        let random = Random::with_sequences(1, seed);
        Self { network, faults, random, cut, requests: AtomicU64::new(0), is_cut: AtomicBool::new(false) }
    }

    /// Number of requests of this client.
    pub fn requests(&self) -> u64 {
        self.requests.load(SeqCst)
    }

    /// Whether it has lost its power.
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(SeqCst)
    }

    /// Cuts this client off now.
    pub fn cut_off(&self) {
        self.is_cut.store(true, SeqCst);
    }

    fn happens(&self, per_mille: u64) -> bool {
        per_mille > 0 && self.random.next_u64() % 1000 < per_mille
    }

    fn error(&self, kind: ErrorKind, request: Request, key: &str, reason: &'static str) -> StoreError {
        StoreError::new(kind, self.describe(), request, key, reason)
    }

    /// A request or a reply travels.
    fn travel(&self) {
        let longest = u64::try_from(self.faults.delay.as_micros()).unwrap_or(u64::MAX);
        if longest == 0 || !simulation::is_simulated() {
            return;
        }
        let slow = if self.happens(20) { 100 } else { 1 };
        thread::sleep(Duration::from_micros(self.random.next_u64() % longest * slow));
    }

    /// Whether this request is the one at which the power is lost. All later ones fail.
    fn begin(&self, request: Request, key: &str) -> Result<bool, StoreError> {
        let number = self.requests.fetch_add(1, SeqCst);
        let last = self.cut.is_some_and(|cut| number == cut.after);
        if self.is_cut.load(SeqCst) || self.cut.is_some_and(|cut| number > cut.after) {
            self.is_cut.store(true, SeqCst);
            return Err(self.error(ErrorKind::Denied, request, key, "cut off"));
        }
        if last {
            self.is_cut.store(true, SeqCst);
        }
        Ok(last)
    }

    /// The way of a write to the store and back.
    fn write(&self, request: Request, key: &str, write: Write) -> Result<Option<Version>, StoreError> {
        let unclear = |reason| self.error(ErrorKind::Unclear, request, key, reason);
        if self.begin(request, key)? {
            if self.cut.is_some_and(|cut| cut.carried_out) {
                self.network.apply(write);
            }
            return Err(self.error(ErrorKind::Denied, request, key, "cut off"));
        }
        if self.happens(self.faults.lost) {
            self.travel();
            return Err(unclear("lost"));
        }
        if self.happens(self.faults.late) {
            self.network.postpone(write, 1 + self.random.next_u64() % 100);
            self.travel();
            return Err(unclear("timeout"));
        }
        if self.happens(self.faults.duplicate) {
            self.network.postpone(write.clone(), 1 + self.random.next_u64() % 100);
        }
        self.travel();
        self.network.arrive();
        if self.happens(self.faults.refused) {
            return Err(unclear("409, 500 or 503"));
        }
        let done = self.network.carry_out(write);
        self.travel();
        if self.happens(self.faults.reply_lost) {
            return Err(unclear("the reply was lost"));
        }
        if done.is_ok() && request == Request::Put && self.happens(self.faults.repeated) {
            return Err(self.error(ErrorKind::Precondition, request, key, "repeated"));
        }
        done
    }

    /// The way of a read.
    fn read<T>(
        &self,
        request: Request,
        key: &str,
        read: impl FnOnce(&MemoryStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.begin(request, key)? {
            return Err(self.error(ErrorKind::Denied, request, key, "cut off"));
        }
        self.travel();
        self.network.arrive();
        if self.happens(self.faults.refused) {
            return Err(self.error(ErrorKind::Unclear, request, key, "500 or 503"));
        }
        let done = read(&self.network.objects);
        self.travel();
        done
    }

    /// Damages a reply.
    fn damage(&self, bytes: Bytes) -> Bytes {
        let mut bytes = bytes;
        if self.happens(self.faults.short) && !bytes.is_empty() {
            bytes.truncate((self.random.next_u64() % bytes.len() as u64) as usize);
        }
        if self.happens(self.faults.corrupt) && !bytes.is_empty() {
            let mut damaged = bytes.to_vec();
            let at = (self.random.next_u64() % damaged.len() as u64) as usize;
            if let Some(byte) = damaged.get_mut(at) {
                *byte ^= 1 << (self.random.next_u64() % 8);
            }
            bytes = damaged.into();
        }
        bytes
    }
}

impl Store for FaultyStore {
    fn get(&self, key: &str, limit: u64) -> Result<Object, StoreError> {
        let object = self.read(Request::Get, key, |objects| objects.get(key, limit))?;
        Ok(Object { bytes: self.damage(object.bytes.clone()), ..object })
    }

    fn get_range(&self, key: &str, offset: u64, length: u64) -> Result<Bytes, StoreError> {
        let bytes = self.read(Request::Get, key, |objects| objects.get_range(key, offset, length))?;
        Ok(self.damage(bytes))
    }

    fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<Version, StoreError> {
        let version = self.write(Request::Put, key, Write::Create(key.into(), bytes))?;
        version.ok_or_else(|| self.error(ErrorKind::Invalid, Request::Put, key, "no version"))
    }

    fn put_if_match(&self, key: &str, bytes: Bytes, version: &Version) -> Result<Version, StoreError> {
        let version = self.write(Request::Put, key, Write::Replace(key.into(), bytes, version.clone()))?;
        version.ok_or_else(|| self.error(ErrorKind::Invalid, Request::Put, key, "no version"))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<ListPage, StoreError> {
        let stale = self.happens(self.faults.stale);
        let before = self.network.before.lock().clone();
        let page = self.read(Request::List, prefix, |objects| {
            if stale { before.list(prefix, after) } else { objects.list(prefix, after) }
        });
        *self.network.before.lock() = self.network.objects.copy();
        page
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.write(Request::Delete, key, Write::Delete(key.into())).map(|_| ())
    }

    fn describe(&self) -> String {
        "a faulty store".into()
    }
}
