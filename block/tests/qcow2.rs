//! qcow2 images that are changed in place, judged by `qemu-img` and by their next opening, which refuses whatever
//! contradicts itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "qcow2/cuts.rs"]
mod cuts;
#[path = "qcow2/failures.rs"]
mod failures;
#[path = "qcow2/hostile.rs"]
mod hostile;

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use xebec_block::{
    Device, Durability, FileDevice, Holder, MemoryDevice, OpenError, OpenImage, OpenOptions, Qcow2Device,
    Replaced, Share, open_image, open_locked, writer_of,
};

/// Bytes of a disk in the tests.
const DISK: usize = 3 << 20;

/// A sequence of numbers that its seed decides.
pub struct Random(u64);

impl Random {
    /// The one of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d)
    }

    /// The next, below a limit.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// Runs `qemu-img`; `None` where it is not installed: the test is skipped.
pub fn qemu_img(args: &[&str]) -> Option<i32> {
    needs::met(needs::tools(&["qemu-img"]))?;
    let output = needs::command("qemu-img").args(args).output().unwrap();
    Some(output.status.code().unwrap())
}

/// A path as a word of a command.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Makes images: of each kind one, with data in the first MiB and the last. `None` without `qemu-img`.
pub fn images(dir: &TempDir) -> Option<Vec<(&'static str, PathBuf, Vec<u8>)>> {
    let mut bytes = vec![0; DISK];
    let mut random = Random::new(1);
    for at in (0..DISK).filter(|at| !(1 << 20..2 << 20).contains(at)) {
        // Half of it can be compressed.
        bytes[at] = if at / 4096 % 2 == 0 { random.below(256) as u8 } else { (at >> 12) as u8 };
    }
    let raw = dir.path().join("raw");
    std::fs::write(&raw, &bytes).unwrap();
    let kinds: [(&str, &[&str]); 8] = [
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
    for (name, options) in kinds {
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
    // Nothing in it yet; with small clusters and wide refcounts the refcount table grows all the time.
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

/// How a file is opened for changes. A program that another test starts has the descriptors of this one, and so its
/// locks, until it is loaded.
pub fn writable() -> OpenOptions {
    OpenOptions { writable: true, wait: Some(Duration::MAX), ..OpenOptions::default() }
}

fn open(image: &Path) -> Qcow2Device {
    let file = Arc::new(FileDevice::open(image, &writable()).unwrap());
    Qcow2Device::open(file, image, Some(OpenOptions::default())).unwrap()
}

/// One random change of a device and of what it should hold.
fn step(random: &mut Random, device: &dyn Device, model: &mut [u8]) {
    let most = if random.below(4) == 0 { 600_000 } else { 20_000 };
    let start = random.below(DISK / 512) * 512;
    let length = (1 + random.below(most / 512)) * 512;
    let end = (start + length).min(DISK);
    let at = start as u64;
    match random.below(12) {
        0 => {
            device.zero(at, (end - start) as u64).unwrap();
            model[start..end].fill(0);
        }
        1 => {
            let is_zero = device.discard(at, (end - start) as u64).unwrap();
            let mut found = vec![0; end - start];
            device.read_at(at, &mut found).unwrap();
            let known = |(found, old): (&u8, &u8)| *found == 0 || (found == old && !is_zero);
            assert!(found.iter().zip(&model[start..end]).all(known));
            model[start..end].copy_from_slice(&found);
        }
        2 => device.flush().unwrap(),
        kind => {
            let how = if kind == 3 { Durability::Fua } else { Durability::Buffered };
            let seed = random.below(251);
            model[start..end]
                .iter_mut()
                .enumerate()
                .for_each(|(i, byte)| *byte = ((i / 512 * 7 + seed) % 251) as u8);
            match kind {
                4 | 5 => {
                    let parts: Vec<_> = model[start..end].chunks(512).collect();
                    device.write_vectored(at, &parts).unwrap();
                }
                _ => device.write_at(at, &model[start..end], how).unwrap(),
            }
        }
    }
}

fn assert_holds(device: &dyn Device, model: &[u8], what: &str) {
    let mut found = vec![0; model.len()];
    device.read_at(0, &mut found).unwrap();
    let differs = found.iter().zip(model).position(|(a, b)| a != b);
    assert_eq!(differs, None, "{what}");
}

/// What `qemu-img` finds: no error, and nothing leaked.
fn assert_clean(image: &Path, model: &[u8], what: &str) {
    assert_eq!(qemu_img(&["check", "-q", text(image)]), Some(0), "{what}");
    let raw = image.with_extension("converted");
    assert_eq!(qemu_img(&["convert", "-O", "raw", text(image), text(&raw)]), Some(0), "{what}");
    assert!(std::fs::read(&raw).unwrap() == model, "{what}");
}

#[test]
fn every_kind_of_image_is_changed_in_place() {
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
            assert_holds(&device, &model, name);
            device.flush().unwrap();
            drop(device);
            assert_clean(&image, &model, &format!("{name}, round {round}"));
        }
    }
    let raw = std::fs::read(dir.path().join("raw")).unwrap();
    let mut random = Random::new(1);
    assert_eq!(raw[0], random.below(256) as u8, "the backing image was changed");
}

/// Threads that write to places of their own, neighbours within clusters included, while others flush.
#[test]
fn threads_change_one_image_together() {
    const THREADS: usize = 8;
    let dir = TempDir::new().unwrap();
    let Some(images) = images(&dir) else { return };
    for (name, image, mut model) in images {
        let device = open(&image);
        let device = &device;
        // Thread n has the sectors of which the number gives n.
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
        assert_holds(device, &model, name);
        device.flush().unwrap();
        assert_eq!(qemu_img(&["check", "-U", "-q", text(&image)]), Some(0), "{name}");
    }
}

/// A device that cannot grow, as a logical volume that an image was put on.
#[test]
fn a_full_device_is_out_of_space_and_stays_sound() {
    let dir = TempDir::new().unwrap();
    let Some(images) = images(&dir) else { return };
    let (name, image, model) = images.into_iter().next().unwrap();
    let bytes = std::fs::read(&image).unwrap();
    let file = Arc::new(Fixed(MemoryDevice::from_bytes(&[bytes, vec![0; 100 << 10]].concat())));
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
    assert_holds(&again, &expected, name);
    // What is given back can be used.
    again.discard(0, 1 << 20).unwrap();
    again.flush().unwrap();
    again.write_at(1 << 20, &vec![8; 1 << 20], Durability::Buffered).unwrap();
}

struct Fixed(MemoryDevice);

impl Device for Fixed {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn logical_sector_size(&self) -> u32 {
        512
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), xebec_block::DeviceError> {
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8], how: Durability) -> Result<(), xebec_block::DeviceError> {
        self.0.write_at(offset, buf, how)
    }
    fn flush(&self) -> Result<(), xebec_block::DeviceError> {
        self.0.flush()
    }
    fn describe(&self) -> String {
        "a device of a fixed size".into()
    }
}

