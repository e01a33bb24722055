use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use store::{Bytes, ErrorKind, ListPage, Object, Request, StoreError, Version};

use super::*;
use crate::error::ObjectError;
use crate::{audit, make_snapshot, remove_snapshot, volume_info};

pub(super) type Judge = dyn Fn(Request, &str) -> Option<ErrorKind> + Send + Sync;

/// A store whose replies a test decides.
pub(super) struct JudgedStore {
    pub objects: MemoryStore,
    /// Refuses a request, which is not carried out.
    pub before: Box<Judge>,
    /// Replaces the reply to a request that was carried out.
    pub after: Box<Judge>,
}

impl fmt::Debug for JudgedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JudgedStore")
    }
}

impl JudgedStore {
    fn request<T>(
        &self,
        request: Request,
        key: &str,
        carry_out: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let error = |kind| StoreError::new(kind, "a judged store", request, key, "judged");
        if let Some(kind) = (self.before)(request, key) {
            return Err(error(kind));
        }
        let reply = carry_out();
        (self.after)(request, key).map_or(reply, |kind| Err(error(kind)))
    }
}

impl Store for JudgedStore {
    fn get(&self, key: &str, limit: u64) -> Result<Object, StoreError> {
        self.request(Request::Get, key, || self.objects.get(key, limit))
    }

    fn get_range(&self, key: &str, offset: u64, length: u64) -> Result<Bytes, StoreError> {
        self.request(Request::Get, key, || self.objects.get_range(key, offset, length))
    }

    fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<Version, StoreError> {
        self.request(Request::Put, key, || self.objects.put_if_absent(key, bytes))
    }

