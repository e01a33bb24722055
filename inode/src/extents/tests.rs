//! The list against a model with one entry per block.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// File block to disk block, and whether it is unwritten.
type Model = BTreeMap<u64, (u64, bool)>;

fn blocks(list: &ExtentList) -> Model {
    let mut model = Model::new();
    for extent in list.as_slice() {
        for n in 0..extent.count {
            model.insert(extent.offset.get() + n, (extent.start.get() + n, extent.unwritten));
        }
    }
    model
}

fn assert_sound(list: &ExtentList) {
    assert!(list.as_slice().iter().all(|extent| extent.count > 0));
    assert!(list.as_slice().is_sorted_by(|l, r| l.end() <= r.offset), "{list:?}");
}

/// Checks that the parts of a range agree with the model on each block.
fn assert_pieces_cover(list: &ExtentList, model: &Model, from: u64, to: u64) {
    let mut at = from;
    while at < to {
        let piece = list.piece(FileBlock(at), FileBlock(to));
        assert!(piece.count > 0 && at + piece.count <= to);
        for n in 0..piece.count {
            let expected = piece.mapping.map(|(start, unwritten)| (start.get() + n, unwritten));
            assert_eq!(model.get(&(at + n)).copied(), expected);
        }
        at += piece.count;
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Maps a hole. The disk block depends on the file block, so that neighbours often merge.
    Insert {
        keep: bool,
        at: u64,
        count: u64,
        shift: u64,
        unwritten: bool,
    },
    Remove {
        at: u64,
        count: u64,
    },
    Mark {
        keep: bool,
        at: u64,
        count: u64,
        unwritten: bool,
    },
    /// Moves the extent that begins at a block.
    Replace {
        at: u64,
        count: u64,
        shift: u64,
    },
    Move {
        from: u64,
        to: u64,
    },
    Split {
        at: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let range = || (0u64..40, 1u64..9);
    prop_oneof![
        3 => (range(), 0u64..2, any::<bool>(), any::<bool>()).prop_map(
            |((at, count), shift, unwritten, keep)| Step::Insert { keep, at, count, shift, unwritten }
        ),
        2 => range().prop_map(|(at, count)| Step::Remove { at, count }),
        2 => (range(), any::<bool>(), any::<bool>())
            .prop_map(|((at, count), unwritten, keep)| Step::Mark { keep, at, count, unwritten }),
        2 => (range(), 0u64..2).prop_map(|((at, count), shift)| Step::Replace { at, count, shift }),
        2 => (0u64..48, 0u64..48).prop_map(|(from, to)| Step::Move { from, to }),
        1 => (0u64..48).prop_map(|at| Step::Split { at }),
    ]
}

fn replace(list: &mut ExtentList, model: &mut Model, (at, count): (u64, u64), shift: u64) {
    let start = 1000 + at + shift * 500;
    if let Some((splice, gone)) = list.splice_replace(FileBlock(at), FileBlock(at + count), FsBlock(start)) {
        assert!(splice.new.len() >= splice.old.len(), "no block of a tree becomes free");
        list.apply(&splice);
        for n in 0..count {
            let expected = (gone.start.get() + n, gone.unwritten);
            assert_eq!(model.insert(at + n, (start + n, false)), Some(expected));
        }
    }
}

fn run(list: &mut ExtentList, model: &mut Model, step: &Step) {
    match *step {
        Step::Insert { keep, at, count, shift, unwritten } => {
            let start = 1000 + at + shift * 500;
            let extent = Extent { offset: FileBlock(at), start: FsBlock(start), count, unwritten };
            let is_hole = model.range(at..at + count).next().is_none();
            let splice = list.splice_insert(extent, keep);
            assert_eq!(splice.is_some(), is_hole, "{step:?}");
            if let Some(splice) = splice {
                assert!(!keep || splice.new.len() >= splice.old.len(), "no block of a tree becomes free");
                list.apply(&splice);
                model.extend((0..count).map(|n| (at + n, (start + n, unwritten))));
            }
        }
        Step::Remove { at, count } => {
            if let Some((splice, gone)) = list.splice_remove(FileBlock(at), FileBlock(at + count)) {
                list.apply(&splice);
                for n in 0..count {
                    let expected = (gone.start.get() + n, gone.unwritten);
                    assert_eq!(model.remove(&(at + n)), Some(expected), "{step:?}");
                }
            }
        }
        Step::Mark { keep, at, count, unwritten } => {
            if let Some(splice) = list.splice_mark(FileBlock(at), FileBlock(at + count), unwritten, keep) {
                assert!(!keep || splice.new.len() >= splice.old.len(), "no block of a tree becomes free");
                list.apply(&splice);
                for n in at..at + count {
                    model.get_mut(&n).unwrap().1 = unwritten;
                }
            }
        }
        Step::Replace { at, count, shift } => replace(list, model, (at, count), shift),
        Step::Move { from, to } => {
            let Some(old) = list.find(FileBlock(from)).filter(|old| old.offset.get() == from) else {
                assert!(list.splice_move(FileBlock(from), FileBlock(to)).is_none());
                return;
            };
            let mut rest = model.clone();
            rest.retain(|at, _| !(from..old.end().get()).contains(at));
            // The target must be a hole, and there must be no extent between.
            let way = from.min(to)..from.max(to) + old.count;
            let splice = list.splice_move(FileBlock(from), FileBlock(to));
            assert_eq!(splice.is_some(), rest.range(way).next().is_none(), "{step:?}");
            if let Some(splice) = splice {
                assert!(splice.new.len() <= splice.old.len(), "a tree takes no blocks for it");
                list.apply(&splice);
                rest.extend((0..old.count).map(|n| (to + n, (old.start.get() + n, old.unwritten))));
                *model = rest;
            }
        }
        Step::Split { at } => {
            let within = list.find(FileBlock(at)).is_some_and(|old| old.offset.get() < at);
            let splice = list.splice_split(FileBlock(at));
            assert_eq!(splice.is_some(), within, "{step:?}");
            if let Some(splice) = splice {
                list.apply(&splice);
            }
        }
    }
}

proptest! {
    #[test]
    fn every_history_maps_what_the_model_maps(steps in prop::collection::vec(step(), 1..60)) {
        let (mut list, mut model) = (ExtentList::default(), Model::new());
        for step in &steps {
            run(&mut list, &mut model, step);
            assert_sound(&list);
            prop_assert_eq!(&blocks(&list), &model);
            for at in 0..50 {
                let expected = model.get(&at).map(|(start, _)| FsBlock(*start));
                prop_assert_eq!(list.map(FileBlock(at)).map(|(start, _)| start), expected);
            }
            for (from, to) in [(0, 50), (7, 20), (13, 14)] {
                let last = list.last_in(FileBlock(from), FileBlock(to)).map(|extent| extent.end().get() - 1);
                prop_assert_eq!(last, model.range(from..to).next_back().map(|(at, _)| *at));
                assert_pieces_cover(&list, &model, from, to);
            }
            for count in 1..4 {
                let hole = list.first_hole(FileBlock(3), count).get();
                prop_assert!(model.range(hole..hole + count).next().is_none());
                prop_assert!((3..hole).all(|at| model.range(at..at + count).next().is_some()));
            }
        }
    }
}

fn extent(offset: u64, start: u64, count: u64) -> Extent {
    Extent { offset: FileBlock(offset), start: FsBlock(start), count, unwritten: false }
}

#[test]
fn what_fills_the_hole_between_two_that_it_continues_makes_one_of_three() {
    let mut list = ExtentList::from_sorted(vec![extent(0, 100, 4), extent(6, 106, 2)]);
    let splice = list.splice_insert(extent(4, 104, 2), false).unwrap();
    list.apply(&splice);
    assert_eq!(list.as_slice(), [extent(0, 100, 8)]);
}

#[test]
fn no_record_grows_beyond_what_its_bits_can_hold() {
    let most = MAX_EXTENT_BLOCKS;
    let mut list = ExtentList::from_sorted(vec![extent(0, 100, most - 1)]);
    for n in 0..2 {
        let splice = list.splice_insert(extent(most - 1 + n, 100 + most - 1 + n, 1), false).unwrap();
        list.apply(&splice);
    }
    assert_eq!(list.as_slice(), [extent(0, 100, most), extent(most, 100 + most, 1)]);
}
