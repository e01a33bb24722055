//! Selecting the chunk of an AG that gives the next inode.
//!
//! | tree | near the parent | else |
//! |---|---|---|
//! | finobt | the nearest chunk with free inodes, on either side | the newest chunk, then the lowest |
//! | inobt | up to ten chunks on both sides; the next search continues there | the newest chunk, then all from the lowest |
//!
//! The second row is the cost of an AG without a finobt: the search passes all full chunks, and their number grows with
//! the files of the volume. It searches in the same order as Linux, so that both can be compared.
//!
//! # Invariants
//! A search terminates: it moves strictly outwards, then strictly upwards, and resumes from a remembered position only
//! once.

use base::AgIno;
use format::Damage;

use super::chunk::ChunkRecord;

/// A cursor in a tree of chunks.
pub trait ChunkCursor: Clone {
    /// Source of the tree's blocks.
    type Store;
    /// Error of a read.
    type Error;

    /// An error for damage in the tree.
    fn damaged(&self, damage: Damage) -> Self::Error;

    /// Lookup EQ: moves to the chunk that starts at this inode.
    fn eq(&mut self, store: &mut Self::Store, start: AgIno) -> Result<Option<ChunkRecord>, Self::Error>;
    /// Lookup LE: moves to the last chunk that starts at or before this inode; if there is none, before the first
    /// chunk.
    fn le(&mut self, store: &mut Self::Store, start: AgIno) -> Result<Option<ChunkRecord>, Self::Error>;
    /// Moves to the next chunk.
    fn next(&mut self, store: &mut Self::Store) -> Result<Option<ChunkRecord>, Self::Error>;
    /// Moves to the previous chunk.
    fn prev(&mut self, store: &mut Self::Store) -> Result<Option<ChunkRecord>, Self::Error>;
}

/// Target of an inode allocation in an AG.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkTarget {
    /// The parent, if it lies in the same AG: allocate near it.
    pub parent: Option<AgIno>,
    /// Otherwise the chunk that was allocated last, if it is known.
    pub newest: Option<AgIno>,
}

/// Position at which a search around a parent gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchResume {
    /// Parent inode.
    parent: AgIno,
    /// Next chunks to check, to the left and to the right; `None` if there is none.
    left: Option<AgIno>,
    right: Option<AgIno>,
}

/// A chunk with a free inode, and the cursor on it.
pub type FoundChunk<W> = (W, ChunkRecord);

/// Maximum number of chunks that a search around the parent checks, as in Linux.
const STEPS: u32 = 10;

fn none_found(tree: &'static str) -> Damage {
    Damage::new(tree, "freecount", "a chunk with free inodes, as the AGI counts some", "none")
}

/// Finds a chunk in the finobt.
///
/// # Errors
/// Damage: there is none, though the AGI counts free inodes.
pub fn in_free_tree<W: ChunkCursor>(
    walk: &mut W,
    store: &mut W::Store,
    wanted: ChunkTarget,
) -> Result<ChunkRecord, W::Error> {
    let found = match wanted.parent {
        Some(parent) => nearest(walk, store, parent)?,
        None => match newest(walk, store, wanted)? {
            Some(chunk) => Some(chunk),
            None => first(walk, store)?,
        },
    };
    found.filter(|chunk| chunk.free_mask() != 0).ok_or_else(|| walk.damaged(none_found("finobt")))
}

/// The newest chunk, if it has a free inode.
fn newest<W: ChunkCursor>(
    walk: &mut W,
    store: &mut W::Store,
    wanted: ChunkTarget,
) -> Result<Option<ChunkRecord>, W::Error> {
    let Some(newest) = wanted.newest else { return Ok(None) };
    Ok(walk.eq(store, newest)?.filter(|chunk| chunk.free_mask() != 0))
}

fn first<W: ChunkCursor>(walk: &mut W, store: &mut W::Store) -> Result<Option<ChunkRecord>, W::Error> {
    match walk.le(store, AgIno(0))? {
        Some(chunk) => Ok(Some(chunk)),
        None => walk.next(store),
    }
}

/// The nearest chunk on either side.
fn nearest<W: ChunkCursor>(
    walk: &mut W,
    store: &mut W::Store,
    parent: AgIno,
) -> Result<Option<ChunkRecord>, W::Error> {
    let Some(below) = walk.le(store, parent)? else { return walk.next(store) };
    if below.index_of(parent).is_some() {
        return Ok(Some(below));
    }
    match walk.next(store)? {
        Some(above) if above.distance(parent) < below.distance(parent) => Ok(Some(above)),
        _ => walk.prev(store),
    }
}

