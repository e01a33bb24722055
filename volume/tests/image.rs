//! Opening images: containers, partitions, locks, dirty logs, errors.
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test that fails says where")]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::errno;
use block::{Device, Durability, FileDevice, MemoryDevice, OpenOptions as OpenFile, write_gpt, write_qcow2};
use samples::Sample;
use tempfile::TempDir;
use xebec_volume::image::{LogStatus, OpenedImage};
use xebec_volume::{
    Access, Error, ImageError, ImageOptions, NewFile, Options, Volume, open_image, open_image_on,
};

fn sample(sample: Sample) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.xfs");
    sample.unpack(&path).unwrap();
    (folder, path)
}

fn with(access: Access) -> ImageOptions {
    ImageOptions { access, ..ImageOptions::default() }
}

fn open(path: &Path, options: &ImageOptions) -> Result<OpenedImage, ImageError> {
    open_image(path, options, &mut |notice| panic!("{notice}"))
}

fn refusal(path: &Path, options: &ImageOptions) -> ImageError {
    open(path, options).err().unwrap()
}

fn writable(path: &Path) -> FileDevice {
    FileDevice::open(path, &OpenFile { writable: true, ..OpenFile::default() }).unwrap()
}

#[test]
fn a_clean_volume_is_opened_by_its_path_and_keeps_what_is_changed() {
    let (_folder, path) = sample(Sample::Clean);
    assert!(matches!(open(&path, &with(Access::ReadOnly)).unwrap().log, LogStatus::Clean));
    let volume = Volume::open_path(&path).unwrap();
    volume.create(volume.root(), b"new", &NewFile::regular()).unwrap();
    volume.unmount().unwrap();
    let volume = Volume::open_path(&path).unwrap();
    assert!(volume.recovered().is_none() && volume.resolve(b"/new", true).is_ok());
    volume.unmount().unwrap();
}

#[test]
fn a_dirty_log_is_replayed_in_memory_or_in_place() {
    let (_folder, path) = sample(Sample::Dirty);
    let before = std::fs::read(&path).unwrap();
    let opened = open(&path, &with(Access::ReadOnly)).unwrap();
    let LogStatus::Replayed(replay) = &opened.log else { panic!("{:?}", opened.log) };
    assert!(replay.report.transactions > 0 && replay.left.is_empty() && !opened.log.is_partial());
    assert!(opened.device.is_read_only());
    let options = ImageOptions { replay: false, ..with(Access::ReadOnly) };
    assert!(matches!(open(&path, &options).unwrap().log, LogStatus::Ignored(_)));
    for access in [Access::ReadOnly, Access::InMemory] {
        let volume = Volume::open_path_with(&path, &with(access), Options::default()).unwrap();
        assert!(volume.recovered().is_some());
        volume.create(volume.root(), b"new", &NewFile::regular()).unwrap();
        volume.unmount().unwrap();
    }
    assert!(std::fs::read(&path).unwrap() == before, "the image was written");
    Volume::open_path(&path).unwrap().unmount().unwrap();
    assert!(matches!(open(&path, &with(Access::ReadOnly)).unwrap().log, LogStatus::Clean));
}

#[test]
fn a_volume_is_not_changed_without_its_log() {
    let (_folder, path) = sample(Sample::Dirty);
    for access in [Access::InMemory, Access::ReadWrite] {
        let error = refusal(&path, &ImageOptions { replay: false, ..with(access) });
        assert!(matches!(error, ImageError::ChangeWithoutReplay), "{error}");
    }
}

#[test]
fn a_locked_image_is_refused_for_changes_and_announced_to_readers() {
    let (_folder, path) = sample(Sample::Clean);
    let volume = Volume::open_path(&path).unwrap();
    let error = Volume::open_path(&path).unwrap_err();
    assert!(error.to_string().contains("--wait"), "{error}");
    let mut notices = Vec::new();
    open_image(&path, &with(Access::ReadOnly), &mut |notice| notices.push(notice.to_string())).unwrap();
    assert!(notices.len() == 1 && notices[0].contains("may be out of date"), "{notices:?}");
    volume.unmount().unwrap();
    open(&path, &with(Access::ReadWrite)).unwrap();
}