/// What a writer does not understand, or would make untrue, is refused with the next step. What cannot be read either
/// is refused for readers: with the next step, too, if it is dirty or corrupt.
///
/// "Marked as corrupt" sent people to `-o ro`, which failed as well, and said nothing of `qemu-img check`.
#[test]
fn images_that_cannot_be_changed_say_what_to_do() {
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
            let mut words: Vec<_> =
                command.iter().map(|word| if *word == "IMAGE" { text(&image) } else { word }).collect();
            if !words.contains(&text(&image)) {
                words.push(text(&image));
            }
            assert_eq!(qemu_img(&words), Some(0), "{words:?}");
        }
        let before = std::fs::read(&image).unwrap();
        let error =
            open_image(&image, &OpenImage { options: writable(), ..OpenImage::default() }).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("cannot be changed in place") && error.contains(advice), "{options}: {error}");
        assert!(before == std::fs::read(&image).unwrap(), "{options}");
    }
    let Some(_) = qemu_img(&["create", "-q", "-f", "qcow2", text(&image), "8M"]) else { return };
    let sound = std::fs::read(&image).unwrap();
    let bits: [(usize, u8, &str); 5] = [
        (79, 1, "not closed properly"),
        (79, 2, "marked as corrupt"),
        (72, 128, "not known here"),
        (35, 1, "it is encrypted"),
        (35, 2, "qemu-img convert"),
    ];
    for (at, bit, expected) in bits {
        let mut bytes = sound.clone();
        bytes[at] |= bit;
        std::fs::write(&image, &bytes).unwrap();
        let error =
            open_image(&image, &OpenImage { options: writable(), ..OpenImage::default() }).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(bytes == std::fs::read(&image).unwrap());
        // Encrypted bytes are not shown as if they were the disk.
        let reading = open_image(&image, &OpenImage::default()).unwrap_err().to_string();
        for message in [error.to_string(), reading] {
            assert!(at != 79 || message.contains("`qemu-img check -r all"), "{message}");
            assert!(!message.contains("-o ro"), "{message}");
        }
    }
}

