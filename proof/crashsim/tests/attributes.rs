//! Power cuts during changes of extended attributes: the volume must be sound after recovery, and all files and
//! attributes must match the state after some change, not before the last sync. Creating a file with attributes is one
//! change: the file does not exist, or has all of them.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Ino, errno};
use crashsim::engine::{Engine, check};
use crashsim::shape::SHAPES;
use crashsim::{Image, ImageDevice, StateBuilder, Target as _, states};
use devices::RecordDevice;
use model::Rng;
use volume::{Cookie, DirEntry, FileId, NewFile, NewFileType, Rename, SetAttribute, Volume};

/// Values by name.
type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

/// Attributes by the names of files in the root directory.
type Tree = BTreeMap<Vec<u8>, Attributes>;

/// The tree after each change, and the completed syncs.
struct History {
    trees: Vec<Tree>,
    /// For each sync: the recorded events before it completed, and the changes before it.
    sync_points: Vec<(usize, usize)>,
}

fn open(engine: &Engine, device: Arc<dyn block::Device>) -> Result<Volume, String> {
    Ok(engine.open(device)?.into_volume())
}

fn read_tree(volume: &Volume) -> Result<Tree, String> {
    let mut files: Vec<(Vec<u8>, Ino)> = Vec::new();
    let mut keep = |entry: DirEntry<'_>| {
        files.extend((!entry.name.starts_with(b".")).then(|| (entry.name.to_vec(), entry.ino)));
        true
    };
    volume.read_dir(volume.root(), Cookie::default(), &mut keep).map_err(|error| error.to_string())?;
    let mut tree = Tree::default();
    for (file, id) in files {
        let id = volume.id_of(id).map_err(|error| error.to_string())?;
        let names = volume.list_attributes(id).map_err(|error| error.to_string())?;
        let mut all = Attributes::new();
        for name in names {
            let value = volume.get_attribute(id, &name).map_err(|error| error.to_string())?;
            all.insert(name, value);
        }
        tree.insert(file, all);
    }
    Ok(tree)
}

fn random_value(rng: &mut Rng) -> Vec<u8> {
    let length = match rng.below(16) {
        0..=7 => rng.below(30),
        8..=12 => rng.below(500),
        13 | 14 => rng.below(6000),
        _ => rng.below(65_537),
    };
    (0..length).map(|n| (n + length) as u8).collect()
}

/// Creates a file of some type with attributes, or removes it.
fn create_or_remove(volume: &Volume, tree: &mut Tree, rng: &mut Rng) {
    let name = format!("new {}", rng.below(6)).into_bytes();
    let root = volume.root();
    if tree.remove(&name).is_some() {
        return volume.remove_all(root, &name).unwrap();
    }
    let count = [1, 2, 2, 9][rng.index(4)];
    let all: Attributes =
        (0..count).map(|n| (format!("trusted.{n}").into_bytes(), random_value(rng))).collect();
    let attributes: Vec<(&[u8], &[u8])> = all.iter().map(|(name, value)| (&**name, &**value)).collect();
    let kind = [NewFileType::Regular, NewFileType::Directory, NewFileType::Symlink(b"nowhere")][rng.index(3)];
    match volume.create(
        root,
        &name,
        &NewFile { file_type: kind, attributes: &attributes, ..NewFile::regular() },
    ) {
        Ok(_) => drop(tree.insert(name, all)),
        Err(error) => assert_eq!(error.errno(), errno::ENOSPC, "{error}"),
    }
}

fn step(volume: &Volume, files: &[FileId], tree: &mut Tree, rng: &mut Rng, fills: bool) {
    let file = rng.index(files.len());
    let (id, all) = (files[file], tree.entry(format!("{file}").into_bytes()).or_default());
    let name = match rng.below(4) {
        0 => format!("trusted.{:0200}", rng.below(12)),
        _ => format!("user.{}", rng.below(20)),
    };
    let name = name.into_bytes();
    if rng.below(4) < if fills { 1 } else { 3 } {
        let done = volume.remove_attribute(id, &name).map_err(|error| error.errno());
        let expected = all.remove(&name).map(drop).ok_or(errno::ENODATA);
        assert_eq!(done, expected);
        return;
    }
    let value = random_value(rng);
    match volume.set_attribute(id, &name, &value, SetAttribute::Any) {
        Ok(()) => drop(all.insert(name, value)),
        Err(error) => assert_eq!(error.errno(), errno::ENOSPC, "{error}"),
    }
}

