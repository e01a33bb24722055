//! Contents: reads, writes, zeros, discards, sizes.

use std::io::IoSliceMut;
use std::panic::{AssertUnwindSafe, catch_unwind};

use block::{Device, DeviceError, Durability, ReadRequest, WriteRequest, WriteRun};

use super::{cluster, new_device, run, url, writable};
use crate::image::Image;
use crate::{RbdDevice, RbdOptions, batch};

/// Several objects of 4 MiB, and a part of one.
const SIZE: usize = (18 << 20) + 512;

/// Numbers that look random, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % limit
    }

    fn range(&mut self, length: usize) -> (usize, usize) {
        let length = 1 + self.below(length);
        (self.below(SIZE - length), length)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let seed = self.below(251);
        (0..length).map(|n| (n % 253 + n / 4096 + seed) as u8 | 1).collect()
    }
}

fn contents(device: &RbdDevice) -> Vec<u8> {
    let mut found = vec![0xee; device.size() as usize];
    device.read_at(0, &mut found).unwrap();
    found
}

fn expect(device: &RbdDevice, expected: &[u8], after: &str) {
    let found = contents(device);
    if let Some(at) = found.iter().zip(expected).position(|(found, expected)| found != expected) {
        panic!("{after}: the first difference is at {at}: {} instead of {}", found[at], expected[at]);
    }
    assert_eq!(found.len(), expected.len());
}

/// Each kind of change, in random order and at random places, against a copy in memory.
#[test]
fn all_changes_have_their_effect() {
    let Some((ceph, _)) = cluster() else { return };
    let device = new_device(ceph, "changes", SIZE as u64);
    assert_eq!((device.size(), device.is_read_only()), (SIZE as u64, false));
    let (mut numbers, mut expected) = (Numbers(7), vec![0; SIZE]);
    for step in 0..120 {
        let (start, length) = numbers.range(if step % 8 == 0 { 9 << 20 } else { 70_000 });
        let bytes = numbers.bytes(length);
        let range = start..start + length;
        match step % 6 {
            0 => device.zero(start as u64, length as u64).unwrap(),
            1 => device.write_at(start as u64, &bytes, Durability::Fua).unwrap(),
            2 => {
                let parts: Vec<&[u8]> = bytes.chunks(1 + length / 1500).collect();
                device.write_vectored(start as u64, &parts).unwrap();
            }
            3 => {
                let writes: Vec<_> = bytes
                    .chunks(1 + length / 300)
                    .zip((start as u64..).step_by(1 + length / 300))
                    .map(|(piece, offset)| WriteRequest::new(offset, piece))
                    .collect();
                device.write_many(&writes).unwrap();
            }
            4 => {
                let (first, second) = bytes.split_at(length / 2);
                let (first, second) = ([first], [second]);
                let runs = [
                    WriteRun { offset: (start + length / 2) as u64, parts: &second },
                    WriteRun { offset: start as u64, parts: &first },
                ];
                assert!(device.write_runs(&runs).is_empty());
            }
            _ => device.write_at(start as u64, &bytes, Durability::Buffered).unwrap(),
        }
        if step % 6 == 0 {
            expected[range].fill(0)
        } else {
            expected[range].copy_from_slice(&bytes)
        }
        if step % 10 == 9 {
            expect(&device, &expected, &format!("step {step}"));
        }
    }
    device.flush().unwrap();
    let mut reads: Vec<Vec<u8>> = (0..700).map(|n| vec![0; 1 + n * 7]).collect();
    let offsets: Vec<u64> = reads.iter().map(|read| numbers.below(SIZE - read.len()) as u64).collect();
    let mut requests: Vec<_> =
        reads.iter_mut().zip(&offsets).map(|(buf, offset)| ReadRequest::new(*offset, buf)).collect();
    device.read_many(&mut requests).unwrap();
    for (read, offset) in reads.iter().zip(&offsets) {
        assert!(read[..] == expected[*offset as usize..][..read.len()], "{} bytes at {offset}", read.len());
    }
    drop(device);
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    run(ceph, "rbd", &["export", "--no-progress", "rbd/changes", copy.to_str().unwrap()]);
    assert!(std::fs::read(copy).unwrap() == expected);
}

