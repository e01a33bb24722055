//! Every kind of structure that can be shown: its name on the command line, and how its bytes are recognised.

/// A kind of structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Superblock.
    Superblock,
    /// Free-space header of an AG.
    Agf,
    /// Inode header of an AG.
    Agi,
    /// Free list of an AG.
    Agfl,
    /// Block of the tree of free space by block.
    Bnobt,
    /// Block of the tree of free space by size.
    Cntbt,
    /// Block of the inode tree.
    Inobt,
    /// Block of the free inode tree.
    Finobt,
    /// Block of the reverse-mapping tree.
    Rmapbt,
    /// Block of the reference-count tree.
    Refcountbt,
    /// Block of a fork's tree of extents.
    Bmbt,
    /// Inode.
    Inode,
    /// Block of a directory.
    Dir,
    /// Block of extended attributes.
    Attr,
    /// Block of a symbolic link's target.
    Symlink,
    /// Quota record of one user, group or project.
    Dquot,
    /// Record header of the log.
    Log,
    /// Any bytes.
    Raw,
}

/// What is known of a kind of structure.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The kind.
    pub kind: Type,
    /// Its name on the command line and in JSON.
    pub name: &'static str,
    /// What it is, in a few words.
    pub words: &'static str,
    /// The magic numbers by which it is recognised, each with its offset.
    pub magics: &'static [(usize, &'static [u8])],
}

macro_rules! types {
    ($($kind:ident $name:literal $words:literal [$($at:literal: $magic:expr),*];)*) => {
        /// Every kind, in the order in which help lists them.
        pub const ALL: &[Description] = &[$(
            Description { kind: Type::$kind, name: $name, words: $words, magics: &[$(($at, $magic)),*] },
        )*];
    };
}

types! {
    Superblock "sb" "superblock" [0: b"XFSB"];
    Agf "agf" "free-space header of an AG" [0: b"XAGF"];
    Agi "agi" "inode header of an AG" [0: b"XAGI"];
    Agfl "agfl" "free list of an AG" [0: b"XAFL"];
    Bnobt "bnobt" "block of the free-space tree by block" [0: b"AB3B"];
    Cntbt "cntbt" "block of the free-space tree by size" [0: b"AB3C"];
    Inobt "inobt" "block of the inode tree" [0: b"IAB3"];
    Finobt "finobt" "block of the free inode tree" [0: b"FIB3"];
    Rmapbt "rmapbt" "block of the reverse-mapping tree" [0: b"RMB3"];
    Refcountbt "refcountbt" "block of the reference-count tree" [0: b"R3FC"];
    Bmbt "bmbt" "block of a fork's extent tree" [0: b"BMA3"];
    Inode "inode" "inode" [0: b"IN"];
    Dir "dir" "block of a directory"
        [0: b"XDB3", 0: b"XDD3", 0: b"XDF3", 8: &[0x3d, 0xf1], 8: &[0x3d, 0xff], 8: &[0x3e, 0xbe]];
    Attr "attr" "block of extended attributes" [8: &[0x3b, 0xee], 0: b"XARM"];
    Symlink "symlink" "block of a symbolic link's target" [0: b"XSLM"];
    Dquot "dquot" "quota record" [0: b"DQ"];
    Log "log" "record header of the log" [0: &[0xfe, 0xed, 0xba, 0xbe]];
    Raw "raw" "any bytes" [];
}

impl Type {
    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        ALL.iter().find(|description| description.name == name).map(|description| description.kind)
    }

    /// Recognises bytes by their magic number; [`Type::Raw`] where none fits.
    pub fn detect(bytes: &[u8]) -> Self {
        let has = |(at, magic): &(usize, &[u8])| bytes.get(*at..).is_some_and(|rest| rest.starts_with(magic));
        // The first kinds have their magic at the very start: a longer match is never shadowed by a shorter one.
        ALL.iter()
            .find(|description| description.magics.iter().any(has))
            .map_or(Self::Raw, |found| found.kind)
    }

    /// Its name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        ALL.iter().find(|description| description.kind == self).map_or("raw", |description| description.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_name_and_by_its_magics() {
        for description in ALL {
            assert_eq!(Type::from_name(description.name), Some(description.kind));
            assert_eq!(description.kind.name(), description.name);
            for (at, magic) in description.magics {
                let mut bytes = vec![0; 64];
                bytes[*at..at + magic.len()].copy_from_slice(magic);
                assert_eq!(Type::detect(&bytes), description.kind, "{}", description.name);
            }
        }
        assert_eq!(Type::detect(b""), Type::Raw);
        assert_eq!(Type::from_name("nothing"), None);
    }
}
