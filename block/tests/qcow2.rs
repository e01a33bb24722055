//! Changes of qcow2 images in place, verified by `qemu-img` and by reopening the image, which refuses inconsistent
//! metadata.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "qcow2/failures.rs"]
mod failures;
#[path = "qcow2/hostile.rs"]
mod hostile;
#[path = "qcow2/power_cuts.rs"]
mod power_cuts;

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use xebec_block::{
    Device, Durability, FileDevice, LockHolder, LockMode, MemoryDevice, OpenError, OpenImageOptions,
    OpenOptions, Qcow2Device, ReplacedFile, find_lock_holder, open_image, open_locked,
};

/// Bytes of the disk in the tests.
const DISK: usize = 3 << 20;

/// A deterministic random sequence.
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d)
    }

    /// The next number below a limit.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// Runs `qemu-img`; `None` if it is not installed, to skip the test.
pub fn qemu_img(args: &[&str]) -> Option<i32> {
    needs::met(needs::tools(&["qemu-img"]))?;
    let output = needs::command("qemu-img").args(args).output().unwrap();
    Some(output.status.code().unwrap())
}

/// A path as an argument of a command.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Creates one image of each variant, with data in the first and the last MiB. `None` without `qemu-img`.
pub fn images(dir: &TempDir) -> Option<Vec<(&'static str, PathBuf, Vec<u8>)>> {
    let mut bytes = vec![0; DISK];
    let mut random = Random::new(1);
    for at in (0..DISK).filter(|at| !(1 << 20..2 << 20).contains(at)) {
        // Half of it is compressible.
        bytes[at] = if at / 4096 % 2 == 0 { random.below(256) as u8 } else { (at >> 12) as u8 };
    }
    let raw = dir.path().join("raw");
    std::fs::write(&raw, &bytes).unwrap();
    let variants: [(&str, &[&str]); 8] = [
        ("v3", &["-S", "4k", "-o", "cluster_size=4k"]),
        ("v2", &["-o", "compat=0.10,cluster_size=4k"]),
        ("large-clusters", &["-o", "cluster_size=2M"]),
        ("small-clusters", &["-o", "cluster_size=512"]),
        ("narrow-refcounts", &["-o", "cluster_size=512,refcount_bits=1"]),
        ("wide-refcounts", &["-o", "cluster_size=512,refcount_bits=64"]),
        ("compressed", &["-c", "-o", "cluster_size=4k"]),
        ("compressed-v2", &["-c", "-o", "compat=0.10"]),
    ];
    let mut made = Vec::new();
    for (name, options) in variants {
        let image = dir.path().join(name);
        let args = [&["convert", "-O", "qcow2"], options, &[text(&raw), text(&image)]].concat();
        assert_eq!(qemu_img(&args)?, 0, "{name}");
        made.push((name, image, bytes.clone()));
    }
    for (name, options) in [("over-v3", "cluster_size=4k"), ("over-v2", "cluster_size=4k,compat=0.10")] {
        let image = dir.path().join(name);
        let args = ["create", "-q", "-f", "qcow2", "-b", "raw", "-F", "raw", "-o", options, text(&image)];
        assert_eq!(qemu_img(&args)?, 0, "{name}");
        made.push((name, image, bytes.clone()));
    }
    // Empty images. With small clusters and wide refcounts the refcount table grows often.
    for (name, options) in [
        ("preallocated", "cluster_size=4k,preallocation=metadata"),
        ("empty", "cluster_size=512,refcount_bits=64"),
    ] {
        let (image, size) = (dir.path().join(name), DISK.to_string());
        assert_eq!(qemu_img(&["create", "-q", "-f", "qcow2", "-o", options, text(&image), &size])?, 0);
        made.push((name, image, vec![0; DISK]));
    }
    Some(made)
}

/// Options for writing. A program that another test starts inherits descriptors, and so locks, until `exec`.
pub fn writable() -> OpenOptions {
    OpenOptions { writable: true, wait: Some(Duration::MAX), ..OpenOptions::default() }
}

fn open(image: &Path) -> Qcow2Device {
    let file = Arc::new(FileDevice::open(image, &writable()).unwrap());
    Qcow2Device::open(file, image, Some(OpenOptions::default())).unwrap()
}

