//! Growing volumes in use, and shrinking: the checker finds no error, and all files are intact.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::stop::{self, StopFlag};
use block::{Device as _, MemoryDevice, Operation};
use devices::{Fault, FaultDevice, When};
use xebec_volume::resize::{self, GrowError, NewSize, ShrinkError};
use xebec_volume::{NewFile, Options, Volume};

use common::judge;

const MIB: u64 = 1 << 20;

/// Shapes of volumes: with all btrees and with few, small blocks, several inode sizes.
fn shapes() -> Vec<mkfs::Options> {
    let plain = mkfs::Options::default();
    let all = mkfs::Options { rmapbt: true, reflink: true, ..plain.clone() };
    let few =
        mkfs::Options { finobt: false, rmapbt: false, reflink: false, inobtcount: false, ..plain.clone() };
    let small = mkfs::Options { block_size: 1024, ..all.clone() };
    vec![plain, all, few, small]
}

fn make(size: u64, options: &mkfs::Options) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(size));
    mkfs::format(&*device, options).unwrap();
    device
}

fn open(device: &Arc<MemoryDevice>) -> Volume {
    Volume::open(device.clone(), Options::default()).unwrap()
}

/// Contents of file number `n`.
fn contents(n: u32) -> Vec<u8> {
    n.to_le_bytes().repeat(1 + n as usize * 37 % 5000)
}

fn write(volume: &Volume, dir: &str, n: u32) {
    let dir = volume.create_dir_all(dir.as_bytes(), &NewFile::directory()).unwrap();
    let file = volume.create(dir, format!("file {n}").as_bytes(), &NewFile::regular()).unwrap();
    volume.open_file(file).unwrap().append(&contents(n)).unwrap();
}

/// Checks that all files exist with their contents.
fn expect(volume: &Volume, files: &BTreeMap<String, u32>) {
    for (path, n) in files {
        let id = volume.resolve(path.as_bytes(), true).unwrap();
        let mut bytes = vec![0; contents(*n).len()];
        let read = volume.open_file(id).unwrap().read_at(&mut bytes, 0).unwrap();
        assert_eq!((read, &bytes), (bytes.len(), &contents(*n)), "{path}");
    }
}

fn fill(volume: &Volume, dir: &str, numbers: std::ops::Range<u32>) -> BTreeMap<String, u32> {
    let path = |n: u32| format!("{dir}/file {n}");
    numbers
        .map(|n| {
            write(volume, dir, n);
            (path(n), n)
        })
        .collect()
}

#[test]
fn a_volume_grows_while_threads_work_on_it() {
    for (n, options) in shapes().iter().enumerate() {
        let device = make(40 * MIB, options);
        let volume = open(&device);
        let block = u64::from(volume.geometry().block_size);
        let files = stop::scope(|scope| {
            let work = |thread: u32| {
                let volume = &volume;
                move |stop: &StopFlag| {
                    let mut files = BTreeMap::new();
                    let dir = format!("/thread {thread}");
                    for round in 0u32.. {
                        if stop.is_set() && round > 30 || round > 200 {
                            break;
                        }
                        files.extend(fill(volume, &dir, round * 4..round * 4 + 4));
                        let gone = format!("{dir}/file {}", round * 2);
                        let name = format!("file {}", round * 2);
                        let parent = volume.resolve(dir.as_bytes(), true).unwrap();
                        volume.unlink(parent, name.as_bytes()).unwrap();
                        files.remove(&gone);
                    }
                    files
                }
            };
            let threads: Vec<_> = (0..3).map(|thread| scope.spawn(work(thread))).collect();
            // Within the last AG; to its end and beyond; far.
            for size in [41 * MIB, 47 * MIB, 64 * MIB + block * 70, 300 * MIB] {
                let has = volume.grow(size / block).unwrap();
                assert_eq!(has, volume.geometry().blocks());
                assert!(has * block > size - 65 * block, "{has}");
            }
            scope.stop().set();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<BTreeMap<_, _>>()
        });
        assert_eq!(device.size(), 300 * MIB, "shape {n}");
        expect(&volume, &files);
        // The new space is usable.
        let big = volume.create(volume.root(), b"big", &NewFile::regular()).unwrap();
        let file = volume.open_file(big).unwrap();
        for _ in 0..180 {
            file.append(&vec![7; 1 << 20]).unwrap();
        }
        drop(file);
        for n in 0..40 {
            fill(&volume, &format!("/new {n}"), 0..3);
        }
        volume.write_back_all().unwrap();
        let free = volume.statistics().blocks_free;
        volume.unmount().unwrap();
        judge(&device);
        let volume = open(&device);
        assert_eq!(volume.statistics().blocks_free, free, "shape {n}");
        expect(&volume, &files);
        volume.unmount().unwrap();
        judge(&device);
    }
}