    fn put_if_match(&self, key: &str, bytes: Bytes, version: &Version) -> Result<Version, StoreError> {
        self.request(Request::Put, key, || self.objects.put_if_match(key, bytes, version))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<ListPage, StoreError> {
        self.request(Request::List, prefix, || self.objects.list(prefix, after))
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.request(Request::Delete, key, || self.objects.delete(key))
    }

    fn describe(&self) -> String {
        "a judged store".into()
    }
}

/// A store that refuses requests.
fn refusing(
    objects: &MemoryStore,
    before: impl Fn(Request, &str) -> Option<ErrorKind> + Send + Sync + 'static,
) -> Arc<dyn Store> {
    Arc::new(JudgedStore { objects: objects.clone(), before: Box::new(before), after: Box::new(|_, _| None) })
}

/// A store that loses the reply to the first write of the head, before which another program makes a snapshot.
fn losing_a_reply(objects: &MemoryStore) -> Arc<dyn Store> {
    let (other, is_lost) = (objects.clone(), AtomicBool::new(false));
    let after = move |request, key: &str| {
        if (request, key) != (Request::Put, "head") || is_lost.swap(true, SeqCst) {
            return None;
        }
        make_snapshot(shared(&other), "other", 1, &small(90)).unwrap();
        Some(ErrorKind::Unclear)
    };
    Arc::new(JudgedStore { objects: objects.clone(), before: Box::new(|_, _| None), after: Box::new(after) })
}

/// The claim found its own name in the head, and took it for that of another writer.
#[test]
fn a_claim_whose_reply_is_lost_succeeds_beside_a_snapshot() {
    let store = MemoryStore::default();
    make(&store, 100, 1);
    let device = ObjectDevice::open(losing_a_reply(&store), small(2)).unwrap();
    write(&device, 1, 11);
    device.close().unwrap();
    let info = volume_info(shared(&store), &small(3)).unwrap();
    assert_eq!((info.writer, info.snapshots.len()), (None, 1));
}

/// The second attempt did not find the snapshot, and failed.
#[test]
fn a_removal_whose_reply_is_lost_succeeds() {
    let store = MemoryStore::default();
    make(&store, 100, 1);
    make_snapshot(shared(&store), "monday", 1, &small(2)).unwrap();
    remove_snapshot(losing_a_reply(&store), "monday", &small(3)).unwrap();
    let left = volume_info(shared(&store), &small(4)).unwrap().snapshots;
    assert_eq!(left.iter().map(|one| &*one.name).collect::<Vec<_>>(), ["other"]);
}

/// A flush fails in time while the store does not answer, and succeeds when it answers again. A segment that had been
/// stored, whose reply was lost, must be read to see whose it is: when that was not answered, nothing could be written
/// any more.
#[test]
fn a_flush_succeeds_when_the_store_answers_again() {
    let objects = MemoryStore::default();
    make(&objects, 100, 1);
    let is_down = Arc::new(AtomicBool::new(false));
    let down = Arc::clone(&is_down);
    // Writes arrive, but their replies are lost.
    let after = move |request, key: &str| match request {
        _ if !key.starts_with("log/") || !down.load(SeqCst) => None,
        Request::Put => Some(ErrorKind::Precondition),
        _ => Some(ErrorKind::Unclear),
    };
    let store =
        JudgedStore { objects: objects.clone(), before: Box::new(|_, _| None), after: Box::new(after) };
    let options = ObjectOptions { timeout: Duration::from_millis(200), ..small(2) };
    let device = ObjectDevice::open(Arc::new(store), options).unwrap();
    is_down.store(true, SeqCst);
    write(&device, 1, 11);
    let error = device.flush().unwrap_err().to_string();
    assert!(error.contains("the store has accepted nothing"), "{error}");
    // Longer than a read is repeated.
    base::thread::sleep(Duration::from_millis(600));
    is_down.store(false, SeqCst);
    while device.flush().is_err() {
        assert!(device.write_at(0, &[1], Durability::Buffered).is_ok(), "nothing can be written any more");
    }
    device.close().unwrap();
    assert_eq!(read(&ObjectDevice::open(shared(&objects), small(3)).unwrap(), 1), 11);
}

/// A volume could be neither checkpointed nor closed where objects must be kept.
#[test]
fn a_store_that_refuses_deletions_keeps_objects() {
    let objects = MemoryStore::default();
    make(&objects, 100, 1);
    let store = refusing(&objects, |request, _| (request == Request::Delete).then_some(ErrorKind::Denied));
    let device = ObjectDevice::open(store, small(2)).unwrap();
    for n in 1..10 {
        write(&device, 1, n);
        device.checkpoint().unwrap();
    }
    device.close().unwrap();
    let kept = audit(shared(&objects), &small(3)).unwrap();
    assert!(kept.retired > 10 && kept.missing.is_empty() && kept.orphans.is_empty(), "{kept:?}");
    // Who may delete them, does.
    let device = ObjectDevice::open(shared(&objects), small(4)).unwrap();
    device.checkpoint().unwrap();
    assert_eq!(read(&device, 1), 9);
    device.close().unwrap();
    assert!(audit(shared(&objects), &small(5)).unwrap().retired < 5);
}

/// Each segment that was stored woke the thread, which tried again at once.
#[test]
fn a_checkpoint_that_fails_is_repeated_after_a_pause() {
    let objects = MemoryStore::default();
    make(&objects, 100, 1);
    let attempts = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&attempts);
    let store = refusing(&objects, move |request, key| {
        let is_map = request == Request::Put && key.starts_with("map/");
        is_map.then(|| counter.fetch_add(1, SeqCst)).map(|_| ErrorKind::Denied)
    });
    let begin = base::thread::elapsed();
    let device = ObjectDevice::open(store, small(2)).unwrap();
    for n in 1..200 {
        write(&device, 1, n);
        device.flush().unwrap();
    }
    let pauses = base::thread::elapsed().saturating_sub(begin).as_secs() / 10;
    assert!(attempts.load(SeqCst) <= 1 + pauses, "{attempts:?}");
    assert!(matches!(device.close(), Err(ObjectError::Store(_))));
}

/// Names of snapshots could make the head larger than what is read of it: then nobody could open the volume.
#[test]
fn snapshots_leave_space_in_the_head() {
    let objects = MemoryStore::default();
    make(&objects, 100, 1);
    let client = crate::client::Client::new(shared(&objects), Duration::from_secs(1));
    let mut head = crate::publish::read_head(&client).unwrap().unwrap().head;
    let snapshot = |n: usize| crate::Snapshot { name: format!("{n:0255}"), made: 1, size: 4096, root: None };
    while head.leaves_space() {
        let n = head.snapshots.len();
        head.snapshots.extend((n..n + 100).map(snapshot));
    }
    objects.overwrite("head", head.encode());
    let refused = make_snapshot(shared(&objects), "one more", 2, &small(2)).unwrap_err();
    assert!(refused.to_string().contains("too many snapshots"), "{refused}");
    let device = ObjectDevice::open(shared(&objects), small(3)).unwrap();
    write(&device, 1, 1);
    device.close().unwrap();
    remove_snapshot(shared(&objects), &snapshot(0).name, &small(4)).unwrap();
}
