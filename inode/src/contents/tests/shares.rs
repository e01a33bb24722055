//! What is set aside for the tree of a map covers the records wherever they come.

use super::bed::{Bed, Numbers};
use crate::tests::volume::options;

/// Blocks that the tree takes when single blocks come to a file of so many extents, each a hole apart: `place` says at
/// which of the extents the nth comes.
fn taken(extents: u64, records: u64, place: impl Fn(u64) -> u64) -> u64 {
    let mut bed = Bed::new(&options(1024, |_| {}), 1, 7);
    for n in 0..extents {
        bed.write(0, 4 * n, 1).unwrap();
    }
    let inode = bed.inode(0);
    let before = inode.read().nblocks();
    let mut come = 0;
    for n in 0..records {
        let at = 4 * place(n) + 2;
        if !bed.known[0].map.contains_key(&at) {
            bed.write(0, at, 1).unwrap();
            come += 1;
        }
    }
    let grown = inode.read().nblocks() - before - come;
    bed.judge();
    let most = bed.volume.shared().reservations.map_blocks_for(extents, come);
    assert!(grown <= most, "{extents} extents and {come} more take {grown} blocks, not {most}");
    grown
}

/// The share was computed as if all records came side by side. Records that come far apart each split a leaf.
#[test]
fn a_share_covers_records_wherever_they_come() {
    let mut largest = 0;
    for extents in [1, 10, 59, 60, 500, 4000] {
        for records in [1, 20, 100, 600] {
            let far = taken(extents, records, |n| n * 59 % extents);
            taken(extents, records, |n| Numbers(n).below(extents));
            taken(extents, records, |n| n.min(extents));
            largest = far.max(largest);
        }
    }
    // Far more than if these records came side by side.
    assert!(largest > 15, "{largest}");
}

#[test]
fn a_share_is_small_where_records_cannot_split_much() {
    let bed = Bed::new(&options(4096, |_| {}), 1, 7);
    let share = |extents, records| bed.volume.shared().reservations.map_blocks_for(extents, records);
    assert_eq!([share(0, 0), share(0, 3), share(1, 2), share(900, 0)], [0; 4]);
    assert_eq!([share(0, 16), share(2, 200)], [1; 2]);
    // 128 MiB of a file without extents so far, each block by itself.
    assert!(share(1, 32768) < 32768 / 100, "{}", share(1, 32768));
    // Single blocks of a large map: one leaf for each, and little more.
    assert!((100..130).contains(&share(100_000, 100)), "{}", share(100_000, 100));
    assert!(share(u64::MAX, 100) < 1000);
}
