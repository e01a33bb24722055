//! Several threads on one volume.

use std::collections::BTreeSet;
use std::sync::Mutex;

use base::Ino;
use base::percpu::override_current;

use super::fixture::Fixture;
use super::random::Dice;
use crate::inodes::state::InodeOptions;

#[test]
fn threads_in_separate_directories_get_distinct_inodes() {
    const THREADS: usize = 4;
    let inodes = InodeOptions { cpus: THREADS, ..InodeOptions::default() };
    let options = mkfs::Options { ag_count: Some(4), ..mkfs::Options::default() };
    let mut fixture = Fixture::with(128 << 20, &options, inodes);
    let root = fixture.geometry().root;
    let all = Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        for cpu in 0..THREADS {
            let (fixture, all) = (&fixture, &all);
            scope.spawn(move || {
                override_current(Some(cpu));
                let mut dice = Dice::new(cpu as u64);
                let mut own: Vec<Ino> = vec![fixture.alloc_shared(root, true).unwrap()];
                for _ in 0..600 {
                    if dice.roll(3) > 0 || own.len() < 2 {
                        own.push(fixture.alloc_shared(own[0], false).unwrap());
                    } else {
                        let at = 1 + dice.roll(own.len() - 1);
                        fixture.free_shared(own.swap_remove(at)).unwrap();
                    }
                }
                let mut all = all.lock().unwrap();
                for ino in own {
                    let ag = fixture.geometry().split_ino(ino).unwrap().0;
                    assert_eq!(ag.get() as usize, cpu, "each thread has an AG to itself");
                    assert!(all.insert(ino), "inode {ino} was given twice");
                }
            });
        }
    });
    fixture.used = all.into_inner().unwrap();
    fixture.check();
}

#[test]
fn threads_in_one_directory_get_distinct_inodes() {
    let options = mkfs::Options { ag_count: Some(2), ..mkfs::Options::default() };
    let mut fixture = Fixture::with(64 << 20, &options, InodeOptions::default());
    let root = fixture.geometry().root;
    let all = Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (fixture, all) = (&fixture, &all);
            scope.spawn(move || {
                let mut dice = Dice::new(thread);
                let mut own = Vec::new();
                for _ in 0..400 {
                    if dice.roll(5) > 1 || own.is_empty() {
                        let is_dir = dice.roll(8) == 0;
                        own.push(fixture.alloc_shared(root, is_dir).unwrap());
                    } else {
                        let at = dice.roll(own.len());
                        fixture.free_shared(own.swap_remove(at)).unwrap();
                    }
                }
                let mut all = all.lock().unwrap();
                assert!(own.into_iter().all(|ino| all.insert(ino)), "an inode was given twice");
            });
        }
    });
    fixture.used = all.into_inner().unwrap();
    fixture.check();
}
