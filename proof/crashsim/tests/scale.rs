//! The memory of a process that uses a volume with very many files, and a file with very many extents, with a budget
//! much smaller than their metadata.
//!
//! In CI the volume is small, and so is the budget. In full, with ten million files and 25 million extents:
//!
//! `XEBEC_MEMORY_SCALE=full cargo test --release -p xebec-crashsim --test scale -- --nocapture`
//!
//! `XEBEC_MEMORY_SCALE=FILES,EXTENTS,MIB` sets the numbers of files and extents, and the budget; the image is in
//! `TMPDIR`. It prints the memory of each step: the peak of the resident set (RSS), the peak of what is allocated, and
//! what that was.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use block::{Device, DeviceError, Durability, FileDevice};
use crashsim::engine::check;
use model::Rng;
use volume::{Dir, File, MemoryBudget, NewFile, OpenOptions, Options, Volume};

/// Counts what is allocated. The resident set also has what the allocator keeps, so it is that of the program `xebec`.
#[global_allocator]
static ALLOCATED: cap::Cap<mimalloc::MiMalloc> = cap::Cap::new(mimalloc::MiMalloc, usize::MAX);
/// Environment variable of the allocator, which `xebec` sets to 0 if its budget is small.
const PURGE_DELAY: &str = "MIMALLOC_PURGE_DELAY";

const BLOCK: u64 = 4096;
/// Names in each directory, except in the first one, which has a tenth of all files.
const NAMES: u64 = 4096;
/// Names that are created at once.
const CREATED: u64 = 64;
/// Memory of the process beside the budget: the program, stacks, what is counted too low, and what the allocator keeps.
const PROCESS: usize = 32 << 20;

/// The size of a run.
#[derive(Clone, Copy)]
struct Scale {
    files: u64,
    /// Extents of the large file.
    extents: u64,
    /// The memory budget in bytes.
    budget: usize,
    /// Random accesses in each step.
    accesses: u64,
}

impl Scale {
    fn of_environment() -> Self {
        let text = std::env::var("XEBEC_MEMORY_SCALE").unwrap_or_default();
        let numbers: Vec<u64> = text.split(',').filter_map(|number| number.parse().ok()).collect();
        match *numbers.as_slice() {
            [files, extents, mib] => Self { files, extents, budget: (mib as usize) << 20, accesses: 20_000 },
            _ if text == "full" => {
                Self { files: 10_000_000, extents: 25_000_000, budget: 64 << 20, accesses: 20_000 }
            }
            _ => Self { files: 60_000, extents: 100_000, budget: 16 << 20, accesses: 1000 },
        }
    }

    /// The large file: every second block is mapped.
    fn file_bytes(&self) -> u64 {
        2 * BLOCK * self.extents
    }

    fn device_bytes(&self) -> u64 {
        (self.file_bytes() + self.files * 1024 + self.extents * 256 + (1 << 30)).next_multiple_of(1 << 20)
    }
}

/// A file that is never flushed: what a flush takes depends on the host, and has nothing to do with memory.
struct Unflushed(FileDevice);

impl Device for Unflushed {
    block::forward!(0: size, logical_sector_size, is_read_only, read_at, describe);

    fn write_at(&self, offset: u64, buf: &[u8], _: Durability) -> Result<(), DeviceError> {
        self.0.write_at(offset, buf, Durability::Buffered)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// A line of `/proc/self/status`, in bytes.
fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.split_whitespace().next().unwrap().parse::<usize>().unwrap() << 10
}

/// Whether the peak of the resident set begins again. Some containers refuse it.
fn restart_peak() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// The memory of one step.
#[derive(Default)]
struct Peak {
    /// What is allocated, with what is counted for buffers and contents, most of which are pages that are not on the
    /// heap. What is on the heap of these, such as log vectors, is counted twice.
    bytes: usize,
    what: String,
}

impl Peak {
    fn look(&mut self, volume: Option<&Volume>) {
        let heap = ALLOCATED.allocated();
        let statistics = volume.map(Volume::statistics);
        let pages = statistics.as_ref().map_or(0, |found| found.memory.buffers + found.memory.contents);
        let bytes = heap + pages as usize;
        if bytes > self.bytes {
            let what = statistics.map_or_else(String::new, |found| {
                let (memory, journal) = (found.memory, found.journal);
                let (items, pushes, waits) = (journal.ail_items, journal.pushes, journal.throttled);
                let [buffers, contents, inodes] =
                    [memory.buffers, memory.contents, memory.inodes].map(|bytes| bytes >> 10);
                let to_free = memory.files_to_free;
                format!(
                    "heap {} KiB, buffers {buffers}, contents {contents}, inodes {inodes}; {items} items in the \
                     log, {to_free} files to free, {pushes} pushes, {waits} waits",
                    heap >> 10
                )
            });
            *self = Self { bytes, what };
        }
    }

