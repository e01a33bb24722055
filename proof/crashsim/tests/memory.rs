//! The memory of a process whose threads use far more files than the caches may hold.
//!
//! `XEBEC_MEMORY_SECONDS=3600 cargo test --release -p xebec-crashsim --test memory -- --nocapture` runs for this time,
//! and prints the memory each minute. A failure message has the seed, which does not determine the timing of the
//! threads.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use base::{errno, percpu};
use block::{Device, FileDevice};
use crashsim::engine::check;
use model::Rng;
use volume::{Dir, Error, File, MemoryBudget, NewFile, OpenOptions, Options, SetAttribute, Volume};

/// Counts what is allocated. What the system's allocator keeps beside that depends on threads and fragmentation.
#[global_allocator]
static ALLOCATED: cap::Cap<std::alloc::System> = cap::Cap::new(std::alloc::System, usize::MAX);

const THREADS: u64 = 4;
/// Directories, and names in each of them.
const DIRECTORIES: u64 = 32;
const NAMES: u64 = 600;
/// The budget of the caches together.
const BUDGET: usize = 16 << 20;
/// What the budget does not count, and what exceeds it for a moment. Items in the log are counted by `LOG_BYTES`.
const BESIDE: usize = 4 << 20;
/// How much more that is for each CPU, as many parts have buffers for each.
const BESIDE_OF_CPU: usize = 512 << 10;
/// Memory of the process beside the budget: the program, stacks, and what the allocator keeps for each thread.
const PROCESS: usize = 32 << 20;
/// Operations of a thread in a round.
const STEPS: u64 = 4000;
const IMAGE_BYTES: u64 = 256 << 20;
/// The smallest log of such a volume. Items in the log stay in memory until they are written back.
const LOG_BYTES: u64 = 13 << 20;

struct Worker<'v> {
    root: Dir<'v>,
    volume: &'v Volume,
    rng: Rng,
    open: Vec<File<'v>>,
}

impl Worker<'_> {
    fn path(&mut self) -> String {
        // One of 19,200 files; of some directories more often.
        let dir = self.rng.below(DIRECTORIES).min(self.rng.below(DIRECTORIES));
        format!("dir{dir}/{:012}", self.rng.below(NAMES))
    }

    fn open(&mut self) -> Result<(), Error> {
        if self.open.len() > 7 {
            self.open.swap_remove(self.rng.index(8));
        }
        let path = self.path();
        let file = match self.rng.below(3) {
            0 => {
                let handle = self.volume.create_tmpfile(self.volume.root(), &NewFile::regular())?;
                OpenOptions::new().read(true).write(true).open_handle(self.volume, &handle)?
            }
            _ => OpenOptions::new().read(true).write(true).open(self.volume, &path)?,
        };
        self.open.push(file);
        Ok(())
    }

    fn read_or_write(&mut self) -> Result<(), Error> {
        let (offset, len) = (self.rng.below(300_000), 1 + self.rng.index(20_000));
        let writes = self.rng.one_in(2);
        let at = self.rng.index(self.open.len().max(1));
        let Some(file) = self.open.get(at) else { return Ok(()) };
        match writes {
            true => file.write_at(&vec![at as u8; len], offset).map(drop),
            false => file.read_at(&mut vec![0; len], offset).map(drop),
        }
    }

    fn step(&mut self) -> Result<(), Error> {
        let path = self.path();
        match self.rng.below(100) {
            0..15 => self.root.write(&path, vec![1; self.rng.index(9000)]),
            15..25 => self.root.remove_file(&path),
            25..30 => {
                let other = self.path();
                self.root.rename(&path, &self.root, &other)
            }
            30..55 => self.root.metadata(&path).map(drop),
            55..65 => self.root.read(&path).map(drop),
            65..75 => self.open(),
            75..90 => self.read_or_write(),
            90..94 => {
                let file = self.root.metadata(&path)?.id();
                self.volume.set_attribute(file, b"user.name", &[1; 50], SetAttribute::Any)
            }
            94..98 => {
                let paths: Vec<_> = (0..50).map(|_| self.path()).collect();
                self.root.stat_many(paths);
                Ok(())
            }
            98 => self.root.read_dir("dir0")?.try_for_each(|entry| entry.map(drop)),
            _ => {
                let other = self.path();
                self.root.hard_link(&path, &self.root, &other)
            }
        }
    }

    fn work(&mut self, what: &str) {
        for step in 0..STEPS {
            if let Err(error) = self.step() {
                // Any other error may be caused by another thread.
                let broken = [errno::EIO, errno::EFSCORRUPTED].contains(&error.errno());
                assert!(!broken, "{what}, step {step}: {error}");
            }
        }
    }
}

