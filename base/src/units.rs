//! Unit types: transparent wrappers of integers; [`get`](AgNumber::get) and `From` convert.

use std::fmt;

macro_rules! unit {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The integer.
            #[inline]
            pub const fn get(self) -> $inner {
                self.0
            }

            /// Adds `count`; `None` on overflow.
            #[inline]
            pub fn checked_add(self, count: $inner) -> Option<Self> {
                self.0.checked_add(count).map(Self)
            }
        }

        impl From<$inner> for $name {
            #[inline]
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    )*};
}

unit! {
    /// Number of an allocation group.
    AgNumber(u32);
    /// A block within one allocation group, counted from the group's start.
    AgBlock(u32);
    /// A block of the volume in packed form: AG number in the upper bits, AG block in the lower. Not a linear block
    /// number.
    FsBlock(u64);
    /// An inode within one allocation group.
    AgIno(u32);
    /// An inode of the volume in packed form: AG number in the upper bits, AG inode in the lower.
    Ino(u64);
    /// A logical block of a file (`xfs_fileoff_t`), in file system blocks.
    FileBlock(u64);
    /// A disk address in 512-byte units (`xfs_daddr_t`), linear from the start of the data device.
    Daddr(u64);
    /// A log sequence number: cycle in the upper half, 512-byte log block in the lower.
    Lsn(u64);
}

impl Daddr {
    /// Byte offset on the data device; `None` on overflow.
    pub fn checked_bytes(self) -> Option<u64> {
        self.0.checked_mul(512)
    }
}

impl Lsn {
    /// Builds a sequence number.
    pub const fn new(cycle: u32, block: u32) -> Self {
        Self((cycle as u64) << 32 | block as u64)
    }

    /// Cycle: the number of times the log has wrapped, counted from 1.
    pub const fn cycle(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The 512-byte block of the log.
    pub const fn block(self) -> u32 {
        self.0 as u32
    }
}