/// Autoclear features that nobody here knows are cleared before anything else is written.
#[test]
fn unknown_autoclear_features_are_cleared_by_writers_alone() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let Some(_) = qemu_img(&["create", "-q", "-f", "qcow2", text(&image), "8M"]) else { return };
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[88..96].copy_from_slice(&(1u64 << 40).to_be_bytes());
    std::fs::write(&image, &bytes).unwrap();
    open_image(&image, &OpenImage::default()).unwrap();
    assert!(std::fs::read(&image).unwrap() == bytes);
    drop(open(&image));
    bytes[88..96].fill(0);
    assert!(std::fs::read(&image).unwrap() == bytes);
}

/// A `qemu-io` that has an image open until it is dropped.
struct Qemu {
    child: Child,
    words: Option<ChildStdin>,
}

impl Qemu {
    /// Returns when it has the image.
    fn open(image: &Path, options: &[&str]) -> Self {
        let mut command = needs::command("qemu-io");
        command.args(options).arg(image).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut words = child.stdin.take().unwrap();
        words.write_all(b"length\n").unwrap();
        // It answers when it has the image.
        child.stdout.take().unwrap().read_exact(&mut [0; 9]).unwrap();
        Self { child, words: Some(words) }
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.words = None;
        self.child.wait().unwrap();
    }
}

/// Opens for changes, with the images below, and waits no longer than this.
fn change(image: &Path, wait: Option<Duration>) -> Result<Arc<dyn Device>, OpenError> {
    let options = OpenOptions { wait, ..writable() };
    open_image(image, &OpenImage { options, backing: true, ..OpenImage::default() })
}

