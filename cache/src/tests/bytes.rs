//! Random operations on one file against a model, a vector of bytes, like fsx.

use std::sync::Arc;

use backing::Mapping;

use super::{Dice, cache, file};
use crate::testing::Volume;
use crate::{Contents, Edges, MapChange, SeekTarget};

/// The expected file.
struct Model {
    bytes: Vec<u8>,
    most: u64,
}

/// Returns an offset near a boundary of a block or a folio, or near the end.
fn place(dice: &mut Dice, model: &Model, block: u64) -> u64 {
    let near = match dice.next(5) {
        0 => dice.next(model.most / block + 1) * block,
        1 => dice.next(model.most / 65536 + 1) * 65536,
        2 => model.bytes.len() as u64,
        _ => return dice.next(model.most),
    };
    (near + dice.next(5)).saturating_sub(2).min(model.most - 1)
}

fn step(dice: &mut Dice, contents: &Arc<Contents<Volume>>, model: &mut Model, volume: &Volume) -> String {
    let block = 1u64 << contents.cache.block_log;
    let at = place(dice, model, block);
    let to = place(dice, model, block).max(at);
    let length = (to - at).min(200_000);
    let end = at + length;
    match dice.next(16) {
        0..=5 => {
            let byte = dice.next(255) as u8 + 1;
            let data: Vec<u8> = (0..length).map(|n| byte ^ (n / 7) as u8).collect();
            assert_eq!(contents.write(at, &data).unwrap() as u64, length);
            if length > 0 {
                model.bytes.resize(model.bytes.len().max(end as usize), 0);
                model.bytes[at as usize..end as usize].copy_from_slice(&data);
            }
            format!("write {at}..{end}")
        }
        6 => {
            let data = vec![dice.next(256) as u8; dice.next(9000) as usize];
            if model.bytes.len() + data.len() < model.most as usize {
                let (offset, _) = contents.append(&data).unwrap();
                assert_eq!(offset, model.bytes.len() as u64);
                model.bytes.extend(&data);
            }
            "append".into()
        }
        7 | 8 => {
            contents.truncate(at).unwrap();
            model.bytes.resize(at as usize, 0);
            format!("truncate {at}")
        }
        9 => {
            contents.flush(at..end).unwrap();
            format!("flush {at}..{end}")
        }
        10 => {
            contents.invalidate(at..end).unwrap();
            format!("invalidate {at}..{end}")
        }
        11..=13 => change_map(dice.next(3), (at, end), contents, model, volume),
        14 => {
            let (at, end) = (at & !511, end & !511);
            if at < end {
                let data = vec![dice.next(256) as u8; (end - at) as usize];
                contents.direct_write(at, &data).unwrap();
                model.bytes.resize(model.bytes.len().max(end as usize), 0);
                model.bytes[at as usize..end as usize].copy_from_slice(&data);
            }
            format!("direct write {at}..{end}")
        }
        _ => {
            let mut got = vec![1; ((end & !511).saturating_sub(at & !511)) as usize];
            let count = contents.direct_read(at & !511, &mut got).unwrap();
            let wanted = model.bytes.get((at & !511) as usize..).unwrap_or(&[]);
            assert_eq!(count, wanted.len().min(got.len()));
            assert!(got[..count] == wanted[..count], "direct read of {at}..{end}");
            "direct read".into()
        }
    }
}

/// Changes the map as other parts of the engine do.
fn change_map(
    which: u64,
    (at, end): (u64, u64),
    contents: &Contents<Volume>,
    model: &mut Model,
    volume: &Volume,
) -> String {
    let block = 1u64 << contents.cache.block_log;
    match which {
        0 => {
            let change = |_: &mut MapChange<'_, Volume>| {
                volume.punch(contents.file, at.div_ceil(block), end / block);
                Ok(())
            };
            contents.change_map(at..end, Edges::Zero, change).unwrap();
            let end = (end as usize).min(model.bytes.len());
            if (at as usize) < end {
                model.bytes[at as usize..end].fill(0);
            }
            format!("punch {at}..{end}")
        }
        1 => {
            let change = |_: &mut MapChange<'_, Volume>| {
                Ok(volume.allocate(contents.file, at / block, end.div_ceil(block)))
            };
            contents.change_map(at..end, Edges::Keep, change).unwrap();
            format!("allocate {at}..{end}")
        }
        _ => {
            let change = |_: &mut MapChange<'_, Volume>| {
                volume.share(contents.file, 999, at / block, end.div_ceil(block));
                Ok(())
            };
            contents.change_map(at..end, Edges::Keep, change).unwrap();
            format!("share {at}..{end}")
        }
    }
}