/// A random change of a device and of its model.
fn step(random: &mut Random, device: &dyn Device, model: &mut [u8]) {
    let max = if random.below(4) == 0 { 600_000 } else { 20_000 };
    let start = random.below(DISK / 512) * 512;
    let length = (1 + random.below(max / 512)) * 512;
    let end = (start + length).min(DISK);
    let offset = start as u64;
    match random.below(12) {
        0 => {
            device.zero(offset, (end - start) as u64).unwrap();
            model[start..end].fill(0);
        }
        1 => {
            let is_zero = device.discard(offset, (end - start) as u64).unwrap();
            let mut found = vec![0; end - start];
            device.read_at(offset, &mut found).unwrap();
            let known = |(found, old): (&u8, &u8)| *found == 0 || (found == old && !is_zero);
            assert!(found.iter().zip(&model[start..end]).all(known));
            model[start..end].copy_from_slice(&found);
        }
        2 => device.flush().unwrap(),
        kind => {
            let durability = if kind == 3 { Durability::Fua } else { Durability::Buffered };
            let seed = random.below(251);
            model[start..end]
                .iter_mut()
                .enumerate()
                .for_each(|(i, byte)| *byte = ((i / 512 * 7 + seed) % 251) as u8);
            match kind {
                4 | 5 => {
                    let parts: Vec<_> = model[start..end].chunks(512).collect();
                    device.write_vectored(offset, &parts).unwrap();
                }
                _ => device.write_at(offset, &model[start..end], durability).unwrap(),
            }
        }
    }
}

fn assert_contents(device: &dyn Device, model: &[u8], what: &str) {
    let mut found = vec![0; model.len()];
    device.read_at(0, &mut found).unwrap();
    let differs = found.iter().zip(model).position(|(a, b)| a != b);
    assert_eq!(differs, None, "{what}");
}

/// `qemu-img` finds neither errors nor leaks.
fn assert_clean(image: &Path, model: &[u8], what: &str) {
    assert_eq!(qemu_img(&["check", "-q", text(image)]), Some(0), "{what}");
    let raw = image.with_extension("converted");
    assert_eq!(qemu_img(&["convert", "-O", "raw", text(image), text(&raw)]), Some(0), "{what}");
    assert!(std::fs::read(&raw).unwrap() == model, "{what}");
}

#[test]
fn all_variants_are_changed_in_place() {
    let dir = TempDir::new().unwrap();
    let Some(images) = images(&dir) else { return };
    for (index, (name, image, mut model)) in images.into_iter().enumerate() {
        let mut random = Random::new(index as u64);
        for round in 0..3 {
            let device = open(&image);
            assert!(!device.is_read_only());
            for _ in 0..40 {
                step(&mut random, &device, &mut model);
            }
            assert_contents(&device, &model, name);
            device.flush().unwrap();
            drop(device);
            assert_clean(&image, &model, &format!("{name}, round {round}"));
        }
    }
    let raw = std::fs::read(dir.path().join("raw")).unwrap();
    let mut random = Random::new(1);
    assert_eq!(raw[0], random.below(256) as u8, "the backing image was changed");
}

/// Threads write to different sectors of the same clusters, and flush.
#[test]
fn threads_change_one_image() {
    const THREADS: usize = 8;
    let dir = TempDir::new().unwrap();
    let Some(images) = images(&dir) else { return };
    for (name, image, mut model) in images {
        let device = open(&image);
        let device = &device;
        // Thread n writes the sectors whose number modulo THREADS is n.
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    let mut random = Random::new(thread as u64);
                    for _ in 0..150 {
                        let sector = random.below(DISK / 512 / THREADS) * THREADS + thread;
                        let bytes = [sector as u8 | 1; 512];
                        device.write_at(sector as u64 * 512, &bytes, Durability::Buffered).unwrap();
                        if random.below(20) == 0 {
                            device.flush().unwrap();
                        }
                    }
                });
            }
        });
        for thread in 0..THREADS {
            let mut random = Random::new(thread as u64);
            for _ in 0..150 {
                let sector = random.below(DISK / 512 / THREADS) * THREADS + thread;
                model[sector * 512..][..512].fill(sector as u8 | 1);
                random.below(20);
            }
        }
        assert_contents(device, &model, name);
        device.flush().unwrap();
        assert_eq!(qemu_img(&["check", "-U", "-q", text(&image)]), Some(0), "{name}");
    }
}

