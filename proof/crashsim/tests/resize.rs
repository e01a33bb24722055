//! Growing and shrinking over power cuts: whatever survives has the old size or the new one, is sound, and holds what
//! was synced before. What had returned is there.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::sync::Arc;

use block::{Device, RecordDevice, Recording};
use crashsim::engine::{Engine, check};
use crashsim::shape::SHAPES;
use crashsim::{Builder, Image, ImageDevice, Target as _, states};
use volume::{NewFile, Volume, resize};

const MIB: u64 = 1 << 20;
/// Bytes of the device: the largest that a volume becomes.
const DEVICE: u64 = 150 * MIB;

/// A run, and the sizes in blocks that the volume may have after a cut: each from an event of the recording on, which
/// is the call's first, until the events of the next, which are those when it had returned.
struct Run {
    before: Image,
    recording: Recording,
    /// The first event at which each size could be found, and the one from which on no smaller index was allowed.
    sizes: Vec<(usize, usize, u64)>,
    /// Files that were synced, with the event from which on they must be there.
    files: Vec<(usize, String)>,
}

impl Run {
    fn size(&mut self, began: usize, ended: usize, blocks: u64) {
        self.sizes.push((began, ended, blocks));
    }

    /// The sizes that a cut at this moment may leave.
    fn allowed(&self, moment: usize) -> Vec<u64> {
        let settled = self.sizes.iter().rposition(|(_, ended, _)| *ended <= moment).unwrap_or(0);
        let begun = |(began, ..): &&(usize, usize, u64)| *began <= moment;
        self.sizes[settled..].iter().filter(begun).map(|(.., blocks)| *blocks).collect()
    }
}

fn contents(name: &str) -> Vec<u8> {
    name.as_bytes().repeat(300)
}

fn fill(volume: &Volume, names: &[String]) {
    for name in names {
        let dir = volume.create_dir_all(format!("/of {name}").as_bytes(), &NewFile::directory()).unwrap();
        let file = volume.create(dir, name.as_bytes(), &NewFile::regular()).unwrap();
        volume.open_file(file).unwrap().append(&contents(name)).unwrap();
    }
    volume.sync().unwrap();
}

fn names(kind: &str) -> Vec<String> {
    (0..12).map(|n| format!("{kind} {n}")).collect()
}

/// A fresh volume on a device with room behind it.
fn fresh(engine: &Engine, size: u64) -> Image {
    let device = ImageDevice::new(Image::new(DEVICE));
    mkfs::format(&device, &mkfs::Options { size: Some(size), ..engine.shape.mkfs() }).unwrap();
    device.image()
}

/// Files, growth within the last AG and by several, files, growth again, files.
fn growing(engine: &Engine) -> Run {
    let before = fresh(engine, engine.shape.size);
    let recorder = Arc::new(RecordDevice::new(ImageDevice::new(before.clone())));
    let volume = Volume::open(recorder.clone(), engine.options()).unwrap();
    let block = u64::from(volume.geometry().block_size);
    let (recording, files) = (Recording::default(), Vec::new());
    let mut run = Run { before, recording, sizes: vec![(0, 0, volume.geometry().blocks())], files };
    for (n, size) in [26 * MIB, 70 * MIB, DEVICE].into_iter().enumerate() {
        let written = names(&format!("round {n}"));
        fill(&volume, &written);
        run.files.extend(written.into_iter().map(|name| (recorder.len(), name)));
        let began = recorder.len();
        let blocks = volume.grow((engine.shape.size.max(size)) / block).unwrap();
        run.size(began, recorder.len(), blocks);
    }
    let written = names("last");
    fill(&volume, &written);
    run.files.extend(written.into_iter().map(|name| (recorder.len(), name)));
    drop(volume);
    run.recording = recorder.take();
    run
}

/// A volume with files at its beginning, and a tail that was used and is free again, cut off in two steps.
fn shrinking(engine: &Engine) -> Run {
    let device = ImageDevice::new(fresh(engine, DEVICE));
    let device: Arc<ImageDevice> = Arc::new(device);
    let volume = Volume::open(device.clone(), engine.options()).unwrap();
    let written = names("kept");
    fill(&volume, &written);
    let gone = names("gone");
    fill(&volume, &gone);
    for name in gone {
        let dir = volume.resolve(format!("/of {name}").as_bytes(), true).unwrap();
        volume.unlink(dir, name.as_bytes()).unwrap();
    }
    let blocks = volume.geometry().blocks();
    volume.unmount().unwrap();
    let before = device.image();
    let recorder = Arc::new(RecordDevice::new(ImageDevice::new(before.clone())));
    let files = written.into_iter().map(|name| (0, name)).collect();
    let mut run = Run { before, recording: Recording::default(), sizes: vec![(0, 0, blocks)], files };
    let shared: Arc<dyn Device> = recorder.clone();
    for wanted in [Some(blocks - 10), None] {
        let began = recorder.len();
        // Whole AGs go first, and then the end of the last one in one or more steps.
        let done = resize::shrink(&shared, &engine.options(), wanted).unwrap();
        run.size(began, recorder.len(), done.after);
    }
    run.recording = recorder.take();
    run
}

fn judge(image: Image, engine: &Engine, run: &Run, moment: usize, steps: bool) -> Result<(), String> {
    let device = Arc::new(ImageDevice::new(image));
    let words = |error: volume::Error| error.to_string();
    let volume = engine.open(device.clone()).map_err(|why| format!("recovery: {why}"))?.into_volume();
    let blocks = volume.geometry().blocks();
    let allowed = run.allowed(moment);
    // Between the sizes before and after a shrink there are steps.
    let between = steps && allowed.iter().min() <= Some(&blocks) && Some(&blocks) <= allowed.iter().max();
    if !allowed.contains(&blocks) && !between {
        return Err(format!("{blocks} blocks, and may have {allowed:?}"));
    }
    for (_, name) in run.files.iter().filter(|(stable, _)| *stable <= moment) {
        let ino = volume.resolve(format!("/of {name}/{name}").as_bytes(), true).map_err(words)?;
        let mut bytes = vec![0; contents(name).len()];
        volume.open_file(ino).map_err(words)?.read_at(&mut bytes, 0).map_err(words)?;
        if bytes != contents(name) {
            return Err(format!("{name} holds something else"));
        }
    }
    volume.unmount().map_err(|why| format!("unmount: {why}"))?;
    check(&*device)
}

fn judge_all(engine: &Engine, run: &Run, steps: bool, most: usize, seed: u64) {
    let all = states(&run.recording, 2, seed);
    let mut builder = Builder::new(&run.before, &run.recording);
    for state in all.iter().step_by(all.len().div_ceil(most)) {
        let judged = judge(builder.build(state), engine, run, state.moment, steps);
        assert_eq!(judged, Ok(()), "{}, {state:?}", engine.shape.name);
    }
    let sizes: Vec<u64> = run.sizes.iter().map(|size| size.2).collect();
    assert!(sizes.windows(2).any(|pair| pair[0] != pair[1]), "{}: {sizes:?}", engine.shape.name);
}

#[test]
fn a_volume_that_grows_has_one_size_or_the_other() {
    for (seed, shape) in (0..).zip(&SHAPES) {
        let engine = Engine { shape: shape.clone() };
        judge_all(&engine, &growing(&engine), false, 400, seed);
    }
}

#[test]
fn a_volume_that_shrinks_has_one_size_or_the_other() {
    for (seed, shape) in (0..).zip(&SHAPES) {
        let engine = Engine { shape: shape.clone() };
        judge_all(&engine, &shrinking(&engine), true, 400, seed);
    }
}
