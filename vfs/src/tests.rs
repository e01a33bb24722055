//! Tests of dentries and walks without a volume.

use std::sync::Arc;

use base::{Ino, rcu};

use crate::*;

const ROOT: DirId = DirId { ino: Ino(128), generation: 0 };

fn child(ino: u64, kind: NodeKind) -> Option<Child<u64>> {
    Some(Child { ino: Ino(ino), kind, node: Arc::new(ino) })
}

fn dir(ino: u64) -> DirId {
    DirId { ino: Ino(ino), generation: 7 }
}

/// `/a/b/file`, `/a/link`; `/a/none` is known not to exist.
fn cache() -> DentryCache<u64> {
    let cache = DentryCache::new(1000, 1);
    let directory = NodeKind::Directory { generation: 7 };
    cache.insert(ROOT, b"a", child(1, directory));
    cache.insert(dir(1), b"b", child(2, directory));
    cache.insert(dir(2), b"file", child(3, NodeKind::Other));
    cache.insert(dir(1), b"link", child(4, NodeKind::Symlink));
    cache.insert(dir(1), b"none", None);
    cache
}

fn walked(cache: &DentryCache<u64>, path: &str, last_link: LastLink) -> String {
    rcu::read(|section| match cache.walk(section, ROOT, path.as_bytes(), last_link).end {
        WalkEnd::Start => "start".into(),
        WalkEnd::Found(child) => child.node.to_string(),
        WalkEnd::Absent => "absent".into(),
        WalkEnd::NotDirectory => "not a directory".into(),
        WalkEnd::Unknown => "unknown".into(),
    })
}

#[test]
fn walks_end_as_paths_are_resolved() {
    let cache = cache();
    for (path, follow, keep) in [
        ("", "start", "start"),
        ("//./", "start", "start"),
        ("/a", "1", "1"),
        ("a/", "1", "1"),
        ("/a//b/./file", "3", "3"),
        ("/a/b/file/", "not a directory", "not a directory"),
        ("/a/b/file/.", "not a directory", "not a directory"),
        ("/a/b/file/x", "not a directory", "not a directory"),
        ("/a/none", "absent", "absent"),
        ("/a/none/x", "absent", "absent"),
        ("/a/link", "unknown", "4"),
        ("/a/link/", "unknown", "unknown"),
        ("/a/link/x", "unknown", "unknown"),
        ("/a/..", "unknown", "unknown"),
        ("/a/other", "unknown", "unknown"),
    ] {
        assert_eq!(walked(&cache, path, LastLink::Follow), follow, "{path}");
        assert_eq!(walked(&cache, path, LastLink::Keep), keep, "{path}");
    }
    let long = "x".repeat(256);
    assert_eq!(walked(&cache, &long, LastLink::Keep), "unknown");
}

#[test]
fn a_walk_is_current_until_one_of_its_names_is_removed() {
    for name in [(ROOT, &b"a"[..]), (dir(1), b"b"), (dir(2), b"file")] {
        let cache = cache();
        rcu::read(|section| {
            let walk = cache.walk(section, ROOT, b"/a/b/file", LastLink::Keep);
            // By another thread: this one must not retire an object in its section.
            let remove = |dir, name| {
                std::thread::scope(|scope| scope.spawn(|| cache.remove(dir, name)).join().unwrap());
            };
            remove(dir(1), &b"link"[..]);
            assert!(walk.is_current());
            remove(name.0, name.1);
            assert!(!walk.is_current() && matches!(walk.end, WalkEnd::Found(child) if *child.node == 3));
        });
        assert_eq!(walked(&cache, "/a/b/file", LastLink::Keep), "unknown");
    }
}

/// A directory that reuses the inode number of a removed one has no names in the cache.
#[test]
fn names_of_another_generation_are_not_found() {
    let cache = cache();
    cache.remove(ROOT, b"a");
    cache.insert(ROOT, b"a", child(1, NodeKind::Directory { generation: 8 }));
    assert_eq!(walked(&cache, "/a", LastLink::Keep), "1");
    for path in ["/a/b", "/a/none", "/a/link"] {
        assert_eq!(walked(&cache, path, LastLink::Keep), "unknown", "{path}");
    }
}

#[test]
fn the_newest_dentry_of_a_name_is_found() {
    let cache = cache();
    cache.insert(dir(1), b"none", child(9, NodeKind::Other));
    assert_eq!(walked(&cache, "/a/none", LastLink::Keep), "9");
    assert_eq!(cache.len(), 5);
    cache.clear();
    assert!(cache.is_empty());
}
