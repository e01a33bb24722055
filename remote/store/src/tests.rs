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
    for (offset, length) in [(5, 1), (6, 10), (u64::MAX, u64::MAX), (0, 0), (2, 0)] {
        assert!(store.get_range("log/0/1", offset, length).unwrap().is_empty(), "{offset}, {length}");
    }
    assert_eq!(kind(store.get_range("log/0/2", 0, 0)), ErrorKind::Absent);

    let second = store.put_if_match("log/0/1", Bytes::from_static(b"second"), &first).unwrap();
    assert_ne!(first, second);
    assert_eq!(kind(store.put_if_match("log/0/1", Bytes::new(), &first)), ErrorKind::Precondition);
    assert_eq!(kind(store.put_if_match("head", Bytes::new(), &first)), ErrorKind::Precondition);
    assert_eq!(&store.get("log/0/1", 9).unwrap().bytes[..], b"second");

    for key in ["log/0/0", "log/1/0", "map/0/0"] {
        store.put_if_absent(key, Bytes::new()).unwrap();
    }
    assert!(store.get("map/0/0", 0).unwrap().bytes.is_empty());
    assert!(store.get_range("map/0/0", 0, 9).unwrap().is_empty());
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
    store.put_if_absent("1/2/3/4/5/6/7/8", Bytes::new()).unwrap();
    assert_eq!(names("1/", None), ["1/2/3/4/5/6/7/8"]);
    for key in ["", "/x", "a//b", "../x", "a/..", ".lock", "a b", "x/", "1/2/3/4/5/6/7/8/9"] {
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

/// Judges the store of the URL in the environment, or a server of S3 that runs for the time of a second run of this
/// test.
#[cfg(feature = "network")]
#[test]
fn a_store_behind_a_network_keeps_the_contract() {
    let Ok(url) = std::env::var("XEBEC_TEST_STORE") else {
        let Some(mut server) = needs::met(needs::s3()) else { return };
        let test = ["--exact", "tests::a_store_behind_a_network_keeps_the_contract", "--nocapture"];
        assert!(server.arg(std::env::current_exe().unwrap()).args(test).status().unwrap().success());
        return;
    };
    let open = |url: &str| {
        let location = crate::Location::parse(url).unwrap();
        crate::open(&location, &crate::StoreOptions::default()).unwrap()
    };
    keeps_the_contract(&*open(&url));
    let pages = open(&format!("{url}-of-pages"));
    pages_follow_each_other(&*pages, |key| drop(pages.put_if_absent(key, Bytes::new()).unwrap()));
}

#[test]
fn pages_of_a_list_follow_each_other() {
    let store = MemoryStore::default();
    pages_follow_each_other(&store, |key| drop(store.put_if_absent(key, Bytes::new()).unwrap()));
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("log")).unwrap();
    // Without waiting for the disk.
    let put = |key: &str| std::fs::write(folder.path().join(key), "").unwrap();
    pages_follow_each_other(&DirectoryStore::new(folder.path()), put);
}

fn pages_follow_each_other(store: &dyn Store, put: impl Fn(&str)) {
    (0..2500).for_each(|n| put(&format!("log/{n:05}")));
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

/// A replacement reads the old version, and then renames the new one over it. A delete in between was undone.
#[test]
fn a_replacement_does_not_bring_back_what_was_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let (replacing, deleting) = (DirectoryStore::new(folder.path()), DirectoryStore::new(folder.path()));
    // Reading the old version takes a while.
    let large = Bytes::from(vec![1; 8 << 20]);
    for round in 0..20 {
        let old = replacing.put_if_absent("head", large.clone()).unwrap();
        let replaced = std::thread::scope(|scope| {
            let replaced = scope.spawn(|| replacing.put_if_match("head", Bytes::from_static(b"new"), &old));
            // Somewhere in the time that a replacement takes.
            std::thread::sleep(std::time::Duration::from_millis(round));
            deleting.delete("head").unwrap();
            replaced.join().unwrap()
        });
        // Whichever came first, the name is gone.
        assert_eq!(kind(deleting.get("head", 9)), ErrorKind::Absent, "{round}: {replaced:?}");
    }
}

#[test]
fn writes_to_a_directory_wait_for_its_lock() {
    let folder = tempfile::tempdir().unwrap();
    let store = DirectoryStore::new(folder.path());
    let version = store.put_if_absent("head", Bytes::new()).unwrap();
    let waits = |write: &(dyn Fn() + Sync)| {
        let lock = std::fs::File::open(folder.path().join(".lock")).unwrap();
        lock.lock().unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(write);
            std::thread::sleep(std::time::Duration::from_millis(100));
            assert!(!writer.is_finished());
            drop(lock);
            writer.join().unwrap();
        });
    };
    waits(&|| drop(store.put_if_match("head", Bytes::new(), &version).unwrap()));
    waits(&|| drop(store.put_if_absent("other", Bytes::new()).unwrap()));
    waits(&|| store.delete("other").unwrap());
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
    let version = store.put_if_absent("head", Bytes::new()).unwrap();
    for name in ["link", "fifo"] {
        assert_eq!(kind(store.put_if_match(name, Bytes::new(), &version)), ErrorKind::Invalid, "{name}");
    }
    // Nor is a lock a link to a file elsewhere, which would be made.
    let outside = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("a")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("made"), folder.path().join("a/.lock")).unwrap();
    assert_eq!(kind(store.put_if_absent("a/b", Bytes::new())), ErrorKind::Invalid);
    assert!(!outside.path().join("made").exists());
}

#[test]
fn folders_of_a_directory_are_no_links() {
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(outside.path().join("x"), "secret").unwrap();
    std::os::unix::fs::symlink(outside.path(), folder.path().join("log")).unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let store = DirectoryStore::new(folder.path());
    for key in ["log/x", "file/x"] {
        assert_eq!(kind(store.get(key, 9)), ErrorKind::Invalid, "{key}");
        assert_eq!(kind(store.put_if_absent(key, Bytes::new())), ErrorKind::Invalid, "{key}");
        assert_eq!(kind(store.delete(key)), ErrorKind::Invalid, "{key}");
    }
    assert_eq!(kind(store.list("log/", None)), ErrorKind::Invalid);
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn files_that_a_killed_writer_left_are_removed_after_a_day() {
    let folder = tempfile::tempdir().unwrap();
    let now = std::time::SystemTime::now();
    for (name, age) in [(".new-old", 25), (".new-young", 23), ("old", 25)] {
        let file = std::fs::File::create(folder.path().join(name)).unwrap();
        file.set_modified(now - std::time::Duration::from_secs(age * 3600)).unwrap();
    }
    DirectoryStore::new(folder.path()).put_if_absent("x", Bytes::new()).unwrap();
    let exists = |name: &str| folder.path().join(name).exists();
    assert!(!exists(".new-old") && exists(".new-young") && exists("old") && exists("x"));
}

#[test]
fn a_relative_directory_is_made() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let relative = std::path::PathBuf::from(folder.path().file_name().unwrap()).join("a/b");
    DirectoryStore::new(&relative).put_if_absent("x", Bytes::new()).unwrap();
    let name = format!("{}-new", folder.path().file_name().unwrap().display());
    DirectoryStore::new(&name).put_if_absent("x", Bytes::new()).unwrap();
    std::fs::remove_dir_all(&name).unwrap();
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
