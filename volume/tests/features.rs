//! Features that a volume gets while it has files.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::sync::Arc;

use base::time::{FixedClock, Time};
use block::{Device, MemoryDevice};
use xebec_volume::features::{self, Feature};
use xebec_volume::{NewFile, Options, Volume};

use common::judge;

/// The first change of a file on a volume that lately got wide times gives it such. Where that change was that it
/// shares blocks, the flag that says so was lost, and the times were read in the narrow form.
#[test]
fn a_file_has_wide_times_from_its_first_change() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs::format(&*device, &mkfs::Options { bigtime: false, ..mkfs::Options::default() }).unwrap();
    // As a wide time, its lower half is no number of nanoseconds of the narrow form.
    let birth = Time { seconds: 1_700_000_000, nanos: 3 };
    let options = || Options { clock: Arc::new(FixedClock(birth)), ..Options::default() };
    let volume = Volume::open(device.clone(), options()).unwrap();
    let file = volume.create(volume.root(), b"file", &NewFile::regular()).unwrap();
    volume.open_file(file).unwrap().write_at(&[1; 8192], 0).unwrap();
    volume.unmount().unwrap();

    let shared: Arc<dyn Device> = device.clone();
    features::add(&shared, &options(), &[Feature::Bigtime]).unwrap();
    let volume = Volume::open(device.clone(), options()).unwrap();
    let other = volume.create(volume.root(), b"other", &NewFile::regular()).unwrap();
    let (from, to) = (volume.open_file(file).unwrap(), volume.open_file(other).unwrap());
    to.clone_range(&from, 0, 0, 0).unwrap();
    drop((from, to));
    volume.unmount().unwrap();

    judge(&device);
    let volume = Volume::open(device.clone(), options()).unwrap();
    let known = volume.metadata(file).unwrap();
    assert_eq!((known.accessed, known.created), (birth, birth));
    volume.unmount().unwrap();
}
