//! Replay order of the items of one transaction. The log has them in the order in which they joined the transaction;
//! their dependencies follow from their types.
//!
//! | order | items | reason |
//! |---|---|---|
//! | first | buffers, inode creation | inodes are replayed into blocks that these initialise |
//! | second | inodes, quota, intents and done items | they need complete blocks, and the remaining cancellations |
//! | third | buffers of inodes | they set only the unlinked-list pointers, in inodes that must be up to date by then |
//! | last | cancelled buffers | they end the cancellation that applies to the items before them |

use format::log::buffer::flags;
use format::log::item::ItemType;

/// Position of an item in the replay order of its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReplayOrder {
    /// Buffers, inode creation.
    Buffers,
    /// Inodes, quota, intents and done items.
    Items,
    /// Unlinked-list pointers.
    InodeBuffers,
    /// Cancelled buffers.
    Cancelled,
}

/// Columns: item type, required buffer flags, order. The first matching row counts.
pub const TABLE: &[(ItemType, u16, ReplayOrder)] = &[
    (ItemType::Buffer, flags::CANCEL, ReplayOrder::Cancelled),
    (ItemType::Buffer, flags::INODE_BUFFER, ReplayOrder::InodeBuffers),
    (ItemType::Buffer, 0, ReplayOrder::Buffers),
    (ItemType::InodeCreate, 0, ReplayOrder::Buffers),
];

/// The order of an item type; `buffer_flags` is 0 for other items than buffers. Types not in the table are second.
pub fn order_of(kind: ItemType, buffer_flags: u16) -> ReplayOrder {
    TABLE
        .iter()
        .find(|(row, flags, _)| *row == kind && buffer_flags & flags == *flags)
        .map_or(ReplayOrder::Items, |(_, _, place)| *place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_matches_the_documentation() {
        assert_eq!(order_of(ItemType::Buffer, 0), ReplayOrder::Buffers);
        assert_eq!(order_of(ItemType::InodeCreate, 0), ReplayOrder::Buffers);
        assert_eq!(order_of(ItemType::Inode, 0), ReplayOrder::Items);
        assert_eq!(order_of(ItemType::Efd, 0), ReplayOrder::Items);
        assert_eq!(order_of(ItemType::Buffer, flags::INODE_BUFFER), ReplayOrder::InodeBuffers);
        assert_eq!(order_of(ItemType::Buffer, flags::INODE_BUFFER | flags::CANCEL), ReplayOrder::Cancelled);
        assert!(ReplayOrder::Buffers < ReplayOrder::Items && ReplayOrder::Items < ReplayOrder::InodeBuffers);
        assert!(ReplayOrder::InodeBuffers < ReplayOrder::Cancelled);
    }
}
