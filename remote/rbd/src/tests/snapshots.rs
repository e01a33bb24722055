//! Snapshots, clones, and images as a whole.

use base::errno::{EBUSY, EEXIST, EINVAL, ENOENT, ENOTEMPTY};
use block::{Device, Durability};

use super::{cluster, new_device, run, url, writable};
use crate::{RbdDevice, RbdError, RbdOptions, RbdUrl};

fn first_bytes(device: &dyn Device) -> [u8; 4] {
    let mut found = [0; 4];
    device.read_at(0, &mut found).unwrap();
    found
}

#[test]
fn a_snapshot_keeps_the_contents_while_the_writer_continues() {
    let Some((ceph, pool)) = cluster() else { return };
    let device = new_device(ceph, "written", 8 << 20);
    let mut snapshots = Vec::new();
    for number in 0..17u8 {
        device.write_at(0, &[number; 4], Durability::Buffered).unwrap();
        device.flush().unwrap();
        // Another client takes it; more than one list of the library has place for.
        let snapshot = url(ceph, &format!("written@{number}"));
        pool.create_snapshot(&snapshot).unwrap();
        if number % 7 == 0 {
            snapshots.push((number, RbdDevice::open(&snapshot, &RbdOptions::default()).unwrap()));
        }
    }
    device.set_size(4 << 20).unwrap();
    device.write_at(0, b"last", Durability::Fua).unwrap();
    for (number, snapshot) in &snapshots {
        assert_eq!((first_bytes(snapshot), snapshot.size()), ([*number; 4], 8 << 20));
        assert_eq!(snapshot.writer().unwrap(), None);
    }
    let names: Vec<_> =
        pool.snapshots(&url(ceph, "written")).unwrap().into_iter().map(|s| (s.name, s.size)).collect();
    let expected: Vec<_> = (0..17).map(|number| (number.to_string(), 8 << 20)).collect();
    assert_eq!(names, expected);
    drop(snapshots);
    let error = pool.create_snapshot(&url(ceph, "written@3")).unwrap_err();
    assert_eq!(error.errno(), EEXIST, "{error}");
    for number in 0..17 {
        pool.remove_snapshot(&url(ceph, &format!("written@{number}"))).unwrap();
    }
    assert_eq!(pool.snapshots(&url(ceph, "written")).unwrap(), []);
    let error = pool.remove_snapshot(&url(ceph, "written@3")).unwrap_err();
    assert_eq!(error.errno(), ENOENT, "{error}");
}

#[test]
fn a_clone_is_independent_and_survives_its_snapshot() {
    let Some((ceph, pool)) = cluster() else { return };
    let device = new_device(ceph, "parent", 8 << 20);
    device.write_at(0, b"base", Durability::Fua).unwrap();
    let (snapshot, child) = (url(ceph, "parent@golden"), url(ceph, "child"));
    pool.create_snapshot(&snapshot).unwrap();
    device.write_at(0, b"more", Durability::Fua).unwrap();
    assert!(!pool.exists(&child).unwrap());
    pool.clone_from(&pool, &snapshot, &child).unwrap();
    assert!(pool.exists(&child).unwrap());
    let error = pool.clone_from(&pool, &snapshot, &child).unwrap_err();
    assert_eq!(error.errno(), EEXIST, "{error}");
    let clone = RbdDevice::open(&child, &writable()).unwrap();
    assert_eq!(first_bytes(&clone), *b"base");
    clone.write_at(0, b"mine", Durability::Fua).unwrap();
    // The snapshot was not protected, and can be removed before the clone.
    pool.remove_snapshot(&snapshot).unwrap();
    assert_eq!((first_bytes(&clone), first_bytes(&device)), (*b"mine", *b"more"));
    let mut rest = [1; 4];
    clone.read_at(4, &mut rest).unwrap();
    assert_eq!(rest, [0; 4]);
}

#[test]
fn images_are_removed_when_nothing_needs_them() {
    let Some((ceph, pool)) = cluster() else { return };
    let image = url(ceph, "removed");
    let device = new_device(ceph, "removed", 1 << 20);
    let error = pool.create(&image, 1 << 20).unwrap_err();
    assert_eq!(error.errno(), EEXIST, "{error}");
    let error = pool.remove(&image).unwrap_err();
    assert_eq!(error.errno(), EBUSY, "{error}");
    drop(device);
    pool.create_snapshot(&url(ceph, "removed@kept")).unwrap();
    let error = pool.remove(&image).unwrap_err();
    assert_eq!(error.errno(), ENOTEMPTY, "{error}");
    assert!(error.to_string().contains("remove its snapshots first"), "{error}");
    pool.remove_snapshot(&url(ceph, "removed@kept")).unwrap();
    pool.remove(&image).unwrap();
    assert!(!pool.exists(&image).unwrap());
}

#[test]
fn images_in_a_namespace_are_others() {
    let Some((ceph, pool)) = cluster() else { return };
    run(ceph, "rbd", &["namespace", "create", "rbd/space"]);
    new_device(ceph, "twin", 1 << 20).write_at(0, b"here", Durability::Fua).unwrap();
    let inner: RbdUrl = RbdUrl { namespace: "space".to_owned(), ..url(ceph, "twin") };
    assert!(pool.exists(&url(ceph, "twin")).unwrap());
    let space = crate::Pool::open(&inner, None).unwrap();
    assert!(!space.exists(&inner).unwrap());
    space.create(&inner, 2 << 20).unwrap();
    let device = RbdDevice::open(&inner, &writable()).unwrap();
    assert_eq!((first_bytes(&device), device.size()), ([0; 4], 2 << 20));
    assert_eq!(device.describe(), "rbd://rbd/space/twin");
    assert_eq!(run(ceph, "rbd", &["ls", "rbd/space"]), "twin\n");
}

/// A cluster may be configured to create images without locks, for old kernels.
#[test]
fn new_images_have_an_exclusive_lock() {
    let Some((ceph, _)) = cluster() else { return };
    let plain: RbdUrl = format!("{}&rbd_default_features=1", ceph.url("plain")).parse().unwrap();
    crate::Pool::open(&plain, None).unwrap().create(&plain, 1 << 20).unwrap();
    RbdDevice::open(&plain, &writable()).unwrap();
    run(ceph, "rbd", &["create", "rbd/lockless", "--size", "1M", "--image-feature", "layering"]);
    let error = RbdDevice::open(&url(ceph, "lockless"), &writable()).err().unwrap();
    assert!(matches!(error, RbdError::NoExclusiveLock { .. }), "{error}");
    assert!(error.to_string().contains("rbd feature enable"), "{error}");
    RbdDevice::open(&url(ceph, "lockless"), &RbdOptions::default()).unwrap();
}

/// The snapshot used to be ignored: the image was created, or removed.
#[test]
fn the_url_of_a_snapshot_does_not_stand_for_its_image() {
    let Some((ceph, pool)) = cluster() else { return };
    let (image, snapshot) = (url(ceph, "whole"), url(ceph, "whole@now"));
    drop(new_device(ceph, "whole", 1 << 20));
    for error in [
        pool.create(&url(ceph, "partial@now"), 1 << 20).unwrap_err(),
        pool.clone_from(&pool, &snapshot, &url(ceph, "partial@now")).unwrap_err(),
        pool.remove(&snapshot).unwrap_err(),
    ] {
        assert_eq!(error.errno(), EINVAL, "{error}");
        assert!(error.to_string().contains("this names a snapshot"), "{error}");
    }
    assert!(pool.exists(&image).unwrap());
    assert!(!pool.exists(&url(ceph, "partial")).unwrap());
}
