//! Joining small leaves and nodes with a sibling under the same parent, and collapsing a root with one child.
//!
//! A block is joined if it is less than 3/8 full and the joined block would be at most 3/4 full, so that the next
//! insertion does not split it again. The block at the lower address stays, which keeps the fork compact.

use base::FileBlock;
use error::Error;
use format::Damage;
use format::dabtree::NodeEntry;
use format::dabtree::edit as node;

use super::split::{put_leaf, put_node};
use super::{HashTree, PathBlock, Result, TreePath, last_hash};

/// The entries of a leaf, without stale ones, or of a node.
enum TreeEntries<L> {
    Leaf(Vec<L>),
    Node(Vec<NodeEntry>),
}

/// Joins a leaf from which an entry was removed, if it has become small; then the nodes above it.
pub(crate) fn join_leaf<T: HashTree>(tree: &mut T, path: TreePath<T::Id>) -> Result<()> {
    let TreePath { mut nodes, leaf: mut child } = path;
    while !nodes.is_empty() {
        let (used, capacity) = fill(tree, child.id)?;
        if used * 8 >= capacity * 3 || !join(tree, &mut nodes, child)? {
            break;
        }
        match nodes.pop() {
            Some(parent) => child = parent,
            None => break,
        }
    }
    collapse_root(tree)
}

/// Used and total capacity of a block: of a node in entries, of a leaf in its own unit.
fn fill<T: HashTree>(tree: &T, id: T::Id) -> Result<(usize, usize)> {
    let geometry = tree.geometry();
    if tree.is_node(id) {
        let shape = tree.view(id, node::NodeShape::of)?;
        return Ok((shape.count, shape.most));
    }
    tree.view(id, |bytes| T::leaf_fill(bytes, geometry))
}

fn entries<T: HashTree>(tree: &T, id: T::Id) -> Result<TreeEntries<T::LeafEntry>> {
    let geometry = tree.geometry();
    if tree.is_node(id) {
        return tree.view(id, |bytes| Ok(TreeEntries::Node(node::entries(bytes)?.to_vec())));
    }
    tree.view(id, |bytes| Ok(TreeEntries::Leaf(T::leaf_entries(bytes, geometry)?)))
}

/// Joins a small child of the last of `nodes` with a sibling, or frees it if it is empty. Returns `false` where nothing
/// changed. The last of `nodes` then points to the joined block.
fn join<T: HashTree>(tree: &mut T, nodes: &mut [PathBlock<T::Id>], child: PathBlock<T::Id>) -> Result<bool> {
    let Some(parent) = nodes.last().copied() else { return Ok(false) };
    let siblings = tree.view(parent.id, |bytes| {
        let entries = node::entries(bytes)?;
        let at = |index: Option<usize>| index.and_then(|index| Some((index, entries.get(index)?.child())));
        Ok([at(parent.index.checked_sub(1)), at(Some(parent.index + 1))])
    })?;
    let own = PathBlock { index: parent.index, ..child };
    let used = fill(tree, child.id)?.0;
    if used == 0 {
        return remove_empty_child(tree, nodes, own);
    }
    let mut candidates: Vec<(usize, FileBlock)> = siblings.into_iter().flatten().collect();
    candidates.sort_by_key(|(_, block)| *block);
    for (index, block) in candidates {
        let id = tree.read_tree_block(block)?;
        if id == child.id {
            let damage = Damage::new("hash tree node", "before", "each child once", block);
            return Err(tree.damaged_at(parent.id, damage));
        }
        let (other, capacity) = fill(tree, id)?;
        if (used + other) * 4 > capacity * 3 {
            continue;
        }
        let sibling = PathBlock { block, id, index };
        let (left, right) = if index < own.index { (sibling, own) } else { (own, sibling) };
        return merge(tree, nodes, left, right);
    }
    Ok(false)
}

/// Joins two siblings.
fn merge<T: HashTree>(
    tree: &mut T,
    nodes: &mut [PathBlock<T::Id>],
    left: PathBlock<T::Id>,
    right: PathBlock<T::Id>,
) -> Result<bool> {
    let (kept, dropped) = if left.block < right.block { (left, right) } else { (right, left) };
    if !tree.can_free_tree_block(dropped.block, 0)? {
        return Ok(false);
    }
    let last = match (entries(tree, left.id)?, entries(tree, right.id)?) {
        (TreeEntries::Leaf(mut all), TreeEntries::Leaf(more)) => {
            all.extend(more);
            tree.edit(kept.id, |block, geometry| T::put_leaf(block, geometry, &all))?;
            tree.entries_moved(&all, kept.block);
            all.last().map(T::entry_hash)
        }
        (TreeEntries::Node(mut all), TreeEntries::Node(more)) => {
            all.extend(more);
            tree.edit(kept.id, |block, _| node::put_entries(block, &all))?;
            Some(last_hash(&all))
        }
        _ => {
            let damage = Damage::new("hash tree node", "before", "children of one kind", right.block);
            return Err(tree.damaged_at(left.id, damage));
        }
    };
    unlink(tree, nodes, dropped)?;
    if let Some(parent) = nodes.last_mut() {
        parent.index = if dropped.index < kept.index { kept.index - 1 } else { kept.index };
    }
    if let Some(hash) = last {
        tree.fix_hashes(nodes, hash)?;
        fix_parent_hashes(tree, nodes)?;
    }
    Ok(true)
}

