//! The memory budget of one volume, and of several.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::memory::pressure::{Pressure, PressureEvent, PressureSource};
use block::MemoryDevice;
use xebec_volume::{Dir, MemoryBudget, MemoryStatistics, Options, Volume};

const BUDGET: u64 = 8 << 20;
/// What counters of CPUs, and what is in use or dirty for a moment, may add.
const SLACK: u64 = 2 << 20;
const FILES: usize = 48;
const FILE_BYTES: usize = 256 << 10;

/// A volume with more data than the budget.
fn volume(budget: &Arc<MemoryBudget>) -> Volume {
    let device = Arc::new(MemoryDevice::new(128 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let options = Options { memory: Some(Arc::clone(budget)), background: false, ..Options::default() };
    let volume = Volume::open(device, options).unwrap();
    let root = Dir::root(&volume).unwrap();
    for n in 0..FILES {
        root.write(format!("{n}"), vec![n as u8; FILE_BYTES]).unwrap();
    }
    drop(root);
    volume.sync().unwrap();
    volume
}

fn read_all(volume: &Volume) {
    let root = Dir::root(volume).unwrap();
    for n in 0..FILES {
        // In pieces: large reads bypass the cache.
        let file = root.open_file(format!("{n}")).unwrap();
        let mut piece = vec![0; 16 << 10];
        for offset in (0..FILE_BYTES).step_by(piece.len()) {
            file.read_at(&mut piece, offset as u64).unwrap();
            assert!(piece.iter().all(|byte| *byte == n as u8));
        }
    }
}

fn memory(volume: &Volume) -> MemoryStatistics {
    volume.statistics().memory
}

/// Each volume had limits of its own, so ten volumes took ten times the memory of one.
#[test]
fn volumes_share_a_budget_and_an_idle_one_gives_back_what_it_borrowed() {
    let budget = MemoryBudget::new(BUDGET);
    let idle = volume(&budget);
    read_all(&idle);
    let alone = memory(&idle);
    // Contents borrow what neither buffers nor inodes use, and exceed their half.
    assert!(alone.contents > BUDGET / 8 * 5 && alone.used <= BUDGET + SLACK, "{alone:?}");
    let busy = volume(&budget);
    for _ in 0..3 {
        read_all(&busy);
        let (idle, busy) = (memory(&idle), memory(&busy));
        assert!(busy.used <= BUDGET + SLACK, "{busy:?}, idle {idle:?}");
    }
    let (now, other) = (memory(&idle), memory(&busy));
    assert!(now.contents < alone.contents / 4 * 3, "{now:?}, and {alone:?} before");
    assert!(other.contents > BUDGET / 8, "{other:?}");
    idle.unmount().unwrap();
    read_all(&busy);
    read_all(&busy);
    let last = memory(&busy);
    assert!(last.contents > BUDGET / 2 && last.used <= BUDGET + SLACK, "{last:?}");
    busy.unmount().unwrap();
    assert_eq!(budget.used(), 0);
}

/// Files, names and metadata that are many times the budget.
#[test]
fn inodes_and_buffers_keep_to_a_small_budget() {
    const DIRECTORIES: usize = 20;
    const NAMES: usize = 500;
    let budget = MemoryBudget::new(2 << 20);
    let device = Arc::new(MemoryDevice::new(256 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let options = Options { memory: Some(Arc::clone(&budget)), ..Options::default() };
    let volume = Volume::open(device, options).unwrap();
    let root = Dir::root(&volume).unwrap();
    for dir in 0..DIRECTORIES {
        root.create_dir(format!("{dir}")).unwrap();
        for name in 0..NAMES {
            root.write(format!("{dir}/{name}"), "text").unwrap();
        }
        volume.sync().unwrap();
    }
    volume.sync().unwrap();
    for _ in 0..2 {
        for dir in 0..DIRECTORIES {
            for name in 0..NAMES {
                assert_eq!(root.read(format!("{dir}/{name}")).unwrap(), b"text");
            }
            let now = memory(&volume);
            assert!(now.used <= budget.bytes() + SLACK, "{now:?}");
        }
    }
    for dir in 0..DIRECTORIES {
        root.remove_dir_all(format!("{dir}")).unwrap();
    }
    drop(root);
    volume.unmount().unwrap();
    assert_eq!(budget.used(), 0);
}

/// A system that is short of memory.
struct AlwaysShort;

impl PressureSource for AlwaysShort {
    fn notices(&self) -> bool {
        true
    }

    fn wait(&mut self, _: Duration) -> PressureEvent {
        std::thread::sleep(Duration::from_millis(1));
        PressureEvent::Short
    }

    fn read(&mut self) -> Pressure {
        Pressure { some_percent: 50, memory: None }
    }
}

/// Names kept their inodes in memory until other names took their places, so that the inodes of an idle volume could
/// not become fewer than those of all its names.
#[test]
fn names_and_inodes_leave_an_idle_volume_when_memory_is_short() {
    const FILES: usize = 12_000;
    let budget = MemoryBudget::new(96 << 20);
    let device = Arc::new(MemoryDevice::new(256 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let options = Options { memory: Some(Arc::clone(&budget)), ..Options::default() };
    let volume = Volume::open(device, options).unwrap();
    let root = Dir::root(&volume).unwrap();
    for n in 0..FILES {
        root.write(format!("{n}"), "").unwrap();
    }
    volume.sync().unwrap();
    let before = memory(&volume);
    assert!(before.inodes > 12 << 20 && before.limit == 96 << 20, "{before:?}");
    budget.follow(AlwaysShort).unwrap();
    let (began, mut now) = (Instant::now(), before);
    // The limit falls in steps, and the caches may hold less than it before. A test that would hang fails instead.
    while (now.limit > 16 << 20 || now.used > (16 << 20) + SLACK)
        && began.elapsed() < Duration::from_secs(120)
    {
        std::thread::sleep(Duration::from_millis(1));
        now = memory(&volume);
    }
    assert!(now.limit == 16 << 20 && now.used <= (16 << 20) + SLACK, "{now:?}");
    assert!(now.inodes < before.inodes, "{now:?}, and {before:?} before");
    for n in (0..FILES).step_by(100) {
        assert!(root.metadata(format!("{n}")).is_ok());
    }
    drop(root);
    volume.unmount().unwrap();
}
