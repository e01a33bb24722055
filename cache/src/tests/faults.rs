//! Failures of any call, read or write: no acknowledged data is lost, and failed writes are reported once.

use base::errno;
use base::memory::Share;
use error::Error;

use super::{Dice, cache, file};
use crate::testing::{OPS, Op, Volume};
use crate::{Cache, Contents, DirtyLimit, Edges, Flusher, MapChange, Options};

/// Repeats `what` until it succeeds. After the first failure nothing fails any more.
fn insist<T>(volume: &Volume, mut what: impl FnMut() -> Result<T, Error>) -> T {
    for _ in 0..3 {
        match what() {
            Ok(done) => return done,
            Err(_) => volume.heal(),
        }
    }
    panic!("fails though nothing makes it fail");
}

/// Runs all operations, with one kind of call failing from some call on. Returns whether it ever failed.
fn run(op: Op, after: i64, times: i64) -> bool {
    let volume = Volume::new(12, 1000).with_longest_claim(5);
    let volume_cache = cache(&volume, 192 << 10);
    let contents = file(&volume_cache, 7);
    let mut model = Vec::new();
    let mut dice = Dice::new(99);
    volume.fail(op, after, times);
    for n in 0..30u64 {
        let (at, length) = (dice.next(200_000) as usize, dice.next(30_000) as usize + 1);
        match n % 5 {
            0..=2 => {
                let data = vec![n as u8 + 1; length];
                let mut done = 0;
                while done < length {
                    done += insist(&volume, || contents.write((at + done) as u64, &data[done..]));
                }
                model.resize(model.len().max(at + length), 0);
                model[at..at + length].copy_from_slice(&data);
            }
            3 => {
                let size = if n % 2 == 0 { at } else { model.len().saturating_sub(5000) };
                insist(&volume, || contents.truncate(size as u64));
                model.resize(size, 0);
            }
            _ => {
                insist(&volume, || contents.invalidate(0..u64::MAX));
                // Later writes there meet unwritten extents.
                let (from, to) = (at as u64 >> 12, (at as u64 + 100_000) >> 12);
                let range = from << 12..to << 12;
                let allocate = |_: &mut MapChange<'_, Volume>| Ok(volume.allocate(7, from, to));
                insist(&volume, || contents.change_map(range.clone(), Edges::Keep, allocate));
            }
        }
        let mut got = vec![0; model.len()];
        assert_eq!(insist(&volume, || contents.read(0, &mut got)), model.len());
        let differs = got.iter().zip(&model).position(|(got, model)| got != model);
        assert_eq!(differs, None, "{op:?} fails after {after}, {times} times; step {n}");
    }
    insist(&volume, || volume_cache.sync_all());
    assert!(volume.contents(&volume.on_disk(7)) == model);
    drop(contents);
    volume.check_quiet();
    after < volume.calls(op) as i64
}

#[test]
fn each_call_may_fail_and_nothing_acknowledged_is_lost() {
    for op in OPS {
        let mut after = 0;
        while run(op, after, 1) {
            after += 1 + after / 6;
        }
        assert!(after > 3, "{op:?} was hardly ever called");
        run(op, 3, 5);
    }
}

#[test]
fn a_failed_write_is_reported_once_to_each_open_file() {
    let volume = Volume::new(12, 100);
    let volume_cache = cache(&volume, 1 << 20);
    let contents = file(&volume_cache, 7);
    let (first, second) = (contents.sample_errors(), contents.sample_errors());
    contents.write(0, &[1; 9000]).unwrap();
    volume.fail(Op::Write, 0, i64::MAX);
    assert!(volume_cache.sync_all().is_err());
    let later = contents.sample_errors();
    volume.heal();
    assert_eq!(contents.sync(&first).unwrap_err().errno(), errno::EIO);
    assert!(contents.sync(&first).is_ok());
    assert!(contents.sync(&later).is_ok());
    assert!(contents.sync(&second).is_err());
    assert!(contents.sync(&second).is_ok());
    assert_eq!(volume.contents(&volume.on_disk(7)), [1; 9000]);
}