/// A device that cannot grow, like a logical volume that contains an image.
#[test]
fn a_full_device_returns_enospc_and_stays_consistent() {
    let dir = TempDir::new().unwrap();
    let Some(images) = images(&dir) else { return };
    let (name, image, model) = images.into_iter().next().unwrap();
    let bytes = std::fs::read(&image).unwrap();
    let file = Arc::new(FixedSize(MemoryDevice::from_bytes(&[bytes, vec![0; 100 << 10]].concat())));
    let device = Qcow2Device::open(file.clone(), &image, None).unwrap();
    let mut full = None;
    let mut written = Vec::new();
    for at in (1 << 20..2 << 20).step_by(4096) {
        match device.write_at(at, &[9; 4096], Durability::Buffered) {
            Ok(()) => written.push(at),
            Err(error) => full = full.or(Some(error.errno())),
        }
    }
    assert_eq!(full, Some(rustix::io::Errno::NOSPC.raw_os_error()));
    assert!((20..=25).contains(&written.len()), "{name}: {}", written.len());
    device.flush().unwrap();
    let again = Qcow2Device::open(file, &image, None).unwrap();
    let mut expected = model;
    written.iter().for_each(|at| expected[*at as usize..][..4096].fill(9));
    assert_contents(&again, &expected, name);
    // Freed clusters can be used.
    again.discard(0, 1 << 20).unwrap();
    again.flush().unwrap();
    again.write_at(1 << 20, &vec![8; 1 << 20], Durability::Buffered).unwrap();
}

struct FixedSize(MemoryDevice);

impl Device for FixedSize {
    xebec_block::forward!(0: size, logical_sector_size, is_read_only, read_at, write_at, flush);

    fn describe(&self) -> String {
        "a device of fixed size".into()
    }
}

/// Images with features that a writer does not support are refused with advice. Images that cannot be read either are
/// refused for readers, too, with advice if they are dirty or corrupt.
///
/// "Marked as corrupt" recommended `-o ro`, which failed as well, and not `qemu-img check`.
#[test]
fn images_that_cannot_be_changed_are_refused_with_advice() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let cases: [(&str, &[&[&str]], &str); 5] = [
        ("cluster_size=64k", &[&["snapshot", "-c", "one"]], "qemu-img snapshot -d"),
        ("cluster_size=64k", &[&["bitmap", "--add", "IMAGE", "one"]], "qemu-img bitmap --remove"),
        ("compression_type=zstd", &[], "qemu-img convert"),
        ("extended_l2=on", &[], "qemu-img convert"),
        ("data_file=data", &[], "qemu-img convert"),
    ];
    for (options, commands, advice) in cases {
        let options =
            options.replace("data_file=data", &format!("data_file={}", text(&dir.path().join("data"))));
        let _ = std::fs::remove_file(&image);
        let Some(made) = qemu_img(&["create", "-q", "-f", "qcow2", "-o", &options, text(&image), "8M"])
        else {
            return;
        };
        assert_eq!(made, 0, "{options}");
        for command in commands {
            let mut args: Vec<_> =
                command.iter().map(|arg| if *arg == "IMAGE" { text(&image) } else { arg }).collect();
            if !args.contains(&text(&image)) {
                args.push(text(&image));
            }
            assert_eq!(qemu_img(&args), Some(0), "{args:?}");
        }
        let before = std::fs::read(&image).unwrap();
        let error = open_image(&image, &OpenImageOptions { file: writable(), ..OpenImageOptions::default() })
            .unwrap_err();
        let error = error.to_string();
        assert!(error.contains("cannot be changed in place") && error.contains(advice), "{options}: {error}");
        assert!(before == std::fs::read(&image).unwrap(), "{options}");
    }
    let Some(_) = qemu_img(&["create", "-q", "-f", "qcow2", text(&image), "8M"]) else { return };
    let sound = std::fs::read(&image).unwrap();
    let bits: [(usize, u8, &str); 5] = [
        (79, 1, "not closed properly"),
        (79, 2, "marked as corrupt"),
        (72, 128, "unknown incompatible features"),
        (35, 1, "it is encrypted"),
        (35, 2, "qemu-img convert"),
    ];
    for (at, bit, expected) in bits {
        let mut bytes = sound.clone();
        bytes[at] |= bit;
        std::fs::write(&image, &bytes).unwrap();
        let error = open_image(&image, &OpenImageOptions { file: writable(), ..OpenImageOptions::default() })
            .unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(bytes == std::fs::read(&image).unwrap());
        // Encrypted data is not returned as contents of the disk.
        let reading = open_image(&image, &OpenImageOptions::default()).unwrap_err().to_string();
        for message in [error.to_string(), reading] {
            assert!(at != 79 || message.contains("`qemu-img check -r all"), "{message}");
            assert!(!message.contains("-o ro"), "{message}");
        }
    }
}

