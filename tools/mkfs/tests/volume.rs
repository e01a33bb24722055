//! Checks new volumes with Xebec's checker and log reader, without root and xfsprogs.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::sync::atomic::{AtomicU64, Ordering};

use block::{Device, DeviceError, Durability, MemoryDevice};
use check::{Finding, Observer, Suppressed};
use format::superblock::Superblock;
use format::timestamp::Timestamp;
use journal::{Journal, State};
use xebec_mkfs::{LogOptions, MkfsError, Options, Stripe, format};

const MIB: u64 = 1 << 20;

struct PanicOnFinding;

impl Observer for PanicOnFinding {
    fn finding(&self, finding: &Finding) {
        panic!("{finding}");
    }
    fn suppressed(&self, suppressed: &Suppressed) {
        panic!("{suppressed:?}");
    }
}

/// Creates and checks a volume.
fn checked(size: u64, options: &Options) -> MemoryDevice {
    let device = MemoryDevice::with_sector_size(size, 512);
    // The device is not zero.
    device.write_at(size / 2, &[0xa5; 4096], Durability::Buffered).unwrap();
    let geometry = format(&device, options).unwrap_or_else(|error| panic!("{size} {options:?}: {error}"));
    let mut first = [0; 512];
    device.read_at(0, &mut first).unwrap();
    if geometry.sector_size == 512 {
        let superblock = Superblock::parse(&first).unwrap();
        assert_eq!(superblock.geometry, geometry);
        let journal = Journal::open(&superblock, &device, None).unwrap();
        assert!(matches!(journal.state(), State::Clean { .. }));
    }
    let options = check::Options { threads: 1, ..check::Options::default() };
    let summary = check::check(&device, &options, &PanicOnFinding).unwrap();
    assert!(summary.is_clean());
    device
}

#[test]
fn small_volumes_of_all_block_sizes_are_clean() {
    for block_size in [1024, 2048, 4096, 8192, 16384, 32768, 65536] {
        for (sector_size, inode_size) in [(512, 512), (1024, 512), (4096, 1024), (512, 2048)] {
            if sector_size > block_size || inode_size > block_size / 2 {
                continue;
            }
            let options =
                Options { block_size, sector_size: Some(sector_size), inode_size, ..Options::default() };
            checked(if block_size > 4096 { 1024 } else { 64 } * MIB, &options);
        }
    }
}

#[test]
fn volumes_with_other_features_are_clean() {
    let base = Options { block_size: 1024, ..Options::default() };
    let variants: [fn(&mut Options); 10] = [
        |o| (o.finobt, o.inobtcount) = (false, false),
        |o| o.inobtcount = false,
        |o| o.rmapbt = false,
        |o| o.reflink = false,
        |o| (o.rmapbt, o.reflink) = (false, false),
        |o| o.bigtime = false,
        |o| o.sparse = false,
        |o| o.nrext64 = false,
        |o| (o.exchange, o.parent) = (true, true),
        |o| o.ascii_ci = true,
    ];
    for change in variants {
        let mut options = base.clone();
        change(&mut options);
        checked(64 * MIB, &options);
    }
}

#[test]
fn volumes_of_many_ags_are_clean() {
    for (count, size) in [(1, 16), (2, 32), (3, 48), (4, 64), (16, 256)] {
        checked(size * MIB, &Options { block_size: 1024, ag_count: Some(count), ..Options::default() });
        checked(size * MIB, &Options { ag_count: Some(count), ..Options::default() });
    }
}

#[test]
fn striped_volumes_are_clean() {
    let stripe = Some(Stripe { unit: 64 << 10, width: 256 << 10 });
    checked(512 * MIB, &Options { stripe, ..Options::default() });
    let log = LogOptions { stripe_unit: Some(32 << 10), ..LogOptions::default() };
    checked(512 * MIB, &Options { log, ..Options::default() });
}

