//! A source that grows while it is read; cancellation.

use crate::{Cancel, Data, Entry, EntryKind, EntryMetadata, Item, Receiver, Source, StoredSize};

use super::*;

const MEBIBYTE: usize = 1 << 20;
const FILES: usize = 200;

/// Files that grow between the survey and the import.
struct Growing;

impl Source for Growing {
    fn read(&self, contents: bool, _threads: usize, receiver: &mut dyn Receiver) -> crate::Result<()> {
        for n in 0..FILES {
            let bytes = if contents { vec![n as u8 + 1; MEBIBYTE] } else { Vec::new() };
            let size = bytes.len() as u64;
            let stored = Some(StoredSize::whole(size));
            let data = Data { offset: 0, bytes, more: false };
            let metadata = EntryMetadata { permissions: 0o644, stored, ..EntryMetadata::default() };
            let path = format!("{n}").into_bytes();
            receiver.take(Item::Entry(Entry { path, kind: EntryKind::File { size, data }, metadata }))?;
        }
        Ok(())
    }

    fn survey(&self, threads: usize, survey: &mut Survey) -> crate::Result<()> {
        self.read(false, threads, survey)
    }
}

#[test]
fn a_volume_that_is_too_small_is_replaced_by_a_larger_one() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    ImageBuilder::new(&image).from_source(Growing).build().unwrap();
    let volume = Volume::open_path(&image).unwrap();
    let last = volume.resolve(format!("/{}", FILES - 1).as_bytes(), true).unwrap();
    assert_eq!(volume.metadata(last).unwrap().size, MEBIBYTE as u64);
    volume.unmount().unwrap();
}

/// Cancels before the `n`th file.
struct CancelAt(u64, Cancel);

impl Progress for CancelAt {
    fn advance(&self, done: Counts) {
        if done.files == self.0 {
            self.1.cancel();
        }
    }
}

#[test]
fn a_cancelled_build_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let progress = CancelAt(FILES as u64 / 2, Cancel::default());
    let builder = ImageBuilder::new(&image).from_source(Growing);
    let built = builder.size(1 << 30).cancel(progress.1.clone()).progress(&progress).build();
    assert!(matches!(built, Err(Error::Cancelled)), "{built:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
