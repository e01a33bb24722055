//! The extents of a fork that are in memory: all of them, or those around the places that were used last.
//!
//! # Invariants
//! A window has consecutive extents of the map: between two of them there is no other. So it covers the file from its
//! first extent to the end of its last one, and beyond them if these are the first and the last of the map.

use base::FileBlock;

use super::{ExtentList, Splice};

/// How many extents of a fork are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentLimits {
    /// The most extents of a map that is in memory as a whole, if it does not fit the inode.
    pub whole: usize,
    /// The most extents of a window into a larger map.
    pub window: usize,
}

impl ExtentLimits {
    /// 4,096 extents take 128 KiB: files and directories that are not badly fragmented are searched without their
    /// btrees, and without locks. A window of 1,024 is some leaves of the usual size: a pass over a map reads each leaf
    /// once or twice, and a change in the middle of the window moves 16 KiB.
    pub const USUAL: Self = Self { whole: 4096, window: 1024 };

    /// The extents that are loaded on each side of a place.
    pub(crate) fn side(&self) -> usize {
        self.window / 4
    }
}

/// A part of the extents of a fork in btree format.
#[derive(Clone, Debug)]
pub(crate) struct ExtentWindow {
    pub list: ExtentList,
    /// No extent of the map is before this list.
    pub has_first: bool,
    /// No extent of the map is after this list.
    pub has_last: bool,
}

impl ExtentWindow {
    /// Whether the window covers a block, and has `before` extents before the *next* one and `after` extents after it,
    /// as far as the map has them. The next extent is the one that contains the block, or the first one after it.
    pub fn has(&self, at: FileBlock, before: usize, after: usize) -> bool {
        self.has_left(at, before) && self.has_right(at, after)
    }

    /// The part of [`has`](Self::has) before the next extent.
    pub fn has_left(&self, at: FileBlock, before: usize) -> bool {
        let next = self.list.index_at(at);
        let least = match self.list.get(next) {
            Some(extent) if extent.offset <= at => before,
            // In a hole: the extent before it bounds it.
            _ => before.max(1),
        };
        self.has_first || next >= least
    }

    /// The next extent, and the part of [`has`](Self::has) after it.
    pub fn has_right(&self, at: FileBlock, after: usize) -> bool {
        self.has_last || self.list.index_at(at) + after < self.list.len()
    }

    /// Drops the extents that are farthest from an index, if there are more than `most`.
    fn trim(&mut self, index: usize, most: usize) {
        let items = &mut self.list.items;
        if items.len() <= most {
            return;
        }
        // Half of them stay, so that this is done once for many extents.
        let keep = (most / 2).max(1);
        let start = index.saturating_sub(keep / 2).min(items.len() - keep);
        self.has_last &= start + keep == items.len();
        self.has_first &= start == 0;
        items.truncate(start + keep);
        items.drain(..start);
        items.shrink_to(most);
    }
}

/// The extents of a fork that are in memory.
#[derive(Clone, Debug)]
pub(crate) enum LoadedExtents {
    /// All extents.
    Whole(ExtentList),
    /// A part, of a fork in btree format. In a box, so that inodes with few extents are not larger for it.
    Window(Box<ExtentWindow>),
}

impl LoadedExtents {
    /// All extents, if they are in memory.
    pub fn whole(&self) -> Option<&ExtentList> {
        match self {
            Self::Whole(list) => Some(list),
            Self::Window(_) => None,
        }
    }

    /// A list that has at least the extents around a block that [`ExtentWindow::has`] describes; `None` if they are
    /// not in memory.
    pub fn around(&self, at: FileBlock, before: usize, after: usize) -> Option<&ExtentList> {
        match self {
            Self::Whole(list) => Some(list),
            Self::Window(window) => window.has(at, before, after).then_some(&window.list),
        }
    }

