//! The folios of one file by index. Some are marked.
//!
//! # Invariants
//! - The last slot of a node is occupied; an empty node is not in the map.
//! - A marked slot has a folio; a word without marks is not in the map.

use std::collections::BTreeMap;

/// Base-2 logarithm of the slots of a node: 4 MiB of a file. The marks of a node are one word.
const NODE_LOG: u32 = 6;

/// Slots without the empty ones at the end.
type Node<T> = Vec<Option<T>>;

/// See the module. Most files have only the first node, and no map.
#[derive(Debug)]
pub(crate) struct Index<T> {
    first: Node<T>,
    rest: BTreeMap<u64, Node<T>>,
    marks: Marks,
}

/// A bit for each marked slot, in a word for each node.
#[derive(Debug, Default)]
struct Marks {
    first: u64,
    rest: BTreeMap<u64, u64>,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self { first: Node::new(), rest: BTreeMap::new(), marks: Marks::default() }
    }
}

impl Marks {
    fn set(&mut self, at: u64) {
        let (node, slot) = split(at);
        *(if node == 0 { &mut self.first } else { self.rest.entry(node).or_default() }) |= 1 << slot;
    }

    fn clear(&mut self, at: u64) {
        let (node, slot) = split(at);
        if node == 0 {
            self.first &= !(1 << slot);
        } else if let Some(word) = self.rest.get_mut(&node) {
            *word &= !(1 << slot);
            if *word == 0 {
                self.rest.remove(&node);
            }
        }
    }

    /// Returns the first marked slot at or after `from`.
    #[inline]
    fn next(&self, from: u64) -> Option<u64> {
        let (node, slot) = split(from);
        let word = if node == 0 { self.first } else { self.rest.get(&node).copied().unwrap_or(0) };
        let word = word & (u64::MAX << slot);
        let (node, word) = if word != 0 {
            (node, word)
        } else {
            let (node, word) = self.rest.range(node.checked_add(1)?..).next()?;
            (*node, *word)
        };
        Some(node << NODE_LOG | u64::from(word.trailing_zeros()))
    }
}

/// Returns the node of a slot, and its index in the node.
fn split(at: u64) -> (u64, usize) {
    (at >> NODE_LOG, (at & ((1 << NODE_LOG) - 1)) as usize)
}

impl<T> Index<T> {
    fn node(&self, node: u64) -> Option<&Node<T>> {
        if node == 0 { Some(&self.first) } else { self.rest.get(&node) }
    }

    /// Returns the value of a slot.
    #[inline]
    pub fn get(&self, at: u64) -> Option<&T> {
        let (node, slot) = split(at);
        self.node(node)?.get(slot)?.as_ref()
    }

    /// Returns the value of a slot. Fills the slot if it is empty.
    pub fn get_or_insert(&mut self, at: u64, make: impl FnOnce() -> T) -> &T {
        let (node, slot) = split(at);
        let node = if node == 0 { &mut self.first } else { self.rest.entry(node).or_default() };
        if node.len() <= slot {
            node.resize_with(slot + 1, || None);
        }
        let Some(place) = node.get_mut(slot) else { unreachable!("the node was made long enough") };
        place.get_or_insert_with(make)
    }

    /// Marks an occupied slot.
    pub fn mark(&mut self, at: u64) {
        self.marks.set(at);
    }

    /// Removes the mark of a slot.
    pub fn unmark(&mut self, at: u64) {
        self.marks.clear(at);
    }

    /// Returns the first marked value at or after a slot.
    pub fn next_marked(&self, from: u64) -> Option<&T> {
        self.get(self.marks.next(from)?)
    }

    /// Removes the value of a slot, and its mark.
    pub fn remove(&mut self, at: u64) {
        self.marks.clear(at);
        let (number, slot) = split(at);
        let node = if number == 0 { Some(&mut self.first) } else { self.rest.get_mut(&number) };
        let Some(node) = node else { return };
        if let Some(slot) = node.get_mut(slot) {
            *slot = None;
        }
        while node.pop_if(|last| last.is_none()).is_some() {}
        if node.is_empty() {
            self.rest.remove(&number);
        }
    }

    /// Returns the first value at or after a slot.
    pub fn next(&self, from: u64) -> Option<&T> {
        let (number, slot) = split(from);
        let within =
            |node: &'_ Node<T>, slot| node.iter().skip(slot).position(Option::is_some).map(|at| at + slot);
        if let Some(node) = self.node(number)
            && let Some(at) = within(node, slot)
        {
            return node.get(at)?.as_ref();
        }
        let (_, node) = self.rest.range(number + 1..).next()?;
        node.iter().find_map(Option::as_ref)
    }

    /// Returns all values in order.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        self.first.into_iter().chain(self.rest.into_values().flatten()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::tests::Dice;

    /// Against the map that it stands for.
    #[test]
    fn it_is_a_map() {
        for seed in 0..20 {
            let mut dice = Dice::new(seed);
            let (mut index, mut model) = (Index::default(), BTreeMap::new());
            let mut marked = BTreeSet::new();
            for step in 0..2000 {
                let spread = [4, 70, 1000, u64::MAX][dice.next(4) as usize];
                let at = dice.next(spread);
                match dice.next(6) {
                    0 | 1 => {
                        let made = *index.get_or_insert(at, || step);
                        assert_eq!(made, *model.entry(at).or_insert(step));
                    }
                    2 => {
                        // Something that is there.
                        let at = model.range(at..).next().map_or(at, |(at, _)| *at);
                        index.remove(at);
                        model.remove(&at);
                        marked.remove(&at);
                    }
                    3 => {
                        if let Some((at, _)) = model.range(at..).next() {
                            index.mark(*at);
                            marked.insert(*at);
                        }
                    }
                    4 => {
                        let at = marked.range(at..).next().copied().unwrap_or(at);
                        index.unmark(at);
                        marked.remove(&at);
                    }
                    _ => {
                        assert_eq!(index.get(at), model.get(&at));
                        assert_eq!(index.next(at), model.range(at..).next().map(|(_, value)| value));
                        assert_eq!(index.next_marked(at), marked.range(at..).next().map(|at| &model[at]));
                    }
                }
                assert!(index.first.last().is_none_or(Option::is_some));
                assert!(index.rest.values().all(|node| node.last().is_some_and(Option::is_some)));
                assert!(index.marks.rest.values().all(|word| *word != 0));
            }
            assert!(index.into_values().eq(model.into_values()));
        }
    }
}
