//! Tests of dentries and walks without a volume.

use std::sync::Arc;

use base::memory::Share;
use base::{Ino, rcu};

use crate::*;

const ROOT: FileId = FileId { ino: Ino(128), generation: 0 };

fn child(ino: u64, kind: NodeKind) -> Option<Child<Arc<u64>>> {
    Some(Child { ino: Ino(ino), kind, node: Arc::new(ino) })
}

fn dir(ino: u64) -> FileId {
    FileId { ino: Ino(ino), generation: 7 }
}

/// `/a/b/file`, `/a/link`, `/a/b/..`; `/a/none` is known not to exist.
fn cache() -> DentryCache<u64> {
    let cache = DentryCache::new(1000, 1);
    let directory = NodeKind::Directory { generation: 7 };
    cache.insert(ROOT, b"a", child(1, directory));
    cache.insert(dir(1), b"b", child(2, directory));
    cache.insert(dir(2), b"file", child(3, NodeKind::Other));
    cache.insert(dir(2), b"..", child(1, directory));
    cache.insert(dir(1), b"link", child(4, NodeKind::Symlink));
    cache.insert(dir(1), b"none", None);
    cache
}

fn name_of(end: &WalkEnd<'_, u64>) -> String {
    match end {
        WalkEnd::Start => "start".into(),
        WalkEnd::Found(child) => child.node.to_string(),
        WalkEnd::Absent => "absent".into(),
        WalkEnd::NotDirectory => "not a directory".into(),
        WalkEnd::Link { link, rest } => format!("link {link}, rest at {rest}"),
        WalkEnd::Unknown => "unknown".into(),
    }
}

fn walked(cache: &DentryCache<u64>, path: &str, last_link: LastLink) -> String {
    rcu::read(|section| name_of(&cache.walker(section, ROOT).walk(path.as_bytes(), last_link)))
}

/// Names stayed in memory until others took their places, and so did the inodes that they refer to.
#[test]
fn names_that_were_not_used_are_evicted() {
    let memory = Share::alone(1 << 20);
    let cache = DentryCache::new(4000, 1).counted_in(&memory);
    let name = |n: u64| format!("{n}{}", "-".repeat(n as usize % 40)).into_bytes();
    let node = Arc::new(7);
    for n in 0..1000 {
        let child = Child { ino: Ino(n), kind: NodeKind::Other, node: Arc::clone(&node) };
        cache.insert(ROOT, &name(n), Some(child));
    }
    let all = memory.exact();
    assert!(all > 1000 * 64 && all < 1000 * 64 + 1000 * 70 + 64 * 7 * 1000, "{all}");
    let is_known = |n: u64| rcu::read(|section| cache.find(section, ROOT, &name(n)).is_some());
    let known = |every: usize| (0..1000).step_by(every).filter(|n| is_known(*n)).count();
    let before = cache.len();
    // The first look at each takes its second chance.
    while cache.len() == before {
        assert!(cache.evict(64));
    }
    let often = known(10);
    for _ in 0..100 {
        known(10);
        cache.evict(64);
    }
    assert_eq!(known(10), often, "names in use stay");
    assert!(known(1) < 2 * often, "{}", known(1));
    let mut calls = 0;
    while cache.evict(64) {
        calls += 1;
    }
    assert!(cache.is_empty() && calls < 1000, "{calls}");
    cache.clear();
    assert_eq!(Arc::strong_count(&node), 1);
    let table = memory.exact();
    assert!(table > 0 && table.is_multiple_of(1024), "{table}");
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
        ("/a/link", "link 4, rest at 7", "4"),
        ("/a/link/", "link 4, rest at 7", "link 4, rest at 7"),
        ("/a/link/.", "link 4, rest at 7", "link 4, rest at 7"),
        ("/a/link//x", "link 4, rest at 7", "link 4, rest at 7"),
        ("/a/b/..", "1", "1"),
        ("/a/b/../b/file", "3", "3"),
        ("/a/..", "unknown", "unknown"),
        ("/a/other", "unknown", "unknown"),
    ] {
        assert_eq!(walked(&cache, path, LastLink::Follow), follow, "{path}");
        assert_eq!(walked(&cache, path, LastLink::Keep), keep, "{path}");
    }
    let long = "x".repeat(256);
    assert_eq!(walked(&cache, &long, LastLink::Keep), "unknown");
}

/// The last directory of a path need not be searched.
#[test]
fn directories_are_searched_only_if_that_is_allowed() {
    let cache = cache();
    let walk = |path: &str, forbidden: u64| {
        rcu::read(|section| {
            let may_search = |dir: &Arc<u64>| **dir != forbidden;
            let mut walker = cache.walker(section, ROOT);
            walker.limit_search(&may_search);
            name_of(&walker.walk(path.as_bytes(), LastLink::Keep))
        })
    };
    for (path, forbidden, end) in [
        ("a/b/file", 0, "3"),
        ("a/b/file", 1, "unknown"),
        ("a/b/file", 2, "unknown"),
        ("a/b", 2, "2"),
        ("a/b/", 2, "2"),
        ("a/b/.", 2, "unknown"),
        ("a/b/missing", 2, "unknown"),
        ("a/none", 1, "unknown"),
    ] {
        assert_eq!(walk(path, forbidden), end, "{path} without {forbidden}");
    }
}