#[test]
fn the_size_on_disk_waits_for_failed_blocks_of_the_same_pass() {
    let volume = Volume::new(12, 100).with_longest_claim(1);
    let volume_cache = cache(&volume, 1 << 20);
    let contents = file(&volume_cache, 7);
    contents.write(0, &[1; 4 * 4096]).unwrap();
    // The merged write fails, and then its third part.
    volume.fail(Op::Write, 0, 1);
    volume.fail_within(2 * 4096 + 4096, 4096);
    assert!(contents.flush(0..u64::MAX).is_err());
    assert_eq!(volume.on_disk(7).size, 2 * 4096);
    volume.heal();
    contents.flush(0..u64::MAX).unwrap();
    assert_eq!(volume.contents(&volume.on_disk(7)), [1; 4 * 4096]);
}

#[test]
fn an_abandoned_cache_keeps_nothing() {
    let volume = Volume::new(12, 100);
    let volume_cache = cache(&volume, 1 << 20);
    file(&volume_cache, 7).write(0, &[1; 9000]).unwrap();
    let weak = std::sync::Arc::downgrade(&volume_cache);
    volume_cache.abandon();
    drop(volume_cache);
    assert_eq!(weak.strong_count(), 0);
    volume.check_quiet();
    assert_eq!(volume.writes(), 0);
}

/// After finishing failed, data that was written for nothing counted as progress, and writers waited forever.
#[test]
fn writers_do_not_wait_on_a_shut_down_volume() {
    for op in [Op::Write, Op::Finish] {
        let volume = Volume::new(12, 4000);
        let options = Options { dirty: Some(DirtyLimit::Bytes(256 << 10)), ..Options::default() };
        let volume_cache = Cache::new(volume.clone(), volume.device(), Share::alone(1 << 20), options);
        let flusher = Flusher::start(&volume_cache).unwrap();
        volume.fail(op, 0, i64::MAX);
        let contents = file(&volume_cache, 7);
        let refused = (0..4000u64).find_map(|n| contents.write(n * 4096, &[1; 4096]).err());
        assert_eq!(refused.map(|error| error.errno()), Some(errno::EIO));
        volume.heal();
        volume_cache.sync_all().unwrap();
        contents.write(0, &[2; 4096]).unwrap();
        drop(flusher);
        drop(contents);
    }
}

#[test]
fn writers_get_enospc_and_acknowledged_data_is_kept() {
    let volume = Volume::new(12, 64).with_longest_claim(7);
    let volume_cache = cache(&volume, 1 << 20);
    let files: Vec<_> = (1..9).map(|ino| file(&volume_cache, ino)).collect();
    let mut written = vec![0u64; files.len()];
    let mut full = 0;
    for n in 0..200u64 {
        let which = (n % 8) as usize;
        let contents: &Contents<Volume> = &files[which];
        match contents.write(written[which], &[which as u8 + 1; 3000]) {
            Ok(count) => written[which] += count as u64,
            Err(error) => {
                assert_eq!(error.errno(), errno::ENOSPC);
                full += 1;
            }
        }
    }
    assert!(full > 8);
    volume_cache.sync_all().unwrap();
    for (which, contents) in files.iter().enumerate() {
        let on_disk = volume.on_disk(which as u64 + 1);
        assert_eq!((on_disk.size, contents.size()), (written[which], written[which]));
        assert!(volume.contents(&on_disk).iter().all(|byte| *byte == which as u8 + 1));
    }
    let blocks: u64 = written.iter().map(|bytes| bytes.div_ceil(4096)).sum();
    assert!(blocks >= 55, "{blocks} of 63 blocks were used");
    files[0].truncate(0).unwrap();
    volume.force();
    assert!(files[1].append(&[9; 4096]).is_ok());
    volume_cache.sync_all().unwrap();
    drop(files);
    volume.check_quiet();
}

