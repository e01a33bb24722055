//! A source of which more comes than was seen.

use clap::Parser;
use transfer::{Data, Entry, Facts, Item, Kind, Receiver, Source, Stored};

use super::*;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    global: Global,
    #[command(flatten)]
    arguments: Arguments,
}

const MEBIBYTE: usize = 1 << 20;
const FILES: usize = 200;

/// Files that grow between a look at them and their reading.
struct Growing;

impl Source for Growing {
    fn read(&self, contents: bool, _threads: usize, receiver: &mut dyn Receiver) -> transfer::Result<()> {
        for n in 0..FILES {
            let bytes = if contents { vec![n as u8 + 1; MEBIBYTE] } else { Vec::new() };
            let size = bytes.len() as u64;
            let stored = Some(Stored::whole(size));
            let data = Data { offset: 0, bytes, more: false };
            let facts = Facts { permissions: 0o644, stored, ..Facts::default() };
            let path = format!("{n}").into_bytes();
            receiver.take(Item::Entry(Entry { path, kind: Kind::File { size, data }, facts }))?;
        }
        Ok(())
    }

    fn look(&self, threads: usize, survey: &mut Survey) -> transfer::Result<()> {
        self.read(false, threads, survey)
    }
}

#[test]
fn an_image_that_was_too_small_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let words = ["create", image.to_str().unwrap(), "--from", ".", "--quiet"];
    let Command { global, arguments } = Command::parse_from(words);
    let messages = Messages::new(&global, "image");
    let site = Site::open(&image, false, arguments.container, &global).unwrap();
    let choice = Choice::of(&arguments, &site).unwrap();
    let sources = Sources::of(vec![Box::new(Growing)]);
    let progress = Progress::new(&global);
    let making = Making {
        site: &site,
        arguments: &arguments,
        choice: &choice,
        sources: &sources,
        progress: &progress,
        global: &global,
        messages: &messages,
        left_out: Mutex::default(),
    };
    let (new, _) = making.fill_until_it_fits().unwrap();
    let last = new.volume.resolve(format!("/{}", FILES - 1).as_bytes(), true).unwrap();
    assert_eq!(new.volume.metadata(last).unwrap().size, MEBIBYTE as u64);
    new.volume.unmount().unwrap();
}
