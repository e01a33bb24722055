//! Extended attributes over power cuts: whatever survives, the volume is sound, and the attributes of its files are
//! those after some change of the history, no earlier than the last sync.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Ino, errno};
use block::RecordDevice;
use crashsim::engine::{Engine, check};
use crashsim::shape::SHAPES;
use crashsim::{Builder, Image, ImageDevice, states};
use model::Rng;
use xebec::{New, Rename, SetAttribute, Volume};

/// By inode: names to values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tree {
    attributes: BTreeMap<u64, BTreeMap<Vec<u8>, Vec<u8>>>,
}

/// What was done, change by change, and how far the syncs had come.
struct History {
    trees: Vec<Tree>,
    /// The events of the recording when a sync had returned, and the changes before it.
    marks: Vec<(usize, usize)>,
}

fn open(engine: &Engine, device: Arc<dyn block::Device>) -> Result<Volume, String> {
    Volume::open(device, engine.options()).map_err(|error| error.to_string())
}

fn shown(volume: &Volume, files: &[Ino]) -> Result<Tree, String> {
    let mut tree = Tree::default();
    for ino in files {
        let names = volume.list_attributes(*ino).map_err(|error| error.to_string())?;
        let mut all = BTreeMap::new();
        for name in names {
            let value = volume.get_attribute(*ino, &name).map_err(|error| error.to_string())?;
            all.insert(name, value);
        }
        tree.attributes.insert(ino.get(), all);
    }
    Ok(tree)
}

fn step(volume: &Volume, files: &[Ino], tree: &mut Tree, rng: &mut Rng, fills: bool) {
    let ino = files[rng.index(files.len())];
    let all = tree.attributes.entry(ino.get()).or_default();
    let name = match rng.below(4) {
        0 => format!("trusted.{:0200}", rng.below(12)),
        _ => format!("user.{}", rng.below(20)),
    };
    let name = name.into_bytes();
    if rng.below(4) < if fills { 1 } else { 3 } {
        let done = volume.remove_attribute(ino, &name).map_err(|error| error.errno());
        let expected = all.remove(&name).map(drop).ok_or(errno::ENODATA);
        assert_eq!(done, expected);
        return;
    }
    let length = match rng.below(16) {
        0..=7 => rng.below(30),
        8..=12 => rng.below(500),
        13 | 14 => rng.below(6000),
        _ => rng.below(65_537),
    };
    let value: Vec<u8> = (0..length).map(|n| (n + length) as u8).collect();
    match volume.set_attribute(ino, &name, &value, SetAttribute::Any) {
        Ok(()) => drop(all.insert(name, value)),
        Err(error) => assert_eq!(error.errno(), errno::ENOSPC, "{error}"),
    }
}

/// Works on a volume whose device remembers all; gives also the volume before.
fn work(engine: &Engine, seed: u64, parent: bool) -> (Image, Vec<Ino>, History, block::Recording) {
    let before = {
        let device = Arc::new(ImageDevice::new(Image::new(engine.shape.size)));
        let options = mkfs::Options { parent, log: mkfs::LogOptions::default(), ..engine.shape.mkfs() };
        mkfs::format(&*device, &options).unwrap();
        device.image()
    };
    let device = Arc::new(ImageDevice::new(before));
    let volume = open(engine, device.clone()).unwrap();
    let root = volume.root();
    let files: Vec<Ino> =
        (0..4).map(|n| volume.create(root, format!("{n}").as_bytes(), &New::file()).unwrap()).collect();
    volume.unmount().unwrap();
    let before = device.image();
    let recorder = Arc::new(RecordDevice::new(ImageDevice::new(before.clone())));
    let volume = open(engine, recorder.clone()).unwrap();
    let mut rng = Rng::part(seed, 7);
    let mut tree = shown(&volume, &files).unwrap();
    let mut history = History { trees: vec![tree.clone()], marks: Vec::new() };
    for n in 0..120 {
        step(&volume, &files, &mut tree, &mut rng, n / 40 % 2 == 0);
        history.trees.push(tree.clone());
        if parent && rng.one_in(4) {
            // Names come and go with their pointers, in the same trees.
            let (from, to) = (format!("{}", n % 4), format!("{:0150}", n));
            volume.rename(root, from.as_bytes(), root, to.as_bytes(), Rename::Replace).unwrap();
            volume.rename(root, to.as_bytes(), root, from.as_bytes(), Rename::Replace).unwrap();
        }
        if rng.one_in(6) {
            volume.sync().unwrap();
            history.marks.push((recorder.len(), history.trees.len() - 1));
        }
    }
    drop(volume);
    (before, files, history, recorder.take())
}

fn judge(
    engine: &Engine,
    image: Image,
    files: &[Ino],
    history: &History,
    least: usize,
) -> Result<(), String> {
    let device = Arc::new(ImageDevice::new(image));
    let volume = open(engine, device.clone()).map_err(|error| format!("recovery: {error}"))?;
    let tree = shown(&volume, files).map_err(|error| format!("after recovery: {error}"))?;
    volume.unmount().map_err(|error| format!("unmount: {error}"))?;
    check(&*device)?;
    match history.trees.iter().rposition(|known| *known == tree) {
        Some(at) if at >= least => Ok(()),
        Some(at) => Err(format!("{at} changes survived, {least} were synced")),
        None => Err("the attributes are those of no moment of the history".into()),
    }
}

fn campaign(seed: u64, parent: bool, every: usize) {
    let engine = Engine { shape: SHAPES[seed as usize % SHAPES.len()].clone() };
    let (before, files, history, recording) = work(&engine, seed, parent);
    let all = states(&recording, 2, seed);
    let mut builder = Builder::new(&before, &recording);
    for state in all.iter().step_by(every) {
        let known = history.marks.iter().filter(|(moment, _)| *moment <= state.moment);
        let least = known.map(|(_, changes)| *changes).max().unwrap_or(0);
        let judged = judge(&engine, builder.build(state), &files, &history, least);
        assert_eq!(judged, Ok(()), "seed {seed} ({}), {state:?}", engine.shape.name);
    }
}

#[test]
fn attributes_survive_as_they_were_at_some_moment() {
    for seed in 0..7 {
        campaign(seed, false, 5);
    }
}

#[test]
fn parent_pointers_survive_with_their_names() {
    for seed in 10..14 {
        campaign(seed, true, 5);
    }
}
