//! Compares `dump` with `xfs_db`: every `name = value` of `xfs_db` must be in the dump of the same structure. Intended
//! differences are in [`print`] and in `docs/format.md`.
//!
//! | part | subject |
//! |---|---|
//! | [`images`] | selection of images of the corpus |
//! | [`tour`] | selection of structures of an image |
//! | [`mapping`] | comparison of mappings with `bmap` of `xfs_db` |
//! | [`print`] | parsing the output of `xfs_db`, and comparison of values |
// Clippy permits panics in test functions only.
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
use dump::{Dump, Request};
use read::Volume;

/// Compares all selected structures of an image, and adds the first difference of each. Returns their number.
fn compare(image: &Path, differences: &mut Vec<String>) -> usize {
    let device = FileDevice::open(image, &OpenOptions::default()).unwrap();
    let volume = Volume::open(Arc::new(device)).unwrap();
    let structures = tour::plan(&volume);
    let log = image.with_extension("log");
    let printed = print::run(image, log.exists().then_some(&log), &structures);
    for (structure, theirs) in structures.iter().zip(&printed) {
        let difference = match dump::dump(&volume, &structure.request) {
            Ok(ours) => difference(&volume, structure, &ours, theirs),
            Err(error) => Some(error.to_string()),
        };
        if let Some(difference) = difference {
            differences.push(format!("{}: {}: {difference}", image.display(), structure.words));
        }
    }
    structures.len()
}

/// Returns what is wrong with the dump of a healthy structure.
fn difference(volume: &Volume, structure: &tour::Structure, ours: &Dump, theirs: &str) -> Option<String> {
    if let Some(objection) = ours.structure.objections.first() {
        return Some(format!("damage reported in a healthy structure: {objection}"));
    }
    if structure.is_mapping {
        return mapping::difference(ours, theirs);
    }
    print::difference(&ours.to_text(), theirs).or_else(|| difference_by_address(volume, ours))
}

/// Checks that a dump by disk address shows the same structure.
fn difference_by_address(volume: &Volume, ours: &Dump) -> Option<String> {
    let daddr = ours.place.daddr?;
    let geometry = volume.geometry();
    // Several inodes in a sector, and a directory block of several extents, have no unique address.
    let is_unique = ours.structure.kind != Type::Inode || geometry.inode_size >= 512;
    if !is_unique
        || ours.structure.kind == Type::Dir && geometry.dir_block_log > 0
        || ours.structure.kind == Type::Symlink
    {
        return None;
    }
    let found = dump::dump(volume, &Request::parse(&["daddr", &daddr.to_string()]).unwrap());
    match found {
        Err(error) => Some(format!("by disk address: {error}")),
        Ok(found) if found.to_text() == ours.to_text() => None,
        Ok(found) => {
            let (found, ours) = (found.to_text(), ours.to_text());
            let line = found.lines().zip(ours.lines()).find(|(found, ours)| found != ours);
            Some(format!("by disk address: {line:?}"))
        }
    }
}

#[test]
fn dump_matches_xfs_db() {
    let Some(images) = needs::met(images::find()) else { return };
    let next = AtomicUsize::new(0);
    let found = Mutex::new((0, Vec::new()));
    let work = || {
        while let Some(image) = images.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut differences = Vec::new();
            let compared = compare(image, &mut differences);
            let mut found = found.lock().unwrap();
            found.0 += compared;
            found.1.append(&mut differences);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let (compared, differences) = found.into_inner().unwrap();
    println!("{compared} structures of {} images compared", images.len());
    assert!(compared > 0, "no structure was compared");
    let max = differences.len().min(40);
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences[..max].join("\n"));
}
