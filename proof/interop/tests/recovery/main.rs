//! Compares log recovery with the kernel's: one copy of an image is mounted and unmounted by Linux, another is replayed
//! in memory, and all blocks of both are compared.
//!
//! | part | subject |
//! |---|---|
//! | [`images`] | dirty images, and their recovery by Linux |
//! | [`blocks`] | comparison of blocks; some may differ, because a mount does more than recovery |
//! | [`complete`] | complete recovery, in memory and in place: intents are finished, unlinked inodes freed |
// Clippy permits panics in test functions only.
#![allow(clippy::unwrap_used, clippy::panic)]

mod blocks;
mod complete;
mod images;

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

/// Compares one image and returns the differences.
fn compare(image: &Path) -> Vec<String> {
    let name = image.file_stem().unwrap().to_string_lossy().into_owned();
    let by_kernel = images::Recovered::new(image);
    let external = by_kernel.log.as_ref().map(|_| open(&image.with_extension("log")));
    let device = open(image);
    let before = superblock(&*device);
    let journal = Journal::open(&before, &*device, external.as_deref()).unwrap();
    assert!(journal.dirty().is_some(), "{name} is not dirty");
    let (replayed, report) = replay_in_memory(&journal, &before, device.clone()).unwrap();
    println!("{name}: {:?}; {report:?}", journal.state());
    let geometry = superblock(&*replayed).geometry;
    let comparison = blocks::Comparison {
        name: &name,
        geometry: &geometry,
        ours: &*replayed,
        theirs: &*open(&by_kernel.image),
        concerned: report.files_concerned(),
    };
    let mut differences = comparison.run();
    differences.extend(report.problems.iter().map(|problem| format!("{name}: {problem}")));
    differences
}

#[test]
fn replayed_blocks_match_the_kernels_recovery() {
    let Some(images) = needs::met(images::find()) else { return };
    let differences: Vec<_> = images.iter().flat_map(|image| compare(image)).collect();
    assert!(!images.is_empty(), "no image was compared");
    let max = differences.len().min(40);
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences[..max].join("\n"));
}

#[test]
fn complete_recovery_matches_the_kernels() {
    let Some((images, xebec)) = needs::met(images::find().and_then(|images| Ok((images, built::xebec()?))))
    else {
        return;
    };
    let differences: Vec<_> = images.iter().flat_map(|image| complete::differences(&xebec, image)).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
