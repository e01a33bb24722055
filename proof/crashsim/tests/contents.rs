//! Power cuts during changes of file contents: the volume must be sound after recovery, no file may show data that it
//! never contained, synced data must be present, and an append-only file must be a prefix of the appended data.
//!
//! Every written sector is filled with a unique number, so that a sector read later identifies the write that it came
//! from.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::sync::Arc;

use crashsim::engine::{Engine, check};
use crashsim::shape::SHAPES;
use crashsim::stamped::{ExpectedFile, SECTOR, compare, sectors};
use crashsim::{Image, ImageDevice, StateBuilder, Target as _, states};
use devices::RecordDevice;
use model::Rng;
use volume::{File, FileId, NewFile, Volume};

/// Maximum size of a file in sectors.
const LONGEST: u64 = 600;

/// The expected files after each sync and at the end.
struct History {
    /// For each sync: the recorded events before it completed, and the files at that time.
    sync_points: Vec<(usize, Vec<ExpectedFile>)>,
    /// All values that the files ever contained.
    all: Vec<ExpectedFile>,
}

impl History {
    /// Returns the allowed contents after a cut at `moment`: the values of the whole run, from the last sync on.
    fn allowed(&self, moment: usize) -> Vec<ExpectedFile> {
        let mut allowed = self.all.clone();
        let floors = self.sync_points.iter().rfind(|(at, _)| *at <= moment);
        for (n, expected) in allowed.iter_mut().enumerate() {
            expected.set_floors(floors.map(|(_, files)| &files[n]));
        }
        allowed
    }
}

/// A run in progress.
struct Work<'v> {
    volume: &'v Volume,
    files: Vec<File<'v>>,
    expected: Vec<ExpectedFile>,
    rng: Rng,
    next: u64,
    /// Block size in sectors.
    block: u64,
    reflink: bool,
}

impl Work<'_> {
    fn new_values(&mut self, count: u64) -> Vec<u64> {
        let from = self.next;
        self.next += count;
        (from..self.next).collect()
    }

    fn range(&mut self, size: u64) -> (u64, u64) {
        let at = self.rng.below(size + 20).min(LONGEST - 1);
        let most = [3, 20, 200][self.rng.index(3)];
        (at, 1 + self.rng.below(most).min(LONGEST - at - 1))
    }

    /// Changes a random file; the last one is only appended to.
    fn step(&mut self) {
        let last = self.files.len() - 1;
        let n = self.rng.index(self.files.len());
        let size = self.expected[n].size.last();
        if n == last {
            let values = self.rng.below(40) + 1;
            let values = self.new_values(values);
            self.files[n].append(&sectors(values.iter().copied())).unwrap();
            values.iter().zip(size..).for_each(|(value, at)| self.expected[n].set(at, *value));
            return self.expected[n].grow(size + values.len() as u64);
        }
        let (at, count) = self.range(size);
        match self.rng.below(10) {
            0..=4 => {
                let values = self.new_values(count);
                let bytes = sectors(values.iter().copied());
                assert_eq!(self.files[n].write_at(&bytes, at * SECTOR).unwrap(), bytes.len());
                values.iter().zip(at..).for_each(|(value, at)| self.expected[n].set(at, *value));
                self.expected[n].grow(at + count);
            }
            5 | 6 => {
                self.files[n].set_len(at * SECTOR).unwrap();
                (at..size).for_each(|cut| self.expected[n].set(cut, 0));
                self.expected[n].size.set(at);
            }
            7 => {
                self.files[n].punch_hole(at * SECTOR, count * SECTOR).unwrap();
                (at..(at + count).min(size)).for_each(|gone| self.expected[n].set(gone, 0));
            }
            8 => {
                self.files[n].allocate(at * SECTOR, count * SECTOR, false).unwrap();
                self.expected[n].grow(at + count);
            }
            _ if self.reflink => self.share(n),
            _ => {}
        }
    }

    fn share(&mut self, to: usize) {
        let from = self.rng.index(self.files.len());
        let size = self.expected[from].size.last() / self.block * self.block;
        let (from_at, to_at) = [self.rng.below(size + 1), self.rng.below(LONGEST / 2)]
            .map(|at| at / self.block * self.block)
            .into();
        if from == to || from_at >= size {
            return;
        }
        let count = size - from_at;
        let (source, target) = (&self.files[from], &self.files[to]);
        target.clone_range(source, from_at * SECTOR, to_at * SECTOR, count * SECTOR).unwrap();
        for n in 0..count {
            let value = self.expected[from].get(from_at + n);
            self.expected[to].set(to_at + n, value);
        }
        self.expected[to].grow(to_at + count);
    }
}

