//! A structure is declared once, by [`ondisk!`](crate::ondisk!): the declaration gives the Rust type, asserts its size
//! on disk, and lists its fields with their names and offsets, so that the printer of structures and the tests of the
//! layout can never tell another story than the parser.

pub use zerocopy::big_endian::{I16, I32, I64, U16, U32, U64};
pub use zerocopy::little_endian::{U16 as LeU16, U32 as LeU32, U64 as LeU64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// How a field's bytes are best shown to a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldFormat {
    /// An unsigned decimal number.
    Uint,
    /// A signed decimal number.
    Int,
    /// A hexadecimal number: magics, masks.
    Hex,
    /// An octal number: modes.
    Octal,
    /// A block or inode number where all ones mean "null".
    Nullable,
    /// A little-endian checksum.
    Crc,
    /// A UUID.
    Uuid,
    /// Characters, ended by the first NUL.
    Text,
    /// A timestamp of eight bytes, whose form depends on `bigtime`.
    Time,
    /// A log sequence number, shown as cycle and block.
    Lsn,
    /// Raw bytes.
    Bytes,
    /// Bytes that must be zero, normally not shown.
    Padding,
}

/// One field of an on-disk structure.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The name in the format document, without the structure's prefix.
    pub name: &'static str,
    /// Bytes from the start of the structure.
    pub offset: usize,
    /// Bytes of the whole field; of all elements, where it is an array.
    pub size: usize,
    /// Bytes of one element: equal to `size` unless the field is an array of numbers.
    pub element: usize,
    /// How to print it.
    pub show: FieldFormat,
}

/// A fixed-size structure as it lies on the disk.
pub trait OnDisk: FromBytes + KnownLayout + Immutable + Unaligned + Sized + std::fmt::Debug {
    /// What the format document calls it, in words.
    const NAME: &'static str;
    /// Every field, in the order of the disk.
    const FIELDS: &'static [Field];
    /// Bytes on disk.
    const SIZE: usize = size_of::<Self>();

    /// Views the start of `bytes`; `None` where they are too few.
    fn view(bytes: &[u8]) -> Option<&Self> {
        Self::ref_from_prefix(bytes).ok().map(|(view, _)| view)
    }

    /// Views `count` structures at the start of `bytes`; `None` where they are too few.
    fn view_array(bytes: &[u8], count: usize) -> Option<&[Self]> {
        <[Self]>::ref_from_prefix_with_elems(bytes, count).ok().map(|(view, _)| view)
    }
}

/// Bytes of one element of a field's type: arrays of numbers count their element, all else counts whole.
pub trait ElementSize {
    /// Bytes of one element.
    const ELEMENT: usize;
}

macro_rules! element_size {
    ($($number:ty),*) => {$(
        impl ElementSize for $number { const ELEMENT: usize = size_of::<$number>(); }
        impl<const N: usize> ElementSize for [$number; N] { const ELEMENT: usize = size_of::<$number>(); }
    )*};
}
element_size!(I16, I32, I64, U16, U32, U64, LeU16, LeU32, LeU64, i8);
impl ElementSize for u8 {
    const ELEMENT: usize = 1;
}
impl<const N: usize> ElementSize for [u8; N] {
    const ELEMENT: usize = N;
}

/// The name of a field: its identifier, or what stands for it where the document's name is a keyword of Rust.
#[doc(hidden)]
#[macro_export]
macro_rules! field_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $alias:literal) => {
        $alias
    };
}

/// Declares an on-disk structure: `struct Name("words", bytes) { field: Type = Show, ... }`.
#[macro_export]
macro_rules! ondisk {
    ($(
        $(#[$doc:meta])*
        pub struct $name:ident($words:literal, $size:literal) {
            $( $(#[$field_doc:meta])* $field:ident $(as $alias:literal)? : $type:ty = $show:ident, )*
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, ::zerocopy::FromBytes, ::zerocopy::IntoBytes, ::zerocopy::KnownLayout,
                 ::zerocopy::Immutable, ::zerocopy::Unaligned)]
        #[repr(C)]
        pub struct $name {
            $( $(#[$field_doc])* pub $field: $type, )*
        }

        const _: () = assert!(size_of::<$name>() == $size, concat!("size on disk of ", $words));

        impl $crate::ondisk::OnDisk for $name {
            const NAME: &'static str = $words;
            const FIELDS: &'static [$crate::ondisk::Field] = &[$(
                $crate::ondisk::Field {
                    name: $crate::field_name!($field $($alias)?),
                    offset: ::std::mem::offset_of!($name, $field),
                    size: size_of::<$type>(),
                    element: <$type as $crate::ondisk::ElementSize>::ELEMENT,
                    show: $crate::ondisk::FieldFormat::$show,
                },
            )*];
        }
    )*};
}

impl OnDisk for U16 {
    const NAME: &'static str = "16-bit number";
    const FIELDS: &'static [Field] =
        &[Field { name: "", offset: 0, size: 2, element: 2, show: FieldFormat::Uint }];
}

impl OnDisk for U32 {
    const NAME: &'static str = "32-bit number";
    const FIELDS: &'static [Field] =
        &[Field { name: "", offset: 0, size: 4, element: 4, show: FieldFormat::Uint }];
}

impl OnDisk for U64 {
    const NAME: &'static str = "64-bit number";
    const FIELDS: &'static [Field] =
        &[Field { name: "", offset: 0, size: 8, element: 8, show: FieldFormat::Uint }];
}

impl OnDisk for LeU32 {
    const NAME: &'static str = "32-bit number of the log";
    const FIELDS: &'static [Field] =
        &[Field { name: "", offset: 0, size: 4, element: 4, show: FieldFormat::Uint }];
}