/// After growing, the same number of blocks is available as after opening a volume of that size.
#[test]
fn reserves_for_trees_grow_with_the_groups() {
    for options in shapes() {
        let device = make(40 * MIB, &options);
        let volume = open(&device);
        let blocks = 333 * MIB / u64::from(volume.geometry().block_size);
        volume.grow(blocks).unwrap();
        let room = |volume: &Volume| {
            let file = volume.create(volume.root(), b"all", &NewFile::regular()).unwrap();
            let file = volume.open_file(file).unwrap();
            let (mut step, mut end) = (64 * MIB, 0);
            while step > 8 << 10 {
                match file.allocate(end, step, false) {
                    Ok(()) => end += step,
                    Err(_) => step /= 2,
                }
            }
            drop(file);
            volume.unlink(volume.root(), b"all").unwrap();
            end
        };
        let grown = room(&volume);
        volume.unmount().unwrap();
        let volume = open(&device);
        let opened = room(&volume);
        assert!(grown.abs_diff(opened) <= opened / 200, "{grown} {opened}");
        volume.unmount().unwrap();
        judge(&device);
    }
}

#[test]
fn growing_survives_a_power_cut_and_refuses_what_cannot_be() {
    let device = make(40 * MIB, &mkfs::Options::default());
    let volume = open(&device);
    let files = fill(&volume, "/a", 0..50);
    volume.sync().unwrap();
    let errno = |result: xebec_volume::Result<u64>| result.unwrap_err().errno();
    assert_eq!(errno(volume.grow(5000)), base::errno::EINVAL);
    assert_eq!(errno(volume.grow(u64::MAX)), base::errno::EFBIG);
    assert_eq!(errno(volume.grow(10_240 * 65)), base::errno::EFBIG);
    assert_eq!(volume.grow(10_240).unwrap(), 10_240);
    // 63 blocks are too few for an AG.
    assert_eq!(volume.grow(10_240 + 63).unwrap(), 10_240);
    assert_eq!(volume.grow(10_240 * 8).unwrap(), 10_240 * 8);
    let more = fill(&volume, "/b", 0..50);
    volume.sync().unwrap();
    drop(volume);
    let volume = open(&device);
    assert!(volume.recovered().is_some());
    assert_eq!(volume.geometry().blocks(), 10_240 * 8);
    expect(&volume, &files);
    expect(&volume, &more);
    volume.unmount().unwrap();
    judge(&device);
}

/// A volume that is not in use grows by more than an open one can.
#[test]
fn growing_in_several_steps() {
    for (n, options) in shapes().iter().enumerate() {
        let memory = make(20 * MIB, options);
        let block = u64::from(open(&memory).geometry().block_size);
        let device: Arc<dyn block::Device> = memory.clone();
        let grow = |size| resize::grow(&device, &Options::default(), size);
        let to = |size| grow(size).unwrap().after * block;
        let none = grow(NewSize::Device).unwrap();
        assert_eq!((none.before, none.after), (20 * MIB / block, 20 * MIB / block), "shape {n}");
        let first = grow(NewSize::MoreBytes(2000 * MIB)).unwrap();
        assert_eq!((first.before, first.after), (20 * MIB / block, 2020 * MIB / block), "shape {n}");
        assert_eq!(u64::from(first.block_size), block);
        assert_eq!(first.ag_count, open(&memory).geometry().ag_count());
        assert_eq!(device.size(), 2020 * MIB);
        // To the size of the device, and less than a block more.
        device.set_size(2100 * MIB).unwrap();
        assert_eq!(to(NewSize::Device), 2100 * MIB, "shape {n}");
        assert_eq!(to(NewSize::MoreBytes(block - 1)), 2100 * MIB, "shape {n}");
        judge(&memory);
    }
}

#[test]
fn errors_of_growing_have_the_sizes_and_others_have_not() {
    let memory = make(20 * MIB, &mkfs::Options::default());
    let faulty = Arc::new(FaultDevice::new(memory.clone(), []));
    let device: Arc<dyn block::Device> = faulty.clone();
    let grow = |bytes| resize::grow(&device, &Options::default(), NewSize::Bytes(bytes));
    let error = grow(10 * MIB).unwrap_err();
    assert_eq!(error.errno(), base::errno::EINVAL);
    assert!(
        matches!(error, GrowError::Grow { requested, current, available, .. }
            if (requested, current, available) == (10 * MIB, 20 * MIB, 20 * MIB)),
        "{error:?}"
    );
    // Regression: it was first grown as far as possible.
    let error = grow(u64::MAX).unwrap_err();
    assert_eq!(open(&memory).geometry().bytes(), 20 * MIB);
    assert!(matches!(error, GrowError::Grow { .. }) && error.errno() == base::errno::EFBIG, "{error:?}");
    faulty.set_faults([Fault::io_error(Operation::Read, When::From(0))]);
    let error = grow(40 * MIB).unwrap_err();
    assert!(matches!(error, GrowError::Open(_)), "{error:?}");
    faulty.set_faults([]);
    // Each failing write until one makes the volume read-only, and then the unmount fails.
    let (mut refused, mut unmounted) = (0, 0);
    for n in 0.. {
        faulty.set_faults([Fault::io_error(Operation::Write, When::From(n))]);
        let grown = grow(40 * MIB);
        faulty.set_faults([]);
        match grown {
            Err(GrowError::Grow { .. }) => refused += 1,
            Err(GrowError::Unmount(_)) => unmounted += 1,
            Err(GrowError::Open(_)) => {}
            Err(error) => panic!("{error:?}"),
            Ok(_) => break,
        }
        open(&memory).unmount().unwrap();
    }
    assert!(refused + unmounted > 0, "{refused} refused, {unmounted} not unmounted");
    judge(&memory);
}

