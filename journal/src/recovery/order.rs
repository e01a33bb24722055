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
pub enum Place {
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
pub const TABLE: &[(ItemType, u16, Place)] = &[
    (ItemType::Buffer, flags::CANCEL, Place::Cancelled),
    (ItemType::Buffer, flags::INODE_BUFFER, Place::InodeBuffers),
    (ItemType::Buffer, 0, Place::Buffers),
    (ItemType::InodeCreate, 0, Place::Buffers),
];

/// The place of an item of this type; `buffer_flags` are 0 for all but buffers. What the table does not name is second.
pub fn place(kind: ItemType, buffer_flags: u16) -> Place {
    TABLE
        .iter()
        .find(|(row, flags, _)| *row == kind && buffer_flags & flags == *flags)
        .map_or(Place::Items, |(_, _, place)| *place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_what_the_prose_says() {
        assert_eq!(place(ItemType::Buffer, 0), Place::Buffers);
        assert_eq!(place(ItemType::InodeCreate, 0), Place::Buffers);
        assert_eq!(place(ItemType::Inode, 0), Place::Items);
        assert_eq!(place(ItemType::Efd, 0), Place::Items);
        assert_eq!(place(ItemType::Buffer, flags::INODE_BUFFER), Place::InodeBuffers);
        assert_eq!(place(ItemType::Buffer, flags::INODE_BUFFER | flags::CANCEL), Place::Cancelled);
        assert!(Place::Buffers < Place::Items && Place::Items < Place::InodeBuffers);
        assert!(Place::InodeBuffers < Place::Cancelled);
    }
}
