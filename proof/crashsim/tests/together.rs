//! Threads that use the same names in the same directories. The result of each operation is not known, but there must
//! be no deadlock and no violation of the lock order, and the volume must be sound after an unmount or a power cut.
//!
//! `XEBEC_TOGETHER_SECONDS=600 cargo test -p xebec-crashsim --test together` runs for this time. A failure message has
//! the seed, which does not determine the timing of the threads.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by panicking")]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base::errno;
use base::stop::{self, StopFlag};
use block::Device;
use crashsim::engine::{Engine, check};
use crashsim::shape::{SHAPES, Shape};
use crashsim::{Image, ImageDevice, Target};
use model::Rng;
use volume::{
    Cookie, Error, FileId, Handle, NewFile, NewFileType, Rename, SetAttribute, SetMetadata, Volume,
};

const THREADS: u64 = 4;
/// Number of directories in use. Others are forgotten and remain in the volume.
const DIRECTORIES: usize = 12;
/// Time without a completed operation after which a deadlock is reported.
const PATIENCE: Duration = Duration::from_secs(600);

/// State shared by the threads.
struct Together {
    volume: Volume,
    directories: Mutex<Vec<FileId>>,
    done: AtomicU64,
}

/// One thread.
struct Worker<'t> {
    together: &'t Together,
    rng: Rng,
    handles: Vec<Handle>,
}

impl Worker<'_> {
    fn directory(&mut self) -> FileId {
        let directories = self.together.directories.lock().unwrap();
        directories[self.rng.index(directories.len())]
    }

    /// Returns one of a few names, some so long that directories soon change their format.
    fn name(&mut self) -> Vec<u8> {
        match self.rng.below(3) {
            0 => format!("{:0220}", self.rng.below(30)).into_bytes(),
            _ => format!("{}", self.rng.below(16)).into_bytes(),
        }
    }

    fn make(&mut self) -> Result<(), Error> {
        let (dir, name) = (self.directory(), self.name());
        let target = [b't'; 900];
        let kind = match self.rng.below(12) {
            0 | 1 => NewFileType::Directory,
            2 => NewFileType::Symlink(&target),
            3 => NewFileType::Fifo,
            _ => NewFileType::Regular,
        };
        let ino =
            self.together.volume.create(dir, &name, &NewFile { file_type: kind, ..NewFile::regular() })?;
        if kind == NewFileType::Directory {
            let mut directories = self.together.directories.lock().unwrap();
            if directories.len() < DIRECTORIES {
                directories.push(ino);
            } else {
                let at = 1 + self.rng.index(DIRECTORIES - 1);
                directories[at] = ino;
            }
        }
        Ok(())
    }

    fn rename(&mut self) -> Result<(), Error> {
        let (from, to) = (self.directory(), self.directory());
        let how = match self.rng.below(8) {
            0 | 1 => Rename::Exchange,
            2 | 3 => Rename::Whiteout,
            4 => Rename::NoReplace,
            _ => Rename::Replace,
        };
        let (from_name, to_name) = (self.name(), self.name());
        self.together.volume.rename(from, &from_name, to, &to_name, how)
    }

    fn open(&mut self) -> Result<(), Error> {
        let (dir, name) = (self.directory(), self.name());
        let volume = &self.together.volume;
        if self.handles.len() > 5 {
            self.handles.swap_remove(self.rng.index(6));
        }
        let handle = match self.rng.below(3) {
            0 => volume.create_tmpfile(dir, &NewFile::regular())?,
            1 => volume.open_id(volume.lookup(dir, &name)?)?,
            _ => {
                let Some(handle) = self.handles.pop() else { return Ok(()) };
                return volume.link_handle(&handle, dir, &name);
            }
        };
        self.handles.push(handle);
        Ok(())
    }

    fn change(&mut self) -> Result<(), Error> {
        let (dir, name) = (self.directory(), self.name());
        let volume = &self.together.volume;
        let ino = volume.lookup(dir, &name)?;
        match self.rng.below(4) {
            0 => {
                volume.set_metadata(ino, &SetMetadata { permissions: Some(0o600), ..SetMetadata::default() })
            }
            1 => {
                let value = vec![7; self.rng.index(3000)];
                let attribute = format!("user.{}", self.rng.below(4));
                volume.set_attribute(ino, attribute.as_bytes(), &value, SetAttribute::Any)
            }
            2 => volume.remove_attribute(ino, format!("user.{}", self.rng.below(4)).as_bytes()),
            _ => volume.list_attributes(ino).map(drop),
        }
    }

    fn list(&mut self) -> Result<(), Error> {
        let dir = self.directory();
        let volume = &self.together.volume;
        let mut found = Vec::new();
        let mut give = |entry: volume::DirEntry<'_>| {
            found.push(entry.ino);
            true
        };
        volume.read_dir(dir, Cookie::default(), &mut give)?;
        // They may have been removed meanwhile.
        found.into_iter().take(8).for_each(|ino| drop(volume.id_of(ino).and_then(|id| volume.metadata(id))));
        Ok(())
    }

    fn step(&mut self) -> Result<(), Error> {
        match self.rng.below(100) {
            0..30 => self.make(),
            30..50 => {
                let (dir, name) = (self.directory(), self.name());
                self.together.volume.unlink(dir, &name)
            }
            50..55 => {
                let (dir, name) = (self.directory(), self.name());
                self.together.volume.rmdir(dir, &name)
            }
            55..75 => self.rename(),
            75..80 => {
                let (dir, name) = (self.directory(), self.name());
                let ino = self.together.volume.lookup(dir, &name)?;
                let (dir, name) = (self.directory(), self.name());
                self.together.volume.link(ino, dir, &name)
            }
            80..88 => self.open(),
            88..95 => self.change(),
            95..99 => self.list(),
            _ => self.together.volume.sync(),
        }
    }

    fn work(mut self, steps: u64, what: &str) {
        for step in 0..steps {
            if let Err(error) = self.step() {
                // Any other error may be caused by another thread.
                let broken = [errno::EIO, errno::EFSCORRUPTED].contains(&error.errno());
                assert!(!broken, "{what}, step {step}: {error}");
            }
            self.together.done.fetch_add(1, Relaxed);
        }
    }
}

