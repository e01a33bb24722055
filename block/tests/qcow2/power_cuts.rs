//! Power cuts while an image is changed: with any part of the writes since the last flush, the image is consistent
//! except for leaks, and contains all flushed data.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use devices::{Event, PowerCut, RecordDevice, Recording};
use tempfile::TempDir;
use xebec_block::{Device, Durability, MemoryDevice, OpenOptions, Qcow2Device};

use crate::{DISK, Random, images, qemu_img, text};

const SECTOR: usize = 512;

/// A value that was written to a sector of the disk.
struct Value {
    byte: u8,
    /// It cannot be visible before this event.
    visible_from: usize,
    /// From this event on no older value can be visible.
    stable_from: Option<usize>,
}

/// The recording of a workload.
struct Workload {
    events: Recording,
    /// The values of each sector, in order.
    values: Vec<Vec<Value>>,
    /// Final size of the file.
    size: u64,
}

/// Runs random operations that fill each sector with one byte.
fn run_workload(random: &mut Random, initial: &[u8], image: &Path, steps: usize) -> Workload {
    let file = Arc::new(RecordDevice::new(Arc::new(MemoryDevice::from_bytes(initial))));
    let device = Qcow2Device::open(file.clone(), image, Some(OpenOptions::default())).unwrap();
    let mut values: Vec<Vec<Value>> = (0..DISK / SECTOR).map(|_| Vec::new()).collect();
    for _ in 0..steps {
        let max = if random.below(4) == 0 { 300_000 } else { 12_000 };
        let first = random.below(DISK / SECTOR);
        let count = (1 + random.below(max / SECTOR)).min(DISK / SECTOR - first);
        let (offset, length) = ((first * SECTOR) as u64, (count * SECTOR) as u64);
        let visible_from = file.len();
        let kind = random.below(10);
        let byte = if kind < 2 { 0 } else { 1 + random.below(250) as u8 };
        let bytes = vec![byte; count * SECTOR];
        let durability = if kind == 2 { Durability::Fua } else { Durability::Buffered };
        match kind {
            0 => device.zero(offset, length).unwrap(),
            1 => {
                if !device.discard(offset, length).unwrap() {
                    device.zero(offset, length).unwrap();
                }
            }
            3 | 4 => device.flush().unwrap(),
            _ => device.write_at(offset, &bytes, durability).unwrap(),
        }
        let end = file.len();
        if matches!(kind, 3 | 4) {
            // All earlier operations are stable after the flush.
            values.iter_mut().flatten().for_each(|value| {
                value.stable_from.get_or_insert(end);
            });
            continue;
        }
        let stable_from = (durability == Durability::Fua).then_some(end);
        values[first..first + count]
            .iter_mut()
            .for_each(|sector| sector.push(Value { byte, visible_from, stable_from }));
    }
    let size = file.size();
    drop(device);
    let events = file.take();
    Workload { events, values, size }
}

/// Splits all writes into sectors, which can be lost one by one. Also returns the index of the first part of each
/// event.
fn split(recording: &Recording) -> (Recording, Vec<usize>) {
    let mut events = Vec::new();
    let mut starts = Vec::new();
    for event in &recording.events {
        starts.push(events.len());
        match event {
            Event::Flush => events.push(Event::Flush),
            Event::Write { offset, data, durability } => {
                for (piece, offset) in data.chunks(SECTOR).zip((*offset..).step_by(SECTOR)) {
                    events.push(Event::Write { offset, data: piece.into(), durability: *durability });
                }
            }
        }
    }
    starts.push(events.len());
    (Recording { events }, starts)
}

/// A random state of the file after a power cut at `moment`.
fn state_after_cut(
    random: &mut Random,
    workload: &Workload,
    sectors: &Recording,
    moment: usize,
    initial: &[u8],
) -> MemoryDevice {
    let chance = [0, 30, 50, 70, 100][random.below(5)];
    let unstable = sectors.unstable_writes(moment);
    let lost: BTreeSet<_> = unstable.into_iter().filter(|_| random.below(100) < chance).collect();
    let target = MemoryDevice::from_bytes(initial);
    target.set_size(workload.size).unwrap();
    sectors.materialise(&PowerCut { moment, lost, torn: BTreeMap::new() }, &target).unwrap();
    target
}

/// Opens the state for writing, which refuses inconsistent metadata, and checks the value of each sector. `completed`
/// and `started` are numbers of events of the workload.
fn verify(
    workload: &Workload,
    completed: usize,
    started: usize,
    file: Arc<MemoryDevice>,
    image: &Path,
    initial: &[u8],
    what: &str,
) {
    let device = Qcow2Device::open(file, image, Some(OpenOptions::default()))
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut found = vec![0; DISK];
    device.read_at(0, &mut found).unwrap();
    for (sector, values) in workload.values.iter().enumerate() {
        let is_stable = |value: &Value| value.stable_from.is_some_and(|stable| stable <= completed);
        let stable = values.iter().rposition(is_stable);
        let possible = &values[stable.unwrap_or(0)..];
        let bytes = &found[sector * SECTOR..][..SECTOR];
        let is_valid =
            possible.iter().any(|value| value.visible_from < started && bytes == [value.byte; SECTOR])
                || (stable.is_none() && bytes == &initial[sector * SECTOR..][..SECTOR]);
        assert!(is_valid, "{what}: sector {sector} begins with {:?}", &bytes[..8]);
    }
}

#[test]
fn after_a_power_cut_the_image_is_consistent_and_has_all_flushed_data() {
    let dir = TempDir::new().unwrap();
    let Some(images) = images(&dir) else { return };
    for (name, image, contents) in images {
        let states = if name == "empty" { 250 } else { 40 };
        let initial = std::fs::read(&image).unwrap();
        for seed in 0..4 {
            let mut random = Random::new(seed);
            let workload = run_workload(&mut random, &initial, &image, 30);
            let (sectors, starts) = split(&workload.events);
            let flushes: Vec<_> = workload.events.flush_points().into_iter().map(|end| end - 1).collect();
            for state in 0..states {
                // Mostly before a flush, when most writes can be lost; sometimes within any event.
                let (moment, within) = match random.below(4) {
                    0 => (random.below(starts.len() - 1), true),
                    _ => (flushes[random.below(flushes.len())], false),
                };
                let (start, end) = (starts[moment], starts[moment + 1]);
                let at = start + if within { random.below(end - start + 1) } else { 0 };
                let what =
                    format!("{name}, seed {seed}, state {state} at event {moment} of {}", starts.len());
                let file = Arc::new(state_after_cut(&mut random, &workload, &sectors, at, &initial));
                if state % 16 == 0 {
                    let path = dir.path().join("state");
                    let mut bytes = vec![0; file.size() as usize];
                    file.read_at(0, &mut bytes).unwrap();
                    std::fs::write(&path, &bytes).unwrap();
                    let code = qemu_img(&["check", "-q", text(&path)]);
                    // 3: only leaks.
                    assert!(matches!(code, Some(0 | 3)), "{what}: {code:?}");
                }
                let started = moment + usize::from(at > start);
                let completed = if at == end { started } else { moment };
                verify(&workload, completed, started, file, &image, &contents, &what);
            }
        }
    }
}
