//! File contents against a model, like `fsx`: random calls, comparison of every read, and verification by the checker
//! and the reader. For longer runs: `XEBEC_FSX_SECONDS=3600 cargo test --release -p xebec-volume --test contents`;
//! another seed: `XEBEC_FSX_SEED=7`.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use block::MemoryDevice;
use cache::RangeKind;
use crashsim::files::ContentsSubject;
use format::inode::flags;
use model::Tolerance;
use model::contents::{CallGenerator, Session};
use xebec_volume::{File, MemoryBudget, OpenOptions, Options, Settings, Volume};

use common::judge;

/// One run of random calls on a volume of its own shape, which is unmounted and opened again in between.
struct Walk {
    seed: u64,
    block: u32,
    bytes: u64,
    usual: u64,
    reflink: bool,
    rmapbt: bool,
    /// Extent size hint in bytes.
    hint: u32,
    /// Limit of the file cache in bytes.
    memory: Option<u64>,
}

impl Walk {
    fn of(seed: u64) -> Self {
        let block = [4096, 1024, 4096, 65536][seed as usize % 4];
        let small = seed % 3 == 1;
        Self {
            seed,
            block,
            bytes: if small && block < 65536 { 32 << 20 } else { 300 << 20 },
            usual: [300_000, 3_000_000][seed as usize / 2 % 2],
            reflink: seed % 5 != 2,
            rmapbt: seed.is_multiple_of(2),
            hint: [0, 0, 0, 64 << 10, 0, 3 << 16, 0][seed as usize % 7],
            memory: [None, Some(64 << 10), Some(1 << 20)][seed as usize / 3 % 3],
        }
    }

    fn options(&self) -> Options {
        // Half of it is for contents.
        let memory = self.memory.map(|bytes| MemoryBudget::new(2 * bytes));
        Options { memory, seed: Some(self.seed), ..Options::default() }
    }

    fn make(&self) -> Arc<MemoryDevice> {
        let device = Arc::new(MemoryDevice::new(self.bytes));
        let (reflink, rmapbt) = (self.reflink, self.rmapbt);
        let options = mkfs::Options { block_size: self.block, reflink, rmapbt, ..mkfs::Options::default() };
        mkfs::format(&*device, &options).unwrap();
        device
    }

    fn calls(&self, part: u64) -> CallGenerator {
        CallGenerator::new(self.seed * 100 + part, self.usual, self.reflink, Some(512))
    }

    /// Runs threads, each with its own files.
    fn run(&self, threads: u64, count: usize) -> Result<(), String> {
        let device = self.make();
        let volume = Volume::open(device.clone(), self.options()).unwrap();
        if self.hint != 0 {
            // The files inherit it.
            let xflags = flags::EXTSZINHERIT.into();
            let settings = Settings { xflags, extsize: self.hint, ..Settings::default() };
            volume.set_settings(volume.root(), &settings).unwrap();
        }
        std::thread::scope(|scope| {
            let work = |part: u64| {
                let (subject, name) = (ContentsSubject(&volume), format!("thread{part}-"));
                let excused = Tolerance { no_space: true, io_errors: false };
                let mut session =
                    Session::new(&subject, &name, 3, self.block.into(), excused).map_err(String::from)?;
                let mut calls = self.calls(part);
                session.run(&mut calls, count).map_err(|why| format!("thread {part}: {why}"))?;
                session.compare_all()
            };
            let all: Vec<_> = (0..threads).map(|part| scope.spawn(move || work(part))).collect();
            all.into_iter().try_for_each(|thread| thread.join().unwrap())
        })?;
        volume.unmount().map_err(|error| error.to_string())?;
        judge(&device);
        Ok(())
    }
}

fn seconds() -> Option<Duration> {
    let seconds = std::env::var("XEBEC_FSX_SECONDS").ok()?;
    Some(Duration::from_secs(seconds.parse().unwrap()))
}

