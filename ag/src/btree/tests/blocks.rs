//! Byte edits, compared with vectors of entries; every changed byte must be within an announced range.

use std::ops::Range;

use format::btree::RmapBt;
use proptest::prelude::*;

use super::support::geometry;
use crate::btree::block::{self, BlockEntry, BlockLayout, EditBytes};

/// A block that records the ranges announced for changes.
struct Page {
    bytes: Vec<u8>,
    old: Vec<u8>,
    announced: Vec<bool>,
}

impl Page {
    fn new() -> Self {
        Self { bytes: vec![0xaa; 512], old: vec![0xaa; 512], announced: vec![false; 512] }
    }

    fn with(layout: &BlockLayout, numbers: &[u16]) -> Self {
        let mut page = Self::new();
        block::set_count(&mut page, layout, 0);
        for (slot, number) in numbers.iter().enumerate() {
            insert(&mut page, layout, slot, *number);
        }
        page.settle();
        page
    }

    fn settle(&mut self) {
        self.old.clone_from(&self.bytes);
        self.announced.fill(false);
    }

    /// Verifies that every changed byte was announced.
    fn check(&self) {
        for at in 0..512 {
            assert!(self.announced[at] || self.bytes[at] == self.old[at], "byte {at} changed in silence");
        }
    }

    fn announced(&self) -> usize {
        self.announced.iter().filter(|byte| **byte).count()
    }

    fn numbers(&self, layout: &BlockLayout) -> Vec<u16> {
        let of = |at: Range<usize>| u16::from_le_bytes([self.bytes[at.start], self.bytes[at.end - 1]]);
        (0..layout.count(&self.bytes))
            .map(|slot| {
                let number = of(layout.entries(slot..slot + 1));
                let pointer = layout.pointers(slot..slot + 1);
                assert!(pointer.is_empty() || of(pointer) == number, "key and pointer go together");
                number
            })
            .collect()
    }
}

impl EditBytes for Page {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
    fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.announced[range.clone()].fill(true);
        &mut self.bytes[range]
    }
}

fn insert(page: &mut Page, layout: &BlockLayout, slot: usize, number: u16) {
    let [low, high] = number.to_le_bytes();
    let mut body = vec![0x55; layout.entries(0..1).len()];
    let mut pointer = vec![0x66; layout.pointers(0..1).len()];
    for bytes in [&mut body, &mut pointer] {
        if let [first, .., last] = bytes.as_mut_slice() {
            (*first, *last) = (low, high);
        }
    }
    block::insert(page, layout, slot, BlockEntry { body: &body, pointer: &pointer });
}

fn shapes() -> impl Strategy<Value = BlockLayout> {
    let geometry = geometry();
    prop_oneof![
        Just(BlockLayout::leaf::<RmapBt>(&geometry)),
        Just(BlockLayout::node::<RmapBt>(&geometry)),
        Just(BlockLayout::inline::<format::btree::BmBt>(100)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn entries_are_inserted_and_removed(
        layout in shapes(),
        changes in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), any::<u16>()), 0..60),
    ) {
        let mut page = Page::with(&layout, &[]);
        let mut model = Vec::new();
        for (add, at, number) in changes {
            page.settle();
            if add && model.len() < layout.max() {
                let slot = at.index(model.len() + 1);
                insert(&mut page, &layout, slot, number);
                model.insert(slot, number);
                let moved = model.len() - slot;
                let each = layout.entries(0..1).len() + layout.pointers(0..1).len();
                prop_assert!(page.announced() <= moved * each + 2);
            } else if !model.is_empty() {
                let slot = at.index(model.len());
                block::remove(&mut page, &layout, slot);
                model.remove(slot);
                let moved = model.len() - slot;
                let each = layout.entries(0..1).len() + layout.pointers(0..1).len();
                prop_assert!(page.announced() <= moved * each + 2);
            }
            page.check();
            prop_assert_eq!(&page.numbers(&layout), &model);
        }
    }

    #[test]
    fn entries_move_between_neighbours(
        layout in shapes(),
        left in prop::collection::vec(any::<u16>(), 0..19),
        right in prop::collection::vec(any::<u16>(), 0..19),
        count in 0..20usize,
        to_right in any::<bool>(),
    ) {
        let (left, right) = (&left[..left.len().min(layout.max())], &right[..right.len().min(layout.max())]);
        let (mut a, mut b) = (Page::with(&layout, left), Page::with(&layout, right));
        let all = [left, right].concat();
        let cut = if to_right {
            block::move_right(&mut a, &mut b, &layout, count);
            left.len() - count.min(left.len()).min(layout.max() - right.len())
        } else {
            block::move_left(&mut a, &mut b, &layout, count);
            left.len() + count.min(right.len()).min(layout.max() - left.len())
        };
        a.check();
        b.check();
        prop_assert_eq!(a.numbers(&layout), &all[..cut]);
        prop_assert_eq!(b.numbers(&layout), &all[cut..]);
    }
}

#[test]
fn replacing_a_record_touches_only_changed_words() {
    let layout = BlockLayout::leaf::<RmapBt>(&geometry());
    let mut page = Page::with(&layout, &[1, 2, 3]);
    let mut record = page.bytes[layout.entries(1..2)].to_vec();
    block::replace(&mut page, &layout, 1, &record);
    assert_eq!(page.announced(), 0);
    record[5] ^= 1;
    record[7] ^= 1;
    block::replace(&mut page, &layout, 1, &record);
    assert_eq!(page.announced(), 4, "whole words");
    page.check();
    assert_eq!(page.bytes[layout.entries(1..2)], record);
}

#[test]
fn an_excessive_count_stays_within_the_block() {
    let layout = BlockLayout::node::<RmapBt>(&geometry());
    let mut page = Page::with(&layout, &[1, 2, 3]);
    page.bytes[6..8].fill(0xff);
    assert_eq!(layout.count(&page.bytes), layout.max());
    block::remove(&mut page, &layout, 2);
    let mut other = Page::new();
    block::move_left(&mut page, &mut other, &layout, 99);
    block::append_all(&mut page, &other, &layout);
    assert_eq!(layout.count(&page.bytes), layout.max());
}