fn options() -> Options {
    Options { memory: Some(MemoryBudget::new(BUDGET as u64)), ..Options::default() }
}

/// The largest memory that was seen.
#[derive(Default)]
struct Peak {
    bytes: usize,
    what: String,
}

impl Peak {
    /// Compares the peak with the memory now. Pages of buffers and of contents are not on the heap. What is counted for
    /// contents beside their pages is on the heap too, so the sum is too large by that.
    fn look(&mut self, volume: &Volume, before: usize) {
        let (heap, memory) = (ALLOCATED.allocated().saturating_sub(before), volume.statistics().memory);
        let bytes = heap + (memory.buffers + memory.contents) as usize;
        if bytes > self.bytes {
            let items = volume.statistics().journal.ail_items;
            *self =
                Self { bytes, what: format!("{heap} bytes of heap, {memory:?}, {items} items in the log") };
        }
    }
}

/// A line of `/proc/self/status`, in bytes.
fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.split_whitespace().next().unwrap().parse::<usize>().unwrap() << 10
}

/// Looks at the memory until `stop`.
fn watch(volume: &Volume, before: usize, stop: &AtomicBool) -> Peak {
    let mut peak = Peak::default();
    while !stop.load(Relaxed) {
        peak.look(volume, before);
        std::thread::sleep(Duration::from_millis(2));
    }
    peak
}

/// Threads use the files of a volume; returns the largest memory meanwhile.
fn run_round(volume: &Volume, before: usize, seed: u64, round: u64) -> Peak {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| watch(volume, before, &stop));
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let root = Dir::root(volume).unwrap();
                    let rng = Rng::stream(seed + round, thread);
                    let what = format!("seed {seed}, round {round}, thread {thread}");
                    Worker { root, volume, rng, open: Vec::new() }.work(&what);
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        stop.store(true, Relaxed);
        watching.join().unwrap()
    })
}

/// The caches keep to their limits, also with removed objects, references and names that outlive what they belong to.
#[test]
fn the_memory_of_threads_that_use_many_files_is_bounded() {
    let seed = std::env::var("XEBEC_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let seconds = std::env::var("XEBEC_MEMORY_SECONDS").ok().and_then(|text| text.parse().ok());
    let (began, limit) = (Instant::now(), Duration::from_secs(seconds.unwrap_or(0)));
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(IMAGE_BYTES).unwrap();
    let options_of_file = block::OpenOptions { writable: true, ..block::OpenOptions::default() };
    let device: Arc<dyn Device> = Arc::new(FileDevice::open(image.path(), &options_of_file).unwrap());
    let log = mkfs::LogOptions { size: Some(LOG_BYTES), ..mkfs::LogOptions::default() };
    mkfs::format(&*device, &mkfs::Options { log, ..mkfs::Options::default() }).unwrap();
    let before = ALLOCATED.allocated();
    let volume = Volume::open(device.clone(), options()).unwrap();
    for dir in 0..DIRECTORIES {
        Dir::root(&volume).unwrap().create_dir(format!("dir{dir}")).unwrap();
    }
    let (mut most, mut printed, mut round) = (Peak::default(), began, 0);
    let beside = BESIDE + BESIDE_OF_CPU * percpu::available();
    // Some rounds fill the caches.
    while round < 8 || began.elapsed() < limit {
        let peak = run_round(&volume, before, seed, round);
        if peak.bytes > most.bytes {
            most = peak;
        }
        round += 1;
        if printed.elapsed() > Duration::from_secs(60) {
            printed = Instant::now();
            println!("{round} rounds: at most {} KiB: {}", most.bytes >> 10, most.what);
        }
        let Peak { bytes, what } = &most;
        assert!(
            *bytes <= BUDGET + LOG_BYTES as usize + beside,
            "seed {seed}, round {round}: {bytes} bytes: {what}"
        );
    }
    let resident = status("VmHWM");
    println!(
        "{round} rounds: at most {} KiB, {} KiB resident: {}",
        most.bytes >> 10,
        resident >> 10,
        most.what
    );
    assert!(
        resident <= BUDGET + PROCESS + BESIDE_OF_CPU * percpu::available(),
        "{resident} bytes resident: {}",
        most.what
    );
    volume.unmount().unwrap();
    check(&*device).unwrap();
}
