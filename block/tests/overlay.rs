//! The overlay compared with a vector, with one thread and with concurrent readers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use base::stop;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use xebec_block::{Device, Durability, MemoryDevice, OVERLAY_PAGE, OverlayDevice, ReadRequest};

/// Not a multiple of the page size, so that the last page is a short one.
const SIZE: usize = 10 * OVERLAY_PAGE + 1000;

#[derive(Debug, Clone)]
enum Step {
    Write { offset: usize, length: usize, value: u8 },
    Read { offset: usize, length: usize },
    ReadMany(Vec<(usize, usize)>),
    Freeze,
}

/// Ranges within the device: long and short ones, and some up to its end.
fn range() -> impl Strategy<Value = (usize, usize)> {
    (0..SIZE, prop_oneof![0..64usize, 0..SIZE, Just(SIZE)])
        .prop_map(|(offset, length)| (offset, length.min(SIZE - offset)))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (range(), 1..=255u8).prop_map(|((offset, length), value)| Step::Write { offset, length, value }),
        6 => range().prop_map(|(offset, length)| Step::Read { offset, length }),
        2 => prop::collection::vec(range(), 0..5).prop_map(Step::ReadMany),
        1 => Just(Step::Freeze),
    ]
}

fn base_bytes() -> Vec<u8> {
    (0..SIZE).map(|i| (i % 251) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(42), ..ProptestConfig::default() })]

    #[test]
    fn reads_like_a_vector(steps in prop::collection::vec(step(), 1..60)) {
        let original = base_bytes();
        let base = Arc::new(MemoryDevice::from_bytes(&original));
        let overlay = OverlayDevice::new(base.clone());
        let mut model = original.clone();
        for step in steps {
            match step {
                Step::Write { offset, length, value } => {
                    let data = vec![value; length];
                    let result = overlay.write_at(offset as u64, &data, Durability::Buffered);
                    if overlay.is_read_only() && length > 0 {
                        prop_assert_eq!(result.unwrap_err().errno(), 30);
                    } else if result.is_ok() {
                        model[offset..offset + length].copy_from_slice(&data);
                    }
                }
                Step::Read { offset, length } => {
                    let mut got = vec![0; length];
                    overlay.read_at(offset as u64, &mut got).unwrap();
                    prop_assert_eq!(&got, &model[offset..offset + length]);
                }
                Step::ReadMany(ranges) => {
                    let mut bufs: Vec<_> = ranges.iter().map(|&(_, length)| vec![0; length]).collect();
                    let mut reads: Vec<_> = ranges
                        .iter()
                        .zip(&mut bufs)
                        .map(|(&(offset, _), buf)| ReadRequest::new(offset as u64, buf))
                        .collect();
                    overlay.read_many(&mut reads).unwrap();
                    for (&(offset, length), buf) in ranges.iter().zip(&bufs) {
                        prop_assert_eq!(buf, &model[offset..offset + length]);
                    }
                }
                Step::Freeze => overlay.freeze(),
            }
        }
        let mut all = vec![0; SIZE];
        overlay.read_at(0, &mut all).unwrap();
        prop_assert!(all == model);
        base.read_at(0, &mut all).unwrap();
        prop_assert!(all == original, "the base was written");
    }
}

/// Each write fills a whole page with one value, and values only increase: a reader must never see two values in a
/// page, nor an older value.
#[test]
fn concurrent_readers_see_whole_pages_in_order() {
    const PAGES: u64 = 64;
    let base = Arc::new(MemoryDevice::new(PAGES * OVERLAY_PAGE as u64));
    let overlay = OverlayDevice::new(base);
    stop::scope(|scope| {
        for reader in 0..3u64 {
            let overlay = &overlay;
            scope.spawn(move |stop| {
                let mut last = [0u8; PAGES as usize];
                let mut buf = vec![0; 4 * OVERLAY_PAGE];
                let mut first = reader;
                loop {
                    let finished = stop.is_set();
                    first = (first + 7) % (PAGES - 3);
                    overlay.read_at(first * OVERLAY_PAGE as u64, &mut buf).unwrap();
                    for (page, seen) in buf.chunks(OVERLAY_PAGE).zip(&mut last[first as usize..]) {
                        assert!(page.iter().all(|&byte| byte == page[0]), "a torn page");
                        assert!(page[0] >= *seen, "page went back from {seen} to {}", page[0]);
                        *seen = page[0];
                    }
                    if finished {
                        break;
                    }
                }
            });
        }
        for value in 1..=100u8 {
            for page in 0..PAGES {
                let offset = page * OVERLAY_PAGE as u64;
                overlay.write_at(offset, &[value; OVERLAY_PAGE], Durability::Buffered).unwrap();
            }
        }
        overlay.freeze();
    });
    let mut page = [0; OVERLAY_PAGE];
    overlay.read_at(0, &mut page).unwrap();
    assert_eq!(page, [100; OVERLAY_PAGE]);
}

/// On a large device one bit of the filter represents many pages.
#[test]
fn large_devices_share_bits_between_pages() {
    let size = 1 << 44;
    let overlay = OverlayDevice::new(Arc::new(MemoryDevice::new(size)));
    for offset in [0, 5 << 30, size - 3] {
        overlay.write_at(offset, b"abc", Durability::Buffered).unwrap();
    }
    for frozen in [false, true] {
        if frozen {
            overlay.freeze();
        }
        for offset in [0, 5 << 30, size - 3] {
            let mut got = [0; 3];
            overlay.read_at(offset, &mut got).unwrap();
            assert_eq!(&got, b"abc");
        }
        let mut neighbour = [1; 8192];
        overlay.read_at((5 << 30) + 8192, &mut neighbour).unwrap();
        assert!(neighbour.iter().all(|&byte| byte == 0));
    }
    assert_eq!(overlay.written_bytes(), 3 * OVERLAY_PAGE as u64);
}
