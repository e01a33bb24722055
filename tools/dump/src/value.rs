//! What a structure says, as a tree of named values: taken from bytes once, rendered as text or as JSON.

use std::borrow::Cow;

/// The name of a field, without the names of what it lies in.
pub type Name = Cow<'static, str>;

/// One value of a structure, with as much of its meaning as a rendering needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Shown in decimal.
    Uint(u64),
    /// Shown in decimal with its sign.
    Int(i64),
    /// Shown in hexadecimal.
    Hex(u64),
    /// Shown in octal.
    Octal(u64),
    /// A number that means "none": all ones.
    Null,
    /// A number that stands for a word.
    Named(u64, &'static str),
    /// A checksum.
    Crc {
        /// As it lies on the disk.
        stored: u32,
        /// As it should be; `None` where the bytes that it covers are not at hand.
        computed: Option<u32>,
    },
    /// A UUID.
    Uuid([u8; 16]),
    /// A log sequence number.
    Lsn(u64),
    /// A point in time, as stored: nanoseconds of a damaged one may be out of range.
    Time {
        /// Seconds since 1970.
        seconds: i64,
        /// Nanoseconds after that second.
        nanoseconds: i64,
    },
    /// Characters in no particular encoding: names, targets of symbolic links, values of attributes.
    Text(Vec<u8>),
    /// Bytes without a meaning.
    Bytes(Vec<u8>),
    /// A place that can hold something and does not: a fork without extents.
    Empty,
    /// Numbers in a row.
    Array(Array),
    /// Records of one shape.
    Table(Table),
    /// Columns for a person's eyes, with a line of headings.
    Listing(Listing),
    /// Structures in a row, whose fields may differ.
    List(Vec<Value>),
    /// Fields by name, in the order of the disk.
    Struct(Struct),
}

/// Numbers in a row, counted from `first`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// The index of the first: B+trees count from 1, all else from 0.
    pub first: usize,
    /// Whether text leaves out elements that are null.
    pub sparse: bool,
    /// The elements.
    pub items: Vec<Value>,
}

/// Records of one shape, counted from `first`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The index of the first row: B+trees count from 1, all else from 0.
    pub first: usize,
    /// The names of the columns.
    pub columns: Vec<&'static str>,
    /// The rows, each with a value per column.
    pub rows: Vec<Vec<Value>>,
}

/// A listing that no structure on disk has in this form. Text shows `cells`; JSON shows `rows`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The headings of the columns of text.
    pub headings: Vec<&'static str>,
    /// The lines of text.
    pub cells: Vec<Vec<String>>,
    /// The same as records.
    pub rows: Vec<Struct>,
}

/// Fields by name, in the order of the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Struct(pub Vec<(Name, Value)>);

impl Struct {
    /// No fields yet.
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
    /// A number where all ones of its `bytes` mean "none".
    pub fn nullable(number: u64, bytes: usize) -> Self {
        let ones = u64::MAX.checked_shr(64 - 8 * bytes.clamp(1, 8) as u32).unwrap_or(u64::MAX);
        if number == ones { Self::Null } else { Self::Uint(number) }
    }

    /// One bit of a word of flags, as 0 or 1.
    pub fn bit(word: u64, mask: u64) -> Self {
        Self::Uint(u64::from(word & mask != 0))
    }

    /// The number behind the value, where it has one.
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Uint(n) | Self::Hex(n) | Self::Octal(n) | Self::Named(n, _) | Self::Lsn(n) => Some(*n),
            Self::Int(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }
}
