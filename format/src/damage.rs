//! What a verifier says when bytes are not what they must be, and how a place on the volume is written.

use std::fmt;

use base::{AgBlock, AgNumber, Daddr, FileBlock, Ino};

/// One thing that is wrong with one structure: which field, what it should hold, what it holds.
///
/// Where it lies is not known to a verifier; whoever read the bytes adds a [`Place`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage(Box<Parts>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parts {
    structure: &'static str,
    field: &'static str,
    expected: String,
    found: String,
}

impl Damage {
    /// `field` of `structure` should be `expected` and is `found`.
    #[cold]
    pub fn new(
        structure: &'static str,
        field: &'static str,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Self {
        Self(Box::new(Parts { structure, field, expected: expected.to_string(), found: found.to_string() }))
    }

    /// The structure is cut short: `have` bytes where `need` are needed.
    #[cold]
    pub fn short(structure: &'static str, need: usize, have: usize) -> Self {
        Self::new(structure, "length", format_args!("at least {need} bytes"), format_args!("{have} bytes"))
    }

    /// The structure's name in the format document's words.
    pub fn structure(&self) -> &'static str {
        self.0.structure
    }

    /// The field's name, without the structure's prefix.
    pub fn field(&self) -> &'static str {
        self.0.field
    }

    /// What the field should hold.
    pub fn expected(&self) -> &str {
        &self.0.expected
    }

    /// What it holds.
    pub fn found(&self) -> &str {
        &self.0.found
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { structure, field, expected, found } = &*self.0;
        write!(f, "{structure}: {field} is {found}, expected {expected}")
    }
}

impl std::error::Error for Damage {}

/// Returns [`Damage`] from the enclosing function unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($holds:expr, $structure:expr, $field:expr, $expected:expr, $found:expr $(,)?) => {
        if !$holds {
            return Err($crate::Damage::new($structure, $field, $expected, $found));
        }
    };
}

/// A place on the volume, as exactly as the reporter knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The allocation group.
    pub ag: Option<AgNumber>,
    /// The block within that group.
    pub block: Option<AgBlock>,
    /// The disk address in 512-byte units, for what is smaller than a block.
    pub daddr: Option<Daddr>,
    /// The inode.
    pub ino: Option<Ino>,
    /// The logical block of that inode's fork.
    pub file_block: Option<FileBlock>,
}

impl Place {
    /// An allocation group as a whole.
    pub fn ag(ag: AgNumber) -> Self {
        Self { ag: Some(ag), ..Self::default() }
    }

    /// A block of an allocation group.
    pub fn block(ag: AgNumber, block: AgBlock) -> Self {
        Self { ag: Some(ag), block: Some(block), ..Self::default() }
    }

    /// An inode as a whole.
    pub fn ino(ino: Ino) -> Self {
        Self { ino: Some(ino), ..Self::default() }
    }

    /// A disk address.
    pub fn daddr(daddr: Daddr) -> Self {
        Self { daddr: Some(daddr), ..Self::default() }
    }

    /// The same place, within an inode.
    pub fn of_inode(self, ino: Ino) -> Self {
        Self { ino: Some(ino), ..self }
    }

    /// The same place, at a logical block of the inode's fork.
    pub fn at(self, file_block: FileBlock) -> Self {
        Self { file_block: Some(file_block), ..self }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        let mut part = |text: fmt::Arguments<'_>| {
            let written = write!(f, "{comma}{text}");
            comma = ", ";
            written
        };
        if let Some(ino) = self.ino {
            part(format_args!("inode {ino}"))?;
        }
        if let Some(at) = self.file_block {
            part(format_args!("file block {at}"))?;
        }
        if let Some(ag) = self.ag {
            part(format_args!("AG {ag}"))?;
        }
        if let Some(block) = self.block {
            part(format_args!("block {block:#x}"))?;
        }
        if let Some(daddr) = self.daddr {
            part(format_args!("sector {daddr:#x}"))?;
        }
        if comma.is_empty() { f.write_str("volume") } else { Ok(()) }
    }
}
