//! Recovery of a dirty log against the kernel's: one copy of an image is mounted and unmounted by Linux, another is
//! replayed in memory, and then every block of both is compared.
//!
//! | part | subject |
//! |---|---|
//! | [`images`] | the dirty images, and what Linux makes of a copy |
//! | [`blocks`] | which blocks may differ, because a mount does more than recovery |
//! | [`place`] | recovery to its end, in memory and in place: intents finished, unlinked inodes freed |
// A test says what it expects by panicking; clippy sees that in test functions only.
#![allow(clippy::unwrap_used, clippy::panic)]

mod blocks;
mod images;
mod place;

use std::path::Path;
use std::sync::Arc;

use block::{Device, FileDevice, OpenOptions};
use format::superblock::Superblock;
use interop::built;
use journal::{Journal, replay_in_memory};

fn open(path: &Path) -> Arc<dyn Device> {
    Arc::new(FileDevice::open(path, &OpenOptions::default()).unwrap())
}

fn superblock(device: &dyn Device) -> Superblock {
    let mut bytes = vec![0; 32768];
    device.read_at(0, &mut bytes).unwrap();
    Superblock::parse(&bytes).unwrap()
}

/// Compares one image; gives the complaints.
fn compare(image: &Path) -> Vec<String> {
    let name = image.file_stem().unwrap().to_string_lossy().into_owned();
    let by_kernel = images::Recovered::new(image);
    let external = by_kernel.log.as_ref().map(|_| open(&image.with_extension("log")));
    let device = open(image);
    let before = superblock(&device);
    let journal = Journal::open(&before, &device, external.as_deref()).unwrap();
    assert!(journal.dirty().is_some(), "{name} is not dirty");
    let (replayed, report) = replay_in_memory(&journal, &before, device.clone()).unwrap();
    println!("{name}: {}; {}", journal.state(), journal::describe::report(&report));
    let geometry = superblock(&replayed).geometry;
    let comparison = blocks::Comparison {
        name: &name,
        geometry: &geometry,
        ours: &*replayed,
        theirs: &*open(&by_kernel.image),
        concerned: report.files_concerned(),
    };
    let mut complaints = comparison.run();
    complaints.extend(report.problems.iter().map(|problem| format!("{name}: {problem}")));
    complaints
}

#[test]
fn recovery_leaves_what_the_kernels_recovery_leaves() {
    let Some(images) = needs::met(images::find()) else { return };
    let complaints: Vec<_> = images.iter().flat_map(|image| compare(image)).collect();
    assert!(!images.is_empty(), "no image was compared");
    let most = complaints.len().min(40);
    assert!(complaints.is_empty(), "{} differ:\n{}", complaints.len(), complaints[..most].join("\n"));
}

#[test]
fn what_was_unfinished_is_finished_as_the_kernel_finishes_it() {
    let Some((images, xebec)) = needs::met(images::find().and_then(|images| Ok((images, built::xebec()?))))
    else {
        return;
    };
    let complaints: Vec<_> = images.iter().flat_map(|image| place::complaints(&xebec, image)).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