#[test]
fn a_volume_shrinks_to_what_is_in_use() {
    for (n, options) in shapes().iter().enumerate() {
        let device = make(256 * MIB, options);
        let volume = open(&device);
        let block = u64::from(volume.geometry().block_size);
        let files = fill(&volume, "/kept", 0..60);
        let least = volume.shrink_limit().unwrap().min_blocks;
        assert!(volume.shrink(least - 1).is_err() || least == volume.geometry().blocks());
        volume.unmount().unwrap();
        let device: Arc<dyn block::Device> = device;
        let options = Options::default();
        let before = 256 * MIB / block;
        let by = |blocks| resize::shrink(&device, &options, Some(blocks)).map(|shrunk| shrunk.after);
        assert_eq!(by(before).unwrap(), before);
        assert!(matches!(by(before + 1), Err(ShrinkError::Larger)));
        // Within the last AG.
        assert_eq!(by(before - 100).unwrap(), before - 100, "shape {n}");
        let Err(ShrinkError::InUse { min_blocks }) = by(500) else { panic!("shape {n}") };
        assert!(matches!(by(min_blocks - 1), Err(ShrinkError::InUse { .. })), "shape {n}");
        let least = resize::shrink(&device, &options, None).unwrap();
        assert!(least.after <= min_blocks, "{least:?} {min_blocks}");
        assert!(least.after <= before, "{least:?}");
        device.set_size(least.after * block).unwrap();
        let volume = Volume::open(device.clone(), options.clone()).unwrap();
        expect(&volume, &files);
        // It can grow again.
        volume.grow(before).unwrap();
        assert_eq!(volume.geometry().blocks(), before);
        let more = fill(&volume, "/more", 0..60);
        expect(&volume, &files);
        expect(&volume, &more);
        volume.unmount().unwrap();
        common::judge_device(&*device);
    }
}

/// A copy of the superblock that a power cut left out of date is updated when the volume is next opened.
#[test]
fn copies_that_stayed_behind_follow() {
    let device = make(64 * MIB, &mkfs::Options::default());
    let geometry = open(&device).geometry().clone();
    let mut sector = vec![0; 512];
    device.read_at(0, &mut sector).unwrap();
    let volume = open(&device);
    volume.grow(geometry.blocks() + 2000).unwrap();
    volume.unmount().unwrap();
    judge(&device);
    for ag in 1..=geometry.ag_count() {
        let place = u64::from(ag) * u64::from(geometry.ag_blocks) * 4096;
        device.write_at(place, &sector, block::Durability::Buffered).unwrap();
    }
    open(&device).unmount().unwrap();
    judge(&device);
}

/// If a read or write fails while growing, the volume has the old size, or it is shut down and opens with one of both
/// sizes.
#[test]
fn a_device_that_fails_while_it_grows_leaves_the_old_size_or_a_volume_that_is_shut_down() {
    let (mut refused, mut down) = (0, 0);
    for n in 0.. {
        let memory = make(20 * MIB, &shapes()[1]);
        let device = Arc::new(FaultDevice::new(memory.clone(), []));
        let options = Options { background: false, ..Options::default() };
        let volume = Volume::open(device.clone(), options).unwrap();
        let files = fill(&volume, "/before", 0..3);
        volume.sync().unwrap();
        let before = volume.geometry().blocks();
        let target = 48 * MIB / u64::from(volume.geometry().block_size);
        let fault = |on| Fault::io_error(on, When::From(n / 2));
        device.set_faults([fault(if n % 2 == 0 { Operation::Write } else { Operation::Flush })]);
        let grown = volume.grow(target);
        device.set_faults([]);
        let is_up = volume.create(volume.root(), b"is it up?", &NewFile::regular()).is_ok();
        let has = volume.geometry().blocks();
        match (&grown, is_up) {
            (Ok(_), _) => assert_eq!(has, target, "fault {n}"),
            (Err(_), true) => {
                assert_eq!(has, before, "fault {n}");
                assert_eq!(volume.grow(target).unwrap(), target, "fault {n}");
                refused += 1;
            }
            (Err(_), false) => down += 1,
        }
        drop(volume);
        let volume = open(&memory);
        let has = volume.geometry().blocks();
        assert!(has == target || has == before, "fault {n}: {has}");
        expect(&volume, &files);
        volume.unmount().unwrap();
        judge(&memory);
        if grown.is_ok() && n % 2 == 0 {
            break;
        }
    }
    assert!(refused > 1 && down > 3, "{refused} refused, {down} shut down");
}
