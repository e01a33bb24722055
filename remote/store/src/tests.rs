//! Each store keeps the contract.

use std::sync::Arc;

use bytes::Bytes;

use crate::faulty::{Cut, Faults, FaultyStore, Network};
use crate::{DirectoryStore, ErrorKind, MemoryStore, Store, StoreError};

fn kind<T: std::fmt::Debug>(result: Result<T, StoreError>) -> ErrorKind {
    result.unwrap_err().kind
}

/// What any store must do.
pub fn keeps_the_contract(store: &dyn Store) {
    let first = store.put_if_absent("log/0/1", Bytes::from_static(b"first")).unwrap();
    assert_eq!(kind(store.put_if_absent("log/0/1", Bytes::from_static(b"x"))), ErrorKind::Precondition);
    let object = store.get("log/0/1", 5).unwrap();
    assert_eq!((&object.bytes[..], &object.version), (&b"first"[..], &first));
    assert_eq!(kind(store.get("log/0/1", 4)), ErrorKind::Invalid);
    assert_eq!(kind(store.get("log/0/2", 4)), ErrorKind::Absent);
    assert_eq!(kind(store.get_range("head", 0, 4)), ErrorKind::Absent);
    assert_eq!(&store.get_range("log/0/1", 1, 3).unwrap()[..], b"irs");
    assert_eq!(&store.get_range("log/0/1", 3, 30).unwrap()[..], b"st");

    let second = store.put_if_match("log/0/1", Bytes::from_static(b"second"), &first).unwrap();
    assert_ne!(first, second);
    assert_eq!(kind(store.put_if_match("log/0/1", Bytes::new(), &first)), ErrorKind::Precondition);
    assert_eq!(kind(store.put_if_match("head", Bytes::new(), &first)), ErrorKind::Precondition);
    assert_eq!(&store.get("log/0/1", 9).unwrap().bytes[..], b"second");

    for key in ["log/0/0", "log/1/0", "map/0/0"] {
        store.put_if_absent(key, Bytes::new()).unwrap();
    }
    let names = |prefix: &str, after| -> Vec<String> {
        let page = store.list(prefix, after).unwrap();
        assert!(!page.more);
        page.objects.into_iter().map(|listed| listed.key).collect()
    };
    assert_eq!(names("log/", None), ["log/0/0", "log/0/1", "log/1/0"]);
    assert_eq!(names("log/0/", Some("log/0/0")), ["log/0/1"]);
    assert_eq!(names("", None).len(), 4);
    assert!(names("none/", None).is_empty());
    store.delete("log/0/1").unwrap();
    store.delete("log/0/1").unwrap();
    assert_eq!(kind(store.get("log/0/1", 9)), ErrorKind::Absent);
    for key in ["", "/x", "a//b", "../x", "a/..", ".lock", "a b", "x/"] {
        assert_eq!(kind(store.put_if_absent(key, Bytes::new())), ErrorKind::Invalid, "{key}");
    }
}

#[test]
fn a_store_in_memory_keeps_the_contract() {
    keeps_the_contract(&MemoryStore::default());
}

#[test]
fn a_directory_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    keeps_the_contract(&DirectoryStore::new(folder.path().join("a/volume")));
}

#[test]
fn a_client_without_faults_keeps_the_contract() {
    let network = Network::new(MemoryStore::default());
    keeps_the_contract(&FaultyStore::new(network, Faults::default(), 1));
}

#[test]
fn pages_of_a_list_follow_each_other() {
    let store = MemoryStore::default();
    (0..2500).for_each(|n| drop(store.put_if_absent(&format!("log/{n:05}"), Bytes::new()).unwrap()));
    let (mut found, mut after) = (0, None);
    loop {
        let page = store.list("log/", after.as_deref()).unwrap();
        found += page.objects.len();
        after = page.objects.last().map(|listed| listed.key.clone());
        if !page.more {
            break;
        }
    }
    assert_eq!(found, 2500);
}

/// Of several processes that replace one version, one succeeds; of several that create a name, too.
#[test]
fn conditions_hold_between_clients_of_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    let base = DirectoryStore::new(folder.path()).put_if_absent("head", Bytes::from_static(b"0")).unwrap();
    let (mut replaced, mut created) = (0, 0);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|n| {
                let (folder, base) = (folder.path(), &base);
                scope.spawn(move || {
                    let store = DirectoryStore::new(folder);
                    let bytes = Bytes::from(format!("client {n}"));
                    (
                        store.put_if_match("head", bytes.clone(), base).is_ok(),
                        store.put_if_absent("x", bytes).is_ok(),
                    )
                })
            })
            .collect();
        for client in clients {
            let (won, made) = client.join().unwrap();
            replaced += u32::from(won);
            created += u32::from(made);
        }
    });
    assert_eq!((replaced, created), (1, 1));
    // No temporary file is left.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn a_directory_reads_regular_files_only() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, folder.path().join("fifo"), rustix::fs::Mode::RWXU).unwrap();
    let store = DirectoryStore::new(folder.path());
    assert_eq!(kind(store.get("link", 1 << 20)), ErrorKind::Invalid);
    assert_eq!(kind(store.get_range("fifo", 0, 1)), ErrorKind::Invalid);
    assert!(store.list("", None).unwrap().objects.is_empty());
}

#[test]
fn late_and_duplicate_writes_arrive_and_a_cut_is_final() {
    let network = Network::new(MemoryStore::default());
    let late = FaultyStore::new(Arc::clone(&network), Faults { late: 1000, ..Faults::default() }, 1);
    assert_eq!(kind(late.put_if_absent("late", Bytes::new())), ErrorKind::Unclear);
    let reader = FaultyStore::new(Arc::clone(&network), Faults::default(), 2);
    assert_eq!(kind(reader.get("late", 1)), ErrorKind::Absent);
    (0..100).for_each(|_| drop(reader.get("none", 1)));
    reader.get("late", 1).unwrap();
    let cut = Some(Cut { after: 1, carried_out: true });
    let cut = FaultyStore::with_cut(Arc::clone(&network), Faults::default(), 3, cut);
    cut.put_if_absent("before", Bytes::new()).unwrap();
    assert_eq!(kind(cut.put_if_absent("last", Bytes::new())), ErrorKind::Denied);
    assert_eq!(kind(cut.get("before", 1)), ErrorKind::Denied);
    assert!(cut.is_cut() && network.objects().keys().contains(&"last".to_owned()));
}
