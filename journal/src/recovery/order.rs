//! In which order the items of one transaction are replayed. They lie in the log in the order in which they joined the
//! transaction; what depends on what is told by their type.
//!
//! | place | items | because |
//! |---|---|---|
//! | first | buffers, inode creation | inodes are replayed into blocks that these bring to life |
//! | second | inodes, quota, intents and their done items | they stand on whole blocks, and may rely on cancellations still known |
//! | third | buffers of inodes | they set only the links of unlinked inodes, in inodes that must be up to date by then |
//! | last | cancelled buffers | they end the cancellation that the items before were judged by |

use format::log::buffer::flags;
use format::log::item::ItemType;

/// When an item's turn comes within its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReplayOrder {
    /// Buffers, inode creation.
    Buffers,
    /// Inodes, quota, intents and their done items.
    Items,
    /// Links of unlinked inodes.
    InodeBuffers,
    /// Cancelled buffers.
    Cancelled,
}

/// A row: the type, the flags that a buffer must have for it, and the place. The first that fits counts.
pub const TABLE: &[(ItemType, u16, ReplayOrder)] = &[
    (ItemType::Buffer, flags::CANCEL, ReplayOrder::Cancelled),
    (ItemType::Buffer, flags::INODE_BUFFER, ReplayOrder::InodeBuffers),
    (ItemType::Buffer, 0, ReplayOrder::Buffers),
    (ItemType::InodeCreate, 0, ReplayOrder::Buffers),
];

/// The place of an item of this type; `buffer_flags` are 0 for all but buffers. What the table does not name is second.
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
    fn the_table_says_what_the_prose_says() {
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
