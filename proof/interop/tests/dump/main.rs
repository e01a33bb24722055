//! What `dump` shows against what `xfs_db` prints of the same structure: every `name = value` of theirs must stand in
//! ours. The differences that are meant are in [`print::same`], and in `docs/format.md`.
//!
//! | part | subject |
//! |---|---|
//! | [`images`] | which images of the corpus are compared |
//! | [`tour`] | which structures of an image are compared |
//! | [`mapping`] | the extents of a fork against `xfs_db`'s `bmap` |
//! | [`print`] | `xfs_db`'s output taken apart, and when two values are the same |
// A test says what it expects by panicking; clippy sees that in test functions only.
#![allow(clippy::unwrap_used, clippy::panic)]

mod images;
mod mapping;
mod print;
mod tour;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use block::{FileDevice, OpenOptions};
use dump::types::Type;
use dump::{Dumped, Request};
use read::Volume;

/// Compares every structure of a tour, and returns the complaints, the first of each structure.
fn compare(image: &Path, complaints: &mut Vec<String>) -> usize {
    let device = FileDevice::open(image, &OpenOptions::default()).unwrap();
    let volume = Volume::open(Arc::new(device)).unwrap();
    let stops = tour::plan(&volume);
    let log = image.with_extension("log");
    let printed = print::run(image, log.exists().then_some(&log), &stops);
    for (stop, theirs) in stops.iter().zip(&printed) {
        let complaint = match dump::dump(&volume, &stop.request) {
            Ok(ours) => complaint(&volume, stop, &ours, theirs),
            Err(error) => Some(error.to_string()),
        };
        if let Some(complaint) = complaint {
            complaints.push(format!("{}: {}: {complaint}", image.display(), stop.words));
        }
    }
    stops.len()
}

/// What is wrong with what we show of a healthy structure.
fn complaint(volume: &Volume, stop: &tour::Stop, ours: &Dumped, theirs: &str) -> Option<String> {
    if let Some(objection) = ours.shown.objections.first() {
        return Some(format!("an objection to a healthy structure: {objection}"));
    }
    if stop.is_mapping {
        return mapping::difference(ours, theirs);
    }
    print::difference(&ours.to_text(), theirs).or_else(|| by_address(volume, ours))
}

/// The same structure must be found by its address alone, and be as healthy there.
fn by_address(volume: &Volume, ours: &Dumped) -> Option<String> {
    let daddr = ours.place.daddr?;
    let geometry = volume.geometry();
    // An inode in a sector with others, and a directory block in pieces, have no address of their own.
    let alone = ours.shown.kind != Type::Inode || geometry.inode_size >= 512;
    if !alone
        || ours.shown.kind == Type::Dir && geometry.dir_block_log > 0
        || ours.shown.kind == Type::Symlink
    {
        return None;
    }
    let found = dump::dump(volume, &Request::parse(&["daddr", &daddr.to_string()]).unwrap());
    match found {
        Err(error) => Some(format!("by its address: {error}")),
        Ok(found) if found.to_text() == ours.to_text() => None,
        Ok(found) => {
            let (found, ours) = (found.to_text(), ours.to_text());
            let line = found.lines().zip(ours.lines()).find(|(found, ours)| found != ours);
            Some(format!("by its address it differs: {line:?}"))
        }
    }
}

#[test]
fn dump_shows_what_xfs_db_prints() {
    let Some(images) = needs::met(images::find()) else { return };
    let next = AtomicUsize::new(0);
    let found = Mutex::new((0, Vec::new()));
    let work = || {
        while let Some(image) = images.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut complaints = Vec::new();
            let compared = compare(image, &mut complaints);
            let mut found = found.lock().unwrap();
            found.0 += compared;
            found.1.append(&mut complaints);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let (compared, complaints) = found.into_inner().unwrap();
    println!("{compared} structures of {} images compared", images.len());
    assert!(compared > 0, "no structure was compared");
    let most = complaints.len().min(40);
    assert!(complaints.is_empty(), "{} differ:\n{}", complaints.len(), complaints[..most].join("\n"));
}