/// The error of something that QEMU's locks refuse. Until a program that another test starts is loaded, it may be
/// refused by a lock of our own (see [`writable`]).
fn refused_by_qemu<T>(mut attempt: impl FnMut() -> Result<T, OpenError>) -> String {
    loop {
        match attempt() {
            Err(OpenError::Locked { by: Holder::Program, .. }) => std::thread::yield_now(),
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

/// An image that a virtual machine has is not changed under it, and one that is changed here is not QEMU's meanwhile.
#[test]
fn an_image_is_changed_by_qemu_or_here() {
    let dir = TempDir::new().unwrap();
    let Some(()) = needs::met(needs::tools(&["qemu-img", "qemu-io"])) else { return };
    for options in [&["-f", "qcow2"][..], &["-f", "qcow2", "-r"]] {
        let image = dir.path().join(options.len().to_string());
        qemu_img(&["create", "-q", "-f", "qcow2", text(&image), "8M"]).unwrap();
        let qemu = Qemu::open(&image, options);
        refused_by_qemu(|| change(&image, None));
        open_image(&image, &OpenImage::default()).unwrap();
        drop(qemu);
        let device = change(&image, Some(Duration::MAX)).unwrap();
        assert_eq!(qemu_img(&["resize", "-q", text(&image), "9M"]), Some(1));
        drop(device);
    }
}

/// Only writers asked for QEMU's locks. `create -f` replaced the disk of a running virtual machine, whose writes were
/// lost with the old file.
#[test]
fn an_image_that_qemu_has_is_not_replaced() {
    let dir = TempDir::new().unwrap();
    let Some(()) = needs::met(needs::tools(&["qemu-io"])) else { return };
    for options in [&["-f", "raw"][..], &["-f", "raw", "-r"]] {
        let image = dir.path().join(options.len().to_string());
        std::fs::write(&image, [0; 1 << 16]).unwrap();
        let qemu = Qemu::open(&image, options);
        refused_by_qemu(|| Replaced::claim(&image, None));
        drop(qemu);
        let claimed = Replaced::claim(&image, Some(Duration::MAX)).unwrap();
        assert!(!qemu_opens(&image, options), "{options:?}");
        // It is not changed where it is.
        assert!(writer_of(&image).is_none());
        drop(claimed);
    }
}

/// Whether `qemu-io` can open an image.
fn qemu_opens(image: &Path, options: &[&str]) -> bool {
    let mut command = needs::command("qemu-io");
    command.args(options).args(["-c", "length"]).arg(image);
    command.output().unwrap().status.success()
}

/// Only the image on top had QEMU's locks. While a volume in it was changed or mounted, QEMU could write to the images
/// below, and the other way round.
#[test]
fn nobody_writes_to_a_backing_image() {
    let dir = TempDir::new().unwrap();
    let (base, top) = (dir.path().join("base"), dir.path().join("top"));
    let Some(()) = needs::met(needs::tools(&["qemu-img", "qemu-io"])) else { return };
    std::fs::write(&base, [0; 1 << 16]).unwrap();
    let made = qemu_img(&["create", "-q", "-f", "qcow2", "-F", "raw", "-b", text(&base), text(&top)]);
    assert_eq!(made, Some(0));
    let qemu = Qemu::open(&base, &["-f", "raw"]);
    let error = refused_by_qemu(|| change(&top, None));
    assert!(error.contains(text(&base)), "{error}");
    drop(qemu);
    // Readers agree: a reader in QEMU, and one of ours, and the other way round.
    let qemu = Qemu::open(&base, &["-f", "raw", "-r"]);
    let device = change(&top, Some(Duration::MAX)).unwrap();
    drop(qemu);
    assert!(qemu_opens(&base, &["-f", "raw", "-r"]));
    assert!(!qemu_opens(&base, &["-f", "raw"]));
    drop(device);
}

/// The time to wait was for `flock` alone: what QEMU had was refused at once. No lock tells of the end of QEMU's, so
/// the refusal may not come earlier than the time that was given.
#[test]
fn writers_and_readers_wait_for_qemu() {
    let dir = TempDir::new().unwrap();
    let Some(()) = needs::met(needs::tools(&["qemu-io"])) else { return };
    let (short, long) = (Some(Duration::from_millis(200)), Some(Duration::from_secs(600)));
    type Attempt = fn(&Path, Option<Duration>) -> Result<(), OpenError>;
    let attempts: [(&str, Attempt); 2] = [
        ("change", |image, wait| change(image, wait).map(drop)),
        ("lock", |image, wait| open_locked(image, Share::Readers, wait).map(drop)),
    ];
    for (name, attempt) in attempts {
        let image = dir.path().join(name);
        std::fs::write(&image, [0; 1 << 16]).unwrap();
        let qemu = Qemu::open(&image, &["-f", "raw"]);
        let begin = Instant::now();
        refused_by_qemu(|| attempt(&image, short));
        assert!(begin.elapsed() >= Duration::from_millis(200), "{name}");
        std::thread::scope(|scope| {
            let (tell, told) = channel();
            let image = &image;
            let waiter = scope.spawn(move || {
                tell.send(()).unwrap();
                attempt(image, long)
            });
            told.recv().unwrap();
            drop(qemu);
            waiter.join().unwrap().unwrap();
        });
    }
}

/// Readers learnt of every writer but QEMU, and showed without a word what a virtual machine was changing.
#[test]
fn readers_learn_that_qemu_writes() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let Some(()) = needs::met(needs::tools(&["qemu-io"])) else { return };
    std::fs::write(&image, [0; 1 << 16]).unwrap();
    let qemu = Qemu::open(&image, &["-f", "raw", "-r"]);
    assert!(writer_of(&image).is_none());
    drop(qemu);
    let qemu = Qemu::open(&image, &["-f", "raw"]);
    assert!(matches!(writer_of(&image), Some(Holder::Qemu)));
    drop(qemu);
    assert!(writer_of(&image).is_none());
}
