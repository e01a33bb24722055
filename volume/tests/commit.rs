//! `Options::commit_s`: what becomes stable by itself, in the virtual time of a simulation.
#![cfg(debug_assertions)]
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use base::simulation::{self, SchedulingStrategy, SimulationOptions};
use base::thread::sleep;
use base::time::{Clock, Time};
use block::MemoryDevice;
use xebec_volume::{NewFile, OpenOptions, Options, Rename, Volume};

use common::judge;

/// Virtual time.
#[derive(Debug)]
struct VirtualClock;

impl Clock for VirtualClock {
    fn now(&self) -> Time {
        let now = simulation::now().unwrap_or_default();
        Time { seconds: 2_000_000 + now.as_secs() as i64, nanos: now.subsec_nanos() }
    }
}

fn plan(seed: u64) -> SimulationOptions {
    SimulationOptions::new(seed, SchedulingStrategy::Random { per_mille: 100 })
}

fn options(commit_s: Option<u32>) -> Options {
    Options { commit_s, clock: Arc::new(VirtualClock), seed: Some(1), ..Options::default() }
}

fn make() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    device
}

fn put(volume: &Volume, name: &str, bytes: &[u8]) {
    let file = volume.create(volume.root(), name.as_bytes(), &NewFile::regular()).unwrap();
    OpenOptions::new().write(true).open_id(volume, file).unwrap().write_at(bytes, 0).unwrap();
}

/// Whether files have these contents, after the log was replayed.
fn has(volume: &Volume, name: &str, bytes: &[u8]) -> bool {
    let Ok(file) = volume.lookup(volume.root(), name.as_bytes()) else { return false };
    let mut found = vec![0; bytes.len() + 1];
    let length = OpenOptions::new().read(true).open_id(volume, file).unwrap().read_at(&mut found, 0).unwrap();
    &found[..length] == bytes
}

/// A change at any moment, also after a long pause, is on the device at the age of the option. It was there after half
/// a minute.
#[test]
fn changes_are_stable_at_the_age_of_the_option() {
    for seed in 0..12 {
        let device = make();
        let commit_s = [1, 5, 20][seed as usize % 3];
        simulation::run(plan(seed), || {
            let volume = Volume::open(device.clone(), options(Some(commit_s))).unwrap();
            let dir = volume.create(volume.root(), b"dir", &NewFile::directory()).unwrap();
            for n in 0..20 {
                // At various moments between two looks of the flusher, with and without data, and after pauses.
                sleep(Duration::from_millis(137 * (n + seed) * u64::from(commit_s)));
                match n % 3 {
                    0 => put(&volume, &format!("{n}"), format!("contents {n}").as_bytes()),
                    1 => drop(volume.create(dir, format!("{n}").as_bytes(), &NewFile::regular()).unwrap()),
                    _ => volume
                        .rename(dir, format!("{}", n - 1).as_bytes(), dir, b"moved", Rename::Replace)
                        .unwrap(),
                }
            }
            sleep(Duration::from_secs(u64::from(commit_s)));
            sleep(Duration::from_millis(100));
            drop(volume);
        });
        let volume = Volume::open(device.clone(), Options::default()).unwrap();
        for n in (0..20).step_by(3) {
            assert!(has(&volume, &format!("{n}"), format!("contents {n}").as_bytes()), "seed {seed}: {n}");
        }
        let dir = volume.lookup(volume.root(), b"dir").unwrap();
        assert!(volume.lookup(dir, b"moved").is_ok() && volume.lookup(dir, b"19").is_ok(), "seed {seed}");
        volume.unmount().unwrap();
        judge(&device);
    }
}

/// An idle volume writes nothing, and covers its log as late as without the option.
#[test]
fn an_idle_volume_writes_nothing() {
    for commit_s in [None, Some(5)] {
        let device = make();
        simulation::run(plan(3), || {
            let volume = Volume::open(device.clone(), options(commit_s)).unwrap();
            put(&volume, "file", b"contents");
            let before = volume.statistics().journal;
            sleep(Duration::from_secs(10));
            assert_eq!(volume.statistics().journal.pushes > before.pushes, commit_s.is_some());
            sleep(Duration::from_secs(200));
            let covered = volume.statistics();
            assert_eq!(covered.journal.ail_items, 0, "metadata is written back");
            sleep(Duration::from_secs(3600));
            let after = volume.statistics();
            assert_eq!(after.journal.records, covered.journal.records);
            assert_eq!(after.journal.flushes, covered.journal.flushes);
            assert_eq!(after.contents.passes, covered.contents.passes);
            volume.unmount().unwrap();
        });
    }
}

/// With a change every ten seconds the log never became idle, and metadata was not written back until the log was full.
#[test]
fn metadata_is_written_back_beside_a_steady_change() {
    let device = make();
    simulation::run(plan(4), || {
        let volume = Volume::open(device.clone(), options(Some(5))).unwrap();
        let dir = volume.create(volume.root(), b"dir", &NewFile::directory()).unwrap();
        for n in 0..200 {
            volume.create(dir, format!("{n}").as_bytes(), &NewFile::regular()).unwrap();
        }
        volume.sync().unwrap();
        let at_first = volume.statistics().journal.ail_items;
        for n in 0..20 {
            sleep(Duration::from_secs(10));
            volume.create(volume.root(), format!("{n}").as_bytes(), &NewFile::regular()).unwrap();
        }
        let items = volume.statistics().journal.ail_items;
        assert!(items < at_first / 2, "{items} of {at_first} items are not written back");
        volume.unmount().unwrap();
    });
}
