use super::*;
use crate::codec::crc;

fn at(slot: u32, first: u32) -> Location {
    Location::new(slot, 100, 33, first)
}

#[test]
fn locations_keep_their_fields() {
    let location = Location::new(12_345_678, 500_000, 1025, 15);
    assert_eq!(
        (location.slot(), location.offset(), location.length(), location.first()),
        (12_345_678, 500_000, 1025, 15)
    );
    assert!(!Location::new(0, 0, 0, 0).is_hole() && Location::default().is_hole());
    assert!(at(1, 3).precedes(at(1, 4)) && !at(1, 15).precedes(Location::from_bits(at(1, 15).bits() + 1)));
}

#[test]
fn pages_are_stored_and_damage_is_an_error() {
    let mut runs = Page::default();
    for n in 0..16 {
        runs.replace(100 + n, at(7, n as u32));
    }
    let mut scattered = Page::default();
    for n in 0..ENTRIES {
        scattered.replace(n, at(crc(&[&n.to_le_bytes()]) >> 8, 0));
    }
    for page in [Page::default(), runs, scattered] {
        let stored = encode_page(&page, 3, 1, 2);
        assert_eq!(decode_page(&stored, 3, 1, 2).unwrap(), page);
        assert!(decode_page(&stored, 4, 1, 2).is_err());
        for at in (0..stored.len()).step_by(stored.len() / 50 + 1) {
            let mut damaged = stored.clone();
            damaged[at] ^= 1;
            assert!(decode_page(&damaged, 3, 1, 2).is_err());
            assert!(decode_page(&stored[..at], 3, 1, 2).is_err());
        }
    }
}

/// A sequential file of 16 MiB takes 12 bytes for each frame.
#[test]
fn runs_are_short() {
    let mut page = Page::default();
    for n in 0..ENTRIES {
        page.replace(n, Location::new(1, (n / 16 * 1025) as u32, 1025, (n % 16) as u32));
    }
    assert!(encode_page(&page, 0, 0, 0).len() < 3200);
}

fn segment() -> Segment {
    Segment { origin: 0, epoch: 1, seq: 2, blocks: 16, live: 0, bytes: 3 }
}

#[test]
fn directories_are_stored_and_translated() {
    let mut directory = Directory::default();
    directory.segments.put(9, segment());
    directory.segments.put(4, Segment { origin: 1, ..segment() });
    directory.objects.put(2, MapObject { origin: 0, epoch: 5, number: 6, live: 1 });
    directory.pages.insert(8, PageRef { object: 2, offset: 7, length: 20 });
    let bytes = directory.encode();
    assert_eq!(Directory::decode(&bytes, 0).unwrap(), directory);
    let child = Directory::decode(&bytes, 2).unwrap();
    assert_eq!((child.segments.get(9).unwrap().origin, child.segments.get(4).unwrap().origin), (2, 1));
    (0..bytes.len()).for_each(|length| assert!(Directory::decode(&bytes[..length], 0).is_err()));
}

/// Live blocks are counted alike whether a page is in memory or not.
#[test]
fn live_blocks_are_exact_after_deltas_are_merged() {
    let data = |block, count, first| Entry::Data { block, count, at: Location::new(0, 10, 5, first) };
    let mut map = Map::default();
    let one = map.stored.segments.add(segment()).unwrap();
    map.apply(one, &[data(5000, 10, 0)]);
    assert_eq!(map.stored.segments.get(one).unwrap().live, 10);
    // Page 1 is stored, and dropped from memory.
    assert_eq!((map.lookup(5009), map.unmerged()), (Lookup::At(Location::new(one, 10, 5, 9)), vec![1]));
    map.insert(1, Page::default());
    let frozen = map.freeze();
    let page = frozen.pages[0].1.clone();
    map.stored.pages.insert(1, PageRef { object: 0, offset: 0, length: 0 });
    let stored = map.stored.clone();
    map.install(stored, &[]);
    map.evict(0);
    assert_eq!(map.lookup(5000), Lookup::Load(1));
    assert_eq!(map.lookup(0), Lookup::Hole);

    let two = map.stored.segments.add(segment()).unwrap();
    map.apply(two, &[Entry::Hole { block: 5002, count: 2 }, data(5000, 3, 1)]);
    map.apply(two, &[data(5001, 1, 7)]);
    let found = |map: &mut Map| [5000, 5001, 5002, 5003].map(|block| map.lookup(block));
    let expected = [1, 7, 3, 99].map(|first| match first {
        99 => Lookup::Hole,
        first => Lookup::At(Location::new(two, 10, 5, first)),
    });
    assert_eq!(found(&mut map), expected);
    map.insert(1, page.clone());
    assert_eq!(found(&mut map), expected);
    assert_eq!(map.lookup(5004), Lookup::At(Location::new(one, 10, 5, 4)));
    let live = [one, two].map(|slot| map.stored.segments.get(slot).unwrap().live);
    assert_eq!(live, [6, 3]);

    // Cleared while it is not in memory.
    map.freeze();
    let stored = map.stored.clone();
    map.install(stored, &[]);
    map.evict(0);
    map.apply(two, &[Entry::Hole { block: 4096, count: 4096 }]);
    assert_eq!(map.lookup(5004), Lookup::Hole);
    assert_eq!(map.unmerged(), [1]);
}

/// Each entry of a log took a page of 32 KiB: a log of a few objects could fill the memory of who opens the volume.
#[test]
fn entries_of_new_pages_take_little_memory() {
    let data = |block| Entry::Data { block, count: 1, at: Location::new(0, 10, 5, 0) };
    let mut map = Map::default();
    let one = map.stored.segments.add(segment()).unwrap();
    let sparse: Vec<Entry> = (0..2000).map(|n| data(n * ENTRIES as u64)).collect();
    map.apply(one, &sparse);
    assert!(map.resident.is_empty());
    assert_eq!(map.lookup(ENTRIES as u64), Lookup::At(Location::new(one, 10, 5, 0)));
    let dense: Vec<Entry> = (0..1500).map(data).collect();
    map.apply(one, &dense);
    assert_eq!((map.resident.len(), map.deltas.len()), (1, 1999));
    map.apply(one, &[Entry::Hole { block: 0, count: 2000 * ENTRIES as u32 }]);
    assert_eq!((map.lookup(1), map.lookup(ENTRIES as u64)), (Lookup::Hole, Lookup::Hole));
    assert_eq!(map.stored.segments.get(one).unwrap().live, 0);
}
