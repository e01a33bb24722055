//! Copies of image files: UUID, log, locks, and that nothing remains of a copy that fails.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::cell::Cell;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use block::{FileDevice, MemoryDevice, OpenError, OpenOptions};
use samples::Sample;
use tempfile::TempDir;
use xebec_volume::image::LogStatus;
use xebec_volume::{
    Access, CloneError, ClonedImage, ImageClone, ImageError, ImageOptions, Volume, open_image,
};

/// A folder with an image and the name of a copy.
struct Scene {
    folder: TempDir,
    image: PathBuf,
    copy: PathBuf,
}

impl Scene {
    fn new(sample: Sample) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [image, copy] = ["image", "copy"].map(|name| folder.path().join(name));
        sample.unpack(&image).unwrap();
        Self { folder, image, copy }
    }

    fn clone(&self) -> ImageClone<'static> {
        ImageClone::new(&self.image, &self.copy)
    }

    /// The error, after which the folder has the files that it had.
    #[track_caller]
    fn refusal(&self, clone: ImageClone<'_>) -> CloneError {
        let names = self.names();
        let error = clone.create().unwrap_err();
        assert_eq!(self.names(), names, "{error}");
        error
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = entries.map(|entry| name(entry).into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn writer(path: &Path) -> FileDevice {
    FileDevice::open(path, &OpenOptions { writable: true, ..OpenOptions::default() }).unwrap()
}

fn without_replay() -> ImageOptions {
    ImageOptions { replay: false, ..ImageOptions::default() }
}

fn log(path: &Path) -> LogStatus {
    let options = ImageOptions { replay: false, ..ImageOptions::new(Access::ReadOnly) };
    open_image(path, &options, &mut |_| ()).unwrap().log
}

/// The UUID of a volume, which is opened and must be free of damage.
fn uuid(path: &Path) -> [u8; 16] {
    let volume = Volume::open_path(path).unwrap();
    let uuid = volume.identity().unwrap().uuid;
    volume.unmount().unwrap();
    common::judge(&Arc::new(MemoryDevice::from_bytes(&std::fs::read(path).unwrap())));
    uuid
}

#[test]
fn a_copy_has_another_uuid_and_a_clean_log() {
    for sample in Sample::ALL {
        let scene = Scene::new(sample);
        let before = std::fs::read(&scene.image).unwrap();
        let ClonedImage { uuid: new, size, .. } = scene.clone().create().unwrap();
        assert_eq!(size, before.len() as u64);
        assert!(std::fs::read(&scene.image).unwrap() == before, "the source was written");
        assert!(matches!(log(&scene.copy), LogStatus::Clean));
        assert_eq!(uuid(&scene.copy), new);
        assert_ne!(uuid(&scene.image), new);
        assert_eq!(scene.names(), ["copy", "image"]);
    }
}

#[test]
fn a_copy_with_the_same_uuid_is_replayed_or_equal() {
    for sample in Sample::ALL {
        let scene = Scene::new(sample);
        let before = std::fs::read(&scene.image).unwrap();
        let equal = scene.clone().same_uuid(true).options(without_replay()).create().unwrap();
        assert!(std::fs::read(&scene.copy).unwrap() == before);
        let replayed = scene.clone().same_uuid(true).overwrite(true).create().unwrap();
        assert!(matches!(log(&scene.copy), LogStatus::Clean));
        assert_eq!(std::fs::read(&scene.copy).unwrap() == before, sample == Sample::Clean);
        assert!(std::fs::read(&scene.image).unwrap() == before, "the source was written");
        assert_eq!([equal.uuid, replayed.uuid], [uuid(&scene.image); 2]);
    }
    // A new UUID cannot be set without replay.
    let scene = Scene::new(Sample::Dirty);
    let error = scene.refusal(scene.clone().options(without_replay()));
    assert!(matches!(error, CloneError::Image(ImageError::ChangeWithoutReplay)), "{error}");
}

#[test]
fn a_source_that_a_program_writes_to_is_refused_or_waited_for() {
    let scene = Scene::new(Sample::Clean);
    let held = writer(&scene.image);
    let error = scene.refusal(scene.clone());
    assert!(
        matches!(error, CloneError::Image(ImageError::Open { error: OpenError::Locked { .. }, .. })),
        "{error}"
    );
    let options = ImageOptions { wait: Some(Duration::from_secs(1000)), ..ImageOptions::default() };
    std::thread::scope(|scope| {
        let clone = scope.spawn(|| scene.clone().options(options).create().map(|_| ()));
        assert!(!clone.is_finished());
        drop(held);
        clone.join().unwrap().unwrap();
    });
    // While it is copied, no program can lock it for writing.
    let tried = Cell::new(0);
    let clone = scene.clone().overwrite(true).progress(|_| {
        tried.set(tried.get() + 1);
        let error = Volume::open_path(&scene.image).unwrap_err();
        assert!(error.to_string().contains("open for writing"), "{error}");
        ControlFlow::Continue(())
    });
    clone.create().unwrap();
    assert!(tried.get() > 1);
}

#[test]
fn an_existing_target_is_replaced_only_on_request_and_unless_it_is_locked() {
    let scene = Scene::new(Sample::Clean);
    std::fs::write(&scene.copy, b"other").unwrap();
    let error = scene.refusal(scene.clone());
    assert!(matches!(&error, CloneError::Exists(path) if *path == scene.copy), "{error}");
    let held = writer(&scene.copy);
    let error = scene.refusal(scene.clone().overwrite(true));
    assert!(matches!(error, CloneError::Image(ImageError::Open { .. })), "{error}");
    drop(held);
    assert_eq!(std::fs::read(&scene.copy).unwrap(), b"other");
    let folder = ImageClone::new(&scene.image, scene.folder.path()).overwrite(true);
    let error = scene.refusal(folder);
    assert!(
        matches!(error, CloneError::Image(ImageError::Open { error: OpenError::NotAFile { .. }, .. })),
        "{error}"
    );
    scene.clone().overwrite(true).create().unwrap();
    uuid(&scene.copy);
    // Another program creates it meanwhile.
    std::fs::remove_file(&scene.copy).unwrap();
    let clone = scene.clone().progress(|_| {
        std::fs::write(&scene.copy, b"newer").unwrap();
        ControlFlow::Continue(())
    });
    let error = clone.create().unwrap_err();
    assert!(matches!(error, CloneError::Target(_)), "{error}");
    assert_eq!(error.errno(), Some(base::errno::EEXIST));
    assert_eq!(std::fs::read(&scene.copy).unwrap(), b"newer");
    assert_eq!(scene.names(), ["copy", "image"]);
}

#[test]
fn a_source_must_be_another_file_with_xfs() {
    let scene = Scene::new(Sample::Clean);
    let link = scene.folder.path().join("link");
    std::os::unix::fs::symlink(&scene.image, &link).unwrap();
    for target in [&scene.image, &link] {
        let error = scene.refusal(ImageClone::new(&scene.image, target).overwrite(true));
        assert!(matches!(error, CloneError::SameFile(_)), "{error}");
    }
    let error = scene.refusal(ImageClone::new(scene.folder.path(), &scene.copy));
    assert!(matches!(error, CloneError::NotAFile), "{error}");
    let error = scene.refusal(ImageClone::new(scene.folder.path().join("none"), &scene.copy));
    assert!(matches!(error, CloneError::Source(_)), "{error}");
    assert_eq!(error.errno(), Some(base::errno::ENOENT));
    File::create(&scene.image).unwrap().set_len(1 << 20).unwrap();
    let error = scene.refusal(scene.clone());
    assert!(matches!(error, CloneError::Image(ImageError::NotXfs { .. })), "{error}");
}

/// An external log that is replayed or gets another UUID is lost for the source.
#[test]
fn an_external_log_is_not_shared() {
    const VOLUME: u64 = 64 << 20;
    const LOG: u64 = 20 << 20;
    let scene = Scene::new(Sample::Clean);
    let log = scene.folder.path().join("log");
    for (path, size) in [(&scene.image, VOLUME), (&log, LOG)] {
        File::create(path).unwrap().set_len(size).unwrap();
    }
    let mut format = mkfs::Options::default();
    format.log.location = mkfs::LogLocation::External(LOG);
    let plan = mkfs::Plan::new(&format, VOLUME, 512).unwrap();
    mkfs::write(&writer(&scene.image), Some(&writer(&log)), &plan).unwrap();
    let before = std::fs::read(&log).unwrap();
    let options = ImageOptions { log_device: Some(log.clone()), ..ImageOptions::default() };
    for same_uuid in [false, true] {
        let clone = scene.clone().same_uuid(same_uuid).options(options.clone());
        let error = scene.refusal(clone);
        assert!(matches!(error, CloneError::ExternalLog), "{error}");
    }
    assert!(std::fs::read(&log).unwrap() == before, "the log was written");
    // Nothing is changed in such a copy.
    scene.clone().same_uuid(true).options(without_replay()).create().unwrap();
}

#[test]
fn nothing_remains_of_a_copy_that_is_cancelled_or_fails() {
    let scene = Scene::new(Sample::Clean);
    let error = scene.refusal(scene.clone().progress(|_| ControlFlow::Break(())));
    assert!(matches!(error, CloneError::Cancelled), "{error}");
    // Damage that opening the source does not find, but opening the copy does.
    let file = File::options().write(true).open(&scene.image).unwrap();
    let volume = Volume::open_path(&scene.image).unwrap();
    let agf = volume.geometry().sector_size;
    volume.unmount().unwrap();
    file.write_all_at(&[0xff; 512], u64::from(agf)).unwrap();
    let error = scene.refusal(scene.clone());
    assert!(matches!(error, CloneError::Volume(_)), "{error}");
    // A program that does not lock the source makes it shorter.
    let clone = scene.clone().same_uuid(true).options(without_replay()).progress(|_| {
        file.set_len(100_000).unwrap();
        ControlFlow::Continue(())
    });
    let before = scene.names();
    match clone.create() {
        Err(error) => assert!(matches!(error, CloneError::Source(_)), "{error}"),
        // The host shares blocks of what is left of the source.
        Ok(copied) => assert!(copied.shares_blocks),
    }
    if !scene.copy.exists() {
        assert_eq!(scene.names(), before);
    }
}
