//! A file of very many extents with a small memory budget.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use base::random::mix;
use block::{Device, FileDevice, MemoryDevice};
use xebec_volume::{Dir, File, MemoryBudget, OpenOptions, Options, Volume};

const BLOCK: u64 = 1024;
const BUDGET: u64 = 64 << 20;

fn open(device: Arc<dyn Device>) -> Volume {
    let options = Options { memory: Some(MemoryBudget::new(BUDGET)), ..Options::default() };
    Volume::open(device, options).unwrap()
}

fn format(device: &dyn Device) {
    mkfs::format(device, &mkfs::Options { block_size: BLOCK as u32, ..mkfs::Options::default() }).unwrap();
}

fn file(volume: &Volume) -> File<'_> {
    OpenOptions::new().read(true).write(true).create(true).open(volume, "/file").unwrap()
}

/// Maps every other block of a file.
fn fill(volume: &Volume, extents: u64) {
    let file = file(volume);
    let at_once = 1 << 16;
    for first in (0..extents).step_by(at_once) {
        let last = extents.min(first + at_once as u64);
        file.allocate(2 * first * BLOCK, 2 * (last - first) * BLOCK, false).unwrap();
        for n in first..last {
            file.punch_hole((2 * n + 1) * BLOCK, BLOCK).unwrap();
        }
    }
    file.sync_all().unwrap();
}

/// The most memory that the process had, and that it has now, in MiB.
fn memory() -> (u64, u64) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
    };
    (field("VmHWM:"), field("VmRSS:"))
}

fn use_file(volume: &Volume, extents: u64, report: impl Fn(&str, Instant)) {
    let started = Instant::now();
    let file = file(volume);
    let mut buffer = [0; BLOCK as usize];
    file.read_at(&mut buffer, 0).unwrap();
    report("open, first read", started);
    let started = Instant::now();
    for n in 0..1000 {
        file.read_at(&mut buffer, mix(n) % (2 * extents) * BLOCK).unwrap();
    }
    report("1000 random reads", started);
    let started = Instant::now();
    let mut at = 0;
    let mut found = 0;
    while let Some(data) = file.seek_data(at).unwrap() {
        at = file.seek_hole(data).unwrap().unwrap();
        found += u64::from(data % (2 * BLOCK) == 0);
    }
    assert!(found <= extents);
    report("all holes", started);
    let started = Instant::now();
    for n in 0..1000 {
        file.write_at(&[n as u8; BLOCK as usize], mix(n) % (2 * extents) * BLOCK).unwrap();
    }
    file.sync_all().unwrap();
    report("1000 random writes", started);
    let started = Instant::now();
    file.set_len(extents * BLOCK).unwrap();
    report("truncation to the half", started);
    drop(file);
    let started = Instant::now();
    Dir::root(volume).unwrap().remove_file("file").unwrap();
    volume.sync().unwrap();
    report("removal", started);
}

#[test]
fn a_map_larger_than_what_is_in_memory_is_used_and_removed() {
    const EXTENTS: u64 = 20_000;
    let device = Arc::new(MemoryDevice::new(64 << 20));
    format(&*device);
    let volume = open(device.clone());
    fill(&volume, EXTENTS);
    volume.unmount().unwrap();
    common::judge(&device);
    let volume = open(device.clone());
    use_file(&volume, EXTENTS, |_, _| ());
    volume.unmount().unwrap();
    common::judge(&device);
}

/// `cargo test --profile judged -p xebec-volume --test fragmented -- --ignored --nocapture`
#[test]
#[ignore = "prints times and memory"]
fn two_million_extents() {
    const EXTENTS: u64 = 2_000_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    fs::File::create(&path).unwrap().set_len(8 << 30).unwrap();
    let device = || {
        let options = block::OpenOptions { writable: true, ..block::OpenOptions::default() };
        Arc::new(FileDevice::open(&path, &options).unwrap())
    };
    format(&*device());
    let report = |what: &str, started: Instant| {
        let (most, now) = memory();
        let ms = started.elapsed().as_millis();
        println!("{what:24} {ms:8} ms, {now:5} MiB in memory, {most:5} at most");
    };
    let started = Instant::now();
    let volume = open(device());
    report("empty volume", started);
    let started = Instant::now();
    fill(&volume, EXTENTS);
    report("2,000,000 holes", started);
    volume.unmount().unwrap();
    let volume = open(device());
    report("opened", Instant::now());
    use_file(&volume, EXTENTS, report);
    volume.unmount().unwrap();
}
