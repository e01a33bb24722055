//! Receiving, and queues that overflow.

use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::Duration;

use xebec_volume::{Dir, Watch, WatchEvent, WatchOptions};

use super::{expect, new_dir, new_volume, text};

const fn is_shared<T: Send + Sync>() {}
const _: () = is_shared::<Watch>();

#[test]
fn a_thread_that_waits_gets_the_next_event() {
    let volume = new_volume();
    let dir = new_dir(&Dir::root(&volume).unwrap(), "dir");
    let watch = dir.watch().unwrap();
    assert_eq!(watch.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(watch.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
    assert_eq!(watch.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
    for n in 0..100 {
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| match n % 3 {
                0 => watch.recv().unwrap(),
                1 => watch.recv_timeout(Duration::MAX).unwrap(),
                _ => watch.recv_timeout(Duration::from_secs(3600)).unwrap(),
            });
            dir.create_dir(format!("{n}")).unwrap();
            assert_eq!(text(&waiting.join().unwrap()), format!("+ {}/{n}", dir.ino()));
        });
    }
    assert_eq!(watch.try_recv(), Err(TryRecvError::Empty));
}

#[test]
fn threads_that_share_a_watch_get_each_event_once() {
    let volume = new_volume();
    let dir = new_dir(&Dir::root(&volume).unwrap(), "dir");
    let watch = dir.watch().unwrap();
    let mut received: Vec<String> = std::thread::scope(|scope| {
        let receivers: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| watch.iter().map(|event| text(&event)).collect::<Vec<_>>()))
            .collect();
        for n in 0..300 {
            dir.create_dir(format!("{n:03}")).unwrap();
        }
        // Ends the iterators, but not before the events before it are received.
        dir.remove_dir_all("/dir").unwrap();
        receivers.into_iter().flat_map(|receiver| receiver.join().unwrap()).collect()
    });
    received.sort();
    assert_eq!(received.iter().filter(|event| event.starts_with('+')).count(), 300);
    assert_eq!(received.iter().filter(|event| event.starts_with('-')).count(), 300);
    assert_eq!(received.iter().filter(|event| event.starts_with("gone")).count(), 1);
    received.dedup();
    assert_eq!(received.len(), 601);
}

#[test]
fn a_full_queue_says_that_events_are_missing() {
    let volume = new_volume();
    let dir = new_dir(&Dir::root(&volume).unwrap(), "dir");
    let watch = dir.watch_with(&WatchOptions { events_max: 3 }).unwrap();
    let complete = dir.watch().unwrap();
    let create = |name: &str| dir.create_dir(name).unwrap();
    "abc".split("").filter(|name| !name.is_empty()).for_each(create);
    expect(&watch, &dir, &["+ DIR/a", "+ DIR/b", "+ DIR/c"]);
    "defghi".split("").filter(|name| !name.is_empty()).for_each(create);
    expect(&watch, &dir, &["+ DIR/d", "+ DIR/e", "+ DIR/f", "overflow"]);
    "jklmn".split("").filter(|name| !name.is_empty()).for_each(create);
    for expected in ["j", "k"] {
        assert_eq!(watch.try_recv().unwrap().name().unwrap().name, expected.as_bytes());
    }
    // There is space again: after the gap.
    create("o");
    create("p");
    expect(&watch, &dir, &["+ DIR/l", "overflow", "+ DIR/o", "overflow"]);
    // A rename may lose one of its halves.
    create("q");
    create("r");
    dir.rename("q", &dir, "s").unwrap();
    expect(&watch, &dir, &["+ DIR/q", "+ DIR/r", "from DIR/q", "overflow"]);
    assert_eq!(complete.try_iter().count(), 20);
}

#[test]
fn a_queue_of_no_events_says_that_something_changed() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    let dir = new_dir(&root, "dir");
    let watch = dir.watch_with(&WatchOptions { events_max: 0 }).unwrap();
    assert_eq!(watch.try_recv(), Err(TryRecvError::Empty));
    dir.create_dir("a").unwrap();
    dir.create_dir("b").unwrap();
    assert_eq!(watch.try_recv(), Ok(WatchEvent::Overflow));
    assert_eq!(watch.try_recv(), Err(TryRecvError::Empty));
    root.remove_dir_all("dir").unwrap();
    assert_eq!(watch.try_recv(), Ok(WatchEvent::Overflow));
    assert_eq!(watch.try_recv(), Err(TryRecvError::Disconnected));
}
