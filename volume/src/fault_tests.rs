//! All operations with failing allocations and failing reads: each allocation and each read fails in turn.
//!
//! An operation that fails leaves the volume unchanged, or shuts it down, and then recovery restores it. It is never
//! committed partly. In the test volume, directories, attributes and extent maps are one change away from a conversion
//! to their next format.
#![cfg(debug_assertions)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use block::{MemoryDevice, Operation, OverlayDevice};
use devices::{Fault, FaultDevice, When};
use format::inode::FileType;
use journal::engine::CommitTarget;

use crate::{
    Cookie, DeviceNumber, Error, FileId, NewFile, NewFileType, OpenOptions, Options, Rename, Result,
    SetAttribute, SetMetadata, Volume,
};

/// A description of each file, by path.
type Manifest = BTreeMap<String, String>;

type Run = Box<dyn Fn(&Volume) -> Result<()>>;

/// One operation.
struct Op {
    name: String,
    run: Run,
    /// It is one transaction, so it has no effect if it fails. Other operations may have been done partly.
    atomic: bool,
}

fn options() -> Options {
    Options { seed: Some(5), ..Options::default() }
}

fn describe(volume: &Volume, id: FileId) -> Result<String> {
    let known = volume.metadata(id)?;
    let mut text = format!("{:?} {:o} {} {}", known.file_type, known.permissions, known.nlink, known.size);
    let mut names = volume.list_attributes(id)?;
    names.sort();
    for name in names {
        let value = volume.get_attribute(id, &name)?;
        text += &format!(" {}={}:{:x}", name.escape_ascii(), value.len(), sum(&value));
    }
    match known.file_type {
        FileType::Symlink => text += &format!(" -> {}", volume.read_link(id)?.escape_ascii()),
        FileType::Regular => {
            let mut bytes = vec![0; known.size as usize];
            let file = OpenOptions::new().read(true).open_id(volume, id)?;
            file.read_at(&mut bytes, 0)?;
            text += &format!(" {:x}", sum(&bytes));
        }
        _ => {}
    }
    Ok(text)
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum, byte| base::random::mix(sum ^ u64::from(*byte)))
}

fn manifest(volume: &Volume) -> Result<Manifest> {
    let mut all = Manifest::new();
    let mut left = vec![(String::new(), volume.root())];
    // Some files have thousands of names.
    let mut known: BTreeMap<FileId, String> = BTreeMap::new();
    while let Some((path, dir)) = left.pop() {
        all.insert(format!("{path}/"), describe(volume, dir)?);
        let mut found = Vec::new();
        volume.read_dir(dir, Cookie(0), &mut |entry| {
            found.push((String::from_utf8_lossy(entry.name).into_owned(), entry.ino));
            true
        })?;
        for (name, id) in found.into_iter().filter(|(name, _)| name != "." && name != "..") {
            let id = volume.id_of(id)?;
            let path = format!("{path}/{name}");
            if !known.contains_key(&id) && volume.metadata(id)?.file_type == FileType::Directory {
                left.push((path, id));
            } else if let Some(known) = known.get(&id) {
                all.insert(path, known.clone());
            } else {
                let text = describe(volume, id)?;
                known.insert(id, text.clone());
                all.insert(path, text);
            }
        }
    }
    Ok(all)
}

#[derive(Default)]
struct Findings(Mutex<Vec<String>>);

impl check::Observer for Findings {
    fn finding(&self, finding: &check::Finding) {
        self.0.lock().unwrap().push(finding.to_string());
    }
}

#[track_caller]
fn judge(device: &dyn block::Device, what: &str) {
    let findings = Findings::default();
    check::check(device, &check::Options { threads: 1, ..check::Options::default() }, &findings).unwrap();
    let findings = findings.0.into_inner().unwrap();
    assert!(findings.is_empty(), "{what}: {}", findings.join("\n"));
}

fn dir(volume: &Volume, name: &str) -> FileId {
    volume.create(volume.root(), name.as_bytes(), &NewFile::directory()).unwrap()
}

fn at(volume: &Volume, path: &str) -> Result<FileId> {
    volume.resolve(path.as_bytes(), false)
}

fn entry(n: u64) -> Vec<u8> {
    format!("an entry with a name of some length {n:06}").into_bytes()
}

fn attribute(n: u64) -> Vec<u8> {
    format!("user.an attribute {n:06}").into_bytes()
}

/// Returns the steps of `grow` that allocate blocks: those that convert a format or find a block full. Tries `to`
/// steps.
fn jumps(volume: &Volume, id: FileId, to: u64, grow: impl Fn(u64)) -> Vec<u64> {
    let mut blocks = volume.metadata(id).unwrap().blocks;
    let mut found = Vec::new();
    for n in 0..to {
        grow(n);
        let now = volume.metadata(id).unwrap().blocks;
        if now != blocks {
            found.push(n);
            blocks = now;
        }
    }
    found
}

