//! `fsync` writes and flushes what is not stable of a file, and nothing else.

use std::sync::Arc;

use block::MemoryDevice;
use devices::{Event, RecordDevice};

use crate::{NewFile, Options, SetMetadata, Volume};

const BLOCK: [u8; 4096] = [7; 4096];

/// Returns an empty volume without threads, so that all I/O is that of the calls.
fn volume() -> (Arc<RecordDevice>, Volume) {
    let base = Arc::new(MemoryDevice::new(64 << 20));
    mkfs::format(&*base, &mkfs::Options::default()).unwrap();
    let device = Arc::new(RecordDevice::new(base));
    let options = Options { background: false, seed: Some(1), ..Options::default() };
    let volume = Volume::open(device.clone(), options).unwrap();
    (device, volume)
}

/// Returns the writes and the flushes since the last call.
fn io(device: &RecordDevice) -> (usize, usize) {
    let events = device.take().events;
    let flushes = events.iter().filter(|event| matches!(event, Event::Flush)).count();
    (events.len() - flushes, flushes)
}

#[test]
fn fsync_of_a_file_that_is_stable_costs_no_io() {
    let (device, volume) = volume();
    let [ino, other] = [&b"file"[..], b"other"].map(|name| {
        let ino = volume.create(volume.root(), name, &NewFile::regular()).unwrap();
        let file = volume.open_file(ino).unwrap();
        file.write_at(&BLOCK, 0).unwrap();
        file.sync_all().unwrap();
        ino
    });
    let (file, other) = (volume.open_file(ino).unwrap(), volume.open_file(other).unwrap());
    io(&device);
    let expect_none = |what: &str| {
        for _ in 0..3 {
            file.sync_all().unwrap();
            file.sync_data().unwrap();
            volume.open_file(ino).unwrap().sync_all().unwrap();
        }
        assert_eq!(io(&device), (0, 0), "{what}");
    };
    expect_none("nothing changed");
    let mut read = [0; 100];
    file.read_at(&mut read, 0).unwrap();
    expect_none("the file was read");
    other.write_at(&BLOCK, 0).unwrap();
    expect_none("another file is dirty");
    volume.cache.sync_all().unwrap();
    assert!(io(&device).0 > 0);
    expect_none("another file was written, and not flushed");
    other.sync_all().unwrap();
    assert!(io(&device).1 > 0);
    drop((file, other));
    volume.unmount().unwrap();
}

#[test]
fn fsync_makes_stable_whatever_was_changed() {
    let (device, volume) = volume();
    let ino = volume.create(volume.root(), b"file", &NewFile::regular()).unwrap();
    let file = volume.open_file(ino).unwrap();
    file.write_at(&BLOCK, 0).unwrap();
    file.sync_all().unwrap();
    io(&device);
    // In place: perhaps no transaction follows. The second time, another thread has written it back.
    for written in [false, true] {
        file.write_at(&BLOCK, 0).unwrap();
        if written {
            volume.cache.sync_all().unwrap();
            assert_eq!(io(&device).1, 0);
        }
        file.sync_data().unwrap();
        let recording = device.take();
        assert!(recording.unstable_writes(recording.events.len()).is_empty());
        assert!(recording.events.contains(&Event::Flush));
    }
    file.set_metadata(&SetMetadata { permissions: Some(0o600), ..SetMetadata::default() }).unwrap();
    assert_eq!(io(&device), (0, 0));
    file.sync_all().unwrap();
    assert!(io(&device).0 > 0, "the log was not written");
    file.sync_all().unwrap();
    assert_eq!(io(&device), (0, 0));
    drop(file);
    volume.unmount().unwrap();
}
