//! Features that are added to a volume with files.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::sync::Arc;

use base::time::{FixedClock, Time};
use block::{Device, MemoryDevice};
use xebec_volume::features::{self, Feature};
use xebec_volume::{NewFile, Options, Volume};

use common::judge;

/// After `bigtime` is added to a volume, the first change of a file converts its timestamps. If that change set the
/// reflink flag, the bigtime flag was lost, and the timestamps were decoded in the old format.
#[test]
fn a_file_has_wide_times_from_its_first_change() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs::format(&*device, &mkfs::Options { bigtime: false, ..mkfs::Options::default() }).unwrap();
    // The lower half of its bigtime form is not a valid number of nanoseconds in the old format.
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