    /// Looks at the memory until `stop`.
    fn watch(volume: Option<&Volume>, stop: &AtomicBool) -> Self {
        let mut peak = Self::default();
        while !stop.load(Relaxed) {
            peak.look(volume);
            std::thread::sleep(Duration::from_millis(5));
        }
        peak.look(volume);
        peak
    }
}

/// A run, and its steps whose resident set exceeded the limit.
struct Run {
    scale: Scale,
    /// Allocated before the first volume was opened.
    before: usize,
    exceeded: Vec<String>,
}

impl Run {
    /// Does a step, and prints its memory.
    fn step<T>(&mut self, name: &str, volume: Option<&Volume>, work: impl FnOnce() -> T) -> T {
        restart_peak();
        let (began, stop) = (Instant::now(), AtomicBool::new(false));
        let (result, peak) = std::thread::scope(|scope| {
            let watching = scope.spawn(|| Peak::watch(volume, &stop));
            let result = work();
            stop.store(true, Relaxed);
            (result, watching.join().unwrap())
        });
        let (resident, most, bytes) = (status("VmRSS"), status("VmHWM"), peak.bytes - self.before);
        println!(
            "{name:20} {:8.1} s  RSS {:7} KiB, peak {:7}; allocated {:7} KiB: {}",
            began.elapsed().as_secs_f64(),
            resident >> 10,
            most >> 10,
            bytes >> 10,
            peak.what
        );
        if most > self.scale.budget + PROCESS {
            self.exceeded.push(format!("{name}: {most} bytes resident: {}", peak.what));
        }
        result
    }
}

impl Scale {
    fn open(&self, device: &Arc<dyn Device>) -> Volume {
        let budget = MemoryBudget::new(self.budget as u64);
        Volume::open(Arc::clone(device), Options { memory: Some(budget), ..Options::default() }).unwrap()
    }

    fn create_files(&self, volume: &Volume) {
        let root = Dir::root(volume).unwrap();
        root.create_dir("files").unwrap();
        let many = self.files / 10;
        let mut left = self.files;
        for number in 0.. {
            let names = if number == 0 { many } else { NAMES }.min(left);
            if names == 0 {
                break;
            }
            left -= names;
            let path = format!("files/{number}");
            root.create_dir(&path).unwrap();
            let dir = root.open_dir(&path).unwrap();
            for first in (0..names).step_by(CREATED as usize) {
                let files: Vec<_> = (first..names.min(first + CREATED))
                    .map(|file| (format!("file-{file:08}"), NewFile::regular()))
                    .collect();
                dir.create_many(&files).into_iter().for_each(|created| drop(created.unwrap()));
            }
        }
    }