/// A walker that walks many paths ends each walk as one that walks it alone, whatever the paths before.
#[test]
fn walks_do_not_depend_on_the_paths_before() {
    let cache = cache();
    let paths = [
        "",
        "/",
        "a",
        "/a",
        "a/",
        "a/.",
        "a/b",
        "a/b/",
        "a//b",
        "a/./b",
        "/a/b/file",
        "a/b/file",
        "a/b/file/",
        "a/b/file/x",
        "a/b/missing",
        "a/none",
        "a/none/x",
        "a/link",
        "a/link/",
        "a/link/x",
        "a/other",
        "ab",
        "a/..",
        "a/b/..",
        "a/b/../link",
        "a/b/.",
        "a/b//",
        "none",
    ];
    rcu::read(|section| {
        let mut walker = cache.walker(section, ROOT);
        for first in paths {
            for second in paths {
                for path in paths.into_iter().flat_map(|third| [first, second, third]) {
                    let end = name_of(&walker.walk(path.as_bytes(), LastLink::Keep));
                    let alone = name_of(&cache.walker(section, ROOT).walk(path.as_bytes(), LastLink::Keep));
                    assert_eq!(end, alone, "{path:?} after {first:?} and {second:?}");
                    assert!(walker.is_current());
                }
            }
        }
    });
}

/// The directories of the last path are not walked again, unless one of them has changed.
#[test]
fn a_walker_begins_again_when_a_directory_has_changed() {
    let cache = cache();
    rcu::read(|section| {
        let mut walker = cache.walker(section, ROOT);
        let walk = |walker: &mut Walker<'_, '_, u64>, path| match walker.walk(path, LastLink::Keep) {
            WalkEnd::Found(child) => Some(**child.node),
            _ => None,
        };
        assert_eq!(walk(&mut walker, b"a/b/file"), Some(3));
        std::thread::scope(|scope| scope.spawn(|| cache.remove(ROOT, b"a")).join().unwrap());
        // Found by the directory that the walker knows, which is not current.
        assert_eq!(walk(&mut walker, b"a/b/file"), Some(3));
        assert!(!walker.is_current());
        assert_eq!(walk(&mut walker, b"a/b/file"), None);
        assert!(walker.is_current());
    });
}

#[test]
fn a_walk_is_current_until_one_of_its_names_is_removed() {
    for name in [(ROOT, &b"a"[..]), (dir(1), b"b"), (dir(2), b"file")] {
        let cache = cache();
        rcu::read(|section| {
            let mut walker = cache.walker(section, ROOT);
            let end = walker.walk(b"/a/b/file", LastLink::Keep);
            // By another thread: this one must not retire an object in its section.
            let remove = |dir, name| {
                std::thread::scope(|scope| scope.spawn(|| cache.remove(dir, name)).join().unwrap());
            };
            remove(dir(1), &b"link"[..]);
            assert!(walker.is_current());
            remove(name.0, name.1);
            assert!(!walker.is_current() && matches!(end, WalkEnd::Found(child) if **child.node == 3));
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
    assert_eq!(cache.len(), 6);
    cache.clear();
    assert!(cache.is_empty());
}

/// Names are compared in parts: a difference in any byte, and in the length, must be found.
#[test]
fn names_that_differ_in_one_byte_are_different() {
    let cache = DentryCache::<u64>::new(1000, 1);
    let name: Vec<u8> = (0..255).map(|n| b'a' + n % 26).collect();
    let find = |name: &[u8]| rcu::read(|section| cache.find(section, ROOT, name).is_some());
    for len in 1..=name.len() {
        let name = &name[..len];
        cache.insert(ROOT, name, None);
        assert!(find(name), "{len}");
        for at in 0..len {
            let mut other = name.to_vec();
            other[at] = b'.';
            assert!(!find(&other), "{len}, {at}");
        }
        assert!(!find(&name[..len - 1]) && !find(&[name, b"x"].concat()), "{len}");
        cache.remove(ROOT, name);
        assert!(!find(name), "{len}");
    }
    assert!(cache.is_empty());
}

/// A dentry has zeros after the bytes of its name: the length tells a name with zeros from one without them.
#[test]
fn names_that_end_in_zero_bytes_are_different() {
    let cache = cache();
    for name in ["a\0", "\0", "a\0\0\0\0\0\0\0\0"] {
        assert_eq!(walked(&cache, name, LastLink::Keep), "unknown", "{name:?}");
        cache.insert(ROOT, name.as_bytes(), None);
        assert_eq!(walked(&cache, name, LastLink::Keep), "absent", "{name:?}");
    }
    assert_eq!(walked(&cache, "/a", LastLink::Keep), "1");
}

#[test]
fn a_dentry_is_one_cache_line() {
    assert_eq!(size_of::<Dentry<u64>>(), 64);
}

/// More names than are kept without an allocation.
#[test]
fn a_deep_walk_is_current_until_one_of_its_names_is_removed() {
    for removed in [0, 7, 8, 19] {
        let cache = DentryCache::new(1000, 1);
        let mut path = String::new();
        let mut parents = vec![ROOT];
        for ino in 0..20 {
            path += &format!("/a directory {ino}");
            cache.insert(
                parents[ino as usize],
                format!("a directory {ino}").as_bytes(),
                child(ino, NodeKind::Directory { generation: 7 }),
            );
            parents.push(dir(ino));
        }
        rcu::read(|section| {
            let mut walker = cache.walker(section, ROOT);
            let end = walker.walk(path.as_bytes(), LastLink::Keep);
            assert!(walker.is_current() && matches!(end, WalkEnd::Found(child) if **child.node == 19));
            let remove = || cache.remove(parents[removed], format!("a directory {removed}").as_bytes());
            std::thread::scope(|scope| scope.spawn(remove).join().unwrap());
            assert!(!walker.is_current());
        });
    }
}