fn first_seed() -> u64 {
    std::env::var("XEBEC_FSX_SEED").map_or(0, |seed| seed.parse().unwrap())
}

#[test]
fn random_calls_answer_as_the_model_does() {
    let (started, length) = (Instant::now(), seconds().unwrap_or_default());
    for seed in first_seed().. {
        if seed >= first_seed() + 8 && started.elapsed() >= length {
            break;
        }
        Walk::of(seed).run(1, 400).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

/// A few runs, or `XEBEC_FSX_THREADS`.
#[test]
fn threads_with_files_of_their_own() {
    let walks = std::env::var("XEBEC_FSX_THREADS").map_or(3, |walks| walks.parse().unwrap());
    for seed in first_seed()..first_seed() + walks {
        Walk::of(seed).run(4, 200).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

const KIB: u64 = 1 << 10;

fn open<'v>(volume: &'v Volume, name: &str, direct: bool) -> File<'v> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).direct(direct).open(volume, name.as_bytes()).unwrap()
}

/// The mapped ranges of a file: whether written, offset and length in KiB.
fn map_of(file: &File<'_>) -> Vec<(bool, u64, u64)> {
    let mut map: Vec<(bool, u64, u64)> = Vec::new();
    file.ranges(&mut |range| {
        let (written, at, length) =
            (range.kind != RangeKind::Unwritten, range.offset / KIB, range.length / KIB);
        match map.last_mut() {
            Some(last) if last.0 == written && last.1 + last.2 == at => last.2 += length,
            _ => map.push((written, at, length)),
        }
        true
    })
    .unwrap();
    map
}

/// The extent size hint was applied by `fallocate`, but not by writes.
#[test]
fn writes_allocate_in_units_of_the_hint() {
    let device = Walk { bytes: 32 << 20, ..Walk::of(0) }.make();
    let volume = quiet_volume(&device);
    let file = open(&volume, "file", false);
    let hint = Settings { xflags: flags::EXTSIZE.into(), extsize: 64 << 10, ..Settings::default() };
    file.set_settings(&hint).unwrap();
    file.write_at(&[1; 1000], 100 * KIB).unwrap();
    file.sync_all().unwrap();
    assert_eq!(map_of(&file), [(false, 64, 36), (true, 100, 4), (false, 104, 24)]);
    // Blocks behind the end of the file are freed, and allocated again when the file grows.
    drop(file);
    // Freed blocks are not reused before that is stable.
    volume.sync().unwrap();
    let file = open(&volume, "file", true);
    assert_eq!(map_of(&file), [(false, 64, 36), (true, 100, 4)]);
    file.write_at(&[2; 4096], 104 * KIB).unwrap();
    assert_eq!(map_of(&file), [(false, 64, 36), (true, 100, 8), (false, 108, 20)]);
    let mut ranges = Vec::new();
    file.ranges(&mut |range| {
        ranges.push(range.place.unwrap() - range.offset);
        true
    })
    .unwrap();
    assert!(ranges.windows(2).all(|pair| pair[0] == pair[1]), "one run: {ranges:?}");
    assert_eq!((ranges[0] + (64 << 10)) % (64 << 10), 0);
    // Without a hint a write allocates only what it needs.
    let other = open(&volume, "other", false);
    other.write_at(&[1; 1000], 100 * KIB).unwrap();
    other.sync_all().unwrap();
    assert_eq!(map_of(&other), [(true, 100, 4)]);
    drop((file, other));
    volume.unmount().unwrap();
    judge(&device);
}

/// A file used all free blocks, of which no two were contiguous. At writeback no blocks were left for its extent btree,
/// and the volume was shut down.
#[test]
fn free_space_in_single_blocks_is_filled_to_its_end() {
    let device = Walk { bytes: 32 << 20, block: 1024, ..Walk::of(0) }.make();
    let volume = quiet_volume(&device);
    let filler = open(&volume, "filler", false);
    let (mut size, mut end) = (16 << 20, 0);
    while size >= KIB {
        match filler.allocate(end, size, false) {
            Ok(()) => end += size,
            Err(_) => size /= 2,
        }
    }
    for n in 0..3000 {
        filler.punch_hole((100 + 2 * n) * KIB, KIB).unwrap();
    }
    filler.sync_all().unwrap();
    let file = open(&volume, "file", false);
    let mut written = 0;
    let full = loop {
        match file.write_at(&[written as u8 | 1; 7 << 10], written) {
            Ok(0) | Err(_) => break volume.metadata(volume.root()).is_ok(),
            Ok(bytes) => written += bytes as u64,
        }
    };
    assert!(full && written > 2500 * KIB, "{written}");
    file.sync_all().unwrap();
    drop((file, filler));
    volume.unmount().unwrap();
    judge(&device);
    let volume = quiet_volume(&device);
    let (file, mut at) = (open(&volume, "file", false), 0);
    while at < written {
        let mut bytes = [0; 7 << 10];
        let read = file.read_at(&mut bytes, at).unwrap();
        assert!(bytes[..read].iter().all(|byte| *byte == at as u8 | 1), "{at}");
        at += read as u64;
    }
    drop(file);
    volume.unmount().unwrap();
}

/// Creates a file of 200 KiB of which only the block at 96 KiB is on the disk, behind the size in the on-disk inode.
fn write_ahead_of_the_size(volume: &Volume) {
    open(volume, "file", false).append(&vec![7; 200 << 10]).unwrap();
    open(volume, "file", true).read_at(&mut [0; 4096], 96 * KIB).unwrap();
}

fn assert_zeros(file: &File<'_>, from: u64, to: u64) {
    let mut bytes = vec![1; (to - from) as usize];
    assert_eq!(file.read_at(&mut bytes, from).unwrap(), bytes.len());
    assert_eq!(bytes.iter().position(|byte| *byte != 0), None);
}

fn quiet_volume(device: &Arc<MemoryDevice>) -> Volume {
    Volume::open(device.clone(), Options::default()).unwrap()
}

/// The size on disk was smaller than the new one, so a truncation freed no blocks; one of them was visible again when
/// the file grew.
#[test]
fn truncation_frees_blocks_beyond_the_size_on_disk() {
    let device = Walk { bytes: 32 << 20, ..Walk::of(0) }.make();
    let volume = quiet_volume(&device);
    write_ahead_of_the_size(&volume);
    let file = open(&volume, "file", false);
    file.set_len(72 * KIB).unwrap();
    file.set_len(200 * KIB).unwrap();
    assert_zeros(&file, 72 * KIB, 200 * KIB);
    drop(file);
    volume.unmount().unwrap();
    judge(&device);
}

/// The power was cut while a block was behind the size on disk: it was visible again when the file grew.
#[test]
fn blocks_left_beyond_eof_by_a_power_cut_stay_hidden() {
    let grow: [fn(&Volume); 3] = [
        |volume| open(volume, "file", false).set_len(200 * KIB).unwrap(),
        |volume| assert_eq!(open(volume, "file", false).write_at(&[1], 200 * KIB).unwrap(), 1),
        |volume| assert_eq!(open(volume, "file", true).write_at(&[1; 4096], 200 * KIB).unwrap(), 4096),
    ];
    for grow in grow {
        let device = Walk { bytes: 32 << 20, ..Walk::of(0) }.make();
        let volume = quiet_volume(&device);
        open(&volume, "file", false).sync_all().unwrap();
        write_ahead_of_the_size(&volume);
        open(&volume, "other", false).sync_all().unwrap();
        volume.shut_down();
        drop(volume);
        let volume = quiet_volume(&device);
        assert_eq!(open(&volume, "file", false).len(), 0);
        grow(&volume);
        assert_zeros(&open(&volume, "file", false), 0, 200 * KIB);
        volume.unmount().unwrap();
        judge(&device);
    }
}