fn bytes(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn the_bytes_depend_on_seed_and_time_only() {
    let create = |seed: u8, seconds: i64| {
        let time = Timestamp { seconds, nanoseconds: 0 };
        let device = MemoryDevice::new(16 * MIB);
        format(&device, &Options { seed: [seed; 16], time, ..Options::default() }).unwrap();
        bytes(&device)
    };
    assert!(create(1, 1000) == create(1, 1000));
    assert!(create(1, 1000) != create(2, 1000));
    assert!(create(1, 1000) != create(1, 1001));
}

#[test]
fn old_superblocks_are_wiped() {
    let new = MemoryDevice::new(64 * MIB);
    let options = Options { uuid: Some([7; 16]), ..Options::default() };
    format(&new, &options).unwrap();
    let reused = MemoryDevice::new(64 * MIB);
    format(&reused, &Options { block_size: 1024, ag_count: Some(4), ..Options::default() }).unwrap();
    format(&reused, &options).unwrap();
    assert!(bytes(&new) == bytes(&reused));
}

/// Counts written bytes. Zeroing does not count.
struct Counting {
    base: MemoryDevice,
    written: AtomicU64,
}

impl Device for Counting {
    block::forward!(base: size, logical_sector_size, is_read_only, read_at, flush, zero);

    fn write_at(&self, offset: u64, buf: &[u8], how: Durability) -> Result<(), DeviceError> {
        self.written.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.base.write_at(offset, buf, how)
    }
    fn describe(&self) -> String {
        "counting device".into()
    }
}

#[test]
fn a_terabyte_takes_less_than_a_megabyte_of_writes() {
    let device = Counting { base: MemoryDevice::new(1 << 40), written: AtomicU64::new(0) };
    format(&device, &Options::default()).unwrap();
    let written = device.written.load(Ordering::Relaxed);
    assert!(written < MIB, "{written} bytes were written");
}

#[test]
fn errors_name_the_option() {
    let refused = |size: u64, options: Options| {
        let device = MemoryDevice::new(size);
        match format(&device, &options) {
            Err(MkfsError::Option { option, .. }) => {
                assert_eq!(device.allocated(), 0, "{option}: refused after a write");
                option
            }
            other => panic!("{options:?}: {other:?}"),
        }
    };
    let default = Options::default;
    assert_eq!(refused(64 * MIB, Options { block_size: 3000, ..default() }), "-b size");
    assert_eq!(refused(64 * MIB, Options { sector_size: Some(8192), ..default() }), "-s size");
    assert_eq!(refused(64 * MIB, Options { inode_size: 256, ..default() }), "-i size");
    assert_eq!(refused(15 * MIB, default()), "-d size");
    assert_eq!(refused(64 * MIB, Options { size: Some(65 * MIB), ..default() }), "-d size");
    assert_eq!(refused(64 * MIB, Options { ag_count: Some(5), ..default() }), "-d agcount");
    assert_eq!(refused(64 * MIB, Options { ag_count: Some(0), ..default() }), "-d agcount");
    assert_eq!(refused(64 * MIB, Options { ag_count: Some(u64::MAX), ..default() }), "-d agcount");
    assert_eq!(refused(64 * MIB, Options { ag_size: Some(MIB), ..default() }), "-d agsize");
    assert_eq!(refused(64 * MIB, Options { label: b"thirteen char".to_vec(), ..default() }), "-L");
    assert_eq!(refused(64 * MIB, Options { finobt: false, ..default() }), "-m inobtcount");
    let log = |size| LogOptions { size: Some(size), ..LogOptions::default() };
    assert_eq!(refused(64 * MIB, Options { log: log(MIB), ..default() }), "-l size");
    assert_eq!(refused(64 * MIB, Options { log: log(60 * MIB), ..default() }), "-l size");
    assert_eq!(refused(1 << 30, Options { log: log(1), ..default() }), "-l size");
    // Like `mkfs.xfs`: `xfs_repair` expects the root directory after the log.
    let striped = LogOptions { stripe_unit: Some(256 << 10), ..LogOptions::default() };
    assert_eq!(refused(64 * MIB, Options { ag_count: Some(1), log: striped, ..default() }), "-l su");
    let late = Timestamp { seconds: 1 << 40, nanoseconds: 0 };
    assert_eq!(refused(64 * MIB, Options { time: late, ..default() }), "-m bigtime");
}