fn check(contents: &Contents<Volume>, model: &Model, dice: &mut Dice, story: &[String]) {
    assert_eq!(contents.size(), model.bytes.len() as u64, "{story:#?}");
    let from = dice.next(model.bytes.len() as u64 + 10);
    let mut got = vec![0xee; dice.next(150_000) as usize];
    let count = contents.read(from, &mut got).unwrap();
    let wanted = model.bytes.get(from as usize..).unwrap_or(&[]);
    assert_eq!(count, wanted.len().min(got.len()), "{story:#?}");
    let differs = got[..count].iter().zip(wanted).position(|(got, wanted)| got != wanted);
    assert_eq!(
        differs.map(|at| at as u64 + from),
        None,
        "differs there; {:#?}",
        &story[story.len().saturating_sub(30)..]
    );
}

fn check_seek(contents: &Contents<Volume>, model: &Model, dice: &mut Dice) {
    let size = model.bytes.len() as u64;
    let from = dice.next(size + 5);
    let [data, hole] = [SeekTarget::Data, SeekTarget::Hole].map(|target| {
        let found = contents.seek(from, target).unwrap();
        let map = contents.mapped(0, size.div_ceil(contents.block_size())).unwrap();
        let peeked = contents.peek_seek(from, target, |at, count| {
            let part = map.iter().find(|part| part.end() > at).unwrap();
            let end = part.end().get().min(at.get() + count);
            Some(Mapping { offset: at, start: part.fs_block(at), count: end - at.get(), ..*part })
        });
        let takes_long = map.len() > 64 && peeked.is_none();
        assert!(peeked == Some(found) || takes_long, "{peeked:?} without locks, {found:?} with them");
        found
    });
    assert_eq!(hole.is_some(), from < size);
    let zeros_to = data.unwrap_or(size).min(size);
    if from < zeros_to {
        assert!(
            model.bytes[from as usize..zeros_to as usize].iter().all(|byte| *byte == 0),
            "data is not told"
        );
    }
    assert!(data.is_none_or(|data| data >= from && data < size));
    assert!(hole.is_none_or(|hole| hole >= from && hole <= size));
}

fn run(seed: u64, block_log: u32, cache_bytes: u64, longest_claim: u64, steps: usize) {
    let volume = Volume::new(block_log, (8 << 20) >> block_log).with_longest_claim(longest_claim);
    let volume_cache = cache(&volume, cache_bytes);
    let contents = file(&volume_cache, 5);
    let mut dice = Dice::new(seed);
    let mut model = Model { bytes: Vec::new(), most: 600_000 };
    let mut story = vec![format!("seed {seed}, blocks of 2^{block_log}, budget {cache_bytes}")];
    for n in 0..steps {
        story.push(step(&mut dice, &contents, &mut model, &volume));
        check(&contents, &model, &mut dice, &story);
        if n % 4 == 0 {
            check_seek(&contents, &model, &mut dice);
        }
        if n % 64 == 0 {
            volume_cache.sync_all().unwrap();
            let on_disk = volume.on_disk(5);
            assert_eq!(on_disk.size, model.bytes.len() as u64, "{story:#?}");
            assert!(volume.contents(&on_disk) == model.bytes, "the disk differs: {story:#?}");
        }
    }
    volume_cache.sync_all().unwrap();
    assert_eq!(volume_cache.statistics().dirty_bytes, 0);
    drop(contents);
    volume.check_quiet();
    assert_eq!(volume_cache.statistics().memory_bytes, 0);
}

#[test]
fn small_blocks() {
    for seed in 0..6 {
        run(seed, 10, 1 << 20, if seed % 2 == 0 { u64::MAX } else { 3 }, 400);
    }
}

#[test]
fn common_blocks() {
    for seed in 10..20 {
        run(seed, 12, 1 << 20, if seed % 2 == 0 { u64::MAX } else { 3 }, 400);
    }
}

#[test]
fn large_blocks() {
    for seed in 30..34 {
        run(seed, 16, 4 << 20, if seed % 2 == 0 { u64::MAX } else { 1 }, 400);
    }
}

#[test]
fn memory_for_a_few_folios() {
    for seed in 40..48 {
        run(seed, 12, 65536 * (seed % 4 + 1), u64::MAX, 300);
    }
}
