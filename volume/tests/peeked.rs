//! Reads of one file by several threads, which take no lock when they are frequent, beside changes of the file.
#![cfg(debug_assertions)] // which count the reads without locks
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::lock::unlocked_reads;
use base::percpu;
use block::MemoryDevice;
use xebec_volume::{Cookie, FileId, NewFile, Options, SetAttribute, Volume};

use common::judge;

fn make() -> (Arc<MemoryDevice>, Volume) {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let volume = Volume::open(device.clone(), Options::default()).unwrap();
    (device, volume)
}

fn names(volume: &Volume, dir: FileId) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    volume
        .read_dir(dir, Cookie::default(), &mut |entry| {
            names.push(entry.name.to_vec());
            true
        })
        .unwrap();
    names
}

/// Sets a flag when it is dropped, also by a panic: a scope waits for its threads.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Two threads repeat `read`, on two CPUs, while this thread runs `change` for each number. Before some changes there
/// are few reads, which take locks, and before others so many that some of them take none.
fn beside(changes: u32, read: impl Fn() + Sync, change: impl Fn(u32)) {
    const READS_BETWEEN: u64 = 30;
    let (stop, reads, unlocked) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        let readers = [0, 1].map(|cpu| {
            let (read, stop, reads, unlocked) = (&read, &stop, &reads, &unlocked);
            scope.spawn(move || {
                percpu::override_current(Some(cpu));
                while !stop.load(Ordering::Relaxed) {
                    let before = unlocked_reads();
                    read();
                    unlocked.fetch_add(unlocked_reads() - before, Ordering::Relaxed);
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        for n in 0..u64::from(changes) {
            let before = (reads.load(Ordering::Relaxed), unlocked.load(Ordering::Relaxed));
            let goes_on = || {
                let found = reads.load(Ordering::Relaxed) - before.0;
                match n % READS_BETWEEN == READS_BETWEEN - 1 {
                    true => {
                        assert!(found < 100_000, "all reads took locks");
                        unlocked.load(Ordering::Relaxed) == before.1
                    }
                    false => found < n % READS_BETWEEN,
                }
            };
            while goes_on() {
                assert!(!readers.iter().any(|reader| reader.is_finished()), "a reader failed");
                std::thread::yield_now();
            }
            change(n as u32);
        }
    });
}

/// Number of locks that a read did without.
fn locks_avoided(read: impl FnOnce()) -> u64 {
    let before = unlocked_reads();
    read();
    unlocked_reads() - before
}

/// A value that is set to one of another length moves between the inode, a leaf, and blocks of its own.
#[test]
fn an_attribute_has_one_of_the_values_that_were_set() {
    let (device, volume) = make();
    let file = volume.create(volume.root(), b"file", &NewFile::regular()).unwrap();
    let lengths = [10, 1000, 10_000];
    let set = |n: u32| {
        let value = vec![n as u8; lengths[n as usize % lengths.len()]];
        volume.set_attribute(file, b"user.value", &value, SetAttribute::Any).unwrap();
    };
    set(0);
    volume.set_attribute(file, b"user.other", b"other", SetAttribute::Any).unwrap();
    let read = || {
        let value = volume.get_attribute(file, b"user.value").unwrap();
        assert!(lengths.contains(&value.len()), "{}", value.len());
        assert!(value.iter().all(|byte| *byte == value[0]), "a value of two moments");
        let mut names = volume.list_attributes(file).unwrap();
        names.sort_unstable();
        assert_eq!(names, [&b"user.other"[..], b"user.value"]);
    };
    beside(300, read, set);
    volume.unmount().unwrap();
    judge(&device);
}

/// A directory that grows and shrinks changes between all of its formats.
#[test]
fn every_name_that_stays_is_listed_once() {
    const STAY: usize = 12;
    const COME: u32 = 300;
    let (device, volume) = make();
    let dir = volume.create(volume.root(), b"dir", &NewFile::directory()).unwrap();
    let file = volume.create(volume.root(), b"file", &NewFile::regular()).unwrap();
    let name = |n: u32| format!("a name that comes and goes, number {n}");
    for n in 0..STAY {
        volume.link(file, dir, format!("stays {n}").as_bytes()).unwrap();
    }
    let read = || {
        let found = names(&volume, dir);
        let stay = found.iter().filter(|name| name.starts_with(b"stays ")).count();
        let dots = found.iter().filter(|name| name.starts_with(b".")).count();
        assert_eq!((stay, dots), (STAY, 2));
    };
    beside(2 * COME, read, |n| match n < COME {
        true => volume.link(file, dir, name(n).as_bytes()).unwrap(),
        false => volume.unlink(dir, name(n - COME).as_bytes()).unwrap(),
    });
    assert_eq!(names(&volume, dir).len(), STAY + 2);
    volume.unmount().unwrap();
    judge(&device);
}

fn expect_entries_from_each_position(volume: &Volume, dir: FileId, names: &[Vec<u8>]) {
    let mut cookie = Cookie::default();
    for name in names {
        let read = volume.read_dir(dir, cookie, &mut |entry| {
            assert_eq!(entry.name, *name);
            cookie = entry.next;
            false
        });
        read.unwrap();
    }
}

/// The first reads take locks, later ones do not; both find the same.
#[test]
fn reads_without_locks_find_what_reads_with_locks_do() {
    let (device, volume) = make();
    let root = volume.root();
    let file = volume.create(root, b"file", &NewFile::regular()).unwrap();
    volume.create(root, b"link", &NewFile::symlink(&[b't'; 1000])).unwrap();
    let link = volume.lookup(root, b"link").unwrap();
    let dirs = [3, 100, 1500].map(|count: u64| {
        let dir = volume.create(root, format!("{count}").as_bytes(), &NewFile::directory()).unwrap();
        (0..count).for_each(|n| volume.link(file, dir, format!("name {n}").as_bytes()).unwrap());
        (dir, count)
    });
    for n in 0..200u32 {
        let value = vec![n as u8; 40 * n as usize];
        volume.set_attribute(file, format!("user.{n}").as_bytes(), &value, SetAttribute::Any).unwrap();
    }
    let listed = volume.create(root, b"listed", &NewFile::regular()).unwrap();
    for n in 0..300 {
        volume.set_attribute(listed, format!("user.{n}").as_bytes(), b"value", SetAttribute::Any).unwrap();
    }
    volume.unmount().unwrap();
    // Nothing is in memory at first.
    let volume = Volume::open(device.clone(), Options::default()).unwrap();
    let mut attributes = None;
    let mut listings = [const { None }; 3];
    const ROUNDS: usize = 40;
    for round in 0..ROUNDS {
        let expect_unlocked = |at_least: u64, read: &mut dyn FnMut()| {
            let avoided = locks_avoided(read);
            assert!(round < ROUNDS - 1 || avoided >= at_least, "{avoided} values were read without a lock");
        };
        percpu::override_current(Some(round % 2));
        // The inode, and a block.
        expect_unlocked(2, &mut || assert_eq!(volume.read_link(link).unwrap(), [b't'; 1000]));
        for n in (0..200u32).step_by(33) {
            // The inode, a node and a leaf.
            expect_unlocked(3, &mut || {
                let value = volume.get_attribute(file, format!("user.{n}").as_bytes()).unwrap();
                assert_eq!(value, vec![n as u8; 40 * n as usize]);
            });
        }
        expect_unlocked(4, &mut || {
            let found = volume.list_attributes(listed).unwrap();
            assert_eq!(attributes.get_or_insert_with(|| found.clone()), &found);
        });
        for ((dir, count), listing) in dirs.iter().zip(&mut listings) {
            let mut found = Vec::new();
            expect_unlocked(1 + count / 100, &mut || found = names(&volume, *dir));
            assert_eq!(found.len() as u64, count + 2);
            assert_eq!(listing.get_or_insert_with(|| found.clone()), &found);
            if round % (ROUNDS - 1) == 0 {
                expect_entries_from_each_position(&volume, *dir, &found);
            }
        }
    }
    // So many leaves are listed with a lock. Only the inode and the node above them are read before.
    let mut found = Vec::new();
    let avoided = locks_avoided(|| found = volume.list_attributes(file).unwrap());
    assert_eq!((found.len(), avoided), (200, 2));
    percpu::override_current(None);
    assert_eq!(volume.read_link(file).unwrap_err().errno(), base::errno::EINVAL);
    assert_eq!(
        volume.read_dir(file, Cookie::default(), &mut |_| true).unwrap_err().errno(),
        base::errno::ENOTDIR
    );
    volume.unmount().unwrap();
    judge(&device);
}
