//! Changes of bytes: against vectors of entries, and with every changed byte within a range that was announced.

use std::ops::Range;

use format::btree::RmapBt;
use proptest::prelude::*;

use super::support::geometry;
use crate::btree::block::{self, BlockEntry, BlockLayout, EditBytes};

/// A block that remembers what was announced to change.
struct Page {
    bytes: Vec<u8>,
    old: Vec<u8>,
    announced: Vec<bool>,
}

impl Page {
    fn new() -> Self {
        Self { bytes: vec![0xaa; 512], old: vec![0xaa; 512], announced: vec![false; 512] }
    }

    fn with(shape: &BlockLayout, numbers: &[u16]) -> Self {
        let mut page = Self::new();
        block::set_count(&mut page, shape, 0);
        for (slot, number) in numbers.iter().enumerate() {
            insert(&mut page, shape, slot, *number);
        }
        page.settle();
        page
    }

    fn settle(&mut self) {
        self.old.clone_from(&self.bytes);
        self.announced.fill(false);
    }

    /// Every changed byte was announced.
    fn check(&self) {
        for at in 0..512 {
            assert!(self.announced[at] || self.bytes[at] == self.old[at], "byte {at} changed in silence");
        }
    }

    fn announced(&self) -> usize {
        self.announced.iter().filter(|byte| **byte).count()
    }

    fn numbers(&self, shape: &BlockLayout) -> Vec<u16> {
        let of = |at: Range<usize>| u16::from_le_bytes([self.bytes[at.start], self.bytes[at.end - 1]]);
        (0..shape.count(&self.bytes))
            .map(|slot| {
                let number = of(shape.entries(slot..slot + 1));
                let pointer = shape.pointers(slot..slot + 1);
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

fn insert(page: &mut Page, shape: &BlockLayout, slot: usize, number: u16) {
    let [low, high] = number.to_le_bytes();
    let mut body = vec![0x55; shape.entries(0..1).len()];
    let mut pointer = vec![0x66; shape.pointers(0..1).len()];
    for bytes in [&mut body, &mut pointer] {
        if let [first, .., last] = bytes.as_mut_slice() {
            (*first, *last) = (low, high);
        }
    }
    block::insert(page, shape, slot, BlockEntry { body: &body, pointer: &pointer });
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
    fn entries_come_and_go(
        shape in shapes(),
        changes in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), any::<u16>()), 0..60),
    ) {
        let mut page = Page::with(&shape, &[]);
        let mut model = Vec::new();
        for (add, at, number) in changes {
            page.settle();
            if add && model.len() < shape.max() {
                let slot = at.index(model.len() + 1);
                insert(&mut page, &shape, slot, number);
                model.insert(slot, number);
                let moved = model.len() - slot;
                let each = shape.entries(0..1).len() + shape.pointers(0..1).len();
                prop_assert!(page.announced() <= moved * each + 2);
            } else if !model.is_empty() {
                let slot = at.index(model.len());
                block::remove(&mut page, &shape, slot);
                model.remove(slot);
                let moved = model.len() - slot;
                let each = shape.entries(0..1).len() + shape.pointers(0..1).len();
                prop_assert!(page.announced() <= moved * each + 2);
            }
            page.check();
            prop_assert_eq!(&page.numbers(&shape), &model);
        }
    }

    #[test]
    fn entries_move_between_neighbours(
        shape in shapes(),
        left in prop::collection::vec(any::<u16>(), 0..19),
        right in prop::collection::vec(any::<u16>(), 0..19),
        count in 0..20usize,
        to_right in any::<bool>(),
    ) {
        let (left, right) = (&left[..left.len().min(shape.max())], &right[..right.len().min(shape.max())]);
        let (mut a, mut b) = (Page::with(&shape, left), Page::with(&shape, right));
        let all = [left, right].concat();
        let cut = if to_right {
            block::move_right(&mut a, &mut b, &shape, count);
            left.len() - count.min(left.len()).min(shape.max() - right.len())
        } else {
            block::move_left(&mut a, &mut b, &shape, count);
            left.len() + count.min(right.len()).min(shape.max() - left.len())
        };
        a.check();
        b.check();
        prop_assert_eq!(a.numbers(&shape), &all[..cut]);
        prop_assert_eq!(b.numbers(&shape), &all[cut..]);
    }
}

#[test]
fn a_replaced_record_touches_only_what_differs() {
    let shape = BlockLayout::leaf::<RmapBt>(&geometry());
    let mut page = Page::with(&shape, &[1, 2, 3]);
    let mut record = page.bytes[shape.entries(1..2)].to_vec();
    block::replace(&mut page, &shape, 1, &record);
    assert_eq!(page.announced(), 0);
    record[5] ^= 1;
    record[7] ^= 1;
    block::replace(&mut page, &shape, 1, &record);
    assert_eq!(page.announced(), 4, "whole words");
    page.check();
    assert_eq!(page.bytes[shape.entries(1..2)], record);
}

#[test]
fn a_count_beyond_what_fits_reaches_nothing_outside() {
    let shape = BlockLayout::node::<RmapBt>(&geometry());
    let mut page = Page::with(&shape, &[1, 2, 3]);
    page.bytes[6..8].fill(0xff);
    assert_eq!(shape.count(&page.bytes), shape.max());
    block::remove(&mut page, &shape, 2);
    let mut other = Page::new();
    block::move_left(&mut page, &mut other, &shape, 99);
    block::append_all(&mut page, &other, &shape);
    assert_eq!(shape.count(&page.bytes), shape.max());
}