/// Also in a clone, where the data of the parent must not come back.
#[test]
fn discarded_objects_read_as_zeros_and_are_deallocated() {
    let Some((ceph, pool)) = cluster() else { return };
    let device = new_device(ceph, "discarded", SIZE as u64);
    device.write_at(0, &vec![7; SIZE], Durability::Buffered).unwrap();
    device.flush().unwrap();
    let (parent, child) = (url(ceph, "discarded@full"), url(ceph, "discarded-clone"));
    pool.create_snapshot(&parent).unwrap();
    pool.clone_from(&pool, &parent, &child).unwrap();
    let clone = RbdDevice::open(&child, &writable()).unwrap();
    let lone = new_device(ceph, "discarded-alone", SIZE as u64);
    lone.write_at(0, &vec![7; SIZE], Durability::Buffered).unwrap();
    for (device, name) in [(&device, "image"), (&clone, "clone"), (&lone, "image without snapshots")] {
        assert!(device.discard(4 << 20, 8 << 20).unwrap());
        // Up to the end of the device.
        assert!(device.discard(16 << 20, SIZE as u64 - (16 << 20)).unwrap());
        assert!(!device.discard(512, 4096).unwrap(), "a part of an object may keep its contents");
        device.zero(100, 50).unwrap();
        device.flush().unwrap();
        let mut expected = vec![7; SIZE];
        for range in [4 << 20..12 << 20, 16 << 20..SIZE, 100..150] {
            expected[range].fill(0);
        }
        let mut found = contents(device);
        // What the hint may have changed.
        found[512..512 + 4096].fill(7);
        assert!(found == expected, "{name}");
    }
    let extents = run(ceph, "rbd", &["diff", "--format", "json", "rbd/discarded-alone"]);
    for (object, is_allocated) in [true, false, false, true].into_iter().enumerate() {
        let extent = format!("{{\"offset\":{},", object << 22);
        assert_eq!(extents.contains(&extent), is_allocated, "object {object}: {extents}");
    }
    assert!(device.discard(0, SIZE as u64).unwrap());
    assert!(contents(&device).iter().all(|byte| *byte == 0));
}

#[test]
fn ranges_and_snapshots_are_protected() {
    let Some((ceph, pool)) = cluster() else { return };
    let device = new_device(ceph, "protected", 1 << 20);
    let error = device.write_at((1 << 20) - 1, b"ab", Durability::Buffered).unwrap_err();
    assert!(matches!(error, DeviceError::PastEnd { .. }), "{error}");
    let error = device.read_at(1 << 20, &mut [0]).unwrap_err();
    assert!(matches!(error, DeviceError::PastEnd { .. }), "{error}");
    let good = WriteRequest::new(0, b"good");
    let failed = device.write_many(&[good, WriteRequest::new(u64::MAX, b"bad")]).unwrap_err();
    assert!(matches!(failed, DeviceError::PastEnd { .. }), "{failed}");
    pool.create_snapshot(&url(ceph, "protected@one")).unwrap();
    let snapshot = RbdDevice::open(&url(ceph, "protected@one"), &RbdOptions::default()).unwrap();
    for device in [&snapshot as &dyn Device] {
        assert!(device.is_read_only());
        device.flush().unwrap();
        for error in [
            device.write_at(0, b"x", Durability::Fua).unwrap_err(),
            device.zero(0, 1).unwrap_err(),
            device.discard(0, 1).unwrap_err(),
            device.set_size(1).unwrap_err(),
        ] {
            assert!(matches!(error, DeviceError::ReadOnly { .. }), "{error}");
        }
    }
    let mut found = [0; 4];
    snapshot.read_at(0, &mut found).unwrap();
    assert_eq!(&found, b"good");
    let error = RbdDevice::open(&url(ceph, "protected@one"), &writable()).err().unwrap();
    assert_eq!(error.errno(), base::errno::EROFS);
}

#[test]
fn the_size_changes() {
    let Some((ceph, _)) = cluster() else { return };
    let device = new_device(ceph, "resized", 1 << 20);
    device.write_at((1 << 20) - 4, b"tail", Durability::Fua).unwrap();
    device.set_size(9 << 20).unwrap();
    assert_eq!(device.size(), 9 << 20);
    let mut found = [1; 8];
    device.read_at((1 << 20) - 4, &mut found).unwrap();
    assert_eq!(&found, b"tail\0\0\0\0");
    device.set_size((1 << 20) - 2).unwrap();
    device.set_size(2 << 20).unwrap();
    device.read_at((1 << 20) - 4, &mut found).unwrap();
    assert_eq!(&found, b"ta\0\0\0\0\0\0");
    // By another client, which asks the owner of the lock for it.
    run(ceph, "rbd", &["resize", "--no-progress", "rbd/resized", "--size", "5M"]);
    assert_eq!(device.size(), 2 << 20);
    assert_eq!(device.refresh_size().unwrap(), 5 << 20);
    device.write_at((5 << 20) - 1, b"x", Durability::Fua).unwrap();
}

/// The library writes into the buffers of reads that are in flight: they must not be given back before.
#[test]
fn a_panic_waits_for_operations_in_flight() {
    let Some((ceph, pool)) = cluster() else { return };
    let device = new_device(ceph, "panic", 8 << 20);
    device.write_at(0, &vec![9; 8 << 20], Durability::Fua).unwrap();
    drop(device);
    let image = Image::open_read_only(&pool, &url(ceph, "panic")).unwrap();
    let mut buffers = vec![vec![0; 64 << 10]; 128];
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        batch::run(&image, |batch| {
            for (index, buffer) in buffers.iter_mut().enumerate() {
                batch.read(index, (index << 16) as u64, vec![IoSliceMut::new(buffer)]);
            }
            panic!("in the middle of a batch");
        })
    }));
    assert!(unwound.is_err());
    assert!(buffers.iter().flatten().all(|byte| *byte == 9));
}
