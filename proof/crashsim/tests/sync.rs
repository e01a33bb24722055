//! Power cuts during `xebec sync`: every file must have the old or the new contents, and the next run must complete the
//! synchronization.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::path::Path;
use std::sync::Arc;

use crashsim::engine::{Engine, check};
use crashsim::shape::SHAPES;
use crashsim::{Image, ImageDevice, StateBuilder, Target as _, states};
use devices::{RecordDevice, Recording};
use transfer::sync::SyncReport;
use transfer::{Directory, Overrides, TreeSync};
use volume::{Error, Volume};

/// Number of crash states judged per shape.
const STATES: usize = 250;

/// Returns the contents of a file before and after the change; `None` if it does not exist.
fn contents(n: u8, after: bool) -> Option<Vec<u8>> {
    let size = [10, 5000, 70_000, 300_000][usize::from(n) % 4];
    match (n % 8, after) {
        (0..3, false) | (3..6, true) => Some(vec![n + u8::from(after) * 100; size]),
        (0..3, true) => None,
        (3..6, false) => Some(vec![n; size + 1]),
        // Contents of the same size.
        (_, after) => (n % 8 == 6 || after).then(|| vec![n + u8::from(after) * 100; size]),
    }
}

fn name(n: u8) -> String {
    format!("of {}/file {n}", n % 3)
}

fn write_tree(folder: &Path, after: bool) {
    for n in 0..24 {
        let path = folder.join(name(n));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        match contents(n, after) {
            Some(bytes) => std::fs::write(path, bytes).unwrap(),
            None => drop(std::fs::remove_file(path)),
        }
    }
}

fn sync(volume: &Volume, folder: &Path) -> SyncReport {
    let (directory, overrides) = (Directory::new(folder), Overrides::default());
    let sync = TreeSync::new(&directory, &overrides);
    sync.run(volume, volume.root(), 1, &mut |_, _| {}).unwrap()
}

fn judge(image: Image, engine: &Engine, folder: &Path, again: bool) -> Result<(), String> {
    let device = Arc::new(ImageDevice::new(image));
    let message = |error: Error| error.to_string();
    let volume = engine.open(device.clone()).map_err(|why| format!("recovery: {why}"))?.into_volume();
    let seen = |n: u8| -> Result<_, String> {
        let Ok(ino) = volume.resolve(format!("/{}", name(n)).as_bytes(), false) else { return Ok(None) };
        let file = volume.open_file(ino).map_err(message)?;
        let mut bytes = vec![0; file.len() as usize];
        file.read_at(&mut bytes, 0).map_err(message)?;
        Ok(Some(bytes))
    };
    for n in 0..24 {
        let seen = seen(n)?;
        if seen != contents(n, false) && seen != contents(n, true) {
            return Err(format!("{} has neither the old nor the new contents", name(n)));
        }
    }
    if again {
        sync(&volume, folder);
        for n in 0..24 {
            if seen(n)? != contents(n, true) {
                return Err(format!("{} has wrong contents after the second run", name(n)));
            }
        }
        let done = sync(&volume, folder);
        if done.files() != done.unchanged || done.removed > 0 {
            return Err(format!("a third run has changes: {done:?}"));
        }
    }
    volume.unmount().map_err(|why| format!("unmount: {why}"))?;
    check(&*device)
}

#[test]
fn files_have_the_old_or_new_contents_after_power_cuts() {
    for (seed, shape) in (0..).zip(SHAPES.iter().take(3)) {
        let engine = Engine { shape: shape.clone() };
        let folder = tempfile::tempdir().unwrap();
        let device = Arc::new(ImageDevice::new(Image::new(engine.shape.size)));
        mkfs::format(&*device, &engine.shape.mkfs()).unwrap();
        write_tree(folder.path(), false);
        let volume = Volume::open(device.clone(), engine.options()).unwrap();
        sync(&volume, folder.path());
        volume.unmount().unwrap();
        let before = device.image();
        write_tree(folder.path(), true);
        let recorder = Arc::new(RecordDevice::new(Arc::new(ImageDevice::new(before.clone()))));
        let volume = Volume::open(recorder.clone(), engine.options()).unwrap();
        let done = sync(&volume, folder.path());
        assert!(done.created > 0 && done.replaced > 0 && done.removed > 0, "{done:?}");
        volume.unmount().unwrap();
        let recording: Recording = recorder.take();
        let all = states(&recording, 2, seed);
        let mut builder = StateBuilder::new(&before, &recording);
        for (n, state) in all.iter().step_by(all.len().div_ceil(STATES)).enumerate() {
            let judged = judge(builder.build(state), &engine, folder.path(), n % 10 == 0);
            assert_eq!(judged, Ok(()), "{}, {state:?}", engine.shape.name);
        }
    }
}
