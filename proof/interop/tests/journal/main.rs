//! Linux judges logs written by Xebec: `xfs_logprint` must read them, the kernel must replay a dirty log, and
//! `xfs_repair` must find nothing afterwards.
//!
//! The transactions change the volume's label, which shows how far the log was replayed, and log all AG headers again.
// Clippy permits panics in test functions only.
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

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// All metadata is written back and the log is clean.
    Unmount,
    /// The power fails after the last log force.
    PowerCut,
}

/// One volume and its workload.
struct Scenario {
    name: &'static str,
    mkfs: &'static [&'static str],
    external_log: bool,
    buffer_bytes: Option<u32>,
    rounds: u32,
}

/// All forms of log records: small and large buffers, a stripe unit, large sectors, an external log; two scenarios wrap
/// around the log.
const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "small buffers",
        mkfs: &[],
        external_log: false,
        buffer_bytes: Some(32 << 10),
        rounds: 100,
    },
    Scenario {
        name: "large buffers",
        mkfs: &[],
        external_log: false,
        buffer_bytes: Some(256 << 10),
        rounds: 100,
    },
    Scenario {
        name: "stripe unit",
        mkfs: &["-l", "su=65536,size=16m"],
        external_log: false,
        buffer_bytes: None,
        rounds: 3000,
    },
    Scenario {
        name: "sectors of 4096",
        mkfs: &["-s", "size=4096"],
        external_log: false,
        buffer_bytes: None,
        rounds: 100,
    },
    Scenario {
        name: "external log",
        mkfs: &[],
        external_log: true,
        buffer_bytes: Some(64 << 10),
        rounds: 100,
    },
    Scenario {
        name: "log wrap",
        mkfs: &["-l", "size=3100b"],
        external_log: false,
        buffer_bytes: Some(256 << 10),
        rounds: 17_003,
    },
];

fn open(path: &Path) -> Arc<dyn Device> {
    let options = OpenOptions { writable: true, ..OpenOptions::default() };
    Arc::new(FileDevice::open(path, &options).unwrap())
}

/// Changes the label `rounds` times, in two threads that both force the log now and then.
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
            // Logged without a change.
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
    let volume = Volume::make(scenario.mkfs, scenario.external_log);
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
    let context = format!("{}, {end:?}", scenario.name);
    for printed in volume.logprints() {
        assert!(printed.contains(expected), "{context}: xfs_logprint prints\n{printed}");
    }
    volume.mount_and_unmount();
    assert_eq!(volume.label(), (scenario.rounds - 1).to_string(), "{context}");
    assert_eq!(volume.repair(), "", "{context}");
}

#[test]
fn linux_reads_clean_and_dirty_logs() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    for scenario in SCENARIOS {
        run(scenario, End::Unmount);
        run(scenario, End::PowerCut);
    }
}
