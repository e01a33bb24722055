//! Watches: which events a change has, in which order, and when a watch ends.
//!
//! | part | subject |
//! |---|---|
//! | [`names`] | names that are created, removed and renamed; changes that fail |
//! | [`queue`] | receiving, and queues that overflow |
//! | [`end`] | removed directories, unmounting, directories in memory |
//! | [`threads`] | threads that change directories: the events rebuild the names |
#![allow(clippy::unwrap_used, clippy::panic)]

mod end;
mod names;
mod queue;
mod threads;

use std::sync::Arc;

use block::MemoryDevice;
use xebec_volume::{Dir, Error, FileId, Options, Volume, Watch, WatchEvent, WatchedName};

fn new_device() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    device
}

fn new_volume() -> Volume {
    Volume::open(new_device(), Options::default()).unwrap()
}

/// Creates a directory and opens it.
fn new_dir<'v>(parent: &Dir<'v>, name: &str) -> Dir<'v> {
    parent.create_dir(name).unwrap();
    parent.open_dir(name).unwrap()
}

fn id(dir: &Dir<'_>, name: &str) -> FileId {
    dir.volume().lookup_handle(dir.id(), name.as_bytes()).unwrap().id()
}

/// The event's kind, the directory's inode number and the name.
fn text(event: &WatchEvent) -> String {
    let name = |name: &WatchedName| format!("{}/{}", name.dir.ino, name.name.escape_ascii());
    match event {
        WatchEvent::Created(created) => format!("+ {}", name(created)),
        WatchEvent::Removed(removed) => format!("- {}", name(removed)),
        WatchEvent::MovedFrom { name: from, .. } => format!("from {}", name(from)),
        WatchEvent::MovedTo { name: to, replaced: None, .. } => format!("to {}", name(to)),
        WatchEvent::MovedTo { name: to, replaced: Some(_), .. } => format!("over {}", name(to)),
        WatchEvent::Exchanged { name: exchanged, .. } => format!("exchanged {}", name(exchanged)),
        WatchEvent::DirRemoved { dir } => format!("gone {}", dir.ino),
        WatchEvent::Overflow => "overflow".to_owned(),
        other => panic!("{other:?}"),
    }
}

/// The events that wait in the queue.
fn texts(watch: &Watch) -> Vec<String> {
    watch.try_iter().map(|event| text(&event)).collect()
}

/// Expects these events in the queue, with `DIR` for the directory.
#[track_caller]
fn expect(watch: &Watch, dir: &Dir<'_>, expected: &[&str]) {
    let ino = dir.ino().to_string();
    let expected: Vec<_> = expected.iter().map(|event| event.replace("DIR", &ino)).collect();
    assert_eq!(texts(watch), expected);
}

fn cookie(event: &WatchEvent) -> u64 {
    match event {
        WatchEvent::MovedFrom { cookie, .. }
        | WatchEvent::MovedTo { cookie, .. }
        | WatchEvent::Exchanged { cookie, .. } => *cookie,
        other => panic!("{other:?} has no cookie"),
    }
}

fn errno_of<T>(result: Result<T, Error>) -> base::errno::Errno {
    result.map(drop).unwrap_err().errno()
}
