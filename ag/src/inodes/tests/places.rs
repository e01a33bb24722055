//! Placement of inodes.

use base::percpu::override_current;
use base::{AgNumber, FsBlock, Ino};
use error::Error;

use super::fixture::Fixture;
use crate::inodes::state::InodeOptions;

/// Without reverse mappings: some tests allocate blocks without an owner.
fn options(ag_count: u64) -> mkfs::Options {
    mkfs::Options { ag_count: Some(ag_count), rmapbt: false, reflink: false, ..mkfs::Options::default() }
}

/// Allocates all free blocks and inodes, except the second half of an aligned chunk, and pieces that are too short for
/// inodes. Returns the chunk's first block; its first half can be freed.
fn fill_but_half_a_chunk(fixture: &mut Fixture) -> u64 {
    let taken = fixture.take_all();
    let (start, _) =
        taken.iter().find(|(start, blocks)| *blocks >= 1024 && start.get() > 64).copied().unwrap();
    let chunk = start.get().next_multiple_of(8) + 8;
    for piece in 1..60 {
        fixture.give_blocks((FsBlock(chunk + piece * 16 + 1), 3));
    }
    // The reservations for trees were backed by long runs; now the pieces can back them.
    while fixture.take_run_of(4).is_some() {}
    fixture.give_blocks((FsBlock(chunk + 4), 4));
    fixture.drain_free_inodes();
    chunk
}

fn ag_of(fixture: &Fixture, ino: Ino) -> u32 {
    fixture.geometry().split_ino(ino).unwrap().0.get()
}

#[test]
fn a_file_is_in_its_parents_chunk_or_the_nearest() {
    let mut fixture = Fixture::new(64 << 20, &options(1));
    let root = fixture.geometry().root;
    let all: Vec<Ino> = (0..640).map(|_| fixture.alloc(root, false).unwrap()).collect();
    let parent = all[320];
    for gap in [100, 200, 340, 600] {
        fixture.free(all[gap]);
    }
    for expected in [340, 200, 100, 600] {
        assert_eq!(fixture.alloc(parent, false).unwrap(), all[expected]);
    }
    fixture.check();
}

#[test]
fn directories_of_different_cpus_and_their_files_are_in_different_ags() {
    let inodes = InodeOptions { cpus: 2, ..InodeOptions::default() };
    // The AG with the log has nearly as much free space as the others.
    let log = mkfs::LogOptions { size: Some(16 << 20), ..mkfs::LogOptions::default() };
    let mut fixture = Fixture::with(1 << 30, &mkfs::Options { log, ..options(4) }, inodes);
    let root = fixture.geometry().root;
    let mut seen = [Vec::new(), Vec::new()];
    for round in 0..40 {
        let cpu = round % 2;
        override_current(Some(cpu));
        let dir = fixture.alloc(root, true).unwrap();
        let file = fixture.alloc(dir, false).unwrap();
        assert_eq!(ag_of(&fixture, file), ag_of(&fixture, dir));
        seen[cpu].push(ag_of(&fixture, dir));
    }
    override_current(None);
    for (cpu, ags) in seen.iter_mut().enumerate() {
        ags.sort_unstable();
        ags.dedup();
        assert_eq!(*ags, [cpu as u32, cpu as u32 + 2]);
    }
    fixture.check();
}

#[test]
fn sparse_chunks_are_allocated_and_merged() {
    let mut fixture = Fixture::new(64 << 20, &options(1));
    let root = fixture.geometry().root;
    let chunk = fill_but_half_a_chunk(&mut fixture);
    let before = fixture.groups.inodes().counts().allocated;
    let first = fixture.alloc(root, false).unwrap();
    assert_eq!(first.get(), (chunk + 4) * 8);
    assert_eq!(fixture.groups.inodes().counts().allocated, before + 32);
    for _ in 1..32 {
        fixture.alloc(root, false).unwrap();
    }
    assert!(matches!(fixture.alloc(root, false), Err(Error::NoSpace { .. })));
    fixture.check_without_owners();
    fixture.give_blocks((FsBlock(chunk), 4));
    assert_eq!(fixture.alloc(root, false).unwrap().get(), chunk * 8);
    let chunks = fixture.chunks();
    let (_, whole) = chunks.iter().find(|(_, found)| u64::from(found.start.get()) == chunk * 8).unwrap();
    assert_eq!((whole.holes, whole.count(), whole.free_count()), (0, 64, 31));
    fixture.check_without_owners();
    // The whole chunk is freed at once, as one run.
    let inos: Vec<Ino> = fixture.used.range(Ino(chunk * 8)..Ino(chunk * 8 + 64)).copied().collect();
    let removed: Vec<_> = inos.into_iter().filter_map(|ino| fixture.free(ino).removed).collect();
    assert_eq!(removed.len(), 1);
    assert_eq!((removed[0].first, removed[0].present), (Ino(chunk * 8), u64::MAX));
    fixture.check_without_owners();
}

