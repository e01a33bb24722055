//! Power cuts at each write, torn in its middle, and at each transaction. Any state since the last log force shows only
//! data that was written to that offset of that file; a file that was only appended to is a prefix.

use super::{Dice, cache, file};
use crate::Edges;
use crate::testing::{Volume, pattern};

fn bytes(ino: u64, at: u64, length: u64) -> Vec<u8> {
    (at..at + length).map(|at| pattern(ino, at)).collect()
}

fn run(seed: u64, block_log: u32, budget: u64, longest_claim: u64) {
    let volume = Volume::new(block_log, 220).judged().with_longest_claim(longest_claim);
    let volume_cache = cache(&volume, budget);
    let files: Vec<_> = (2..6).map(|ino| file(&volume_cache, ino)).collect();
    let mut dice = Dice::new(seed);
    let block = 1u64 << block_log;
    for _ in 0..150 {
        let contents = &files[dice.next(4) as usize];
        let ino = contents.file;
        let appended = ino % 2 == 0;
        let at = dice.next(30 * block);
        match dice.next(9) {
            0..=3 if appended => {
                let at = contents.size();
                if at < 30 * block {
                    contents.append(&bytes(ino, at, dice.next(5 * block))).unwrap();
                }
            }
            0..=3 => drop(contents.write(at, &bytes(ino, at, dice.next(5 * block))).unwrap()),
            // To whole blocks: otherwise the rest of the last block is zeroed before the size changes.
            4 if appended => contents.truncate(dice.next(contents.size() / block + 1) * block).unwrap(),
            4 => contents.truncate(at).unwrap(),
            5 => contents.flush(at..at + dice.next(9 * block)).unwrap(),
            6 => volume_cache.sync_all().unwrap(),
            7 if !appended => {
                let to = at + dice.next(9 * block);
                let punch = |_: &mut crate::MapChange<'_, Volume>| {
                    volume.punch(ino, at.div_ceil(block), to / block);
                    Ok(())
                };
                contents.change_map(at..to, Edges::Zero, punch).unwrap();
            }
            _ => volume.force(),
        }
    }
    volume_cache.sync_all().unwrap();
    drop(files);
    volume.check_quiet();
}

#[test]
fn no_state_shows_data_that_was_not_written_there() {
    for seed in 0..8 {
        run(seed, 10, 1 << 20, if seed % 2 == 0 { u64::MAX } else { 2 });
    }
}

#[test]
fn nor_with_memory_for_two_folios() {
    for seed in 20..23 {
        run(seed, 12, 128 << 10, u64::MAX);
    }
}

#[test]
fn the_size_on_disk_does_not_exceed_a_failed_block() {
    use crate::testing::Op;
    let volume = Volume::new(12, 200).judged().with_longest_claim(2);
    let volume_cache = cache(&volume, 1 << 20);
    let contents = file(&volume_cache, 2);
    contents.append(&bytes(2, 0, 40_000)).unwrap();
    // Two blocks; the write of the second fails, merged or alone.
    volume.fail(Op::Write, 1, 1);
    let first = contents.flush(0..u64::MAX);
    let size = volume.on_disk(2).size;
    assert!(first.is_ok() || size < 40_000);
    volume.heal();
    contents.flush(0..u64::MAX).unwrap();
    assert_eq!(volume.on_disk(2).size, 40_000);
}
