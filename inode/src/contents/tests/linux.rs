//! `xfs_repair` and the kernel on files after random changes: contents, and that removing them frees all blocks.

use std::path::Path;

use block::{Device, Durability};

use super::fixture::Fixture;
use super::random::change;
use crate::dir::{Directory, InodeDirFork};
use crate::group_space::GroupSpace;
use crate::inode::InodeRef;
use crate::tests::volume::{Volume, options};
use crate::unlinked;

/// The number of regular files in directories.
const REGULAR: u8 = 1;

/// Links a file into the root directory.
fn name(volume: &Volume, inode: &InodeRef, name: &str) {
    let geometry = volume.groups.geometry();
    let root = volume.cache.get(geometry.root).unwrap();
    let mut blocks = volume.groups.reserve_blocks(20).unwrap();
    let mut tx = volume.begin();
    let (mut dir, mut child) = (root.lock(), inode.lock());
    unlinked::remove(volume.shared(), &mut tx, &mut child).unwrap();
    child.set_nlink(1);
    let mut space = GroupSpace::for_metadata(&volume.groups, &mut blocks);
    let mut fork = InodeDirFork::new(volume.shared(), &mut tx, &mut space, &mut dir, 10).unwrap();
    Directory::new(geometry, &mut fork).add(name.as_bytes(), inode.ino(), REGULAR).unwrap();
    tx.commit(&mut [&mut dir, &mut child]).unwrap();
}

/// Returns the contents of a written block of the device.
fn pattern(block: u64, size: u64) -> Vec<u8> {
    block.to_le_bytes().into_iter().cycle().take(size as usize).collect()
}

/// Fills the written blocks of all files. Returns the resulting contents.
fn fill(fixture: &Fixture) -> Vec<Vec<u8>> {
    let (geometry, size) = (fixture.volume.groups.geometry(), fixture.block_size());
    let contents = fixture.known.iter().map(|known| {
        let mut contents = vec![0; known.size as usize];
        for (at, (block, unwritten)) in &known.map {
            let bytes = pattern(block.unwrap(), size);
            let place = geometry.fs_block_offset(block.unwrap().into()).unwrap();
            fixture.volume.device.write_at(place, &bytes, Durability::Buffered).unwrap();
            let end = contents.len();
            let here = ((at * size) as usize).min(end)..((at + 1) * size) as usize;
            if let (false, Some(target)) = (unwritten, contents.get_mut(here.start..here.end.min(end))) {
                target.copy_from_slice(&bytes[..target.len()]);
            }
        }
        contents
    });
    contents.collect()
}

fn repair(image: &Path) {
    let mut judge = needs::newest("xfs_repair").unwrap();
    let done = judge.args(["-n", "-o", "force_geometry"]).arg(image).output().unwrap();
    let said = [done.stdout, done.stderr].concat();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&said));
}

fn run(options: &mkfs::Options, seed: u64) {
    let Some(()) = needs::met(needs::mounting().and_then(|()| needs::tools(&["cmp"]))) else { return };
    let mut fixture = Fixture::new(options, 5, seed);
    for n in 0..5 {
        name(&fixture.volume, &fixture.files[n], &format!("file{n}"));
    }
    (0..250).for_each(|_| change(&mut fixture, options.reflink));
    fixture.check();
    let contents = fill(&fixture);
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let mut bytes = vec![0; fixture.volume.device.size() as usize];
    fixture.volume.device.read_at(0, &mut bytes).unwrap();
    std::fs::write(&image, bytes).unwrap();
    for (n, contents) in contents.iter().enumerate() {
        std::fs::write(folder.path().join(format!("file{n}")), contents).unwrap();
    }
    repair(&image);
    let compare = "mkdir m; mount -o loop,nouuid image m; for n in 0 1 2 3 4; do cmp file$n m/file$n; done;";
    // The kernel writes, and removes everything.
    let change = "echo more >> m/file0; rm m/file*; umount m; rmdir m";
    let mut kernel = needs::script("-e", &format!("{compare} {change}"), "kernel");
    let done = kernel.current_dir(folder.path()).output().unwrap();
    assert!(done.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&done.stderr));
    repair(&image);
}

#[test]
fn small_blocks_with_every_tree() {
    run(&options(1024, |_| {}), 21);
}

#[test]
fn usual_blocks_with_every_tree() {
    run(&options(4096, |_| {}), 22);
}

#[test]
fn usual_blocks_without_the_newer_trees() {
    run(&options(4096, |options| (options.rmapbt, options.reflink) = (false, false)), 23);
}