#[test]
fn an_unused_sparse_chunk_is_freed_alone() {
    let mut fixture = Fixture::new(64 << 20, &options(1));
    let root = fixture.geometry().root;
    let chunk = fill_but_half_a_chunk(&mut fixture);
    let ino = fixture.alloc(root, false).unwrap();
    let removed = fixture.free(ino).removed.unwrap();
    assert_eq!(removed.inodes().count(), 32);
    assert_eq!(removed.inodes().next(), Some(Ino((chunk + 4) * 8)));
    fixture.check_without_owners();
}

#[test]
fn inodes_are_limited_to_their_share() {
    let inodes = InodeOptions { percent: 1, cpus: 1, ..InodeOptions::default() };
    let mut fixture = Fixture::with(64 << 20, &options(2), inodes);
    let root = fixture.geometry().root;
    let most = fixture.groups.inodes().counts().most;
    assert_eq!(most, (64 << 20) / 4096 / 100 / 8 * 64);
    while fixture.alloc(root, false).is_ok() {}
    let counts = fixture.groups.inodes().counts();
    assert_eq!((counts.allocated, counts.free), (most, 0));
    assert!(fixture.groups.free_blocks() > 1000);
    fixture.check();
}

#[test]
fn blocks_of_several_chunks_have_a_record_each_and_are_kept() {
    let options = mkfs::Options { block_size: 65536, sparse: false, ..options(1) };
    let mut fixture = Fixture::new(256 << 20, &options);
    let root = fixture.geometry().root;
    fixture.check();
    let chunks = fixture.chunks().len();
    let all: Vec<Ino> = (0..300).map(|_| fixture.alloc(root, false).unwrap()).collect();
    assert!(fixture.chunks().len() > chunks);
    fixture.check();
    assert!(all.into_iter().all(|ino| fixture.free(ino).removed.is_none()));
    fixture.check();
}

/// A full volume of large blocks could not free inodes: the finobt required as many free blocks as it can have levels,
/// even if its single leaf had slots for every chunk of the AG. Removed files stayed on their unlinked lists, and every
/// mount and unmount returned the error.
#[test]
fn a_full_volume_frees_inodes() {
    for (block_size, size) in [(1024, 64 << 20), (4096, 64 << 20), (16384, 128 << 20), (65536, 300 << 20)] {
        let options = mkfs::Options { block_size, ..options(2) };
        let mut fixture = Fixture::new(size, &options);
        let root = fixture.geometry().root;
        let all: Vec<Ino> = (0..3000).map(|_| fixture.alloc(root, false).unwrap()).collect();
        fixture.drain_free_inodes();
        let held = fixture.take_all();
        assert_eq!(fixture.groups.available(), 0, "blocks of {block_size} bytes");
        for ino in &all {
            fixture.used.remove(ino);
            fixture.free_shared(*ino).unwrap();
        }
        fixture.check_without_owners();
        held.into_iter().for_each(|blocks| fixture.give_blocks(blocks));
        fixture.check();
    }
}

#[test]
fn files_of_a_full_ag_go_to_other_ags() {
    let mut fixture = Fixture::new(64 << 20, &options(2));
    let root = fixture.geometry().root;
    assert_eq!(ag_of(&fixture, root), 0);
    while fixture.take_blocks_in(AgNumber(0), 8).is_some() {}
    let mut ags = Vec::new();
    for _ in 0..200 {
        let ino = fixture.alloc(root, false).unwrap();
        ags.push(ag_of(&fixture, ino));
    }
    assert!(ags.is_sorted());
    assert_eq!(ags.last(), Some(&1));
    fixture.check_without_owners();
}

#[test]
fn trees_that_disagree_are_damage_not_a_panic() {
    let mut fixture = Fixture::new(64 << 20, &options(1));
    let root = fixture.geometry().root;
    let ino = fixture.alloc(root, false).unwrap();
    assert!(fixture.free_shared(Ino(ino.get() + 1)).is_err(), "it is free");
    for wrong in [0, 1 << 20, u64::MAX] {
        assert_eq!(fixture.free_shared(Ino(wrong)).unwrap_err().errno(), base::errno::EFSCORRUPTED);
    }
}

#[test]
fn a_stale_count_does_not_end_the_search() {
    let options = mkfs::Options { block_size: 1024, ag_count: Some(1), ..mkfs::Options::default() };
    let mut fixture = Fixture::new(64 << 20, &options);
    let root = fixture.geometry().root;
    let inodes = |fixture: &Fixture| fixture.groups.get(AgNumber(0)).unwrap().inodes.free();
    while inodes(&fixture) > 0 {
        fixture.alloc_counting(root).unwrap();
    }
    // The stale count of a thread that read it before the last allocation.
    let group = fixture.groups.get(AgNumber(0)).unwrap();
    group.inodes.set(group.inodes.count(), 1);
    fixture.alloc_counting(root).unwrap();
}