#[test]
fn partitions_and_offsets_are_found() {
    const START: u64 = 1 << 20;
    let (_folder, path) = sample(Sample::Clean);
    let volume = std::fs::read(&path).unwrap();
    File::create(&path).unwrap().set_len(volume.len() as u64 + 2 * START).unwrap();
    let device = writable(&path);
    device.write_at(START, &volume, Durability::Buffered).unwrap();
    write_gpt(&device, START..START + volume.len() as u64, [[1; 16], [2; 16]]).unwrap();
    drop(device);
    let numbered = ImageOptions { partition: Some(1), ..ImageOptions::default() };
    let at_offset = ImageOptions { offset: Some(START), ..ImageOptions::default() };
    for options in [ImageOptions::default(), numbered, at_offset] {
        Volume::open_path_with(&path, &options, Options::default()).unwrap().unmount().unwrap();
    }
    let error = refusal(&path, &ImageOptions { partition: Some(2), ..ImageOptions::default() });
    assert!(matches!(error, ImageError::Open { .. }), "{error}");
    let disk = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&path).unwrap()));
    let opened = open_image_on(disk, &with(Access::ReadOnly)).unwrap();
    assert_eq!(opened.device.size(), volume.len() as u64);
}

#[test]
fn a_disk_in_a_qcow2_image_is_changed_in_place() {
    let (folder, path) = sample(Sample::Clean);
    let image = folder.path().join("disk.qcow2");
    File::create(&image).unwrap();
    write_qcow2(&writable(&path), Arc::new(writable(&image))).unwrap();
    let volume = Volume::open_path(&image).unwrap();
    volume.create(volume.root(), b"new", &NewFile::regular()).unwrap();
    volume.unmount().unwrap();
    let volume = Volume::open_path_with(&image, &with(Access::ReadOnly), Options::default()).unwrap();
    assert!(volume.resolve(b"/new", true).is_ok());
}

#[test]
fn other_file_systems_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    assert_eq!(Volume::open_path(&path).unwrap_err().errno(), errno::ENOENT);
    let file = File::create(&path).unwrap();
    for length in [0, 100, 1 << 20] {
        file.set_len(length).unwrap();
        assert!(matches!(refusal(&path, &with(Access::ReadOnly)), ImageError::NotXfs { .. }), "{length}");
    }
    file.write_all_at(&[0x53, 0xef], 1024 + 56).unwrap();
    let error = Volume::open_path(&path).unwrap_err();
    assert!(matches!(error, Error::Image(_)) && error.to_string().contains("ext"), "{error}");
}

#[test]
fn a_damaged_superblock_is_refused_unless_damage_is_examined() {
    let (_folder, path) = sample(Sample::Clean);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[0x40], 216).unwrap();
    let error = refusal(&path, &with(Access::ReadWrite));
    assert!(matches!(error, ImageError::Superblock { .. }), "{error}");
    assert_eq!(error.errno(), errno::EFSCORRUPTED);
    let options = ImageOptions { damaged: true, ..with(Access::ReadOnly) };
    let opened = open(&path, &options).unwrap();
    assert!(matches!(opened.log, LogStatus::Unreadable(ImageError::Superblock { .. })));
    file.write_all_at(&[0], 216).unwrap();
    file.set_len(32 << 20).unwrap();
    assert!(matches!(open(&path, &options).unwrap().log, LogStatus::Unreadable(_)));
    assert!(matches!(refusal(&path, &with(Access::ReadOnly)), ImageError::Truncated { .. }));
}

#[test]
fn a_log_device_belongs_to_an_external_log_alone() {
    let (_folder, path) = sample(Sample::Clean);
    let options = ImageOptions { log_device: Some(path.clone()), ..with(Access::ReadOnly) };
    assert!(matches!(refusal(&path, &options), ImageError::LogIsInternal(_)));
}
