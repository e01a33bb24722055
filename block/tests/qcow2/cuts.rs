//! Power cuts while an image is changed: whatever of the writes since the last flush is in the file, the image is sound
//! but for leaks, and has what was flushed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use xebec_block::{
    Cut, Device, Durability, Event, MemoryDevice, OpenOptions, Qcow2Device, RecordDevice, Recording,
};

use crate::{DISK, Random, images, qemu_img, text};

const SECTOR: usize = 512;

/// What a sector of the disk may hold: contents, each with the events before which nobody can see it, and from which on
/// nobody can see an older one.
struct Value {
    byte: u8,
    from: usize,
    stable: Option<usize>,
}

/// A run: what reached the file, and what each sector may hold.
struct Run {
    events: Recording,
    values: Vec<Vec<Value>>,
    size: u64,
}

/// Each sector is filled with one byte.
fn run(random: &mut Random, initial: &[u8], image: &Path, steps: usize) -> Run {
    let file = Arc::new(RecordDevice::new(MemoryDevice::from_bytes(initial)));
    let device = Qcow2Device::open(file.clone(), image, Some(OpenOptions::default())).unwrap();
    let mut values: Vec<Vec<Value>> = (0..DISK / SECTOR).map(|_| Vec::new()).collect();
    for _ in 0..steps {
        let most = if random.below(4) == 0 { 300_000 } else { 12_000 };
        let first = random.below(DISK / SECTOR);
        let count = (1 + random.below(most / SECTOR)).min(DISK / SECTOR - first);
        let (at, length) = ((first * SECTOR) as u64, (count * SECTOR) as u64);
        let from = file.len();
        let kind = random.below(10);
        let byte = if kind < 2 { 0 } else { 1 + random.below(250) as u8 };
        let bytes = vec![byte; count * SECTOR];
        let how = if kind == 2 { Durability::Fua } else { Durability::Buffered };
        match kind {
            0 => device.zero(at, length).unwrap(),
            1 => {
                if !device.discard(at, length).unwrap() {
                    device.zero(at, length).unwrap();
                }
            }
            3 | 4 => device.flush().unwrap(),
            _ => device.write_at(at, &bytes, how).unwrap(),
        }
        let end = file.len();
        if matches!(kind, 3 | 4) {
            // What returned before the flush began is stable after it.
            values.iter_mut().flatten().for_each(|value| {
                value.stable.get_or_insert(end);
            });
            continue;
        }
        let stable = (how == Durability::Fua).then_some(end);
        values[first..first + count].iter_mut().for_each(|sector| sector.push(Value { byte, from, stable }));
    }
    let size = file.size();
    drop(device);
    let events = Arc::into_inner(file).unwrap().into_recording();
    Run { events, values, size }
}

/// The same with every write split into its sectors, which a cut destroys one by one; and where each event begins.
fn split(recording: &Recording) -> (Recording, Vec<usize>) {
    let mut events = Vec::new();
    let mut starts = Vec::new();
    for event in &recording.events {
        starts.push(events.len());
        match event {
            Event::Flush => events.push(Event::Flush),
            Event::Write { offset, data, how } => {
                for (piece, at) in data.chunks(SECTOR).zip((*offset..).step_by(SECTOR)) {
                    events.push(Event::Write { offset: at, data: piece.into(), how: *how });
                }
            }
        }
    }
    starts.push(events.len());
    (Recording { events }, starts)
}

/// What a cut leaves at this moment of the run.
fn cut(random: &mut Random, run: &Run, sectors: &Recording, at: usize, initial: &[u8]) -> MemoryDevice {
    let chance = [0, 30, 50, 70, 100][random.below(5)];
    let unstable = sectors.unstable_writes(at);
    let lost: BTreeSet<_> = unstable.into_iter().filter(|_| random.below(100) < chance).collect();
    let target = MemoryDevice::from_bytes(initial);
    target.set_size(run.size).unwrap();
    sectors.materialise(&Cut { moment: at, lost, torn: BTreeMap::new() }, &target).unwrap();
    target
}

/// The state opens for changes, which refuses what contradicts itself, and each sector has what it may have. So many
/// events of the run had returned, and so many had begun.
fn judge(
    run: &Run,
    [done, begun]: [usize; 2],
    file: Arc<MemoryDevice>,
    image: &Path,
    initial: &[u8],
    what: &str,
) {
    let device = Qcow2Device::open(file, image, Some(OpenOptions::default()))
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut found = vec![0; DISK];
    device.read_at(0, &mut found).unwrap();
    for (sector, values) in run.values.iter().enumerate() {
        let stable = values.iter().rposition(|value| value.stable.is_some_and(|stable| stable <= done));
        let may = &values[stable.unwrap_or(0)..];
        let here = &found[sector * SECTOR..][..SECTOR];
        let is_known = may.iter().any(|value| value.from < begun && here == [value.byte; SECTOR])
            || (stable.is_none() && here == &initial[sector * SECTOR..][..SECTOR]);
        assert!(is_known, "{what}: sector {sector} begins with {:?}", &here[..8]);
    }
}

#[test]
fn any_power_cut_leaves_a_sound_image_with_all_that_was_flushed() {
    let dir = TempDir::new().unwrap();
    let Some(images) = images(&dir) else { return };
    for (name, image, contents) in images {
        let states = if name == "empty" { 250 } else { 40 };
        let initial = std::fs::read(&image).unwrap();
        for seed in 0..4 {
            let mut random = Random::new(seed);
            let run = run(&mut random, &initial, &image, 30);
            let (sectors, starts) = split(&run.events);
            let flushes: Vec<_> = run.events.flush_points().into_iter().map(|behind| behind - 1).collect();
            for state in 0..states {
                // Before a flush most can be lost; but any moment within any write is possible.
                let (moment, within) = match random.below(4) {
                    0 => (random.below(starts.len() - 1), true),
                    _ => (flushes[random.below(flushes.len())], false),
                };
                let (start, behind) = (starts[moment], starts[moment + 1]);
                let at = start + if within { random.below(behind - start + 1) } else { 0 };
                let what =
                    format!("{name}, seed {seed}, state {state} at event {moment} of {}", starts.len());
                let file = Arc::new(cut(&mut random, &run, &sectors, at, &initial));
                if state % 16 == 0 {
                    let path = dir.path().join("state");
                    let mut bytes = vec![0; file.size() as usize];
                    file.read_at(0, &mut bytes).unwrap();
                    std::fs::write(&path, &bytes).unwrap();
                    let code = qemu_img(&["check", "-q", text(&path)]);
                    // 3 is leaks and nothing else.
                    assert!(matches!(code, Some(0 | 3)), "{what}: {code:?}");
                }
                let begun = moment + usize::from(at > start);
                let done = if at == behind { begun } else { moment };
                judge(&run, [done, begun], file, &image, &contents, &what);
            }
        }
    }
}
