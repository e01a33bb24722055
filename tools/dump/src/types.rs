//! Types of structures, with their names and magic numbers.

/// Type of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Superblock.
    Superblock,
    /// AGF.
    Agf,
    /// AGI.
    Agi,
    /// AGFL.
    Agfl,
    /// Block of the btree of free space by block.
    Bnobt,
    /// Block of the btree of free space by size.
    Cntbt,
    /// Block of the inode btree.
    Inobt,
    /// Block of the free inode btree.
    Finobt,
    /// Block of the reverse mapping btree.
    Rmapbt,
    /// Block of the reference count btree.
    Refcountbt,
    /// Block of a bmap btree.
    Bmbt,
    /// Inode.
    Inode,
    /// Directory block.
    Dir,
    /// Block of extended attributes.
    Attr,
    /// Block of a symlink target.
    Symlink,
    /// Quota record.
    Dquot,
    /// Record header of the log.
    Log,
    /// Any bytes.
    Raw,
}

/// Name and magic numbers of a type.
#[derive(Clone, Copy, Debug)]
pub struct TypeInfo {
    /// The type.
    pub kind: Type,
    /// Name on the command line and in JSON.
    pub name: &'static str,
    /// Magic numbers with their offsets.
    pub magics: &'static [(usize, &'static [u8])],
}

macro_rules! types {
    ($($kind:ident $name:literal [$($at:literal: $magic:expr),*];)*) => {
        /// All types.
        pub const ALL: &[TypeInfo] = &[$(
            TypeInfo { kind: Type::$kind, name: $name, magics: &[$(($at, $magic)),*] },
        )*];
    };
}

types! {
    Superblock "sb" [0: b"XFSB"];
    Agf "agf" [0: b"XAGF"];
    Agi "agi" [0: b"XAGI"];
    Agfl "agfl" [0: b"XAFL"];
    Bnobt "bnobt" [0: b"AB3B"];
    Cntbt "cntbt" [0: b"AB3C"];
    Inobt "inobt" [0: b"IAB3"];
    Finobt "finobt" [0: b"FIB3"];
    Rmapbt "rmapbt" [0: b"RMB3"];
    Refcountbt "refcountbt" [0: b"R3FC"];
    Bmbt "bmbt" [0: b"BMA3"];
    Inode "inode" [0: b"IN"];
    Dir "dir" [0: b"XDB3", 0: b"XDD3", 0: b"XDF3", 8: &[0x3d, 0xf1], 8: &[0x3d, 0xff], 8: &[0x3e, 0xbe]];
    Attr "attr" [8: &[0x3b, 0xee], 0: b"XARM"];
    Symlink "symlink" [0: b"XSLM"];
    Dquot "dquot" [0: b"DQ"];
    Log "log" [0: &[0xfe, 0xed, 0xba, 0xbe]];
    Raw "raw" [];
}

impl Type {
    /// The type of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        ALL.iter().find(|info| info.name == name).map(|info| info.kind)
    }

    /// Detects the type by the magic number; [`Type::Raw`] if it is unknown.
    pub fn detect(bytes: &[u8]) -> Self {
        let has = |(at, magic): &(usize, &[u8])| bytes.get(*at..).is_some_and(|rest| rest.starts_with(magic));
        ALL.iter().find(|info| info.magics.iter().any(has)).map_or(Self::Raw, |info| info.kind)
    }

    /// Name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        ALL.iter().find(|info| info.kind == self).map_or("raw", |info| info.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_found_by_its_name_and_by_its_magics() {
        for info in ALL {
            assert_eq!(Type::from_name(info.name), Some(info.kind));
            assert_eq!(info.kind.name(), info.name);
            for (at, magic) in info.magics {
                let mut bytes = vec![0; 64];
                bytes[*at..at + magic.len()].copy_from_slice(magic);
                assert_eq!(Type::detect(&bytes), info.kind, "{}", info.name);
            }
        }
        assert_eq!(Type::detect(b""), Type::Raw);
        assert_eq!(Type::from_name("nothing"), None);
    }
}
