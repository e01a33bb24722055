//! Xebec and the kernel change extended attributes on one volume in turn: each must show the other's attributes, also
//! after a crash, and `xfs_repair -n` must find nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::errno;
use block::{FileDevice, OpenError, OpenOptions};
use interop::attributes::AttributeChange;
use interop::memory::budget;
use model::Rng;
use read::manifest::{self, Record};
use xebec::{FileId, NewFile, NewFileType, Options, SetAttribute, Volume};

#[allow(dead_code, reason = "shared with other tests")]
#[path = "../engine/kernel.rs"]
mod kernel;

use kernel::Files;

/// By inode number: attribute names as in a manifest, and values in hex.
type Attributes = BTreeMap<u64, BTreeMap<String, String>>;

/// Writes the manifest to `$2` with the program `$1`, changes attributes with the seed `$3`, writes the manifest again
/// to `$4`, and unmounts, after a shutdown with a log flush if `$5` is `dirty`.
const KERNEL: &str = r#"
set -e
"$1" manifest "$mount" > "$2"
"$1" attributes "$mount"/files --seed "$3" --steps 12
"$1" manifest "$mount" > "$4"
if [ "$5" = dirty ]; then xfs_io -x -c 'shutdown -f' "$mount"; fi
umount "$mount"
"#;

/// How a volume is formatted.
enum Formatter {
    Xebec(Box<mkfs::Options>),
    /// Arguments of `mkfs.xfs` 6.13.
    MkfsXfs(&'static str),
}

fn read_manifest(path: &Path) -> Attributes {
    let text = std::fs::read_to_string(path).unwrap();
    let records = text.lines().map(|line| Record::from_line(line).unwrap());
    records.filter(|record| !record.xattrs.is_empty()).map(|record| (record.ino, record.xattrs)).collect()
}

fn kernel_round(files: &Files, seed: u64, dirty: bool) -> (Attributes, Attributes) {
    let folder = files.mount.parent().unwrap();
    let (before, after) = (folder.join("before"), folder.join("after"));
    let (seed, end) = (seed.to_string(), if dirty { "dirty" } else { "clean" });
    let program = Path::new(env!("CARGO_BIN_EXE_interop"));
    files.mounted(KERNEL, &[program, &before, Path::new(&seed), &after, Path::new(end)]).unwrap();
    (read_manifest(&before), read_manifest(&after))
}

/// Opens the image, after the threads of a dropped volume have released the lock.
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
    Volume::open(Arc::new(file), Options { seed: Some(3), memory: budget(), ..Options::default() }).unwrap()
}

/// Reads the attributes of files through Xebec.
fn read_attributes(volume: &Volume, files: &[FileId]) -> Attributes {
    let mut all = Attributes::new();
    for ino in files {
        let names = volume.list_attributes(*ino).unwrap();
        let value = |name: &[u8]| manifest::hex(&volume.get_attribute(*ino, name).unwrap());
        let attributes: BTreeMap<_, _> =
            names.iter().map(|name| (manifest::xattr_key(name), value(name))).collect();
        if !attributes.is_empty() {
            all.insert(ino.ino.get(), attributes);
        }
    }
    all
}

fn xebec_round(volume: &Volume, files: &[FileId], rng: &mut Rng) {
    for ino in files {
        let sets = rng.below(8);
        for _ in 0..12 {
            let AttributeChange { name, value } = AttributeChange::random(rng, sets);
            let done = match value {
                Some(value) => volume.set_attribute(*ino, &name, &value, SetAttribute::Any),
                None => volume.remove_attribute(*ino, &name),
            };
            match done {
                // The attribute does not exist, or files of this type cannot have it.
                Err(error) if matches!(error.errno(), errno::ENODATA | errno::EPERM) => {}
                other => other.unwrap(),
            }
        }
    }
}

fn format(formatter: &Formatter, path: &Path) {
    let file = std::fs::File::create(path).unwrap();
    match formatter {
        Formatter::Xebec(options) => {
            file.set_len(128 << 20).unwrap();
            mkfs::format(&device(path), options).unwrap();
        }
        Formatter::MkfsXfs(arguments) => {
            file.set_len(320 << 20).unwrap();
            let mut command = needs::newer("mkfs.xfs");
            command.arg("-q").args(arguments.split(' ').filter(|word| !word.is_empty())).arg(path);
            assert!(command.status().unwrap().success());
        }
    }
}

/// Runs `xfs_repair -n`: only the newer version if the older one does not know the features.
fn repair(image: &Files, formatter: &Formatter) {
    if !matches!(formatter, Formatter::MkfsXfs(arguments) if arguments.contains("parent")) {
        return image.repair().unwrap();
    }
    let output = needs::newer("xfs_repair").args(["-n", "-f"]).arg(&image.image).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn rounds(formatter: &Formatter, seed: u64) {
    let folder = kernel::scratch();
    let image = Files::new(folder.path(), "image");
    let path = image.image.clone();
    format(formatter, &path);
    let volume = open(&path);
    let dir = volume.create(volume.root(), b"files", &NewFile::directory()).unwrap();
    let mut files: Vec<FileId> = (0..6)
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
    let mut expected = Attributes::new();
    for round in 0..6 {
        let volume = open(&path);
        assert_eq!(read_attributes(&volume, &files), expected, "round {round}: attributes of the kernel");
        xebec_round(&volume, &files, &mut rng);
        expected = read_attributes(&volume, &files);
        if round % 2 == 0 {
            volume.unmount().unwrap();
            repair(&image, formatter);
        } else {
            volume.sync().unwrap();
            drop(volume);
        }
        drop(device(&path));
        let (before, after) = kernel_round(&image, rng.next_u64(), round % 3 == 1);
        assert_eq!(before, expected, "round {round}: attributes of Xebec");
        expected = after;
    }
    repair(&image, formatter);
    // Remove everything.
    let volume = open(&path);
    volume.remove_all(volume.root(), b"files").unwrap();
    volume.unmount().unwrap();
    repair(&image, formatter);
}

#[test]
fn xebec_and_kernel_show_each_others_attributes() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    let ours = mkfs::Options::default();
    let xebec = |options| Formatter::Xebec(Box::new(options));
    let formatters = [
        xebec(ours.clone()),
        xebec(mkfs::Options { block_size: 1024, ..ours.clone() }),
        xebec(mkfs::Options { block_size: 1024, rmapbt: false, reflink: false, nrext64: false, ..ours }),
        Formatter::MkfsXfs(""),
        Formatter::MkfsXfs("-i size=1024 -b size=2048 -n size=8192"),
        Formatter::MkfsXfs("-n parent=1"),
        Formatter::MkfsXfs("-n parent=1 -b size=1024"),
        Formatter::MkfsXfs("-n parent=1 -b size=65536"),
    ];
    for (seed, formatter) in (1..).zip(&formatters) {
        rounds(formatter, seed);
    }
}
