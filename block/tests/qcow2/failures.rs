//! A device that fails once while an image is changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;
use tempfile::TempDir;
use xebec_block::{
    Device, DeviceError, Durability, FileDevice, MemoryDevice, OpenOptions, Operation, Qcow2Device,
};

use crate::{DISK, Random, images, qemu_img, step, text, writable};

/// Fails one write or flush. The first half of a failed write is in the file.
struct FailsOnce {
    inner: MemoryDevice,
    /// Number of writes and flushes up to that one.
    remaining: AtomicUsize,
}

impl FailsOnce {
    fn fails(&self) -> bool {
        let decrement = |remaining: usize| remaining.checked_sub(1);
        self.remaining.fetch_update(Ordering::SeqCst, Ordering::SeqCst, decrement) == Ok(1)
    }

    fn error(&self, operation: Operation) -> DeviceError {
        let source = Errno::NODEV.into();
        DeviceError::Io { device: self.describe().into(), operation, offset: 0, length: 0, source }
    }
}

impl Device for FailsOnce {
    xebec_block::forward!(inner: size, logical_sector_size, is_read_only, read_at, set_size);

    fn write_at(&self, offset: u64, buf: &[u8], durability: Durability) -> Result<(), DeviceError> {
        if self.fails() {
            self.inner.write_at(offset, &buf[..buf.len() / 1024 * 512], durability)?;
            return Err(self.error(Operation::Write));
        }
        self.inner.write_at(offset, buf, durability)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        if self.fails() { Err(self.error(Operation::Flush)) } else { self.inner.flush() }
    }
    fn describe(&self) -> String {
        "a device that fails once".into()
    }
}

/// A failed flush was retried as if none of its writes were in the file. But the retry wrote tables that the file
/// already referred to in its first step, before the refcounts were stable; and refcounts that were lost by the failed
/// flush were never written again. Now there are no changes after a failed flush.
#[test]
fn nothing_is_changed_after_a_failed_flush() {
    let dir = TempDir::new().unwrap();
    let Some(images) = images(&dir) else { return };
    let mut failed = 0;
    for (name, image, model) in images {
        let initial = std::fs::read(&image).unwrap();
        for nth in 1..200 {
            let inner = MemoryDevice::from_bytes(&initial);
            let file = Arc::new(FailsOnce { inner, remaining: AtomicUsize::new(0) });
            let device = Qcow2Device::open(file.clone(), &image, Some(OpenOptions::default())).unwrap();
            let (mut random, mut model) = (Random::new(3), model.clone());
            for _ in 0..12 {
                step(&mut random, &device, &mut model);
            }
            file.remaining.store(nth, Ordering::SeqCst);
            let errno = Errno::NODEV.raw_os_error();
            // The flush has fewer writes: each of them has failed once.
            let Err(error) = device.flush() else { break };
            failed += 1;
            assert_eq!(error.errno(), errno, "{name}, {nth}: {error}");
            let later = [
                device.flush(),
                device.write_at(0, &[1; 512], Durability::Buffered),
                device.write_at(1 << 20, &[1; 512], Durability::Fua),
                device.zero(0, DISK as u64),
                device.discard(0, DISK as u64).map(drop),
            ];
            for (index, result) in later.into_iter().enumerate() {
                let error = result.expect_err(&format!("{name}, {nth}: {index}"));
                assert_eq!(error.errno(), errno, "{name}, {nth}: {error}");
            }
            // Reads still work.
            device.read_at(0, &mut vec![0; DISK]).unwrap();
            drop(device);
            let mut bytes = vec![0; file.size() as usize];
            file.read_at(0, &mut bytes).unwrap();
            std::fs::write(&image, &bytes).unwrap();
            let found = qemu_img(&["check", "-q", text(&image)]).unwrap();
            assert!(matches!(found, 0 | 3), "{name}, {nth}: qemu-img check exits with {found}");
        }
        std::fs::write(&image, &initial).unwrap();
    }
    assert!(failed > 60, "only {failed} flushes failed");
}

/// Freed clusters were not deallocated in the file.
#[test]
fn freed_clusters_are_deallocated() {
    use std::os::unix::fs::MetadataExt as _;
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let Some(_) = qemu_img(&["create", "-q", "-f", "qcow2", text(&image), "8M"]) else { return };
    let file = Arc::new(FileDevice::open(&image, &writable()).unwrap());
    let device = Qcow2Device::open(file.clone(), &image, None).unwrap();
    device.write_at(0, &vec![7; 8 << 20], Durability::Buffered).unwrap();
    device.flush().unwrap();
    let allocated = || std::fs::metadata(&image).unwrap().blocks() * 512;
    let full = allocated();
    // Skip the test if the file system does not support holes.
    let spare = dir.path().join("spare");
    std::fs::write(&spare, vec![7; 1 << 20]).unwrap();
    if !FileDevice::open(&spare, &writable()).unwrap().discard(0, 1 << 20).unwrap() {
        return;
    }
    assert!(device.discard(1 << 20, 6 << 20).unwrap());
    device.flush().unwrap();
    assert!(allocated() + (6 << 20) <= full, "{full} -> {}", allocated());
    let mut found = vec![0; 8 << 20];
    device.write_at(2 << 20, &[8; 65536], Durability::Buffered).unwrap();
    device.flush().unwrap();
    device.read_at(0, &mut found).unwrap();
    let expected = |at: usize| match at >> 16 {
        32 => 8,
        16..112 => 0,
        _ => 7,
    };
    assert!(found.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
    drop((device, file));
    assert_eq!(qemu_img(&["check", "-q", text(&image)]), Some(0));
}
