//! Decoded structures as trees of named values, which are printed as text or as JSON.

use std::borrow::Cow;

/// The name of a field, without those of the structures that contain it.
pub type Name = Cow<'static, str>;

/// The value of a field, with the format in which it is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A decimal number.
    Uint(u64),
    /// A signed decimal number.
    Int(i64),
    /// A hexadecimal number.
    Hex(u64),
    /// An octal number.
    Octal(u64),
    /// Null: all bits are set.
    Null,
    /// A number with a name.
    Named(u64, &'static str),
    /// A checksum.
    Crc {
        /// The checksum on disk.
        stored: u32,
        /// The correct checksum, if it could be computed.
        computed: Option<u32>,
    },
    /// A UUID.
    Uuid([u8; 16]),
    /// A log sequence number.
    Lsn(u64),
    /// A timestamp. Nanoseconds may be out of range.
    Time {
        /// Seconds since 1970.
        seconds: i64,
        /// Nanoseconds after that second.
        nanoseconds: i64,
    },
    /// Text in any encoding: names, symlink targets, attribute values.
    Text(Vec<u8>),
    /// Other bytes.
    Bytes(Vec<u8>),
    /// A fork without extents.
    Empty,
    /// An array of numbers.
    Array(Array),
    /// Records with the same fields.
    Table(Table),
    /// Columns with headings.
    Listing(Listing),
    /// Structures whose fields may differ.
    List(Vec<Value>),
    /// A structure.
    Struct(Struct),
}

/// An array of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Index of the first element: 1 in btree blocks, otherwise 0.
    pub first: usize,
    /// Whether text output omits null elements.
    pub sparse: bool,
    /// The elements.
    pub items: Vec<Value>,
}

/// Records with the same fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Index of the first row: 1 in btree blocks, otherwise 0.
    pub first: usize,
    /// Names of the columns.
    pub columns: Vec<&'static str>,
    /// The rows, with one value per column.
    pub rows: Vec<Vec<Value>>,
}

/// A listing that is not a structure on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Headings of the columns in text output.
    pub headings: Vec<&'static str>,
    /// The lines of text output.
    pub cells: Vec<Vec<String>>,
    /// The lines as records, for JSON.
    pub rows: Vec<Struct>,
}

/// Named fields in the order on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Struct(pub Vec<(Name, Value)>);

impl Struct {
    /// A structure without fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field at the end.
    pub fn push(&mut self, name: impl Into<Name>, value: Value) {
        self.0.push((name.into(), value));
    }

    /// Adds all fields of another structure at the end.
    pub fn append(&mut self, mut fields: Self) {
        self.0.append(&mut fields.0);
    }

    /// Moves the fields before the field `name` into a nested structure.
    pub fn nest_before(mut self, name: &str, nested: &'static str) -> Self {
        let count = self.0.iter().take_while(|(field, _)| field != name).count();
        let rest = self.0.split_off(count);
        let mut fields = Self::from([(nested, self.into())]);
        fields.append(Self(rest));
        fields
    }

    /// The first field of this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }
}

impl From<Struct> for Value {
    fn from(fields: Struct) -> Self {
        Self::Struct(fields)
    }
}

impl<N: Into<Name>, const COUNT: usize> From<[(N, Value); COUNT]> for Struct {
    fn from(fields: [(N, Value); COUNT]) -> Self {
        Self(fields.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

impl Value {
    /// A number of `bytes` bytes, which is null if all bits are set.
    pub fn nullable(number: u64, bytes: usize) -> Self {
        let ones = u64::MAX.checked_shr(64 - 8 * bytes.clamp(1, 8) as u32).unwrap_or(u64::MAX);
        if number == ones { Self::Null } else { Self::Uint(number) }
    }

    /// A flag, as 0 or 1.
    pub fn bit(word: u64, mask: u64) -> Self {
        Self::Uint(u64::from(word & mask != 0))
    }

    /// The number, if the value is one.
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Uint(n) | Self::Hex(n) | Self::Octal(n) | Self::Named(n, _) | Self::Lsn(n) => Some(*n),
            Self::Int(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }
}