/// Runs the workload on a recording device. Returns the volume before it, the history, and the recording.
fn work(engine: &Engine, seed: u64, parent: bool) -> (Image, History, devices::Recording) {
    let before = {
        let device = Arc::new(ImageDevice::new(Image::new(engine.shape.size)));
        let options = mkfs::Options { parent, log: mkfs::LogOptions::default(), ..engine.shape.mkfs() };
        mkfs::format(&*device, &options).unwrap();
        device.image()
    };
    let device = Arc::new(ImageDevice::new(before));
    let volume = open(engine, device.clone()).unwrap();
    let root = volume.root();
    let files: Vec<FileId> = (0..4)
        .map(|n| volume.create(root, format!("{n}").as_bytes(), &NewFile::regular()).unwrap())
        .collect();
    volume.unmount().unwrap();
    let before = device.image();
    let recorder = Arc::new(RecordDevice::new(Arc::new(ImageDevice::new(before.clone()))));
    let volume = open(engine, recorder.clone()).unwrap();
    let mut rng = Rng::stream(seed, 7);
    let mut tree = read_tree(&volume).unwrap();
    let mut history = History { trees: vec![tree.clone()], sync_points: Vec::new() };
    for n in 0..120 {
        match rng.one_in(4) {
            true => create_or_remove(&volume, &mut tree, &mut rng),
            false => step(&volume, &files, &mut tree, &mut rng, n / 40 % 2 == 0),
        }
        history.trees.push(tree.clone());
        if parent && rng.one_in(4) {
            // Parent pointers come and go with names, in the same attribute trees.
            let (from, to) = (format!("{}", n % 4), format!("{:0150}", n));
            for (from, to) in [(&from, &to), (&to, &from)] {
                volume.rename(root, from.as_bytes(), root, to.as_bytes(), Rename::Replace).unwrap();
                let attributes = tree.remove(from.as_bytes()).unwrap();
                tree.insert(to.as_bytes().to_vec(), attributes);
                history.trees.push(tree.clone());
            }
        }
        if rng.one_in(6) {
            volume.sync().unwrap();
            history.sync_points.push((recorder.len(), history.trees.len() - 1));
        }
    }
    drop(volume);
    (before, history, recorder.take())
}

fn judge(engine: &Engine, image: Image, history: &History, required: usize) -> Result<(), String> {
    let device = Arc::new(ImageDevice::new(image));
    let volume = open(engine, device.clone()).map_err(|error| format!("recovery: {error}"))?;
    let tree = read_tree(&volume).map_err(|error| format!("after recovery: {error}"))?;
    volume.unmount().map_err(|error| format!("unmount: {error}"))?;
    check(&*device)?;
    match history.trees.iter().rposition(|known| *known == tree) {
        Some(at) if at >= required => Ok(()),
        Some(at) => Err(format!("{at} changes survived, {required} were synced")),
        None => Err("the attributes match no state of the history".into()),
    }
}

fn campaign(seed: u64, parent: bool, every: usize) {
    let engine = Engine { shape: SHAPES[seed as usize % SHAPES.len()].clone() };
    let (before, history, recording) = work(&engine, seed, parent);
    let all = states(&recording, 2, seed);
    let mut builder = StateBuilder::new(&before, &recording);
    for state in all.iter().step_by(every) {
        let known = history.sync_points.iter().filter(|(moment, _)| *moment <= state.moment);
        let required = known.map(|(_, changes)| *changes).max().unwrap_or(0);
        let judged = judge(&engine, builder.build(state), &history, required);
        assert_eq!(judged, Ok(()), "seed {seed} ({}), {state:?}", engine.shape.name);
    }
}

#[test]
fn attributes_match_a_state_of_the_history() {
    for seed in 0..7 {
        campaign(seed, false, 5);
    }
}

#[test]
fn parent_pointers_match_a_state_of_the_history() {
    for seed in 10..14 {
        campaign(seed, true, 5);
    }
}