/// Runs the workload on a recording device. Returns the volume before it, the files, the history, and the recording.
fn work(engine: &Engine, seed: u64) -> (Image, Vec<FileId>, History, devices::Recording) {
    let open = |device: Arc<dyn block::Device>| Volume::open(device, engine.options()).unwrap();
    let device = Arc::new(ImageDevice::new(engine.format().unwrap()));
    let volume = open(device.clone());
    let root = volume.root();
    let numbers: Vec<FileId> = (0..4)
        .map(|n| volume.create(root, format!("{n}").as_bytes(), &NewFile::regular()).unwrap())
        .collect();
    volume.unmount().unwrap();
    let before = device.image();
    let recorder = Arc::new(RecordDevice::new(Arc::new(ImageDevice::new(before.clone()))));
    let volume = open(recorder.clone());
    let files: Vec<File<'_>> = numbers.iter().map(|ino| volume.open_file(*ino).unwrap()).collect();
    let expected = (0..files.len()).map(|n| ExpectedFile::new(n + 1 == files.len())).collect();
    let (block, reflink) = {
        let geometry = volume.geometry();
        (u64::from(geometry.block_size) / SECTOR, geometry.features.reflink())
    };
    let mut work =
        Work { volume: &volume, files, expected, rng: Rng::stream(seed, 13), next: 1, block, reflink };
    let mut history = History { sync_points: Vec::new(), all: Vec::new() };
    for _ in 0..80 {
        work.step();
        match work.rng.below(12) {
            0 => {
                work.volume.sync().unwrap();
                work.expected.iter_mut().for_each(ExpectedFile::sync);
            }
            1 | 2 => {
                let n = work.rng.index(work.files.len());
                work.files[n].sync_all().unwrap();
                work.expected[n].sync();
            }
            _ => continue,
        }
        history.sync_points.push((recorder.len(), work.expected.clone()));
    }
    history.all = std::mem::take(&mut work.expected);
    drop(work);
    drop(volume);
    (before, numbers, history, recorder.take())
}

fn judge(engine: &Engine, image: Image, files: &[FileId], allowed: &[ExpectedFile]) -> Result<(), String> {
    let device = Arc::new(ImageDevice::new(image));
    let volume = engine.open(device.clone()).map_err(|why| format!("recovery: {why}"))?.into_volume();
    compare(&volume, files, allowed)?;
    volume.unmount().map_err(|why| format!("unmount: {why}"))?;
    check(&*device)
}

#[test]
fn contents_match_the_history_after_power_cuts() {
    for seed in 0..7 {
        let engine = Engine { shape: SHAPES[seed as usize % SHAPES.len()].clone() };
        let (before, files, history, recording) = work(&engine, seed);
        let all = states(&recording, 2, seed);
        let mut builder = StateBuilder::new(&before, &recording);
        let every = all.len().div_ceil(300);
        for state in all.iter().step_by(every) {
            let allowed = history.allowed(state.moment);
            let judged = judge(&engine, builder.build(state), &files, &allowed);
            assert_eq!(judged, Ok(()), "seed {seed} ({}), {state:?}", engine.shape.name);
        }
    }
}
