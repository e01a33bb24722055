//! Changes of names on a volume with parent pointers. The checker compares these with the directories.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::sync::Arc;

use base::random::Random;
use block::MemoryDevice;
use xebec_volume::{Cookie, FileId, NewFile, NewFileType, Options, Rename, SetAttribute, Volume};

use common::judge;

fn name(random: &Random) -> Vec<u8> {
    let n = random.next_u64() % 30;
    match random.next_u64() % 4 {
        0 => format!("{n:0255}").into_bytes(),
        1 => format!("a name of usual length {n}").into_bytes(),
        _ => n.to_string().into_bytes(),
    }
}

fn any_name(volume: &Volume, dir: FileId, random: &Random) -> Option<(Vec<u8>, FileId)> {
    let mut names = Vec::new();
    let listed = volume.read_dir(dir, Cookie::default(), &mut |entry| {
        if !matches!(entry.name, b"." | b"..") {
            names.push((entry.name.to_vec(), entry.ino));
        }
        true
    });
    listed.ok()?;
    let at = random.next_u64() as usize % names.len().max(1);
    let (name, ino) = names.into_iter().nth(at)?;
    Some((name, volume.id_of(ino).ok()?))
}

/// One random operation. An operation that fails must change nothing.
fn step(volume: &Volume, dirs: &mut Vec<FileId>, random: &Random) {
    let dir = |dirs: &[FileId]| dirs[random.next_u64() as usize % dirs.len()];
    let (from, to) = (dir(dirs), dir(dirs));
    let new_name = name(random);
    match random.next_u64() % 16 {
        0..=3 => drop(volume.create(to, &new_name, &NewFile::regular())),
        4 => {
            let target = vec![b't'; 1 + random.next_u64() as usize % 1000];
            drop(volume.create(
                to,
                &new_name,
                &NewFile { file_type: NewFileType::Symlink(&target), ..NewFile::regular() },
            ));
        }
        5 => {
            if dirs.len() < 12 {
                dirs.extend(volume.create(to, &new_name, &NewFile::directory()));
            }
        }
        6..=8 => {
            if let Some((_, ino)) = any_name(volume, from, random) {
                drop(volume.link(ino, to, &new_name));
            }
        }
        9 => {
            let held = volume.create_tmpfile(to, &NewFile::regular()).unwrap();
            drop(volume.link_handle(&held, to, &new_name));
        }
        10 => {
            if let Some((_, ino)) = any_name(volume, from, random) {
                let value = vec![1; random.next_u64() as usize % 700];
                drop(volume.set_attribute(ino, b"trusted.one", &value, SetAttribute::Any));
            }
        }
        11..=13 => {
            let how = [Rename::Replace, Rename::NoReplace, Rename::Exchange, Rename::Whiteout];
            let how = how[random.next_u64() as usize % 4];
            if let Some((old, _)) = any_name(volume, from, random) {
                let target = if how == Rename::Exchange { any_name(volume, to, random) } else { None };
                let target = target.map_or(new_name, |(name, _)| name);
                drop(volume.rename(from, &old, to, &target, how));
            }
        }
        _ => {
            if let Some((old, ino)) = any_name(volume, from, random)
                && volume.unlink(from, &old).is_err()
                && volume.rmdir(from, &old).is_ok()
            {
                dirs.retain(|dir| *dir != ino);
            }
        }
    }
}

fn random_names(seed: u64, options: mkfs::Options) {
    let random = Random::seeded(seed);
    let device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs::format(&*device, &mkfs::Options { parent: true, ..options }).unwrap();
    let mut volume = Volume::open(device.clone(), Options::default()).unwrap();
    let mut dirs = vec![volume.root()];
    for _ in 0..60 {
        for _ in 0..12 {
            step(&volume, &mut dirs, &random);
        }
        volume.unmount().unwrap();
        judge(&device);
        volume = Volume::open(device.clone(), Options::default()).unwrap();
    }
}

#[test]
fn random_names_have_their_parent_pointers() {
    random_names(1, mkfs::Options::default());
    random_names(2, mkfs::Options { block_size: 1024, ..mkfs::Options::default() });
}

/// More names than fit the inode, and then a leaf.
#[test]
fn a_file_of_many_names_knows_them_all() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let options = mkfs::Options { parent: true, block_size: 1024, ..mkfs::Options::default() };
    mkfs::format(&*device, &options).unwrap();
    let volume = Volume::open(device.clone(), Options::default()).unwrap();
    let root = volume.root();
    let file = volume.create(root, b"file", &NewFile::regular()).unwrap();
    let names: Vec<_> = (0..400).map(|n| format!("{n:0100}").into_bytes()).collect();
    for name in &names {
        volume.link(file, root, name).unwrap();
    }
    assert!(volume.list_attributes(file).unwrap().is_empty());
    volume.unmount().unwrap();
    judge(&device);
    let volume = Volume::open(device.clone(), Options::default()).unwrap();
    for name in &names[..390] {
        volume.unlink(root, name).unwrap();
    }
    volume.unmount().unwrap();
    judge(&device);
    let volume = Volume::open(device.clone(), Options::default()).unwrap();
    volume.unlink(root, b"file").unwrap();
    names[390..].iter().for_each(|name| volume.unlink(root, name).unwrap());
    volume.unmount().unwrap();
    judge(&device);
}
