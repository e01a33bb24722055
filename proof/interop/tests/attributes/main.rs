//! Extended attributes that Xebec and the kernel change in turn on one volume: each shows what the other left, also
//! where that was a dirty log, and `xfs_repair -n` is silent.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by panicking")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{Ino, errno};
use block::{FileDevice, OpenError, OpenOptions};
use interop::attributes::Change;
use model::Rng;
use read::manifest::{self, Record};
use xebec::{NewFile, NewFileType, Options, SetAttribute, Volume};

#[allow(dead_code, reason = "the tests beside this one mount, too")]
#[path = "../engine/kernel.rs"]
mod kernel;

use kernel::Files;

/// By inode: names, as the manifest has them, to values in hex.
type Trees = BTreeMap<u64, BTreeMap<String, String>>;

/// Prints the manifest by `$1` to `$2`, changes attributes with the seed `$3`, prints it again to `$4`, and ends: by a
/// shutdown with its log flushed if `$5` is `dirty`.
const KERNEL: &str = r#"
set -e
"$1" manifest "$mount" > "$2"
"$1" attributes "$mount"/files --seed "$3" --steps 12
"$1" manifest "$mount" > "$4"
if [ "$5" = dirty ]; then xfs_io -x -c 'shutdown -f' "$mount"; fi
umount "$mount"
"#;

