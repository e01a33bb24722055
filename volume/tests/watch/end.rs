//! Removed directories, unmounting, and directories in memory.

use std::sync::Arc;
use std::sync::mpsc::{RecvError, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use base::errno;
use xebec_volume::{Credentials, Dir, NewFile, Options, Volume};

use super::{errno_of, expect, new_device, new_dir, new_volume};

#[test]
fn the_watch_of_a_removed_directory_ends() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    let removed = new_dir(&root, "removed");
    let replaced = new_dir(&root, "replaced");
    let (of_removed, of_replaced) = (removed.watch().unwrap(), replaced.watch().unwrap());
    removed.create_dir("below").unwrap();
    root.remove_dir_all("removed").unwrap();
    expect(&of_removed, &removed, &["+ DIR/below", "- DIR/below", "gone DIR"]);
    assert_eq!(of_removed.try_recv(), Err(TryRecvError::Disconnected));
    assert_eq!(of_removed.recv(), Err(RecvError));
    assert_eq!(of_removed.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Disconnected));
    assert_eq!(errno_of(removed.create_dir("late")), errno::ENOENT);
    assert_eq!(errno_of(removed.watch()), errno::ENOENT);
    // A rename over an empty directory.
    root.create_dir("other").unwrap();
    root.rename("other", &root, "replaced").unwrap();
    expect(&of_replaced, &replaced, &["gone DIR"]);
    assert_eq!(of_replaced.try_recv(), Err(TryRecvError::Disconnected));
    // The watch can be used for another directory.
    of_removed.add(&root).unwrap();
    root.create_dir("new").unwrap();
    expect(&of_removed, &root, &["+ DIR/new"]);
}

#[test]
fn other_directories_of_a_watch_are_watched_when_one_is_removed() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    let watch = root.watch().unwrap();
    let sub = new_dir(&root, "sub");
    watch.add(&sub).unwrap();
    root.remove_dir("sub").unwrap();
    let events = super::texts(&watch);
    let (root_ino, sub_ino) = (root.ino(), sub.ino());
    assert_eq!(events, [format!("+ {root_ino}/sub"), format!("- {root_ino}/sub"), format!("gone {sub_ino}")]);
    assert_eq!(watch.try_recv(), Err(TryRecvError::Empty));
}

/// The inode of a removed directory could not be freed as long as its watch was in memory, if that had a reference.
#[test]
fn a_watch_does_not_keep_a_removed_directory() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    let sub = new_dir(&root, "sub");
    let (watch, id) = (sub.watch().unwrap(), sub.handle().id());
    drop(sub);
    root.remove_dir("sub").unwrap();
    volume.write_back_all().unwrap();
    assert_eq!(errno_of(volume.open_id(id)), errno::ESTALE);
    assert!(!watch.remove(id));
}

#[test]
fn a_directory_is_no_longer_watched_after_its_removal_from_the_watch() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    let (one, other) = (new_dir(&root, "one"), new_dir(&root, "other"));
    let (watch, second) = (one.watch().unwrap(), one.watch().unwrap());
    watch.add(&other).unwrap();
    assert!(watch.remove(one.handle().id()));
    assert!(!watch.remove(one.handle().id()));
    one.create_dir("a").unwrap();
    expect(&watch, &one, &[]);
    expect(&second, &one, &["+ DIR/a"]);
    drop(second);
    one.create_dir("b").unwrap();
    other.create_dir("c").unwrap();
    expect(&watch, &other, &["+ DIR/c"]);
    assert!(watch.remove(other.handle().id()));
    assert_eq!(watch.try_recv(), Err(TryRecvError::Disconnected));
}

#[test]
fn a_watch_follows_its_directory_and_keeps_it_in_memory() {
    const INODES: usize = 256;
    let memory = Some(xebec_volume::MemoryBudget::new(1024 * INODES as u64));
    let volume = Volume::open(new_device(), Options { memory, ..Options::default() }).unwrap();
    let root = Dir::root(&volume).unwrap();
    let watch = new_dir(&root, "dir").watch().unwrap();
    root.create_dir_all("a/b").unwrap();
    root.rename("dir", &root, "a/b/moved").unwrap();
    // The cache of inodes is used many times over.
    for n in 0..20 * INODES {
        volume.create(root.id(), format!("{n}").as_bytes(), &NewFile::regular()).unwrap();
        if n % INODES == 0 {
            volume.write_back_all().unwrap();
        }
    }
    let dir = root.open_dir("a/b/moved").unwrap();
    dir.create_dir("still watched").unwrap();
    expect(&watch, &dir, &["+ DIR/still watched"]);
}

#[test]
fn watches_end_when_the_volume_is_unmounted_or_dropped() {
    for unmounts in [true, false] {
        let device = new_device();
        let volume = Volume::open(device.clone(), Options::default()).unwrap();
        let root = Dir::root(&volume).unwrap();
        let removed = new_dir(&root, "removed");
        let watches = [root.watch().unwrap(), removed.watch().unwrap()];
        root.remove_dir("removed").unwrap();
        drop((root, removed));
        std::thread::scope(|scope| {
            let received = scope.spawn(|| watches[0].iter().count());
            match unmounts {
                true => volume.unmount().unwrap(),
                false => drop(volume),
            }
            assert_eq!(received.join().unwrap(), 1);
        });
        assert_eq!(watches[1].iter().count(), 1, "events before the end are received");
        assert_eq!(watches[1].try_recv(), Err(TryRecvError::Disconnected));
        if unmounts {
            assert_eq!(Arc::strong_count(&device), 1, "a watch keeps the device open");
        }
        drop(watches);
        Volume::open(device, Options::default()).unwrap().unmount().unwrap();
    }
}

#[test]
fn a_directory_must_be_readable_and_of_the_same_volume() {
    let (volume, other) = (new_volume(), new_volume());
    let root = Dir::root(&volume).unwrap();
    root.create_with("private", &NewFile { permissions: 0o711, ..NewFile::directory() }).unwrap();
    let user = |path| root.open_dir(path).unwrap().with_credentials(Credentials::new(1000, 1000));
    assert_eq!(errno_of(user("private").watch()), errno::EACCES);
    let watch = user("/").watch().unwrap();
    assert_eq!(errno_of(watch.add(&user("private"))), errno::EACCES);
    assert_eq!(errno_of(watch.add(&Dir::root(&other).unwrap())), errno::EXDEV);
}
