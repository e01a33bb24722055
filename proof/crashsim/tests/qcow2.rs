//! Power cuts on the file of a qcow2 image: the image must be sound except for leaked clusters, the volume in it must
//! recover, and synced files must be present.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::path::Path;
use std::sync::Arc;

use block::{FileDevice, OpenOptions, Qcow2Device, write_qcow2};
use crashsim::engine::{Engine, check};
use crashsim::shape::SHAPES;
use crashsim::{Image, ImageDevice, StateBuilder, Target as _, states};
use devices::{RecordDevice, Recording};
use volume::{NewFile, Volume};

/// Size of the file in bytes, which does not change.
const FILE: u64 = 200 << 20;

struct TestRun {
    before: Image,
    recording: Recording,
    /// Synced files, each with the number of recorded events after which it must be present.
    files: Vec<(usize, String)>,
}

fn contents(name: &str) -> Vec<u8> {
    name.as_bytes().repeat(3000)
}

/// Formats a volume in an image with few allocated clusters.
fn fresh(engine: &Engine) -> Image {
    let folder = tempfile::tempdir().unwrap();
    let device = |name: &str, bytes: u64| {
        let path = folder.path().join(name);
        std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        // A temporary file needs no lock.
        let options = OpenOptions { writable: true, lock: false, ..OpenOptions::default() };
        FileDevice::open(&path, &options).unwrap()
    };
    let (raw, qcow2) = (device("raw", engine.shape.size), Arc::new(device("qcow2", 0)));
    mkfs::format(&raw, &engine.shape.mkfs()).unwrap();
    write_qcow2(&raw, qcow2.clone()).unwrap();
    block::Device::set_size(&*qcow2, FILE).unwrap();
    Image::of_device(&*qcow2).unwrap()
}

fn open(device: Arc<dyn block::Device>) -> Result<Arc<Qcow2Device>, String> {
    let opened = Qcow2Device::open(device, Path::new("image"), None);
    opened.map(Arc::new).map_err(|error| format!("the image: {error}"))
}

/// Creates and syncs files, and removes some of them with their clusters.
fn run(engine: &Engine) -> TestRun {
    let before = fresh(engine);
    let recorder = Arc::new(RecordDevice::new(Arc::new(ImageDevice::new(before.clone()))));
    let volume = Volume::open(open(recorder.clone()).unwrap(), engine.options()).unwrap();
    let mut files = Vec::new();
    for round in 0..6 {
        let kept = format!("kept {round}");
        let names: Vec<_> = (0..4).map(|n| format!("gone {round} {n}")).chain([kept.clone()]).collect();
        let dir = volume.create_dir_all(format!("/of {round}").as_bytes(), &NewFile::directory()).unwrap();
        for name in &names {
            let file = volume.create(dir, name.as_bytes(), &NewFile::regular()).unwrap();
            volume.open_file(file).unwrap().append(&contents(name)).unwrap();
        }
        volume.sync().unwrap();
        files.push((recorder.len(), format!("/of {round}/{kept}")));
        for name in names.iter().filter(|name| **name != kept) {
            volume.unlink(dir, name.as_bytes()).unwrap();
        }
    }
    volume.unmount().unwrap();
    TestRun { before, recording: recorder.take(), files }
}

fn judge(image: Image, engine: &Engine, run: &TestRun, moment: usize) -> Result<(), String> {
    let file = Arc::new(ImageDevice::new(image));
    let message = |error: volume::Error| error.to_string();
    let disk = open(file.clone())?;
    let volume = engine.open(disk).map_err(|why| format!("recovery: {why}"))?.into_volume();
    for (_, path) in run.files.iter().filter(|(stable, _)| *stable <= moment) {
        let id = volume.resolve(path.as_bytes(), true).map_err(message)?;
        let expected = contents(path.rsplit('/').next().unwrap_or_default());
        let mut bytes = vec![0; expected.len()];
        volume.open_file(id).map_err(message)?.read_at(&mut bytes, 0).map_err(message)?;
        if bytes != expected {
            return Err(format!("{path} has wrong contents"));
        }
    }
    volume.unmount().map_err(|why| format!("unmount: {why}"))?;
    // Opened again, as another process would find it.
    check(&*open(file)?)
}

#[test]
fn volume_in_qcow2_keeps_synced_files_after_power_cuts() {
    for (seed, shape) in (0..).zip(SHAPES.iter().take(2)) {
        let engine = Engine { shape: shape.clone() };
        let run = run(&engine);
        let all = states(&run.recording, 2, seed);
        let mut builder = StateBuilder::new(&run.before, &run.recording);
        for state in all.iter().step_by(all.len().div_ceil(200)) {
            let judged = judge(builder.build(state), &engine, &run, state.moment);
            assert_eq!(judged, Ok(()), "{}, {state:?}", engine.shape.name);
        }
        assert!(run.files.len() == 6 && all.len() >= 100, "{} states", all.len());
    }
}
