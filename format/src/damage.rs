//! Verifier errors, and places on the volume for messages.

use std::fmt;

use base::{AgBlock, AgNumber, Daddr, FileBlock, Ino};

/// An error in one structure: the field, its expected and its found value.
///
/// A verifier does not know where the structure lies; its caller adds a [`Place`].
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

    /// The structure is truncated: `have` bytes, `need` bytes expected.
    #[cold]
    pub fn short(structure: &'static str, need: usize, have: usize) -> Self {
        Self::new(structure, "length", format_args!("at least {need} bytes"), format_args!("{have} bytes"))
    }

    /// Name of the structure in the format document.
    pub fn structure(&self) -> &'static str {
        self.0.structure
    }

    /// Name of the field, without the prefix of the structure.
    pub fn field(&self) -> &'static str {
        self.0.field
    }

    /// The expected value.
    pub fn expected(&self) -> &str {
        &self.0.expected
    }

    /// The found value.
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

/// A place on the volume, as precise as the reporter knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The allocation group.
    pub ag: Option<AgNumber>,
    /// The block in that group.
    pub block: Option<AgBlock>,
    /// Disk address in 512-byte units, for places smaller than a block.
    pub daddr: Option<Daddr>,
    /// Inode number.
    pub ino: Option<Ino>,
    /// Logical block in a fork of the inode.
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

    /// Adds the inode.
    pub fn of_inode(self, ino: Ino) -> Self {
        Self { ino: Some(ino), ..self }
    }

    /// Adds the logical block in a fork.
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
