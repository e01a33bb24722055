//! Logs that Xebec wrote, judged by Linux: `xfs_logprint` reads them, the kernel finds a clean one clean and replays a
//! dirty one, and `xfs_repair` has nothing to say of what is left.
//!
//! The transactions here change a volume's label, which can be seen afterwards, and log the headers of all AGs again.
// A test says what it expects by panicking; clippy sees that in test functions only.
#![allow(clippy::unwrap_used, clippy::panic)]

mod formatted;
mod judges;

use std::path::Path;
use std::sync::Arc;

use base::lock::Rank;
use base::{AgBlock, AgNumber, Daddr};
use block::{Device, FileDevice, OpenOptions};
use format::superblock::Superblock;
use journal::engine::{CommitTarget, DiskExtent, Log, LogReservation, Options};

use self::judges::Volume;

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Everything home, and the log marked as clean.
    Unmount,
    /// The power fails after the last log force.
    PowerCut,
}

/// One volume and what is done to it.
struct Scenario {
    name: &'static str,
    mkfs: &'static [&'static str],
    own_log_device: bool,
    buffer_bytes: Option<u32>,
    rounds: u32,
}

/// Each shape of a log's records: small and large buffers, a stripe unit, large sectors, a device of its own; and two
/// that go around the ring.
const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "small buffers",
        mkfs: &[],
        own_log_device: false,
        buffer_bytes: Some(32 << 10),
        rounds: 100,
    },
    Scenario {
        name: "large buffers",
        mkfs: &[],
        own_log_device: false,
        buffer_bytes: Some(256 << 10),
        rounds: 100,
    },
    Scenario {
        name: "stripe unit",
        mkfs: &["-l", "su=65536,size=16m"],
        own_log_device: false,
        buffer_bytes: None,
        rounds: 3000,
    },
    Scenario {
        name: "sectors of 4096",
        mkfs: &["-s", "size=4096"],
        own_log_device: false,
        buffer_bytes: None,
        rounds: 100,
    },
    Scenario {
        name: "own device",
        mkfs: &[],
        own_log_device: true,
        buffer_bytes: Some(64 << 10),
        rounds: 100,
    },
    Scenario {
        name: "around the ring",
        mkfs: &["-l", "size=3100b"],
        own_log_device: false,
        buffer_bytes: Some(256 << 10),
        rounds: 17_003,
    },
];

fn open(path: &Path) -> Arc<dyn Device> {
    let options = OpenOptions { writable: true, ..OpenOptions::default() };
    Arc::new(FileDevice::open(path, &options).unwrap())
}

/// Changes the label `rounds` times; two threads, which both force the log now and then.
fn work(log: &Log, superblock: &Superblock, rounds: u32) {
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                for round in 0..rounds {
                    change(log, superblock, thread, round);
                    if round % 16 == 15 {
                        log.force().unwrap();
                    }
                }
            });
        }
    });
    log.force().unwrap();
}

/// Logs the headers of every second AG again; the first thread changes the label too.
fn change(log: &Log, superblock: &Superblock, thread: u32, round: u32) {
    let geometry = &superblock.geometry;
    let sector = geometry.sector_size;
    let mut tx = log.begin(LogReservation { bytes: 64 << 10, transactions: 1 }).unwrap();
    // The AGI is the third sector of an AG, the AGF the second.
    for (n, rank) in [(2, Rank::Agi as fn(u32) -> Rank), (1, Rank::Agf)] {
        for ag in (thread..geometry.ag_count()).step_by(2) {
            let start = geometry.fs_block_offset(geometry.fs_block(AgNumber(ag), AgBlock(0))).unwrap();
            let at = DiskExtent { daddr: Daddr((start + n * u64::from(sector)) / 512), bytes: sector };
            let id = tx.read(at, rank(ag), |_| Ok(())).unwrap();
            // Unchanged, and logged all the same.
            let _ = tx.bytes_mut(id, 0..sector as usize / (1 + round as usize % 2));
        }
    }
    if thread == 0 {
        let id = tx.read(DiskExtent { daddr: Daddr(0), bytes: sector }, Rank::Buffer, |_| Ok(())).unwrap();
        tx.bytes_mut(id, 108..120).copy_from_slice(format!("{round:<12}").as_bytes());
    }
    tx.commit(&mut []).unwrap();
}

fn run(scenario: &Scenario, end: End) {
    let volume = Volume::make(scenario.mkfs, scenario.own_log_device);
    let device = open(&volume.image);
    let mut sector = vec![0; 4096];
    device.read_at(0, &mut sector).unwrap();
    let superblock = Superblock::parse(&sector).unwrap();
    let options = Options { buffer_bytes: scenario.buffer_bytes, shards: Some(2), ..Options::default() };
    let log = Log::open(&superblock, device, volume.log.as_deref().map(open), None, &options).unwrap();
    work(&log, &superblock, scenario.rounds);
    match end {
        End::Unmount => log.unmount().unwrap(),
        End::PowerCut => CommitTarget::shut_down(&*log, "the test ends here"),
    }
    drop(log);
    let expected = if end == End::Unmount { "<CLEAN>" } else { "<DIRTY>" };
    let about = format!("{}, {end:?}", scenario.name);
    for printed in volume.logprints() {
        assert!(printed.contains(expected), "{about}: xfs_logprint says\n{printed}");
    }
    volume.mount_and_unmount();
    assert_eq!(volume.label(), (scenario.rounds - 1).to_string(), "{about}");
    assert_eq!(volume.repair(), "", "{about}");
}

#[test]
fn linux_reads_the_logs_that_were_left_dirty_and_those_that_were_left_clean() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    for scenario in SCENARIOS {
        run(scenario, End::Unmount);
        run(scenario, End::PowerCut);
    }
}