/// Finds a chunk with a free inode in the inobt. `memory` is kept by the AG from search to search.
///
/// # Errors
/// Damage: there is none, though the AGI counts free inodes.
pub fn in_inode_tree<W: ChunkCursor>(
    mut walk: W,
    store: &mut W::Store,
    wanted: ChunkTarget,
    memory: &mut Option<SearchResume>,
) -> Result<FoundChunk<W>, W::Error> {
    if let Some(parent) = wanted.parent
        && let Some(found) = around(&walk, store, parent, memory)?
    {
        return Ok(found);
    }
    if let Some(chunk) = newest(&mut walk, store, wanted)? {
        return Ok((walk, chunk));
    }
    let mut next = first(&mut walk, store)?;
    while let Some(chunk) = next {
        if chunk.free_mask() != 0 {
            return Ok((walk, chunk));
        }
        next = walk.next(store)?;
    }
    Err(walk.damaged(none_found("inobt")))
}

/// One side of a search: a cursor, and the chunk there.
type SearchSide<W> = Option<(W, ChunkRecord)>;

/// Searches around the parent; `None` if the maximum number of chunks has no free inode.
fn around<W: ChunkCursor>(
    walk: &W,
    store: &mut W::Store,
    parent: AgIno,
    memory: &mut Option<SearchResume>,
) -> Result<Option<FoundChunk<W>>, W::Error> {
    let mut here = walk.clone();
    let own = here.le(store, parent)?;
    if let Some(chunk) = own
        && chunk.free_mask() != 0
    {
        return Ok(Some((here, chunk)));
    }
    if let Some(gave_up) = memory.take().filter(|gave_up| gave_up.parent == parent) {
        let left = resume(walk, store, gave_up.left)?;
        let right = resume(walk, store, gave_up.right)?;
        match outwards(store, parent, left, right)? {
            SearchOutcome::Found(found) => return Ok(Some(found)),
            SearchOutcome::SearchResume(gave_up) => {
                *memory = Some(gave_up);
                return Ok(None);
            }
            // Inodes that were freed since then are nearer than all that was checked: search again from the parent.
            SearchOutcome::Exhausted => (),
        }
    }
    let mut left = here.clone();
    let left = if own.is_some() { left.prev(store)?.map(|chunk| (left, chunk)) } else { None };
    let right = here.next(store)?.map(|chunk| (here, chunk));
    Ok(match outwards(store, parent, left, right)? {
        SearchOutcome::Found(found) => Some(found),
        SearchOutcome::SearchResume(gave_up) => {
            *memory = Some(gave_up);
            None
        }
        SearchOutcome::Exhausted => None,
    })
}

fn resume<W: ChunkCursor>(
    walk: &W,
    store: &mut W::Store,
    start: Option<AgIno>,
) -> Result<SearchSide<W>, W::Error> {
    let Some(start) = start else { return Ok(None) };
    let mut walk = walk.clone();
    // If that chunk was removed since, take the one before it.
    Ok(walk.le(store, start)?.map(|chunk| (walk, chunk)))
}

enum SearchOutcome<W> {
    Found(FoundChunk<W>),
    SearchResume(SearchResume),
    /// Every chunk was checked.
    Exhausted,
}

