//! A change of an extent map or of a size that follows a write in place must not be stable before the write.
//!
//! The simulation cut the power after a clone: the clone had the contents that its source had before its last write.
//! The device was not flushed between that write and the log record of the clone.

use std::sync::Arc;

use block::{MemoryDevice, OverlayDevice};
use devices::{PowerCut, RecordDevice};

use crate::{File, NewFile, OpenOptions, Options, Result, Volume};

const BYTES: u64 = 4 * 4096;

/// Creates two files of ones, and makes them stable. Runs `change`, forces only the log, and cuts the power: all writes
/// that were not flushed are lost. Returns the contents of the second file.
fn left_after(change: impl Fn(&File<'_>, &File<'_>) -> Result<()>) -> Vec<u8> {
    let base = Arc::new(MemoryDevice::new(64 << 20));
    mkfs::format(&*base, &mkfs::Options::default()).unwrap();
    let options = || Options { seed: Some(1), ..Options::default() };
    let volume = Volume::open(base.clone(), options()).unwrap();
    let inos = [&b"source"[..], b"target"].map(|name| {
        let ino = volume.create(volume.root(), name, &NewFile::regular()).unwrap();
        volume.open_file(ino).unwrap().write_at(&[1; BYTES as usize], 0).unwrap();
        ino
    });
    volume.unmount().unwrap();
    let device = Arc::new(RecordDevice::new(Arc::new(OverlayDevice::new(base.clone()))));
    let volume = Volume::open(device.clone(), options()).unwrap();
    let [source, target] = inos.map(|ino| volume.open_file(ino).unwrap());
    change(&source, &target).unwrap();
    volume.log.force().unwrap();
    let recording = device.take();
    let moment = recording.events.len();
    let lost = recording.unstable_writes(moment).into_iter().collect();
    let left = Arc::new(OverlayDevice::new(base));
    recording.materialise(&PowerCut { lost, ..PowerCut::clean(moment) }, &*left).unwrap();
    let again = Volume::open(left, options()).unwrap();
    let file = again.open_file(inos[1]).unwrap();
    let mut found = vec![0; file.len() as usize];
    file.read_at(&mut found, 0).unwrap();
    found
}

#[test]
fn a_clone_shows_what_its_source_held_when_it_was_cloned() {
    let found = left_after(|source, target| {
        source.write_at(&[2; BYTES as usize], 0)?;
        target.clone_range(source, 0, 0, BYTES)
    });
    assert!(found.iter().all(|byte| *byte == 2));
}

#[test]
fn a_clone_shows_a_direct_write_before_it() {
    let found = left_after(|source, target| {
        let direct = OpenOptions::new().write(true).direct(true).open_id(source.volume(), source.id())?;
        direct.write_at(&[2; BYTES as usize], 0)?;
        target.clone_range(source, 0, 0, BYTES)
    });
    assert!(found.iter().all(|byte| *byte == 2));
}

/// The same for data that is copied for one owner of shared blocks.
#[test]
fn an_unshared_file_shows_its_copy() {
    let found = left_after(|source, target| {
        source.write_at(&[2; BYTES as usize], 0)?;
        target.clone_range(source, 0, 0, BYTES)?;
        target.volume().sync()?;
        target.unshare_range(0, BYTES, false)
    });
    assert_eq!(found, [2; BYTES as usize]);
}

#[test]
fn collapsed_contents_were_written_before() {
    let found = left_after(|_, target| {
        target.write_at(&[2; BYTES as usize], 0)?;
        target.collapse_range(0, 4096)
    });
    assert_eq!(found.len() as u64, BYTES - 4096);
    assert!(found.iter().all(|byte| *byte == 2));
}

/// The old end is within a block. The data of the block behind it must not be visible when the file grows again.
#[test]
fn a_file_that_grows_again_shows_zeros_behind_its_old_end() {
    let found = left_after(|_, target| {
        target.set_len(100)?;
        target.set_len(BYTES)
    });
    assert_eq!(found.len() as u64, BYTES);
    assert!(found[100..].iter().all(|byte| *byte == 0));
}
