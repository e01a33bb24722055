//! Random changes of every kind.

use std::sync::Arc;

use base::stop;

use super::fixture::Fixture;
use crate::tests::volume::{Volume, options};

/// Largest file in blocks: enough for btrees of several levels with small blocks.
const BLOCKS: u64 = 700;

pub fn change(fixture: &mut Fixture, can_share: bool) {
    let file = fixture.numbers.below(fixture.files.len() as u64) as usize;
    let at = fixture.numbers.below(BLOCKS);
    let count = 1 + match fixture.numbers.below(4) {
        0 => fixture.numbers.below(BLOCKS / 4),
        1 => fixture.numbers.below(20),
        _ => fixture.numbers.below(3),
    };
    let size = fixture.known[file].size;
    let blocks = size / fixture.block_size();
    let done = match fixture.numbers.below(14) {
        0..3 => fixture.write(file, at, count),
        // Many single blocks, separated by holes: the map becomes a btree.
        3 => (0..30).try_for_each(|n| fixture.write(file, (at + n * 2) % BLOCKS, 1)),
        4 => fixture.fill(file, at, count),
        5 => fixture.set_size(file, (at + count) * 1000),
        6 => fixture.punch(file, at, count),
        7 => fixture.preallocate(file, at, count, count.is_multiple_of(2).then_some((at + count) * 1024)),
        8 => fixture.zero(file, at, count),
        9 if at + count < blocks => fixture.collapse(file, at, count),
        10 if at < blocks && size < 4 << 20 => fixture.insert(file, at, 1 + count % 40),
        11 if can_share => {
            let source = fixture.numbers.below(fixture.files.len() as u64) as usize;
            let from = fixture.numbers.below(BLOCKS);
            if source == file && from.abs_diff(at) < count {
                return;
            }
            fixture.share((source, from), (file, at), count)
        }
        12 => fixture.trim(file, at).map(drop),
        13 => fixture.write_small(at, 1 + (count % 3) as u32),
        _ => Ok(()),
    };
    done.unwrap();
}

fn run(options: &mkfs::Options, seed: u64, changes: u32) {
    let mut fixture = Fixture::new(options, 5, seed);
    for n in 0..changes {
        change(&mut fixture, options.reflink);
        fixture.compare();
        if n % 40 == 39 {
            fixture.check();
        }
    }
    fixture.check();
    for file in 0..fixture.files.len() {
        fixture.set_size(file, 0).unwrap();
        // Blocks beyond the end of a file that was empty.
        fixture.punch(file, 0, 1 << 40).unwrap();
    }
    fixture.check();
    assert!(fixture.files.iter().all(|file| file.read().nblocks() == 0));
}

#[test]
fn small_blocks_with_every_tree() {
    run(&options(1024, |_| {}), 1, 400);
}

#[test]
fn usual_blocks_with_every_tree() {
    run(&options(4096, |_| {}), 2, 400);
}

#[test]
fn small_blocks_without_the_newer_trees() {
    run(&options(1024, |options| (options.rmapbt, options.reflink) = (false, false)), 3, 400);
}

#[test]
fn sharing_without_reverse_mappings() {
    run(&options(1024, |options| (options.rmapbt, options.reflink) = (false, true)), 4, 400);
}

#[test]
fn reverse_mappings_without_sharing() {
    run(&options(4096, |options| (options.rmapbt, options.reflink) = (true, false)), 5, 400);
}

#[test]
fn threads_with_files_of_their_own_on_one_volume() {
    let volume = Arc::new(Volume::new(&options(1024, |_| {})));
    let mut beds: Vec<_> = (0..4).map(|seed| Fixture::on(&volume, 3, 100 + seed)).collect();
    let all: Vec<_> = beds.iter().flat_map(|fixture| fixture.files.clone()).collect();
    stop::scope(|scope| {
        // Everything else of an inode may change at any time.
        scope.spawn(|stop| {
            for inode in all.iter().cycle().take_while(|_| !stop.is_set()) {
                let tx = volume.shared().begin(volume.shared().reservations.inode).unwrap();
                let mut locked = inode.lock();
                locked.set_owner(7, 8);
                tx.commit(&mut [&mut locked]).unwrap();
            }
        });
        let threads: Vec<_> = beds
            .iter_mut()
            .map(|fixture| {
                scope.spawn(|_| {
                    for _ in 0..150 {
                        change(fixture, true);
                        fixture.compare();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    beds.iter_mut().for_each(Fixture::compare);
    volume.check();
}
