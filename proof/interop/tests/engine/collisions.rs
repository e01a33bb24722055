//! A directory with 40,000 names with the same hash, created and removed by Xebec and the kernel in turn.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use block::{FileDevice, OpenOptions};
use interop::memory::budget;
use xebec::{FileId, NewFile, Options, Volume};

use crate::kernel::{self, Files};

const NAMES: u32 = 40_000;

/// Lists the names to `$1`, opens those in `$2`, removes those in `$3`, creates those in `$4`, and lists them again.
const KERNEL: &str = r#"
set -e
cd "$mount/names"
ls -f -A | sort > "$1"
xargs -a "$2" cat
xargs -a "$3" rm
xargs -a "$4" touch
ls -f -A | sort
cd /
umount "$mount"
"#;

/// Returns one of many names of 64 bytes with the same hash. The hash rotates by 7 bits per byte, so bytes 32 apart
/// have the same rotation, and equal changes of both cancel out.
fn name(number: u32) -> String {
    let flips = |at: u32| if number >> (at % 32) & 1 == 1 { 0x10 } else { 0 };
    (0..64).map(|at| char::from(b'a' ^ flips(at))).collect()
}

fn sorted(numbers: impl IntoIterator<Item = u32>) -> BTreeSet<String> {
    numbers.into_iter().map(name).collect()
}

fn write(path: &Path, names: &BTreeSet<String>) {
    std::fs::write(path, names.iter().map(|name| format!("{name}\n")).collect::<String>()).unwrap();
}

fn listed(text: &str) -> BTreeSet<String> {
    text.lines().map(str::to_owned).collect()
}

fn open(path: &Path) -> Volume {
    let options = OpenOptions { writable: true, ..OpenOptions::default() };
    let device = FileDevice::open(path, &options).unwrap();
    Volume::open(Arc::new(device), Options { seed: Some(1), memory: budget(), ..Options::default() }).unwrap()
}

fn names(volume: &Volume, dir: FileId) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    volume
        .read_dir(dir, xebec::Cookie::default(), &mut |entry| {
            names.insert(String::from_utf8(entry.name.to_vec()).unwrap());
            true
        })
        .unwrap();
    names.retain(|name| name != "." && name != "..");
    names
}

#[test]
fn forty_thousand_names_with_one_hash_are_sound_and_readable() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    let work = kernel::scratch();
    let files = Files::new(work.path(), "image");
    std::fs::File::create(&files.image).unwrap().set_len(512 << 20).unwrap();
    let device = FileDevice::open(&files.image, &OpenOptions { writable: true, ..OpenOptions::default() });
    mkfs::format(&device.unwrap(), &mkfs::Options::default()).unwrap();

    let volume = open(&files.image);
    let dir = volume.create(volume.root(), b"names", &NewFile::directory()).unwrap();
    for number in 0..NAMES {
        volume.create(dir, name(number).as_bytes(), &NewFile::regular()).unwrap();
    }
    let mut expected = sorted(0..NAMES);
    // Remove one in three, in another order: leaves get stale entries, become small and empty.
    for number in (0..NAMES).map(|number| number * 7919 % NAMES).filter(|number| number % 3 == 0) {
        volume.unlink(dir, name(number).as_bytes()).unwrap();
        expected.remove(&name(number));
    }
    assert_eq!(names(&volume, dir), expected);
    volume.unmount().unwrap();
    files.repair().unwrap();

    // Few names: for each, the kernel reads half of all entries.
    let kept: BTreeSet<String> = expected.iter().step_by(2000).cloned().collect();
    let removed: BTreeSet<String> = expected.iter().skip(1000).step_by(2000).cloned().collect();
    let created = sorted((0..NAMES).step_by(6000));
    let paths = ["list", "kept", "removed", "created"].map(|name| work.path().join(name));
    let [list, kept_at, removed_at, created_at] = &paths;
    write(kept_at, &kept);
    write(removed_at, &removed);
    write(created_at, &created);
    let after = files.mounted(KERNEL, &[list, kept_at, removed_at, created_at]).unwrap();
    assert_eq!(listed(&std::fs::read_to_string(list).unwrap()), expected);
    expected.retain(|name| !removed.contains(name));
    expected.extend(created);
    assert_eq!(listed(&after), expected);

    let volume = open(&files.image);
    let dir = volume.lookup(volume.root(), b"names").unwrap();
    for number in 0..NAMES {
        let name = name(number);
        assert_eq!(volume.lookup(dir, name.as_bytes()).is_ok(), expected.contains(&name), "{number}");
    }
    for name in &expected {
        volume.unlink(dir, name.as_bytes()).unwrap();
    }
    assert_eq!(names(&volume, dir), BTreeSet::new());
    volume.unmount().unwrap();
    files.repair().unwrap();
}
