//! A structure is declared once with [`ondisk!`](crate::ondisk!). The macro defines the Rust type, asserts its size on
//! disk, and lists its fields with names and offsets, so that the printing of structures and the layout tests always
//! agree with the parser.

pub use zerocopy::big_endian::{I16, I32, I64, U16, U32, U64};
pub use zerocopy::little_endian::{U16 as LeU16, U32 as LeU32, U64 as LeU64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// How to print the bytes of a field.
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
    /// A block or inode number where all ones mean null.
    Nullable,
    /// A little-endian checksum.
    Crc,
    /// A UUID.
    Uuid,
    /// Characters, ended by the first NUL.
    Text,
    /// A timestamp of eight bytes, whose encoding depends on `bigtime`.
    Time,
    /// A log sequence number, shown as cycle and block.
    Lsn,
    /// Raw bytes.
    Bytes,
    /// Bytes that must be zero, normally not printed.
    Padding,
}

/// One field of an on-disk structure.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name in the format document, without the prefix of the structure.
    pub name: &'static str,
    /// Offset in bytes.
    pub offset: usize,
    /// Size in bytes, of all elements of an array.
    pub size: usize,
    /// Size of one element: equal to `size` except for arrays of numbers.
    pub element: usize,
    /// How to print it.
    pub show: FieldFormat,
}

/// A fixed-size on-disk structure.
pub trait OnDisk: FromBytes + KnownLayout + Immutable + Unaligned + Sized + std::fmt::Debug {
    /// Name in the format document.
    const NAME: &'static str;
    /// All fields in disk order.
    const FIELDS: &'static [Field];
    /// Bytes on disk.
    const SIZE: usize = size_of::<Self>();

    /// Views the start of `bytes`; `None` if they are too few.
    fn view(bytes: &[u8]) -> Option<&Self> {
        Self::ref_from_prefix(bytes).ok().map(|(view, _)| view)
    }

    /// Views `count` structures at the start of `bytes`; `None` if they are too few.
    fn view_array(bytes: &[u8], count: usize) -> Option<&[Self]> {
        <[Self]>::ref_from_prefix_with_elems(bytes, count).ok().map(|(view, _)| view)
    }
}

/// The element size of a field's type: of one number for arrays of numbers, otherwise of the whole type.
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

/// The name of a field: its identifier, or an alias if the document's name is a Rust keyword or differs.
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