/// Frees a child without entries; the nodes that it leaves without children follow. Returns `false` where it stays: it
/// holds the last leaf of the tree, or not all of these blocks can be freed.
fn remove_empty_child<T: HashTree>(
    tree: &mut T,
    nodes: &[PathBlock<T::Id>],
    dropped: PathBlock<T::Id>,
) -> Result<bool> {
    let (mut emptied, mut can_free) = (dropped.block, true);
    for (earlier, step) in nodes.iter().rev().enumerate() {
        can_free &= tree.can_free_tree_block(emptied, earlier)?;
        if tree.view(step.id, node::NodeShape::of)?.count == 1 {
            emptied = step.block;
            continue;
        }
        if !can_free {
            let may_stay = T::KEEPS_EMPTY_LEAVES && !tree.is_node(dropped.id);
            return if may_stay {
                Ok(false)
            } else {
                Err(Error::NoSpace { what: "freeing a block of a hash tree" })
            };
        }
        unlink(tree, nodes, dropped)?;
        fix_parent_hashes(tree, nodes)?;
        return Ok(true);
    }
    Ok(false)
}

/// Removes a child from its parent and from the sibling list, and frees it.
fn unlink<T: HashTree>(
    tree: &mut T,
    nodes: &[PathBlock<T::Id>],
    PathBlock { block, id, index }: PathBlock<T::Id>,
) -> Result<()> {
    let (back, forw) = tree.view(id, |bytes| Ok((node::back(bytes)?, node::forw(bytes)?)))?;
    if let Some(left) = back {
        let left = tree.read_tree_block(left)?;
        tree.edit(left, |block, _| node::set_forw(block, forw))?;
    }
    if let Some(right) = forw {
        let right = tree.read_tree_block(right)?;
        tree.edit(right, |block, _| node::set_back(block, back))?;
    }
    if let Some(parent) = nodes.last() {
        tree.edit(parent.id, |block, _| node::remove(block, index))?;
    }
    tree.free_tree_block(block, id)
}

/// Updates the hashes above the last of `nodes`, after its last child has changed or gone.
fn fix_parent_hashes<T: HashTree>(tree: &mut T, nodes: &[PathBlock<T::Id>]) -> Result<()> {
    let Some((parent, above)) = nodes.split_last() else { return Ok(()) };
    let last =
        tree.view(parent.id, |bytes| Ok(node::entries(bytes)?.last().map(|last| last.hashval.get())))?;
    last.map_or(Ok(()), |hash| tree.fix_hashes(above, hash))
}

/// While the root is a node with one child, moves the child's contents into the root.
fn collapse_root<T: HashTree>(tree: &mut T) -> Result<()> {
    let block = tree.root();
    loop {
        let root = tree.read_tree_block(block)?;
        if !tree.is_node(root) {
            return Ok(());
        }
        let only = tree.view(root, |bytes| match node::entries(bytes)? {
            [only] => Ok(Some(only.child())),
            _ => Ok(None),
        })?;
        let Some(lower) = only else { return Ok(()) };
        let id = tree.read_tree_block(lower)?;
        let above = tree.view(root, node::NodeShape::of)?.level;
        let level = if tree.is_node(id) { tree.view(id, node::NodeShape::of)?.level } else { 0 };
        if id == root || level + 1 != above {
            let damage = Damage::new("hash tree node", "level", above.saturating_sub(1), level);
            return Err(tree.damaged_at(id, damage));
        }
        if !tree.can_free_tree_block(lower, 0)? {
            return Ok(());
        }
        match entries(tree, id)? {
            TreeEntries::Leaf(entries) => {
                put_leaf(tree, root, &entries)?;
                tree.entries_moved(&entries, block);
            }
            TreeEntries::Node(entries) => put_node(tree, root, level, &entries)?,
        }
        tree.free_tree_block(lower, id)?;
    }
}
