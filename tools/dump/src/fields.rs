//! Decodes any structure by its declaration (`format::ondisk!`).

use format::checksum;
use format::ondisk::{Field, FieldFormat, OnDisk};

use crate::value::{Array, Struct, Value};

/// The bytes that contain a structure, and its offset in them.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The block, sector or inode: all bytes that its checksum covers.
    pub whole: &'a [u8],
    /// Offset of the structure.
    pub at: usize,
    /// Whether its timestamps are bigtime.
    pub bigtime: bool,
}

impl<'a> Source<'a> {
    /// A structure at the start of its bytes.
    pub fn new(whole: &'a [u8]) -> Self {
        Self { whole, at: 0, bigtime: false }
    }

    /// The structure `offset` bytes further.
    pub fn skip(self, offset: usize) -> Self {
        Self { at: self.at.saturating_add(offset), ..self }
    }
}

/// All fields of a structure in order. Fields beyond the end of the bytes are left out, and padding that is zero.
pub fn decode<T: OnDisk>(source: Source<'_>) -> Struct {
    let mut fields = Struct::new();
    for field in T::FIELDS {
        if let Some(value) = value(field, source) {
            fields.push(field.name, value);
        }
    }
    fields
}

/// One field; `None` if it is beyond the end of the bytes, or is padding that is zero.
pub fn value(field: &Field, source: Source<'_>) -> Option<Value> {
    let start = source.at.checked_add(field.offset)?;
    let bytes = source.whole.get(start..start.checked_add(field.size)?)?;
    Some(match field.show {
        FieldFormat::Padding if bytes.iter().all(|byte| *byte == 0) => return None,
        FieldFormat::Padding | FieldFormat::Bytes => Value::Bytes(bytes.to_vec()),
        FieldFormat::Text => Value::Text(until_nul(bytes).to_vec()),
        FieldFormat::Uuid => Value::Uuid(bytes.try_into().ok()?),
        FieldFormat::Crc => Value::Crc {
            stored: u32::from_le_bytes(bytes.try_into().ok()?),
            computed: checksum::compute(source.whole, start),
        },
        _ if field.element < field.size && field.element > 0 => Value::Array(Array {
            first: 0,
            sparse: field.show == FieldFormat::Nullable,
            items: bytes
                .chunks_exact(field.element)
                .map(|element| scalar(field.show, element, source))
                .collect(),
        }),
        show => scalar(show, bytes, source),
    })
}

/// One number.
fn scalar(show: FieldFormat, bytes: &[u8], source: Source<'_>) -> Value {
    let number = big_endian(bytes);
    match show {
        FieldFormat::Int => Value::Int(sign_extend(number, bytes.len())),
        FieldFormat::Hex => Value::Hex(number),
        FieldFormat::Octal => Value::Octal(number),
        FieldFormat::Nullable => Value::nullable(number, bytes.len()),
        FieldFormat::Lsn => Value::Lsn(number),
        FieldFormat::Time => time(number, source.bigtime),
        _ => Value::Uint(number),
    }
}

/// A number of up to eight bytes.
pub fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn sign_extend(number: u64, bytes: usize) -> i64 {
    let unused = 64 - 8 * bytes.clamp(1, 8) as u32;
    ((number << unused) as i64) >> unused
}

/// Decodes a timestamp. Invalid nanoseconds are kept.
pub fn time(raw: u64, bigtime: bool) -> Value {
    if bigtime {
        let time = format::timestamp::Timestamp::decode(raw.into(), true);
        return Value::Time { seconds: time.seconds, nanoseconds: time.nanoseconds.into() };
    }
    Value::Time { seconds: i64::from((raw >> 32) as i32), nanoseconds: i64::from(raw as u32 as i32) }
}

/// The bytes before the first NUL, or all of them.
pub fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::agf::RawAgf;
    use format::inode::RawInode;

    #[test]
    fn fields_beyond_the_end_are_left_out() {
        let fields = decode::<RawAgf>(Source::new(&[0; 10]));
        let names: Vec<_> = fields.0.iter().map(|(name, _)| name.as_ref()).collect();
        assert_eq!(names, ["magicnum", "versionnum"]);
        assert!(decode::<RawAgf>(Source::new(&[]).skip(usize::MAX)).0.is_empty());
    }

    #[test]
    fn padding_is_decoded_only_if_it_is_not_zero() {
        let mut bytes = vec![0; 512];
        assert_eq!(decode::<RawAgf>(Source::new(&bytes)).get("spare2"), None);
        bytes[220] = 7;
        let fields = decode::<RawAgf>(Source::new(&bytes));
        assert_eq!(fields.get("spare2"), Some(&Value::Bytes(vec![7, 0, 0, 0])));
    }

    #[test]
    fn all_ones_are_null_and_negative_numbers_keep_their_sign() {
        assert_eq!(Value::nullable(0xffff_ffff, 4), Value::Null);
        assert_eq!(Value::nullable(0xffff_ffff, 8), Value::Uint(0xffff_ffff));
        assert_eq!(sign_extend(0xfffd, 2), -3);
        assert_eq!(sign_extend(u64::MAX, 8), -1);
    }

    #[test]
    fn timestamps_have_two_formats() {
        let mut bytes = vec![0xff; 512];
        bytes[32..40].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 5]);
        let old = decode::<RawInode>(Source::new(&bytes));
        assert_eq!(old.get("atime"), Some(&Value::Time { seconds: -1, nanoseconds: 5 }));
        let bigtime = decode::<RawInode>(Source { bigtime: true, ..Source::new(&bytes) });
        let atime = bigtime.get("atime");
        assert!(matches!(atime, Some(Value::Time { seconds: 16_299_260_421, .. })), "{atime:?}");
    }
}