/// How a volume is made.
enum Make {
    Ours(Box<mkfs::Options>),
    /// Arguments of `mkfs.xfs` 6.13.
    Foreign(&'static str),
}

fn trees(path: &Path) -> Trees {
    let text = std::fs::read_to_string(path).unwrap();
    let records = text.lines().map(|line| Record::from_line(line).unwrap());
    records.filter(|record| !record.xattrs.is_empty()).map(|record| (record.ino, record.xattrs)).collect()
}

fn kernel_round(files: &Files, seed: u64, dirty: bool) -> (Trees, Trees) {
    let folder = files.mount.parent().unwrap();
    let (before, after) = (folder.join("before"), folder.join("after"));
    let (seed, end) = (seed.to_string(), if dirty { "dirty" } else { "clean" });
    let program = Path::new(env!("CARGO_BIN_EXE_interop"));
    files.mounted(KERNEL, &[program, &before, Path::new(&seed), &after, Path::new(end)]).unwrap();
    (trees(&before), trees(&after))
}

/// The image, once the threads of the volume before have let it go.
fn device(path: &Path) -> FileDevice {
    let options = OpenOptions { writable: true, ..OpenOptions::default() };
    for _ in 0..1000 {
        match FileDevice::open(path, &options) {
            Err(OpenError::Locked { .. }) => std::thread::sleep(Duration::from_millis(5)),
            other => return other.unwrap(),
        }
    }
    panic!("{} stays locked", path.display());
}

fn open(path: &Path) -> Volume {
    let file = device(path);
    Volume::open(Arc::new(file), Options { seed: Some(3), ..Options::default() }).unwrap()
}

/// What the volume says of its files.
fn shown(volume: &Volume, files: &[Ino]) -> Trees {
    let mut all = Trees::new();
    for ino in files {
        let names = volume.list_attributes(*ino).unwrap();
        let value = |name: &[u8]| manifest::hex(&volume.get_attribute(*ino, name).unwrap());
        let attributes: BTreeMap<_, _> =
            names.iter().map(|name| (manifest::xattr_key(name), value(name))).collect();
        if !attributes.is_empty() {
            all.insert(ino.get(), attributes);
        }
    }
    all
}

fn xebec_round(volume: &Volume, files: &[Ino], rng: &mut Rng) {
    for ino in files {
        let full = rng.below(8);
        for _ in 0..12 {
            let Change { name, value } = Change::random(rng, full);
            let done = match value {
                Some(value) => volume.set_attribute(*ino, &name, &value, SetAttribute::Any),
                None => volume.remove_attribute(*ino, &name),
            };
            match done {
                // What is not there, and what a file of its kind cannot have.
                Err(error) if matches!(error.errno(), errno::ENODATA | errno::EPERM) => {}
                other => other.unwrap(),
            }
        }
    }
}

fn format(make: &Make, path: &Path) {
    let file = std::fs::File::create(path).unwrap();
    match make {
        Make::Ours(options) => {
            file.set_len(128 << 20).unwrap();
            mkfs::format(&device(path), options).unwrap();
        }
        Make::Foreign(arguments) => {
            file.set_len(320 << 20).unwrap();
            let mut command = needs::newer("mkfs.xfs");
            command.arg("-q").args(arguments.split(' ').filter(|word| !word.is_empty())).arg(path);
            assert!(command.status().unwrap().success());
        }
    }
}

/// `xfs_repair -n` is silent: the newer one alone, where the older does not know the features.
fn repair(image: &Files, make: &Make) {
    if !matches!(make, Make::Foreign(arguments) if arguments.contains("parent")) {
        return image.repair().unwrap();
    }
    let output = needs::newer("xfs_repair").args(["-n", "-f"]).arg(&image.image).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn rounds(make: &Make, seed: u64) {
    let folder = kernel::scratch();
    let image = Files::new(folder.path(), "image");
    let path = image.image.clone();
    format(make, &path);
    let volume = open(&path);
    let dir = volume.create(volume.root(), b"files", &NewFile::directory()).unwrap();
    let mut files: Vec<Ino> = (0..6)
        .map(|n| volume.create(dir, format!("file {n}").as_bytes(), &NewFile::regular()).unwrap())
        .collect();
    let new = NewFile { file_type: NewFileType::Directory, ..NewFile::regular() };
    files.push(volume.create(dir, b"dir", &NewFile { permissions: 0o755, ..new }).unwrap());
    for kind in [NewFileType::Fifo, NewFileType::Symlink(&[b't'; 300]), NewFileType::Symlink(b"short")] {
        let name = format!("special {}", files.len());
        files.push(
            volume.create(dir, name.as_bytes(), &NewFile { file_type: kind, ..NewFile::regular() }).unwrap(),
        );
    }
    volume.unmount().unwrap();
    let mut rng = Rng::new(seed);
    let mut expected = Trees::new();
    for round in 0..6 {
        let volume = open(&path);
        assert_eq!(shown(&volume, &files), expected, "round {round}: what the kernel left");
        xebec_round(&volume, &files, &mut rng);
        expected = shown(&volume, &files);
        if round % 2 == 0 {
            volume.unmount().unwrap();
            repair(&image, make);
        } else {
            volume.sync().unwrap();
            drop(volume);
        }
        drop(device(&path));
        let (before, after) = kernel_round(&image, rng.next_u64(), round % 3 == 1);
        assert_eq!(before, expected, "round {round}: what Xebec left");
        expected = after;
    }
    repair(&image, make);
    // All goes.
    let volume = open(&path);
    volume.remove_all(volume.root(), b"files").unwrap();
    volume.unmount().unwrap();
    repair(&image, make);
}

#[test]
fn xebec_and_the_kernel_show_each_others_attributes() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    let ours = mkfs::Options::default();
    let of_ours = |options| Make::Ours(Box::new(options));
    let makes = [
        of_ours(ours.clone()),
        of_ours(mkfs::Options { block_size: 1024, ..ours.clone() }),
        of_ours(mkfs::Options { block_size: 1024, rmapbt: false, reflink: false, nrext64: false, ..ours }),
        Make::Foreign(""),
        Make::Foreign("-i size=1024 -b size=2048 -n size=8192"),
        Make::Foreign("-n parent=1"),
        Make::Foreign("-n parent=1 -b size=1024"),
        Make::Foreign("-n parent=1 -b size=65536"),
    ];
    for (seed, make) in (1..).zip(&makes) {
        rounds(make, seed);
    }
}
