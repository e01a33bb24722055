//! Power cuts during growing and shrinking: the volume must have the old or the new size, be sound, and contain the
//! files that were synced. A completed resize must not be undone.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::sync::Arc;

use block::Device;
use crashsim::engine::{Engine, check};
use crashsim::shape::SHAPES;
use crashsim::{Image, ImageDevice, StateBuilder, Target as _, states};
use devices::{RecordDevice, Recording};
use volume::{NewFile, Volume, resize};

const MIB: u64 = 1 << 20;
/// Size of the device in bytes: the maximum size of a volume.
const DEVICE: u64 = 150 * MIB;

/// A recorded run.
struct TestRun {
    before: Image,
    recording: Recording,
    /// Successive sizes of the volume.
    sizes: Vec<Size>,
    /// Synced files, each with the number of recorded events after which it must be present.
    files: Vec<(usize, String)>,
}

/// A size of the volume, and when the call that set it ran, in recorded events.
struct Size {
    began: usize,
    ended: usize,
    blocks: u64,
}

impl TestRun {
    /// Returns the sizes that a cut at this moment may leave.
    fn allowed(&self, moment: usize) -> Vec<u64> {
        let last_completed = self.sizes.iter().rposition(|size| size.ended <= moment).unwrap_or(0);
        let begun = self.sizes[last_completed..].iter().filter(|size| size.began <= moment);
        begun.map(|size| size.blocks).collect()
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

/// Formats a volume on a device with space after it.
fn fresh(engine: &Engine, size: u64) -> Image {
    let device = ImageDevice::new(Image::new(DEVICE));
    mkfs::format(&device, &mkfs::Options { size: Some(size), ..engine.shape.mkfs() }).unwrap();
    device.image()
}

/// Creates files and grows the volume in turn, within the last AG and by several AGs.
fn growing(engine: &Engine) -> TestRun {
    let before = fresh(engine, engine.shape.size);
    let recorder = Arc::new(RecordDevice::new(Arc::new(ImageDevice::new(before.clone()))));
    let volume = Volume::open(recorder.clone(), engine.options()).unwrap();
    let block = u64::from(volume.geometry().block_size);
    let (recording, files) = (Recording::default(), Vec::new());
    let mut run = TestRun {
        before,
        recording,
        sizes: vec![Size { began: 0, ended: 0, blocks: volume.geometry().blocks() }],
        files,
    };
    for (n, size) in [26 * MIB, 70 * MIB, DEVICE].into_iter().enumerate() {
        let written = names(&format!("round {n}"));
        fill(&volume, &written);
        run.files.extend(written.into_iter().map(|name| (recorder.len(), name)));
        let began = recorder.len();
        let blocks = volume.grow((engine.shape.size.max(size)) / block).unwrap();
        run.sizes.push(Size { began, ended: recorder.len(), blocks });
    }
    let written = names("last");
    fill(&volume, &written);
    run.files.extend(written.into_iter().map(|name| (recorder.len(), name)));
    drop(volume);
    run.recording = recorder.take();
    run
}

/// Shrinks a volume twice. It has files at its start; its end was used and is free again.
fn shrinking(engine: &Engine) -> TestRun {
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
    let recorder = Arc::new(RecordDevice::new(Arc::new(ImageDevice::new(before.clone()))));
    let files = written.into_iter().map(|name| (0, name)).collect();
    let mut run = TestRun {
        before,
        recording: Recording::default(),
        sizes: vec![Size { began: 0, ended: 0, blocks }],
        files,
    };
    let shared: Arc<dyn Device> = recorder.clone();
    for wanted in [Some(blocks - 10), None] {
        let began = recorder.len();
        // Whole AGs are removed first, then the end of the last AG in one or more steps.
        let done = resize::shrink(&shared, &engine.options(), wanted).unwrap();
        run.sizes.push(Size { began, ended: recorder.len(), blocks: done.after });
    }
    run.recording = recorder.take();
    run
}

fn judge(image: Image, engine: &Engine, run: &TestRun, moment: usize, steps: bool) -> Result<(), String> {
    let device = Arc::new(ImageDevice::new(image));
    let message = |error: volume::Error| error.to_string();
    let volume = engine.open(device.clone()).map_err(|why| format!("recovery: {why}"))?.into_volume();
    let blocks = volume.geometry().blocks();
    let allowed = run.allowed(moment);
    // A shrink passes through sizes in between.
    let between = steps && allowed.iter().min() <= Some(&blocks) && Some(&blocks) <= allowed.iter().max();
    if !allowed.contains(&blocks) && !between {
        return Err(format!("{blocks} blocks, expected one of {allowed:?}"));
    }
    for (_, name) in run.files.iter().filter(|(stable, _)| *stable <= moment) {
        let id = volume.resolve(format!("/of {name}/{name}").as_bytes(), true).map_err(message)?;
        let mut bytes = vec![0; contents(name).len()];
        volume.open_file(id).map_err(message)?.read_at(&mut bytes, 0).map_err(message)?;
        if bytes != contents(name) {
            return Err(format!("{name} has wrong contents"));
        }
    }
    volume.unmount().map_err(|why| format!("unmount: {why}"))?;
    check(&*device)
}

fn judge_all(engine: &Engine, run: &TestRun, steps: bool, most: usize, seed: u64) {
    let all = states(&run.recording, 2, seed);
    let mut builder = StateBuilder::new(&run.before, &run.recording);
    for state in all.iter().step_by(all.len().div_ceil(most)) {
        let judged = judge(builder.build(state), engine, run, state.moment, steps);
        assert_eq!(judged, Ok(()), "{}, {state:?}", engine.shape.name);
    }
    let sizes: Vec<u64> = run.sizes.iter().map(|size| size.blocks).collect();
    assert!(sizes.windows(2).any(|pair| pair[0] != pair[1]), "{}: {sizes:?}", engine.shape.name);
}

#[test]
fn growing_volume_has_the_old_or_new_size_after_power_cuts() {
    for (seed, shape) in (0..).zip(&SHAPES) {
        let engine = Engine { shape: shape.clone() };
        judge_all(&engine, &growing(&engine), false, 400, seed);
    }
}

#[test]
fn shrinking_volume_has_an_allowed_size_after_power_cuts() {
    for (seed, shape) in (0..).zip(&SHAPES) {
        let engine = Engine { shape: shape.clone() };
        judge_all(&engine, &shrinking(&engine), true, 400, seed);
    }
}