/// Creates the test volume. Returns the operations to test.
fn prepare(device: &Arc<MemoryDevice>, parents: bool) -> Vec<Op> {
    let options = mkfs::Options { block_size: 1024, parent: parents, ..mkfs::Options::default() };
    mkfs::format(&**device, &options).unwrap();
    let volume = Volume::open(device.clone(), self::options()).unwrap();
    let root = volume.root();
    let file = volume.create(root, b"file", &NewFile::regular()).unwrap();
    let other = volume.create(root, b"other", &NewFile::regular()).unwrap();
    let mut ops = Vec::new();
    directories(&volume, other, &mut ops);
    attributes(&volume, &mut ops);
    names(&volume, &mut ops);
    maps(&volume, file, &mut ops);
    volume.unmount().unwrap();
    judge(&**device, "before");
    ops
}

fn op(ops: &mut Vec<Op>, atomic: bool, name: String, run: impl Fn(&Volume) -> Result<()> + 'static) {
    ops.push(Op { name, run: Box::new(run), atomic });
}

fn directories(volume: &Volume, file: FileId, ops: &mut Vec<Op>) {
    let grown = dir(volume, "grown");
    let found = jumps(volume, grown, 530, |n| volume.link(file, grown, &entry(n)).unwrap());
    // The first formats, and the last one, in which the leaf becomes a tree.
    let chosen = found.iter().take(4).chain(found.iter().rev().take(3));
    for n in chosen.copied() {
        let name = format!("d{n}");
        let here = dir(volume, &name);
        (0..n).for_each(|n| volume.link(file, here, &entry(n)).unwrap());
        let path = name.clone();
        op(ops, true, format!("name {n} of a directory"), move |volume| {
            volume.link(at(volume, "/other")?, at(volume, &path)?, &entry(n))
        });
        let path = name.clone();
        op(ops, true, format!("file {n} of a directory"), move |volume| {
            volume.create(at(volume, &path)?, &entry(n), &NewFile::regular()).map(drop)
        });
        op(ops, true, format!("without name 0 of {n}"), move |volume| {
            volume.unlink(at(volume, &name)?, &entry(0))
        });
    }
}

fn attributes(volume: &Volume, ops: &mut Vec<Op>) {
    let root = volume.root();
    let set = |volume: &Volume, id, n, length| {
        volume.set_attribute(id, &attribute(n), &vec![n as u8; length], SetAttribute::Any)
    };
    let grown = volume.create(root, b"attributes", &NewFile::regular()).unwrap();
    let found = jumps(volume, grown, 90, |n| set(volume, grown, n, 60).unwrap());
    for n in found.iter().take(5).copied() {
        let name = format!("/a{n}");
        let here = volume.create(root, &name.as_bytes()[1..], &NewFile::regular()).unwrap();
        (0..n).for_each(|n| set(volume, here, n, 60).unwrap());
        for (what, length) in [("short", 60), ("middle", 700), ("long", 20_000)] {
            let path = name.clone();
            op(ops, true, format!("{what} attribute {n}"), move |volume| {
                set(volume, at(volume, &path)?, n, length)
            });
        }
        let path = name.clone();
        op(ops, true, format!("attribute 0 of {n} grows"), move |volume| {
            set(volume, at(volume, &path)?, 0, 3000)
        });
        op(ops, true, format!("without attribute 0 of {n}"), move |volume| {
            volume.remove_attribute(at(volume, &name)?, &attribute(0))
        });
    }
    let long = volume.create(root, b"long", &NewFile::regular()).unwrap();
    set(volume, long, 0, 30_000).unwrap();
    op(ops, true, "a long value is replaced".into(), move |volume| {
        set(volume, at(volume, "/long")?, 0, 9000)
    });
    op(ops, true, "a long value goes".into(), |volume| {
        volume.remove_attribute(at(volume, "/long")?, &attribute(0))
    });
}