/// Writers clear unknown autoclear features before anything else.
#[test]
fn only_writers_clear_unknown_autoclear_features() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let Some(_) = qemu_img(&["create", "-q", "-f", "qcow2", text(&image), "8M"]) else { return };
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[88..96].copy_from_slice(&(1u64 << 40).to_be_bytes());
    std::fs::write(&image, &bytes).unwrap();
    open_image(&image, &OpenImageOptions::default()).unwrap();
    assert!(std::fs::read(&image).unwrap() == bytes);
    drop(open(&image));
    bytes[88..96].fill(0);
    assert!(std::fs::read(&image).unwrap() == bytes);
}

/// A `qemu-io` process that has an image open.
struct Qemu {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Qemu {
    /// Starts it and waits until it has opened the image.
    fn open(image: &Path, options: &[&str]) -> Self {
        let mut command = needs::command("qemu-io");
        command.args(options).arg(image).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"length\n").unwrap();
        // It responds when it has opened the image.
        child.stdout.take().unwrap().read_exact(&mut [0; 9]).unwrap();
        Self { child, stdin: Some(stdin) }
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.stdin = None;
        self.child.wait().unwrap();
    }
}

/// Opens an image and its backing images for writing.
fn open_writable(image: &Path, wait: Option<Duration>) -> Result<Arc<dyn Device>, OpenError> {
    let file = OpenOptions { wait, ..writable() };
    open_image(image, &OpenImageOptions { file, backing: true, ..OpenImageOptions::default() })
}

/// The error of an attempt that QEMU's locks refuse. Our own locks may refuse it for a short time (see [`writable`]).
fn refused_by_qemu<T>(mut attempt: impl FnMut() -> Result<T, OpenError>) -> String {
    loop {
        match attempt() {
            Err(OpenError::Locked { by: LockHolder::Program, .. }) => std::thread::yield_now(),
            Err(error) => {
                let error = error.to_string();
                assert!(
                    error.contains("QEMU has it open (shut the virtual machine down, or wait"),
                    "{error}"
                );
                return error;
            }
            Ok(_) => panic!("QEMU has the image"),
        }
    }
}

/// QEMU and Xebec do not open an image for writing at the same time.
#[test]
fn qemu_and_xebec_exclude_each_other() {
    let dir = TempDir::new().unwrap();
    let Some(()) = needs::met(needs::tools(&["qemu-img", "qemu-io"])) else { return };
    for options in [&["-f", "qcow2"][..], &["-f", "qcow2", "-r"]] {
        let image = dir.path().join(options.len().to_string());
        qemu_img(&["create", "-q", "-f", "qcow2", text(&image), "8M"]).unwrap();
        let qemu = Qemu::open(&image, options);
        refused_by_qemu(|| open_writable(&image, None));
        open_image(&image, &OpenImageOptions::default()).unwrap();
        drop(qemu);
        let device = open_writable(&image, Some(Duration::MAX)).unwrap();
        assert_eq!(qemu_img(&["resize", "-q", text(&image), "9M"]), Some(1));
        drop(device);
    }
}