    /// Whether the last extent in memory is that of the map.
    pub fn has_last(&self) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Window(window) => window.has_last,
        }
    }

    /// Applies a splice that was computed from the list.
    pub fn apply(&mut self, splice: &Splice, limits: ExtentLimits) {
        match self {
            Self::Whole(list) => list.apply(splice),
            Self::Window(window) => {
                window.list.apply(splice);
                window.trim(splice.at, limits.window);
            }
        }
    }

    /// Makes a list of all extents a window around an index.
    pub fn narrow(&mut self, index: usize, limits: ExtentLimits) {
        if let Self::Whole(list) = self {
            let list = std::mem::take(list);
            let mut window = Box::new(ExtentWindow { list, has_first: true, has_last: true });
            window.trim(index, limits.window);
            *self = Self::Window(window);
        }
    }

    /// The extents that the memory of the list has space for.
    pub fn capacity(&self) -> usize {
        match self {
            Self::Whole(list) => list.items.capacity(),
            Self::Window(window) => window.list.items.capacity(),
        }
    }
}

#[cfg(test)]
mod tests {
    use base::FsBlock;
    use format::extent::Extent;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_window_takes_no_space_in_an_inode() {
        assert_eq!(size_of::<Option<LoadedExtents>>(), size_of::<Option<ExtentList>>());
    }

    fn list(offsets: impl IntoIterator<Item = u64>) -> ExtentList {
        let extent =
            |at| Extent { offset: FileBlock(at), start: FsBlock(1000 + 7 * at), count: 2, unwritten: false };
        ExtentList::from_sorted(offsets.into_iter().map(extent).collect())
    }

    proptest! {
        /// Where a window claims to have what a query needs, it gives the answer of the whole map.
        #[test]
        fn a_window_answers_as_the_map(
            gaps in prop::collection::vec(0u64..3, 1..30),
            (from, to) in (0usize..30, 0usize..30),
            at in 0u64..150,
        ) {
            let mut next = 0;
            let offsets: Vec<u64> = gaps.iter().map(|gap| { next += 2 + gap; next - 2 }).collect();
            let whole = list(offsets.iter().copied());
            let (from, to) = (from % whole.len(), to % whole.len());
            let (from, to) = (from.min(to), from.max(to) + 1);
            let part = offsets.get(from..to).unwrap().iter().copied();
            let window = ExtentWindow {
                list: list(part),
                has_first: from == 0,
                has_last: to == whole.len(),
            };
            let at = FileBlock(at);
            let end = FileBlock(1000);
            if window.has(at, 0, 0) {
                prop_assert_eq!(window.list.piece(at, end), whole.piece(at, end));
                prop_assert_eq!(window.list.find(at), whole.find(at));
                let end = FileBlock(at.get() + 1);
                prop_assert_eq!(window.list.last_in(FileBlock(0), end), whole.last_in(FileBlock(0), end));
                if whole.find(at).is_none() {
                    prop_assert_eq!(window.list.near(at), whole.near(at));
                }
            }
            if window.has(at, 1, 1) {
                let all = |list: &ExtentList| {
                    let next = list.index_at(at);
                    (next.checked_sub(1).and_then(|n| list.get(n)), list.get(next), list.get(next + 1))
                };
                prop_assert_eq!(all(&window.list), all(&whole));
            }
        }
    }

    #[test]
    fn a_window_that_grows_drops_what_is_far_away() {
        let limits = ExtentLimits { whole: 16, window: 8 };
        let mut loaded = LoadedExtents::Whole(list((0..16).map(|n| 3 * n)));
        loaded.narrow(15, limits);
        let LoadedExtents::Window(window) = &loaded else { panic!("{loaded:?}") };
        assert_eq!((window.list.len(), window.has_first, window.has_last), (4, false, true));
        for n in 16..100 {
            let at = FileBlock(3 * n);
            let list = loaded.around(at, 1, 1).unwrap();
            let extent = Extent { offset: at, start: FsBlock(9 * n), count: 1, unwritten: false };
            let splice = list.splice_insert(extent, false).unwrap();
            loaded.apply(&splice, limits);
            assert!(loaded.capacity() <= 2 * limits.window && loaded.has_last());
        }
        assert!(loaded.around(FileBlock(0), 0, 0).is_none());
    }
}