/// Moves outwards on both sides, the nearer side first.
fn outwards<W: ChunkCursor>(
    store: &mut W::Store,
    parent: AgIno,
    mut left: SearchSide<W>,
    mut right: SearchSide<W>,
) -> Result<SearchOutcome<W>, W::Error> {
    for _ in 1..STEPS {
        let distance = |at: &SearchSide<W>| at.as_ref().map_or(u32::MAX, |(_, chunk)| chunk.distance(parent));
        let go_left = left.is_some() && distance(&left) < distance(&right);
        let side = if go_left { &mut left } else { &mut right };
        let Some((mut walk, chunk)) = side.take() else { return Ok(SearchOutcome::Exhausted) };
        if chunk.free_mask() != 0 {
            return Ok(SearchOutcome::Found((walk, chunk)));
        }
        let next = if go_left { walk.prev(store)? } else { walk.next(store)? };
        *side = next.map(|chunk| (walk, chunk));
    }
    let start = |at: SearchSide<W>| at.map(|(_, chunk)| chunk.start);
    Ok(SearchOutcome::SearchResume(SearchResume { parent, left: start(left), right: start(right) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A list of chunks as a tree; `steps` counts the reads.
    struct List {
        chunks: Vec<ChunkRecord>,
        steps: u32,
    }

    /// The index plus 1; 0 is before the first.
    #[derive(Clone)]
    struct Position(usize);

    impl Position {
        fn at(&self, list: &mut List) -> Result<Option<ChunkRecord>, Damage> {
            list.steps += 1;
            Ok(self.0.checked_sub(1).and_then(|n| list.chunks.get(n)).copied())
        }
    }

    impl ChunkCursor for Position {
        type Store = List;
        type Error = Damage;

        fn damaged(&self, damage: Damage) -> Damage {
            damage
        }
        fn eq(&mut self, list: &mut List, start: AgIno) -> Result<Option<ChunkRecord>, Damage> {
            Ok(self.le(list, start)?.filter(|chunk| chunk.start == start))
        }
        fn le(&mut self, list: &mut List, start: AgIno) -> Result<Option<ChunkRecord>, Damage> {
            self.0 = list.chunks.partition_point(|chunk| chunk.start <= start);
            self.at(list)
        }
        fn next(&mut self, list: &mut List) -> Result<Option<ChunkRecord>, Damage> {
            self.0 += 1;
            self.at(list)
        }
        fn prev(&mut self, list: &mut List) -> Result<Option<ChunkRecord>, Damage> {
            self.0 -= 1;
            self.at(list)
        }
    }

    /// `count` chunks, of which those at `free` have a free inode.
    fn list(count: u32, free: &[u32]) -> List {
        let chunk =
            |n| ChunkRecord { free: u64::from(free.contains(&n)) << 5, ..ChunkRecord::whole(AgIno(n * 64)) };
        List { chunks: (1..=count).map(chunk).collect(), steps: 0 }
    }

    fn near(parent: u32) -> ChunkTarget {
        ChunkTarget { parent: Some(AgIno(parent)), newest: None }
    }

    fn start(found: Result<FoundChunk<Position>, Damage>) -> u32 {
        found.unwrap().1.start.get() / 64
    }

    #[test]
    fn the_finobt_gives_the_nearest_chunk() {
        let mut all = list(100, &[10, 40, 47]);
        all.chunks.retain(|chunk| chunk.free != 0);
        let mut find = |wanted| in_free_tree(&mut Position(0), &mut all, wanted).unwrap().start.get() / 64;
        let parent = |chunk: u32, index| near(chunk * 64 + index);
        let newest = |chunk: u32| ChunkTarget { newest: Some(AgIno(chunk * 64)), parent: None };
        assert_eq!(find(parent(40, 63)), 40);
        assert_eq!(find(parent(43, 0)), 40);
        assert_eq!(find(parent(44, 0)), 47);
        assert_eq!(find(parent(5, 0)), 10);
        assert_eq!(find(parent(99, 0)), 47);
        assert_eq!(find(newest(40)), 40);
        assert_eq!(find(newest(41)), 10);
        assert_eq!(find(ChunkTarget::default()), 10);
        let mut empty = list(0, &[]);
        for wanted in [parent(3, 3), ChunkTarget::default()] {
            assert!(in_free_tree(&mut Position(0), &mut empty, wanted).is_err());
        }
    }

    #[test]
    fn without_finobt_the_search_gives_up_after_ten_steps_and_resumes_there() {
        let mut all = list(1000, &[700]);
        let mut memory = None;
        let parent = near(500 * 64);
        let mut find = |all: &mut List| {
            all.steps = 0;
            (start(in_inode_tree(Position(0), all, parent, &mut memory)), all.steps)
        };
        // The whole AG is searched, from the lowest chunk on.
        let (found, steps) = find(&mut all);
        assert_eq!(found, 700);
        assert!(steps > 700);
        // Chunks that the first search passed are not checked again, until it has checked all.
        all.chunks[500].free = 1;
        assert_eq!(find(&mut all).0, 501, "once, by the search of the whole AG");
        all.chunks[509].free = 1;
        all.chunks[500].free = 0;
        let (found, steps) = find(&mut all);
        assert_eq!(found, 510);
        assert!(steps < 20);
    }

    #[test]
    fn the_newest_chunk_is_tried_before_the_whole_ag() {
        let mut all = list(1000, &[1, 900]);
        let mut find = |parent: Option<u32>| {
            let wanted = ChunkTarget { parent: parent.map(AgIno), newest: Some(AgIno(900 * 64)) };
            start(in_inode_tree(Position(0), &mut all, wanted, &mut None))
        };
        assert_eq!(find(None), 900);
        assert_eq!(find(Some(500 * 64 + 3)), 900);
        assert_eq!(find(Some(2 * 64)), 1);
    }

    proptest! {
        #[test]
        fn any_free_inode_is_found(
            free in proptest::collection::vec(1u32..60, 1..4),
            parent in 0u32..70 * 64,
            rounds in 1usize..8,
        ) {
            let mut memory = None;
            let mut all = list(60, &free);
            for _ in 0..rounds {
                let found = in_inode_tree(Position(0), &mut all, near(parent), &mut memory);
                prop_assert!(free.contains(&start(found)));
            }
            let mut some = list(60, &free);
            some.chunks.retain(|chunk| chunk.free != 0);
            let found = in_free_tree(&mut Position(0), &mut some, near(parent)).unwrap().start.get() / 64;
            let away = |n: &u32| ChunkRecord::whole(AgIno(n * 64)).distance(AgIno(parent));
            prop_assert_eq!(free.iter().map(away).min(), Some(away(&found)));
        }

        #[test]
        fn a_tree_without_free_inodes_is_damage(parent in 0u32..70 * 64, count in 0u32..60) {
            prop_assert!(in_inode_tree(Position(0), &mut list(count, &[]), near(parent), &mut None).is_err());
        }
    }
}