    fn large_file<'v>(volume: &'v Volume) -> File<'v> {
        OpenOptions::new().read(true).write(true).create(true).open(volume, "large").unwrap()
    }

    /// A file of unwritten blocks, of which every second one is freed again: as many free extents.
    fn create_large(&self, volume: &Volume) {
        let file = Self::large_file(volume);
        file.allocate(0, self.file_bytes(), false).unwrap();
        for block in 0..self.extents {
            file.punch_hole((2 * block + 1) * BLOCK, BLOCK).unwrap();
        }
    }

    fn list(volume: &Volume) -> u64 {
        let mut dirs = vec![Dir::root(volume).unwrap()];
        let mut count = 0;
        while let Some(dir) = dirs.pop() {
            for entry in dir.entries().unwrap().with_metadata() {
                let entry = entry.unwrap();
                count += 1;
                if entry.metadata.unwrap().file_type == format::inode::FileType::Directory {
                    dirs.push(dir.open_dir(&entry.name).unwrap());
                }
            }
        }
        count
    }

    /// Looks names up one by one, in no order.
    fn look_up(&self, volume: &Volume) {
        let (root, mut rng) = (Dir::root(volume).unwrap(), Rng::stream(1, 0));
        for _ in 0..10 * self.accesses {
            let name = rng.below(self.files / 10);
            assert_eq!(root.metadata(format!("files/0/file-{name:08}")).unwrap().size, 0);
        }
    }

    fn read_map(volume: &Volume) -> u64 {
        let mut count = 0;
        Self::large_file(volume)
            .ranges(&mut |_| {
                count += 1;
                true
            })
            .unwrap();
        count
    }

    fn block(&self, rng: &mut Rng) -> u64 {
        rng.below(2 * self.extents) * BLOCK
    }

    fn read(&self, volume: &Volume) {
        let (file, mut rng) = (Self::large_file(volume), Rng::stream(2, 0));
        for _ in 0..self.accesses {
            file.read_at(&mut vec![0; 16 << 10], self.block(&mut rng)).unwrap();
        }
    }

    fn write(&self, volume: &Volume) {
        let (file, mut rng) = (Self::large_file(volume), Rng::stream(3, 0));
        for access in 0..self.accesses {
            file.write_all_at(&[1; 5000], self.block(&mut rng)).unwrap();
            if access % 100 == 0 {
                file.sync_all().unwrap();
            }
        }
        file.sync_all().unwrap();
    }

    fn punch(&self, volume: &Volume) {
        let (file, mut rng) = (Self::large_file(volume), Rng::stream(4, 0));
        for _ in 0..self.accesses {
            file.punch_hole(self.block(&mut rng), 4 * BLOCK).unwrap();
        }
    }
}

/// Does all steps; returns those that exceeded the limit.
fn run(scale: Scale, device: &Arc<dyn Device>) -> Vec<String> {
    let mut run = Run { scale, before: ALLOCATED.allocated(), exceeded: Vec::new() };
    let volume = scale.open(device);
    run.step("create files", Some(&volume), || scale.create_files(&volume));
    run.step("create extents", Some(&volume), || scale.create_large(&volume));
    run.step("unmount", None, || volume.unmount().unwrap());
    run.step("check", None, || check(&**device).unwrap());
    let volume = scale.open(device);
    let listed = run.step("list", Some(&volume), || Scale::list(&volume));
    assert!(listed > scale.files, "{listed} files are listed");
    run.step("look up", Some(&volume), || scale.look_up(&volume));
    let extents = run.step("read map", Some(&volume), || Scale::read_map(&volume));
    assert_eq!(extents, scale.extents);
    run.step("read", Some(&volume), || scale.read(&volume));
    run.step("write, fsync", Some(&volume), || scale.write(&volume));
    run.step("punch", Some(&volume), || scale.punch(&volume));
    let half = scale.file_bytes() / 2;
    run.step("truncate", Some(&volume), || Scale::large_file(&volume).set_len(half).unwrap());
    let root = volume.root();
    run.step("remove file", Some(&volume), || {
        volume.unlink(root, b"large").unwrap();
        volume.write_back_all().unwrap();
    });
    run.step("remove files", Some(&volume), || {
        volume.remove_all(root, b"files").unwrap();
        volume.write_back_all().unwrap();
    });
    run.step("unmount", None, || volume.unmount().unwrap());
    run.step("check", None, || check(&**device).unwrap());
    run.exceeded
}

/// Runs the test in a process whose allocator returns freed memory to the system at once.
fn run_again() {
    let mut command = needs::own(std::env::current_exe().unwrap());
    command.args(["--exact", "the_memory_of_many_files_and_many_extents_is_bounded", "--nocapture"]);
    let mut child = command.env(PURGE_DELAY, "0").stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.for_each(|line| println!("{}", line.unwrap()));
    assert!(child.wait().unwrap().success());
}

/// Metadata in memory is bounded by the budget, however much of it one operation changes.
#[test]
fn the_memory_of_many_files_and_many_extents_is_bounded() {
    // The allocator reads it before `main`.
    if std::env::var_os(PURGE_DELAY).is_none() {
        return run_again();
    }
    let scale = Scale::of_environment();
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(scale.device_bytes()).unwrap();
    let options_of_file = block::OpenOptions { writable: true, ..block::OpenOptions::default() };
    let device: Arc<dyn Device> =
        Arc::new(Unflushed(FileDevice::open(image.path(), &options_of_file).unwrap()));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let exceeded = run(scale, &device);
    assert!(exceeded.is_empty(), "{exceeded:#?}");
}