fn names(volume: &Volume, ops: &mut Vec<Op>) {
    let root = volume.root();
    let (left, right) = (dir(volume, "left"), dir(volume, "right"));
    for n in 0..30 {
        volume.create(left, &entry(n), &NewFile::regular()).unwrap();
        volume.create(right, &entry(n), &NewFile::directory()).unwrap();
    }
    let link = NewFile { file_type: NewFileType::Symlink(&[b'x'; 900]), ..NewFile::regular() };
    volume.create(root, b"link", &link).unwrap();
    op(ops, true, "a link".into(), |volume| {
        let link = NewFile { file_type: NewFileType::Symlink(&[b'y'; 950]), ..NewFile::regular() };
        volume.create(volume.root(), b"new link", &link).map(drop)
    });
    op(ops, true, "a directory".into(), |volume| {
        volume.create(at(volume, "/left")?, b"sub", &NewFile::directory()).map(drop)
    });
    op(ops, true, "a device with attributes".into(), |volume| {
        let (kind, given) =
            (NewFileType::CharDevice(DeviceNumber { major: 1, minor: 2 }), [(&b"trusted.x"[..], &b"y"[..])]);
        volume
            .create(
                volume.root(),
                b"device",
                &NewFile { file_type: kind, attributes: &given, ..NewFile::regular() },
            )
            .map(drop)
    });
    op(ops, true, "an attribute of a link".into(), |volume| {
        volume.set_attribute(at(volume, "/link")?, b"trusted.x", &[3; 400], SetAttribute::Any)
    });
    op(ops, true, "a directory goes".into(), |volume| volume.rmdir(at(volume, "/right")?, &entry(3)));
    for (what, how) in [
        ("replaces", Rename::Replace),
        ("is exchanged", Rename::Exchange),
        ("leaves a whiteout", Rename::Whiteout),
    ] {
        // No file is freed, because both have another name.
        op(ops, how != Rename::Whiteout, format!("a name {what}"), move |volume| {
            let (left, right) = (at(volume, "/left")?, at(volume, "/d1")?);
            volume.rename(left, &entry(5), right, &entry(0), how)
        });
    }
    op(ops, true, "a directory moves".into(), |volume| {
        let (left, right) = (at(volume, "/left")?, at(volume, "/right")?);
        volume.rename(right, &entry(7), left, b"moved", Rename::NoReplace)
    });
    op(ops, true, "permissions".into(), |volume| {
        let set = SetMetadata { permissions: Some(0o600), ..SetMetadata::default() };
        volume.set_metadata(at(volume, "/file")?, &set)
    });
}

/// Operations on ranges of a file.
fn maps(volume: &Volume, id: FileId, ops: &mut Vec<Op>) {
    const BLOCK: u64 = 1024;
    let file = OpenOptions::new().read(true).write(true).open_id(volume, id).unwrap();
    for n in 0..130 {
        file.write_at(&[n as u8; BLOCK as usize], n * 3 * BLOCK).unwrap();
    }
    file.sync_all().unwrap();
    volume.create(volume.root(), b"copy", &NewFile::regular()).unwrap();
    let mut on_file = |name: &str, run: fn(&crate::File<'_>, &Volume) -> Result<()>| {
        op(ops, false, name.to_owned(), move |volume| {
            let id = at(volume, "/file")?;
            run(&OpenOptions::new().read(true).write(true).open_id(volume, id)?, volume)
        });
    };
    on_file("blocks are allocated", |file, _| file.allocate(BLOCK, 200 * BLOCK, true));
    on_file("a hole", |file, _| file.punch_hole(30 * BLOCK, 60 * BLOCK));
    on_file("zeros", |file, _| file.zero_range(30 * BLOCK, 60 * BLOCK, true));
    on_file("a shift down", |file, _| file.collapse_range(30 * BLOCK, 7 * BLOCK));
    on_file("a shift up", |file, _| file.insert_range(30 * BLOCK, 7 * BLOCK));
    on_file("a shorter file", |file, _| file.set_len(90 * BLOCK + 5));
    on_file("a longer file", |file, _| file.set_len(9000 * BLOCK));
    on_file("a write", |file, _| {
        file.write_at(&[9; 5000], 100)?;
        file.sync_all()
    });
    on_file("writes apart", |file, _| {
        for n in 0..60 {
            file.write_at(&[8; 10], (n * 7 + 1) * BLOCK)?;
        }
        file.sync_all()
    });
    on_file("a clone", |file, volume| {
        let copy =
            OpenOptions::new().read(true).write(true).open_id(volume, volume.resolve(b"/copy", false)?)?;
        copy.clone_range(file, 0, 0, 200 * BLOCK)
    });
}

/// The operation that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fails {
    /// Allocations, from the nth on.
    Allocation,
    /// The nth read.
    Read,
}

#[derive(Debug, Default)]
struct Ends {
    unharmed: u32,
    refused: u32,
    shut_down: u32,
}

