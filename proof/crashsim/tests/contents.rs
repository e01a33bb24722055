//! Contents of files over power cuts: whatever survives, the volume is sound, no file shows what it never held, what
//! was synced is there, and a file that was only appended to is a prefix of what was appended.
//!
//! Every sector that is written holds one number, which is written nowhere else: so each sector that is found tells
//! which write it is of.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::sync::Arc;

use base::Ino;
use block::RecordDevice;
use crashsim::engine::{Engine, check};
use crashsim::shape::SHAPES;
use crashsim::stamped::{Known, SECTOR, compare, sectors};
use crashsim::{Builder, Image, ImageDevice, Target as _, states};
use model::Rng;
use volume::{File, NewFile, Volume};

/// Sectors of the longest file.
const LONGEST: u64 = 600;

/// The files after each step that made something stable, or at the end: whatever comes later only allows more.
struct History {
    /// The events of the recording before what `known` says was stable, and the files then.
    marks: Vec<(usize, Vec<Known>)>,
    /// All that the files ever held.
    all: Vec<Known>,
}

impl History {
    /// What must hold of a state that is cut at `moment`: floors of the last mark before it, values of the whole run.
    fn allowed(&self, moment: usize) -> Vec<Known> {
        let mut allowed = self.all.clone();
        let floors = self.marks.iter().rfind(|(at, _)| *at <= moment);
        for (n, known) in allowed.iter_mut().enumerate() {
            known.floors_as(floors.map(|(_, files)| &files[n]));
        }
        allowed
    }
}

/// A run in progress.
struct Work<'v> {
    volume: &'v Volume,
    files: Vec<File<'v>>,
    known: Vec<Known>,
    rng: Rng,
    next: u64,
    /// Whole blocks, in sectors.
    block: u64,
    reflink: bool,
}

impl Work<'_> {
    fn fresh(&mut self, count: u64) -> Vec<u64> {
        let from = self.next;
        self.next += count;
        (from..self.next).collect()
    }

    fn range(&mut self, size: u64) -> (u64, u64) {
        let at = self.rng.below(size + 20).min(LONGEST - 1);
        let most = [3, 20, 200][self.rng.index(3)];
        (at, 1 + self.rng.below(most).min(LONGEST - at - 1))
    }

    /// The last file is only appended to.
    fn step(&mut self) {
        let last = self.files.len() - 1;
        let n = self.rng.index(self.files.len());
        let size = self.known[n].size.last();
        if n == last {
            let values = self.rng.below(40) + 1;
            let values = self.fresh(values);
            self.files[n].append(&sectors(values.iter().copied())).unwrap();
            values.iter().zip(size..).for_each(|(value, at)| self.known[n].set(at, *value));
            return self.known[n].grow(size + values.len() as u64);
        }
        let (at, count) = self.range(size);
        match self.rng.below(10) {
            0..=4 => {
                let values = self.fresh(count);
                let bytes = sectors(values.iter().copied());
                assert_eq!(self.files[n].write_at(&bytes, at * SECTOR).unwrap(), bytes.len());
                values.iter().zip(at..).for_each(|(value, at)| self.known[n].set(at, *value));
                self.known[n].grow(at + count);
            }
            5 | 6 => {
                self.files[n].set_len(at * SECTOR).unwrap();
                (at..size).for_each(|cut| self.known[n].set(cut, 0));
                self.known[n].size.set(at);
            }
            7 => {
                self.files[n].punch_hole(at * SECTOR, count * SECTOR).unwrap();
                (at..(at + count).min(size)).for_each(|gone| self.known[n].set(gone, 0));
            }
            8 => {
                self.files[n].allocate(at * SECTOR, count * SECTOR, false).unwrap();
                self.known[n].grow(at + count);
            }
            _ if self.reflink => self.share(n),
            _ => {}
        }
    }

    fn share(&mut self, to: usize) {
        let from = self.rng.index(self.files.len());
        let size = self.known[from].size.last() / self.block * self.block;
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
            let value = self.known[from].get(from_at + n);
            self.known[to].set(to_at + n, value);
        }
        self.known[to].grow(to_at + count);
    }
}

/// Works on a volume whose device remembers all; gives also the volume before.
fn work(engine: &Engine, seed: u64) -> (Image, Vec<Ino>, History, block::Recording) {
    let open = |device: Arc<dyn block::Device>| Volume::open(device, engine.options()).unwrap();
    let device = Arc::new(ImageDevice::new(engine.format().unwrap()));
    let volume = open(device.clone());
    let root = volume.root();
    let numbers: Vec<Ino> = (0..4)
        .map(|n| volume.create(root, format!("{n}").as_bytes(), &NewFile::regular()).unwrap())
        .collect();
    volume.unmount().unwrap();
    let before = device.image();
    let recorder = Arc::new(RecordDevice::new(ImageDevice::new(before.clone())));
    let volume = open(recorder.clone());
    let files: Vec<File<'_>> = numbers.iter().map(|ino| volume.open_file(*ino).unwrap()).collect();
    let known = (0..files.len()).map(|n| Known::new(n + 1 == files.len())).collect();
    let (block, reflink) = {
        let geometry = volume.geometry();
        (u64::from(geometry.block_size) / SECTOR, geometry.features.reflink())
    };
    let mut work = Work { volume: &volume, files, known, rng: Rng::part(seed, 13), next: 1, block, reflink };
    let mut history = History { marks: Vec::new(), all: Vec::new() };
    for _ in 0..80 {
        work.step();
        match work.rng.below(12) {
            0 => {
                work.volume.sync().unwrap();
                work.known.iter_mut().for_each(Known::sync);
            }
            1 | 2 => {
                let n = work.rng.index(work.files.len());
                work.files[n].sync_all().unwrap();
                work.known[n].sync();
            }
            _ => continue,
        }
        history.marks.push((recorder.len(), work.known.clone()));
    }
    history.all = std::mem::take(&mut work.known);
    drop(work);
    drop(volume);
    (before, numbers, history, recorder.take())
}

fn judge(engine: &Engine, image: Image, files: &[Ino], allowed: &[Known]) -> Result<(), String> {
    let device = Arc::new(ImageDevice::new(image));
    let volume = engine.open(device.clone()).map_err(|why| format!("recovery: {why}"))?.into_volume();
    compare(&volume, files, allowed)?;
    volume.unmount().map_err(|why| format!("unmount: {why}"))?;
    check(&*device)
}

#[test]
fn files_hold_what_they_held_at_some_moment() {
    for seed in 0..7 {
        let engine = Engine { shape: SHAPES[seed as usize % SHAPES.len()].clone() };
        let (before, files, history, recording) = work(&engine, seed);
        let all = states(&recording, 2, seed);
        let mut builder = Builder::new(&before, &recording);
        let every = all.len().div_ceil(300);
        for state in all.iter().step_by(every) {
            let allowed = history.allowed(state.moment);
            let judged = judge(&engine, builder.build(state), &files, &allowed);
            assert_eq!(judged, Ok(()), "seed {seed} ({}), {state:?}", engine.shape.name);
        }
    }
}
