//! Splitting full leaves and nodes: the upper half moves to a new block on the right, and the parent gets an entry for
//! it. The root stays at its block: its contents move to a new block below it.

use base::FileBlock;
use error::Error;
use format::dabtree::edit as node;
use format::dabtree::{MAX_DEPTH, NodeEntry};

use super::{HashTree, PathBlock, PathNodes, Result, TreePath, last_hash};

/// Adds a leaf on the right of the path's leaf, whose entries have been divided between the two.
pub(crate) fn add_leaf<T: HashTree>(
    tree: &mut T,
    path: &mut TreePath<T::Id>,
    right: PathBlock<T::Id>,
) -> Result<()> {
    let geometry = tree.geometry();
    let left = path.leaf;
    link_right(tree, left, right)?;
    let last = |tree: &T, id| tree.view(id, |bytes| Ok(T::last_leaf_hash(bytes, geometry)?.unwrap_or(0)));
    let (left_last, right_last) = (last(tree, left.id)?, last(tree, right.id)?);
    add_child(tree, &mut path.nodes, left_last, right_last, right.block)
}

/// Inserts a new block into the sibling list, to the right of another.
fn link_right<T: HashTree>(tree: &mut T, left: PathBlock<T::Id>, right: PathBlock<T::Id>) -> Result<()> {
    let next = tree.view(left.id, node::forw)?;
    if let Some(next) = next {
        let next = tree.read_tree_block(next)?;
        tree.edit(next, |block, _| node::set_back(block, Some(right.block)))?;
    }
    tree.edit(right.id, |block, _| {
        node::set_forw(block, next)?;
        node::set_back(block, Some(left.block))
    })?;
    tree.edit(left.id, |block, _| node::set_forw(block, Some(right.block)))
}

/// Adds an entry for `child` to the last of `nodes`, after the child that the path follows, whose highest hash is now
/// `left_last`.
fn add_child<T: HashTree>(
    tree: &mut T,
    nodes: &mut PathNodes<T::Id>,
    left_last: u32,
    last: u32,
    child: FileBlock,
) -> Result<()> {
    let Some((parent, above)) = nodes.split_last() else { return Ok(()) };
    tree.edit(parent.id, |block, _| node::set_hash(block, parent.index, left_last).map(drop))?;
    let shape = tree.view(parent.id, node::NodeShape::of)?;
    let new = tree.view(parent.id, |_| node::entry(last, child))?;
    if shape.count == shape.most {
        return split_node(tree, nodes, new);
    }
    tree.edit(parent.id, |block, _| node::insert(block, parent.index + 1, new))?;
    // Only a change of the last child changes the hashes further up.
    if parent.index + 1 == shape.count { tree.fix_hashes(above, last) } else { Ok(()) }
}

/// Splits the last of `nodes`, which is full, and adds an entry after the child that the path follows.
fn split_node<T: HashTree>(tree: &mut T, nodes: &mut PathNodes<T::Id>, new: NodeEntry) -> Result<()> {
    let right = tree.new_tree_block()?;
    if nodes.len() == 1 {
        push_node_root_down(tree, nodes)?;
    }
    let Some(left) = nodes.pop() else { return Ok(()) };
    let level = tree.view(left.id, node::NodeShape::of)?.level;
    let mut entries = tree.view(left.id, |bytes| Ok(node::entries(bytes)?.to_vec()))?;
    entries.insert((left.index + 1).min(entries.len()), new);
    let (kept, moved) = entries.split_at(entries.len().div_ceil(2));
    put_node(tree, right.id, level, moved)?;
    tree.edit(left.id, |block, _| node::put_entries(block, kept))?;
    link_right(tree, left, right)?;
    add_child(tree, nodes, last_hash(kept), last_hash(moved), right.block)
}

/// Moves a leaf at the root to a new block; the root becomes a node above it. Does nothing if the root is a node.
pub(crate) fn push_leaf_root_down<T: HashTree>(tree: &mut T, path: &mut TreePath<T::Id>) -> Result<()> {
    if !path.nodes.is_empty() {
        return Ok(());
    }
    let root = path.leaf.id;
    let lower = tree.new_tree_block()?;
    let geometry = tree.geometry();
    let entries = tree.view(root, |bytes| T::leaf_entries(bytes, geometry))?;
    put_leaf(tree, lower.id, &entries)?;
    tree.entries_moved(&entries, lower.block);
    let hash = entries.last().map_or(0, T::entry_hash);
    path.nodes.push(make_node_root(tree, root, 1, hash, lower.block)?);
    path.leaf = lower;
    Ok(())
}

/// Moves the node at the root to a new block; the root becomes a node above it.
fn push_node_root_down<T: HashTree>(tree: &mut T, nodes: &mut PathNodes<T::Id>) -> Result<()> {
    let Some(root) = nodes.first().copied() else { return Ok(()) };
    let level = tree.view(root.id, node::NodeShape::of)?.level;
    if level >= MAX_DEPTH {
        return Err(Error::NoSpace { what: "another level of a hash tree" });
    }
    let lower = tree.new_tree_block()?;
    let entries = tree.view(root.id, |bytes| Ok(node::entries(bytes)?.to_vec()))?;
    put_node(tree, lower.id, level, &entries)?;
    nodes.clear();
    nodes.push(make_node_root(tree, root.id, level + 1, last_hash(&entries), lower.block)?);
    nodes.push(PathBlock { index: root.index, ..lower });
    Ok(())
}

/// Makes the root block a node with one child; its old contents are gone.
fn make_node_root<T: HashTree>(
    tree: &mut T,
    root: T::Id,
    level: u16,
    hash: u32,
    child: FileBlock,
) -> Result<PathBlock<T::Id>> {
    let entry = tree.view(root, |_| node::entry(hash, child))?;
    put_node(tree, root, level, &[entry])?;
    Ok(PathBlock { block: tree.root(), id: root, index: 0 })
}

/// Makes a block a node with these entries.
pub(super) fn put_node<T: HashTree>(
    tree: &mut T,
    id: T::Id,
    level: u16,
    entries: &[NodeEntry],
) -> Result<()> {
    let at = tree.identity(id);
    tree.edit(id, |block, geometry| {
        node::init(block, geometry, at, level)?;
        node::put_entries(block, entries)
    })
}

/// Makes a block a leaf with these entries.
pub(crate) fn put_leaf<T: HashTree>(tree: &mut T, id: T::Id, entries: &[T::LeafEntry]) -> Result<()> {
    let at = tree.identity(id);
    tree.edit(id, |block, geometry| {
        T::init_leaf(block, geometry, at)?;
        T::put_leaf(block, geometry, entries)
    })
}