/// Only writers checked QEMU's locks. `create -f` replaced the disk of a running virtual machine, whose writes were
/// lost with the old file.
#[test]
fn an_image_in_use_by_qemu_is_not_replaced() {
    let dir = TempDir::new().unwrap();
    let Some(()) = needs::met(needs::tools(&["qemu-io"])) else { return };
    for options in [&["-f", "raw"][..], &["-f", "raw", "-r"]] {
        let image = dir.path().join(options.len().to_string());
        std::fs::write(&image, [0; 1 << 16]).unwrap();
        let qemu = Qemu::open(&image, options);
        refused_by_qemu(|| ReplacedFile::lock(&image, None));
        drop(qemu);
        let replaced = ReplacedFile::lock(&image, Some(Duration::MAX)).unwrap();
        assert!(!qemu_opens(&image, options), "{options:?}");
        // The file is locked, but not written.
        assert!(find_lock_holder(&image).is_none());
        drop(replaced);
    }
}

/// Whether `qemu-io` can open an image.
fn qemu_opens(image: &Path, options: &[&str]) -> bool {
    let mut command = needs::command("qemu-io");
    command.args(options).args(["-c", "length"]).arg(image);
    command.output().unwrap().status.success()
}

/// Only the image on top was locked with QEMU's locks. While a volume in it was changed or mounted, QEMU could write to
/// its backing images, and vice versa.
#[test]
fn backing_images_are_locked() {
    let dir = TempDir::new().unwrap();
    let (base, top) = (dir.path().join("base"), dir.path().join("top"));
    let Some(()) = needs::met(needs::tools(&["qemu-img", "qemu-io"])) else { return };
    std::fs::write(&base, [0; 1 << 16]).unwrap();
    let made = qemu_img(&["create", "-q", "-f", "qcow2", "-F", "raw", "-b", text(&base), text(&top)]);
    assert_eq!(made, Some(0));
    let qemu = Qemu::open(&base, &["-f", "raw"]);
    let error = refused_by_qemu(|| open_writable(&top, None));
    assert!(error.contains(text(&base)), "{error}");
    drop(qemu);
    // Readers do not exclude each other.
    let qemu = Qemu::open(&base, &["-f", "raw", "-r"]);
    let device = open_writable(&top, Some(Duration::MAX)).unwrap();
    drop(qemu);
    assert!(qemu_opens(&base, &["-f", "raw", "-r"]));
    assert!(!qemu_opens(&base, &["-f", "raw"]));
    drop(device);
}

/// `--wait` applied only to `flock`: an image in use by QEMU was refused at once. As QEMU's locks are polled, the error
/// must not come before the time is over.
#[test]
fn writers_and_readers_wait_for_qemu() {
    let dir = TempDir::new().unwrap();
    let Some(()) = needs::met(needs::tools(&["qemu-io"])) else { return };
    let (short, long) = (Some(Duration::from_millis(200)), Some(Duration::from_secs(600)));
    type Attempt = fn(&Path, Option<Duration>) -> Result<(), OpenError>;
    let attempts: [(&str, Attempt); 2] = [
        ("change", |image, wait| open_writable(image, wait).map(drop)),
        ("lock", |image, wait| open_locked(image, LockMode::Shared, wait).map(drop)),
    ];
    for (name, attempt) in attempts {
        let image = dir.path().join(name);
        std::fs::write(&image, [0; 1 << 16]).unwrap();
        let qemu = Qemu::open(&image, &["-f", "raw"]);
        let begin = Instant::now();
        refused_by_qemu(|| attempt(&image, short));
        assert!(begin.elapsed() >= Duration::from_millis(200), "{name}");
        std::thread::scope(|scope| {
            let (sender, receiver) = channel();
            let image = &image;
            let waiter = scope.spawn(move || {
                sender.send(()).unwrap();
                attempt(image, long)
            });
            receiver.recv().unwrap();
            drop(qemu);
            waiter.join().unwrap().unwrap();
        });
    }
}

/// Readers were not warned that QEMU was writing to the image.
#[test]
fn readers_are_warned_of_qemu() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let Some(()) = needs::met(needs::tools(&["qemu-io"])) else { return };
    std::fs::write(&image, [0; 1 << 16]).unwrap();
    let qemu = Qemu::open(&image, &["-f", "raw", "-r"]);
    assert!(find_lock_holder(&image).is_none());
    drop(qemu);
    let qemu = Qemu::open(&image, &["-f", "raw"]);
    assert!(matches!(find_lock_holder(&image), Some(LockHolder::Qemu)));
    drop(qemu);
    assert!(find_lock_holder(&image).is_none());
}
