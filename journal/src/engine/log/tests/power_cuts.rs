use devices::{PowerCut, RecordDevice, Recording};

use super::*;
use crate::engine::log::LogBounds;

/// State known to be stable at some moment of a run.
struct Known {
    moment: usize,
    counts: Vec<u64>,
}

/// Runs a workload on a recording device: the recording, and what was known to be stable when.
fn record(volume: &Volume, seed: u64) -> (Recording, Vec<Known>) {
    let device = Arc::new(RecordDevice::new(volume.device.clone()));
    let log = volume.open_on(device.clone(), &options(2));
    let mut counts = vec![0; 31];
    let mut known = vec![Known { moment: 0, counts: counts.clone() }];
    let mut dice = seed;
    for step in 0..600u64 {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let n = 1 + (dice >> 33) % 30;
        let mut tx = log.begin(RESERVATION).unwrap();
        counts[n as usize] = count_up(&mut tx, n).unwrap();
        let id = tx.read(place(n), Rank::Buffer, |_| Ok(())).unwrap();
        tx.bytes_mut(id, 1024..4096).fill(step as u8);
        tx.commit(&mut []).unwrap();
        if step % 7 == 0 {
            log.force().unwrap();
            known.push(Known { moment: device.len(), counts: counts.clone() });
        }
    }
    drop(log);
    (device.take(), known)
}

/// Builds the device after a power cut, recovers it, and compares it with what was stable.
fn check(volume: &Volume, before: &[u8], recording: &Recording, known: &[Known], cut: &PowerCut) {
    let device = MemoryDevice::from_bytes(before);
    recording.materialise(cut, &device).unwrap();
    let ends = LogBounds::of(
        &Journal::open(&volume.superblock, &device, None).unwrap_or_else(|e| panic!("{cut:?}: {e}")),
    );
    replay(&volume.superblock, &device);
    let stable = known.iter().rev().find(|known| known.moment <= cut.moment).unwrap();
    for n in 1..=30 {
        let found = on_disk(&device, n);
        assert!(found >= stable.counts[n as usize], "cut {cut:?}: block {n} has {found}");
    }
    // The log can be continued after recovery.
    let device: Arc<dyn Device> = Arc::new(device);
    let log = Log::start(&volume.superblock, device.clone(), None, ends, None, &options(1)).unwrap();
    bump(&log, 1);
    log.force().unwrap();
    drop(log);
    assert!(matches!(state(&volume.superblock, &*device), State::Dirty(_)));
}

#[test]
fn forced_changes_are_recovered_after_any_power_cut() {
    for seed in 1..=2 {
        let volume = Volume::new(2048);
        make_blocks(&*volume.device, 30);
        // Like mkfs, so that there is a record that no power cut tears.
        volume.open(&options(1)).unmount().unwrap();
        let mut before = vec![0; 16 << 20];
        volume.device.read_at(0, &mut before).unwrap();
        let (recording, known) = record(&volume, seed);
        let mut dice = seed;
        let mut throw = |limit: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            (dice >> 33) % limit
        };
        let moments = recording.events.len();
        for moment in (0..moments).step_by(1 + moments / 60) {
            let mut cut = PowerCut::clean(moment);
            for index in recording.unstable_writes(moment) {
                match throw(3) {
                    0 => drop(cut.lost.insert(index)),
                    1 => drop(cut.torn.insert(index, 512 * throw(9) as usize)),
                    _ => {}
                }
            }
            cut.torn.insert(moment, 512 * throw(9) as usize);
            check(&volume, &before, &recording, &known, &cut);
        }
    }
}
