//! What `dump` shows against what `xfs_db` prints of the same structure: every `name = value` of theirs must stand in
//! ours. The differences that are meant are in [`print::same`], and in `docs/format.md`.
//!
//! | part | subject |
//! |---|---|
//! | [`images`] | the images, made by `make-images` |
//! | [`tour`] | which structures of an image are compared |
//! | [`print`] | `xfs_db`'s output taken apart, and when two values are the same |
// A test says what it expects by panicking; clippy sees that in test functions only.
#![allow(clippy::unwrap_used, clippy::panic)]

mod images;
mod print;
mod tour;

use std::path::Path;
use std::sync::Arc;

use block::{FileDevice, OpenOptions};
use read::Volume;

/// Compares every structure of a tour, and returns the complaints, the first of each structure.
fn compare(image: &Path, complaints: &mut Vec<String>) -> usize {
    let device = FileDevice::open(image, &OpenOptions::default()).unwrap();
    let volume = Volume::open(Arc::new(device)).unwrap();
    let stops = tour::plan(&volume);
    let log = image.with_extension("log");
    let printed = print::run(image, log.exists().then_some(&log), &stops);
    for (stop, theirs) in stops.iter().zip(&printed) {
        let ours = dump::dump(&volume, &stop.request).map(|dumped| dumped.to_text());
        let complaint = match ours {
            Ok(ours) => print::difference(&ours, theirs),
            // Neither finds it: a pointer that is wrong, in a volume whose log was not replayed.
            Err(_) if print::is_empty(theirs) => None,
            Err(error) => Some(error.to_string()),
        };
        if let Some(complaint) = complaint {
            complaints.push(format!("{}: {}: {complaint}", image.display(), stop.words));
        }
    }
    stops.len()
}

#[test]
fn dump_shows_what_xfs_db_prints() {
    let Some(images) = images::find() else { return };
    let mut complaints = Vec::new();
    let mut compared = 0;
    for image in &images {
        compared += compare(image, &mut complaints);
    }
    println!("{compared} structures of {} images compared", images.len());
    assert!(compared > 0, "no structure was compared");
    let most = complaints.len().min(40);
    assert!(complaints.is_empty(), "{} differ:\n{}", complaints.len(), complaints[..most].join("\n"));
}