/// Expects that reads of a volume that was shut down find what is in a clean one, or fail for that reason. What the
/// failed operation had done was seen: an attribute that was to be replaced did not exist, so that a program that
/// asked for it could take the default instead.
fn expect_no_part(volume: &Volume, clean: &Volume, what: &str) {
    let (mut left, mut known) = (vec![clean.root()], BTreeSet::new());
    while let Some(id) = left.pop() {
        if !known.insert(id) {
            continue;
        }
        let read = |read: &dyn Fn(&Volume) -> Result<Vec<Vec<u8>>>| {
            let expected = read(clean).unwrap();
            match read(volume) {
                Err(Error::Operation(error::Error::ShutDown { .. })) => {}
                found => assert_eq!(found.as_ref().ok(), Some(&expected), "{what}, {id:?}: {found:?}"),
            }
            expected
        };
        let names = read(&|volume| {
            let mut names = volume.list_attributes(id)?;
            names.sort();
            Ok(names)
        });
        for name in names {
            read(&|volume| Ok(vec![volume.get_attribute(id, &name)?]));
        }
        match clean.metadata(id).unwrap().file_type {
            FileType::Symlink => drop(read(&|volume| Ok(vec![volume.read_link(id)?]))),
            FileType::Directory => {
                let names = read(&|volume| {
                    let mut found = Vec::new();
                    volume.read_dir(id, Cookie(0), &mut |entry| {
                        found.push(entry.name.to_vec());
                        true
                    })?;
                    Ok(found)
                });
                left.extend(names.iter().map(|name| clean.lookup(id, name).unwrap()));
            }
            _ => {}
        }
    }
}

/// Runs one operation with its nth allocation or read failing. Returns whether there was an nth.
fn strike(base: &Arc<MemoryDevice>, op: &Op, (fails, nth): (Fails, u64), ends: &mut Ends) -> bool {
    let what = format!("{}, {fails:?} {nth}", op.name);
    let overlay: Arc<dyn block::Device> = Arc::new(OverlayDevice::new(base.clone()));
    let faulty = Arc::new(FaultDevice::new(overlay.clone(), []));
    let volume = Volume::open(faulty.clone(), options()).unwrap();
    // Keeps files from being freed in the background, where another allocation would fail.
    let held: Vec<_> =
        ["/left", "/right"].iter().map(|path| volume.open_id(at(&volume, path).unwrap()).unwrap()).collect();
    match fails {
        Fails::Allocation => volume.groups.faults().fail_from(nth),
        Fails::Read => faulty.set_faults([Fault::io_error(Operation::Read, When::Nth(nth))]),
    }
    let done = (op.run)(&volume);
    let struck = match fails {
        Fails::Allocation => volume.groups.faults().disarm(),
        Fails::Read => faulty.injected() > 0,
    };
    faulty.set_faults([]);
    let is_up = volume.log.check().is_ok();
    let expected = {
        let clean = Volume::open(Arc::new(OverlayDevice::new(base.clone())), options()).unwrap();
        if done.is_ok() {
            (op.run)(&clean).unwrap();
        } else if !is_up && op.atomic {
            expect_no_part(&volume, &clean, &what);
        }
        manifest(&clean).unwrap()
    };
    drop(held);
    if is_up {
        if op.atomic || done.is_ok() {
            assert_eq!(manifest(&volume).unwrap(), expected, "{what}: {done:?}");
        }
        volume.unmount().unwrap_or_else(|error| panic!("{what}: {error} after {done:?}"));
    } else {
        assert!(done.is_err(), "{what}: the volume was shut down without an error");
        drop(volume);
        Volume::open(overlay.clone(), options()).unwrap().unmount().unwrap();
    }
    judge(&*overlay, &what);
    if op.atomic || done.is_ok() {
        let again = Volume::open(overlay.clone(), options()).unwrap();
        assert_eq!(manifest(&again).unwrap(), expected, "{what}, opened again: {done:?}");
    }
    let end = match (is_up, done.is_ok()) {
        (false, _) => &mut ends.shut_down,
        (true, true) => &mut ends.unharmed,
        (true, false) => &mut ends.refused,
    };
    *end += u32::from(struck);
    struck
}

fn strike_all(fails: Fails, parents: bool) {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let ops = prepare(&device, parents);
    let mut ends = Ends::default();
    for op in &ops {
        // The last run is the one without a failure.
        let max_runs = 200;
        let last = (0..max_runs).find(|nth| !strike(&device, op, (fails, *nth), &mut ends));
        assert!(last.is_some(), "{} ends", op.name);
    }
    println!("{} changes, {fails:?}: {ends:?}", ops.len());
    assert!(ends.refused > 0, "{ends:?}");
}

#[test]
fn failing_allocations_leave_no_part_of_a_change() {
    strike_all(Fails::Allocation, false);
}

#[test]
fn failing_allocations_leave_no_part_of_a_change_with_parent_pointers() {
    strike_all(Fails::Allocation, true);
}

#[test]
fn failing_reads_leave_no_part_of_a_change() {
    strike_all(Fails::Read, false);
}

#[test]
fn failing_reads_leave_no_part_of_a_change_with_parent_pointers() {
    strike_all(Fails::Read, true);
}