/// Writeback of a file stopped at the first failure: one bad block kept all data after it in memory, where it was lost
/// by a power cut or by closing the volume.
#[test]
fn data_after_a_bad_block_is_written() {
    let volume = Volume::new(12, 200);
    let options = Options { pass_bytes: 64 << 10, preallocate: false, ..Options::default() };
    let volume_cache = Cache::new(volume.clone(), volume.device(), Share::alone(1 << 20), options);
    let contents = file(&volume_cache, 7);
    contents.write(0, &[1; 64 * 4096]).unwrap();
    volume_cache.sync_all().unwrap();
    let (first, _) = volume.on_disk(7).map[&0];
    for all in [false, true] {
        let byte = 2 + u8::from(all);
        contents.write(0, &[byte; 64 * 4096]).unwrap();
        volume.fail_within(first * 4096, 4096);
        let failed = if all { volume_cache.sync_all() } else { contents.flush(0..u64::MAX) };
        assert_eq!(failed.unwrap_err().errno(), errno::EIO);
        let on_disk = volume.contents(&volume.on_disk(7));
        // Blocks that are written together with the bad block fail, too.
        assert!(on_disk[64 << 10..].iter().all(|found| *found == byte));
        assert_ne!(on_disk[0], byte);
        volume.heal();
        contents.flush(0..u64::MAX).unwrap();
        assert_eq!(volume.contents(&volume.on_disk(7))[0], byte);
    }
}

/// A write reserves for the extent btree before it reads a block that it changes in part. After that read failed, the
/// reservation stayed with the clean file until the file was dropped.
#[test]
fn a_write_that_cannot_read_its_block_leaves_no_reservation() {
    let volume = Volume::new(12, 200);
    let volume_cache = cache(&volume, 1 << 20);
    let [source, contents] = [1, 2].map(|ino| file(&volume_cache, ino));
    source.write(0, &[1; 2 * 4096]).unwrap();
    contents.write(0, &[2; 2 * 4096]).unwrap();
    volume_cache.sync_all().unwrap();
    source.release_preallocation();
    contents.release_preallocation();
    contents.invalidate(0..u64::MAX).unwrap();
    // A write to a shared block takes a new block and a record of the map.
    volume.share(1, 2, 0, 2);
    volume.fail(Op::Read, 0, 1);
    assert!(contents.write(10, &[2; 100]).is_err());
    // Nothing is reserved for a clean file.
    volume.check_quiet();
    volume.heal();
    contents.write(10, &[2; 100]).unwrap();
    volume_cache.sync_all().unwrap();
    contents.release_preallocation();
    volume.check_quiet();
}

/// Several small files are finished at once. If one is refused, the others are written without an error.
#[test]
fn a_refused_file_keeps_no_other_from_being_finished() {
    let volume = Volume::new(12, 200);
    let volume_cache = cache(&volume, 1 << 20);
    let files = [1, 2, 3].map(|ino| file(&volume_cache, ino));
    let seen = files.each_ref().map(|contents| contents.sample_errors());
    for contents in &files {
        contents.write(0, &[7; 4096]).unwrap();
    }
    volume.fail(Op::FinishOne, 1, 1);
    assert!(volume_cache.sync_all().is_err());
    let told = [0, 1, 2].map(|n| files[n].report(&seen[n]).is_err());
    assert_eq!(told, [false, true, false]);
    assert_eq!([1, 2, 3].map(|ino| volume.on_disk(ino).size), [4096, 0, 4096]);
    volume.heal();
    volume_cache.sync_all().unwrap();
    assert_eq!(volume.contents(&volume.on_disk(2)), [7; 4096]);
    files.iter().for_each(|contents| contents.release_preallocation());
    volume.check_quiet();
}