/// Aborts the process after a deadlock.
fn watch(together: &Together, stop: &StopFlag, what: &str) {
    let (mut last, mut since) = (0, Instant::now());
    while !stop.is_set() {
        std::thread::sleep(Duration::from_millis(20));
        let done = together.done.load(Relaxed);
        if done != last {
            (last, since) = (done, Instant::now());
        } else if since.elapsed() > PATIENCE {
            eprintln!("{what}: deadlock after {done} operations");
            std::process::abort();
        }
    }
}

fn run(shape: &Shape, parent: bool, seed: u64, steps: u64) {
    let what = format!("seed {seed} ({}, parent pointers: {parent})", shape.name);
    let engine = Engine { shape: shape.clone() };
    let device = Arc::new(ImageDevice::new(Image::new(shape.size)));
    let log = if parent { mkfs::LogOptions::default() } else { shape.mkfs().log };
    mkfs::format(&*device, &mkfs::Options { parent, log, ..shape.mkfs() }).unwrap();
    let volume = Volume::open(device.clone(), engine.options()).unwrap();
    let directories = Mutex::new(vec![volume.root()]);
    let together = Together { volume, directories, done: AtomicU64::new(0) };
    stop::scope(|scope| {
        scope.spawn(|stop| watch(&together, stop, &what));
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let rng = Rng::stream(seed, thread);
                let worker = Worker { together: &together, rng, handles: Vec::new() };
                let what = &what;
                scope.spawn(move |_| worker.work(steps, what))
            })
            .collect();
        let ended: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        assert!(ended.iter().all(Result::is_ok), "{what}: a thread panicked");
    });
    let device: Arc<dyn Device> = device;
    if seed.is_multiple_of(2) {
        together.volume.unmount().unwrap_or_else(|error| panic!("{what}: {error}"));
    } else {
        drop(together);
        let volume = engine.open(device.clone()).unwrap_or_else(|error| panic!("{what}: {error}"));
        engine.unmount(volume).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    check(&*device).unwrap_or_else(|found| panic!("{what}: {found}"));
}

#[test]
fn threads_on_the_same_names_leave_a_sound_volume() {
    for (shape, seed) in SHAPES.iter().zip(1..) {
        run(shape, seed % 3 == 0, seed, 1500);
        run(shape, seed % 3 == 1, seed + 1, 1500);
    }
    let seconds = std::env::var("XEBEC_TOGETHER_SECONDS").ok().and_then(|text| text.parse().ok());
    let (began, limit) = (Instant::now(), Duration::from_secs(seconds.unwrap_or(0)));
    let mut seed = 100u64;
    while began.elapsed() < limit {
        run(&SHAPES[seed as usize % SHAPES.len()], seed.is_multiple_of(5), seed, 4000);
        seed += 1;
    }
}
