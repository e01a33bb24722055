//! Feature bits: names, and the sets that Xebec supports.
//!
//! The compat, ro-compat and incompat words are described in the superblock chapter of the format document; bits since
//! 2018 are defined in the kernel's `xfs_format.h`.

/// The feature words of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Features {
    /// `versionnum` of the superblock: version and old feature bits.
    pub version: u16,
    /// `features2`.
    pub features2: u32,
    /// Compatible features: unknown bits are ignored.
    pub compat: u32,
    /// Read-only compatible features: unknown bits allow reading only.
    pub ro_compat: u32,
    /// Incompatible features: unknown bits forbid any access.
    pub incompat: u32,
    /// Log-incompatible features: set only while the log holds such items.
    pub log_incompat: u32,
}

/// A bit with its name in `mkfs.xfs` and the kernel.
pub type NamedBit = (u32, &'static str);

macro_rules! bits {
    ($($(#[$doc:meta])* $name:ident = $bit:expr, $text:literal;)*) => {
        $( $(#[$doc])* pub const $name: u32 = 1 << $bit; )*
        /// Every known bit with its name.
        pub const ALL: &[super::NamedBit] = &[$(($name, $text)),*];
    };
}

/// `features_ro_compat`.
pub mod ro_compat {
    bits! {
        /// Free inode B+tree.
        FINOBT = 0, "finobt";
        /// Reverse-mapping B+tree.
        RMAPBT = 1, "rmapbt";
        /// Reference-count B+tree and shared extents.
        REFLINK = 2, "reflink";
        /// The AGI counts the blocks of both inode B+trees.
        INOBTCOUNT = 3, "inobtcount";
    }
}

/// `features_incompat`.
pub mod incompat {
    bits! {
        /// Directory entries carry the file type.
        FTYPE = 0, "ftype";
        /// Sparse inode chunks.
        SPARSE_INODES = 1, "sparse";
        /// Metadata carries `meta_uuid`, not `uuid`.
        META_UUID = 2, "meta_uuid";
        /// Timestamps as nanoseconds since December 1901.
        BIGTIME = 3, "bigtime";
        /// The volume may be inconsistent; only repair may modify it.
        NEEDSREPAIR = 4, "needsrepair";
        /// 64-bit extent counters.
        NREXT64 = 5, "nrext64";
        /// Exchange of file ranges is logged with intents.
        EXCHANGE = 6, "exchange";
        /// Parent pointers in extended attributes.
        PARENT = 7, "parent";
        /// Metadata inodes are in a metadata directory tree.
        METADIR = 8, "metadir";
        /// A zoned realtime device.
        ZONED = 9, "zoned";
        /// Zones with unusable capacity at their end.
        ZONE_GAPS = 10, "zone-gaps";
    }
}

/// `features_log_incompat`.
pub mod log_incompat {
    bits! {
        /// The log holds extended-attribute intents.
        XATTRS = 0, "logged xattrs";
    }
}

/// Bits of `versionnum` above the version number.
pub mod version {
    /// The version number itself.
    pub const NUMBER_MASK: u16 = 0x000f;
    /// Extended attributes were once used.
    pub const ATTR: u16 = 0x0010;
    /// 32-bit link counts.
    pub const NLINK: u16 = 0x0020;
    /// Quota was once used.
    pub const QUOTA: u16 = 0x0040;
    /// Inode chunks are aligned.
    pub const ALIGN: u16 = 0x0080;
    /// A stripe unit is set.
    pub const DALIGN: u16 = 0x0100;
    /// Second version of the log.
    pub const LOGV2: u16 = 0x0400;
    /// Sectors larger than 512 bytes.
    pub const SECTOR: u16 = 0x0800;
    /// Unwritten extents.
    pub const EXTFLG: u16 = 0x1000;
    /// Second version of directories.
    pub const DIRV2: u16 = 0x2000;
    /// ASCII case-insensitive names.
    pub const ASCII_CI: u16 = 0x4000;
    /// `features2` is valid.
    pub const MOREBITS: u16 = 0x8000;
}

/// Bits of `features2`.
pub mod features2 {
    /// The superblock's free counters are exact only after a clean unmount.
    pub const LAZYSBCOUNT: u32 = 0x2;
    /// Attribute fork offset is variable.
    pub const ATTR2: u32 = 0x8;
    /// 32-bit project ids.
    pub const PROJID32: u32 = 0x80;
    /// Metadata checksums: version 5.
    pub const CRC: u32 = 0x100;
    /// Directory entry file types on version 4.
    pub const FTYPE: u32 = 0x200;
}

/// Incompat bits that Xebec can read. ZONED and ZONE_GAPS imply a realtime device.
pub const INCOMPAT_READ: u32 = incompat::FTYPE
    | incompat::SPARSE_INODES
    | incompat::META_UUID
    | incompat::BIGTIME
    | incompat::NREXT64
    | incompat::EXCHANGE
    | incompat::PARENT
    | incompat::METADIR;

/// Supported ro-compat bits; others open the volume read-only.
pub const RO_COMPAT_KNOWN: u32 =
    ro_compat::FINOBT | ro_compat::RMAPBT | ro_compat::REFLINK | ro_compat::INOBTCOUNT;

/// Log-incompat bits that recovery supports.
pub const LOG_INCOMPAT_KNOWN: u32 = log_incompat::XATTRS;

/// Lists the bits of a word by name, unknown ones by number.
pub fn names(word: u32, known: &[NamedBit]) -> String {
    let mut list: Vec<String> =
        known.iter().filter(|(bit, _)| word & bit != 0).map(|(_, name)| (*name).to_string()).collect();
    let unknown = known.iter().fold(word, |rest, (bit, _)| rest & !bit);
    list.extend((0..32).filter(|n| unknown & (1 << n) != 0).map(|n| format!("unknown bit {n}")));
    list.join(", ")
}

macro_rules! has {
    ($($(#[$doc:meta])* $name:ident: $word:ident & $bit:expr;)*) => {
        impl Features {
            $( $(#[$doc])* pub const fn $name(&self) -> bool { self.$word & $bit != 0 } )*
        }
    };
}

has! {
    /// Directory entries carry the file type.
    ftype: incompat & incompat::FTYPE;
    /// Sparse inode chunks.
    sparse_inodes: incompat & incompat::SPARSE_INODES;
    /// Metadata is stamped with `meta_uuid`.
    meta_uuid: incompat & incompat::META_UUID;
    /// Inodes may have bigtime timestamps.
    bigtime: incompat & incompat::BIGTIME;
    /// Only repair may touch the volume.
    needsrepair: incompat & incompat::NEEDSREPAIR;
    /// Inodes may have 64-bit extent counters.
    nrext64: incompat & incompat::NREXT64;
    /// Range exchange.
    exchange: incompat & incompat::EXCHANGE;
    /// Parent pointers.
    parent: incompat & incompat::PARENT;
    /// Metadata directory tree.
    metadir: incompat & incompat::METADIR;
    /// Free inode B+tree.
    finobt: ro_compat & ro_compat::FINOBT;
    /// Reverse-mapping B+tree.
    rmapbt: ro_compat & ro_compat::RMAPBT;
    /// Reference-count B+tree.
    reflink: ro_compat & ro_compat::REFLINK;
    /// The AGI counts inode B+tree blocks.
    inobtcount: ro_compat & ro_compat::INOBTCOUNT;
    /// Case-insensitive names.
    ascii_ci: version & version::ASCII_CI;
    /// Lazily kept superblock counters.
    lazysbcount: features2 & features2::LAZYSBCOUNT;
    /// 32-bit project ids.
    projid32: features2 & features2::PROJID32;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_bits_are_named_by_number() {
        let word = incompat::FTYPE | incompat::PARENT | 1 << 29;
        assert_eq!(names(word, incompat::ALL), "ftype, parent, unknown bit 29");
        assert_eq!(names(0, incompat::ALL), "");
    }
}
