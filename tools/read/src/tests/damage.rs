//! Random damage with correct checksums: nothing panics, and every walk ends.

use std::ops::ControlFlow;

use proptest::prelude::*;
use proptest::sample::Index;

use super::volume::{AttrFork, DIR, FILE, ROOT, VolumeBuilder, extents, leaf_space, pairs};
use crate::{
    AclNames, DirWalk, FinalSymlink, for_each_xattr, get_xattr, lookup, parents, read_link, resolve,
};

/// A directory with a hash index, attributes in leaves below a node, and symlinks.
fn builder() -> VolumeBuilder {
    let builder = VolumeBuilder::new();
    let leaf = leaf_space(&builder);
    let list: [(&[u8], u8, u64); 5] =
        [(b".", 2, ROOT), (b"..", 2, ROOT), (b"file", 1, 66), (b"link", 7, 67), (b"dir", 2, 68)];
    let addresses = builder.dir_data(ROOT, 0, 100, &list);
    let map = extents(&[(0, 100, 2), (leaf, 110, 2), (leaf + 2, 112, 2)]);
    builder.inode(ROOT, DIR, (2, 2048, 3), &map, None);
    let mut index: Vec<_> =
        list.iter().zip(addresses).map(|((name, ..), at)| (format::hash::name(name), at)).collect();
    index.sort_unstable();
    let node = pairs((1, 1), &[(index[4].0, leaf as u32 + 2)]);
    builder.tree_block(2048, (format::dabtree::NODE_MAGIC, ROOT, 110), (0, 0), &node);
    builder.tree_block(2048, (format::dir::leaf::LEAFN_MAGIC, ROOT, 112), (0, 0), &pairs((5, 0), &index));
    let fork = AttrFork { format: 2, extents: 1, bytes: extents(&[(0, 200, 3)]) };
    builder.inode(66, FILE, (2, 0, 0), &[], Some(fork));
    let node = pairs((2, 1), &[(0x61, 1), (0x62, 2)]);
    builder.tree_block(1024, (format::dabtree::NODE_MAGIC, 66, 200), (0, 0), &node);
    for (n, name) in [(1, b'a'), (2, b'b')] {
        let mut rest = vec![0; 1024 - 56];
        rest[..6].copy_from_slice(&[0, 1, 0, 8, 0x03, 0xf8]);
        rest[24..32].copy_from_slice(&[0, 0, 0, name, 0x03, 0xf8, 1, 0]);
        rest[1016 - 56..1021 - 56].copy_from_slice(&[0, 1, 1, name, b'v']);
        builder.tree_block(1024, (format::attr::leaf::MAGIC, 66, 200 + n), (0, 0), &rest);
    }
    builder.symlink(67, b"dir/../file");
    builder.shortform(68, ROOT, &[(b"inner", 1, 66), (b"back", 7, 67)]);
    builder
}

/// Calls all functions for names.
fn exercise(builder: &VolumeBuilder) {
    let volume = builder.volume();
    for ino in [ROOT, 66, 67, 68] {
        let Ok(inode) = volume.inode(base::Ino(ino)) else { continue };
        let dinode = inode.dinode();
        if let Ok(mut walk) = DirWalk::new(&volume, &dinode) {
            // Each call advances by a block or ends; the volume has 4096.
            let mut ended = false;
            for _ in 0..5000 {
                match walk.next_batch() {
                    Ok(Some(batch)) => assert!(batch.entries().count() < 1000),
                    Ok(None) => {
                        ended = true;
                        break;
                    }
                    Err(_) => {}
                }
            }
            assert!(ended, "a directory without end");
        }
        for name in [&b"file"[..], b"..", b"nobody"] {
            let _ = lookup(&volume, &dinode, name);
        }
        let mut count = 0;
        let _ = for_each_xattr(&volume, &dinode, AclNames::AsRoot, |_| {
            count += 1;
            ControlFlow::Continue(())
        });
        assert!(count < 10_000);
        let _ =
            (get_xattr(&volume, &dinode, b"user.b"), parents(&volume, &dinode), read_link(&volume, &dinode));
    }
    for path in ["link", "dir/back/inner", "dir/inner"] {
        let _ = resolve(&volume, path.as_bytes(), FinalSymlink::Follow);
    }
}

#[test]
fn the_undamaged_volume_can_be_read() {
    let builder = builder();
    exercise(&builder);
    let volume = builder.volume();
    assert_eq!(resolve(&volume, b"dir/back", FinalSymlink::Follow).unwrap_err().errno(), base::errno::ENOENT);
    let file = resolve(&volume, b"link", FinalSymlink::Follow).unwrap();
    assert_eq!(file.ino().get(), 66);
    assert_eq!(get_xattr(&volume, &file.dinode(), b"user.b").unwrap(), b"v");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damage_with_correct_checksums_does_no_harm(
        changes in prop::collection::vec((any::<Index>(), any::<Index>(), any::<u8>()), 1..5),
    ) {
        let builder = builder();
        let structures = builder.structures.lock().unwrap().clone();
        for (which, at, value) in changes {
            let mut structure = structures[which.index(structures.len())].clone();
            // Most fields are at the start.
            let end = structure.bytes.len().min(240);
            let at = at.index(end);
            structure.bytes[at] = value;
            builder.put(structure);
        }
        exercise(&builder);
    }
}
