//! References to inodes, and what happens when the last one is dropped.

use base::percpu;

use super::*;
use crate::testing::Fixture;
use crate::unlinked;

/// A thread that looked up a free inode took a reference, and then returned the count without any check. If the
/// inode had become an unlinked file meanwhile, and its own references were dropped before, the file was never
/// queued: its space was lost until the next mount.
#[test]
fn a_reference_to_a_free_inode_frees_the_file_that_it_becomes() {
    let fixture = Fixture::new();
    let (inode, locked) = fixture.create(0o100_600);
    drop(locked);
    let ino = inode.ino();
    unlink(&fixture, inode);
    let late = fixture.cache.peek(ino).unwrap().acquire().unwrap_err();
    let (inode, locked) = fixture.create_as(fixture.groups.take_that_inode(ino), 0o100_600, 1);
    drop(locked);
    let mut locked = inode.lock();
    locked.set_nlink(0);
    let mut tx = fixture.begin();
    unlinked::insert(fixture.shared(), &mut tx, &mut locked).unwrap();
    tx.commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
    drop(locked);
    drop(inode);
    crate::inactive::drain(fixture.shared());
    assert!(!fixture.groups.is_free(ino));
    drop(late);
    crate::inactive::drain(fixture.shared());
    assert!(fixture.groups.is_free(ino));
}

/// Removes the file's last name, drops the reference, and waits until the file is freed.
fn unlink(fixture: &Fixture, inode: InodeRef) {
    let mut locked = inode.lock();
    locked.set_nlink(0);
    let mut tx = fixture.begin();
    unlinked::insert(fixture.shared(), &mut tx, &mut locked).unwrap();
    tx.commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
    drop(locked);
    drop(inode);
    crate::inactive::drain(fixture.shared());
}

/// References that are counted on each CPU, of a file that is unlinked: it is freed when the last one is dropped,
/// wherever that was taken.
#[test]
fn an_unlinked_file_is_freed_when_references_of_all_cpus_are_dropped() {
    let fixture = Fixture::new();
    let (inode, locked) = fixture.create(0o100_600);
    drop(locked);
    let ino = inode.ino();
    let take = |cpu| {
        percpu::override_current(Some(cpu));
        fixture.cache.get(ino).unwrap()
    };
    let references: Vec<_> = (0..20).map(|n| take(n % 2)).collect();
    assert!(inode.refs.is_per_cpu());
    unlink(&fixture, inode);
    assert!(!references[0].refs.is_per_cpu());
    for reference in references {
        assert!(!fixture.groups.is_free(ino));
        drop(reference);
        crate::inactive::drain(fixture.shared());
    }
    assert!(fixture.groups.is_free(ino));
    percpu::override_current(None);
}

/// The thread that began to collect the count ended before it had done so: the inode stayed in memory, and with it
/// all that inodes reference.
#[test]
fn a_count_that_nobody_has_collected_does_not_keep_the_inode() {
    let fixture = Fixture::new();
    let (inode, locked) = fixture.create(0o100_600);
    drop(locked);
    let ino = inode.ino();
    for n in 0..20 {
        percpu::override_current(Some(n % 2));
        drop(fixture.cache.get(ino).unwrap());
    }
    percpu::override_current(None);
    assert!(inode.refs.begin_collecting());
    let weak = Arc::downgrade(&inode);
    drop(inode);
    fixture.write_back();
    drop(fixture);
    assert!(weak.upgrade().is_none());
}
