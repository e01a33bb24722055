//! Values as text, one `name = value` per line, in the format of the command `print` of `xfs_db`.

use std::fmt::{self, Write};

use format::uuid::UuidText;

use crate::value::{Array, Listing, Struct, Table, Value};

/// Writes fields, each with its full name.
pub fn write(fields: &Struct, out: &mut dyn Write) -> fmt::Result {
    write_struct("", fields, out)
}

fn write_struct(prefix: &str, fields: &Struct, out: &mut dyn Write) -> fmt::Result {
    for (name, value) in &fields.0 {
        let path = if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
        write_value(&path, value, out)?;
    }
    Ok(())
}

fn write_value(path: &str, value: &Value, out: &mut dyn Write) -> fmt::Result {
    match value {
        Value::Struct(fields) => write_struct(path, fields, out),
        Value::List(items) => {
            for (index, item) in items.iter().enumerate() {
                write_value(&format!("{path}[{index}]"), item, out)?;
            }
            Ok(())
        }
        Value::Time { seconds, nanoseconds } => {
            writeln!(out, "{path}.sec = {}", Date(*seconds))?;
            writeln!(out, "{path}.nsec = {nanoseconds}")
        }
        Value::Array(array) => write_array(path, array, out),
        Value::Table(table) => write_table(path, table, out),
        Value::Listing(listing) => write_listing(listing, out),
        Value::Bytes(bytes) if bytes.len() > 16 => write_hexdump(path, bytes, out),
        _ => writeln!(out, "{path} = {}", Scalar(value)),
    }
}

/// Writes the indices of `count` elements: `[4]` or `[0-63]`.
fn write_range(path: &str, first: usize, count: usize, out: &mut dyn Write) -> fmt::Result {
    match count {
        1 => write!(out, "{path}[{first}] = "),
        _ => write!(out, "{path}[{first}-{}] = ", first + count.saturating_sub(1)),
    }
}

fn write_array(path: &str, array: &Array, out: &mut dyn Write) -> fmt::Result {
    if array.items.is_empty() {
        return Ok(());
    }
    write_range(path, array.first, array.items.len(), out)?;
    if let [only] = array.items.as_slice() {
        return writeln!(out, "{}", Scalar(only));
    }
    let mut space = "";
    for (index, item) in array.items.iter().enumerate() {
        if !(array.sparse && *item == Value::Null) {
            write!(out, "{space}{}:{}", array.first + index, Scalar(item))?;
            space = " ";
        }
    }
    writeln!(out)
}

fn write_table(path: &str, table: &Table, out: &mut dyn Write) -> fmt::Result {
    if table.rows.is_empty() {
        return Ok(());
    }
    write_range(path, table.first, table.rows.len(), out)?;
    write!(out, "[{}]", table.columns.join(","))?;
    for (index, row) in table.rows.iter().enumerate() {
        write!(out, " \n{}:[", table.first + index)?;
        for (column, value) in row.iter().enumerate() {
            write!(out, "{}{}", if column == 0 { "" } else { "," }, Scalar(value))?;
        }
        out.write_char(']')?;
    }
    writeln!(out)
}

fn write_listing(listing: &Listing, out: &mut dyn Write) -> fmt::Result {
    let mut widths: Vec<usize> = listing.headings.iter().map(|heading| heading.len()).collect();
    for line in &listing.cells {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.len().max(*width);
        }
    }
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (cell, width) in cells.zip(&widths) {
            let _ = write!(text, " {cell:>width$}");
        }
        writeln!(out, "{}", text.trim_end())
    };
    line(&mut listing.headings.iter().copied())?;
    listing.cells.iter().try_for_each(|cells| line(&mut cells.iter().map(String::as_str)))
}

/// Writes sixteen bytes per line, in hexadecimal and as characters.
fn write_hexdump(path: &str, bytes: &[u8], out: &mut dyn Write) -> fmt::Result {
    writeln!(out, "{path} =")?;
    for (line, chunk) in bytes.chunks(16).enumerate() {
        write!(out, "{:04x}:", line * 16)?;
        for byte in chunk {
            write!(out, " {byte:02x}")?;
        }
        let characters: String =
            chunk.iter().map(|byte| if byte.is_ascii_graphic() { *byte as char } else { '.' }).collect();
        writeln!(out, "{:1$} {characters}", "", 3 * (16 - chunk.len()))?;
    }
    Ok(())
}

/// A value on one line.
struct Scalar<'a>(&'a Value);

impl fmt::Display for Scalar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Uint(number) => write!(f, "{number}"),
            Value::Int(number) => write!(f, "{number}"),
            // Like `%#x` and `%#o` in C, zero has no prefix.
            Value::Hex(0) | Value::Octal(0) | Value::Lsn(0) => f.write_str("0"),
            Value::Hex(number) | Value::Lsn(number) => write!(f, "{number:#x}"),
            Value::Octal(number) => write!(f, "0{number:o}"),
            Value::Null => f.write_str("null"),
            Value::Named(number, word) => write!(f, "{number} ({word})"),
            Value::Crc { stored, computed } => write_crc(*stored, *computed, f),
            Value::Uuid(uuid) => UuidText(*uuid).fmt(f),
            Value::Text(text) => Quoted(text).fmt(f),
            Value::Bytes(bytes) => {
                f.write_str("0x")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Value::Empty => f.write_str("(empty)"),
            Value::Time { seconds, nanoseconds } => write!(f, "{seconds}.{nanoseconds:09}"),
            // No structure has these values in an array or a table.
            Value::Array(_) | Value::Table(_) | Value::Listing(_) | Value::List(_) | Value::Struct(_) => {
                f.write_str("{...}")
            }
        }
    }
}

fn write_crc(stored: u32, computed: Option<u32>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    // Like `xfs_db`, print the bytes in the order on disk; the number is little-endian.
    let on_disk = |number: u32| Scalar(&Value::Hex(number.swap_bytes().into())).to_string();
    write!(f, "{} ", on_disk(stored))?;
    match computed {
        Some(computed) if computed == stored => f.write_str("(correct)"),
        Some(computed) => write!(f, "(bad, should be {})", on_disk(computed)),
        None => f.write_str("(unchecked)"),
    }
}

/// Seconds since 1970 in the format of `ctime` in C, in UTC.
struct Date(i64);

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_second(self.0) {
            Ok(time) => write!(f, "{}", time.strftime("%a %b %e %H:%M:%S %Y")),
            Err(_) => write!(f, "{} seconds", self.0),
        }
    }
}

/// Bytes in quotes. Bytes that are not printable UTF-8 are escaped in octal, so that an image cannot control the
/// terminal.
struct Quoted<'a>(&'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let octal = |f: &mut fmt::Formatter<'_>, bytes: &[u8]| {
            bytes.iter().try_for_each(|byte| write!(f, "\\{byte:03o}"))
        };
        f.write_char('"')?;
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '"' | '\\' => write!(f, "\\{character}")?,
                    _ if is_printable(character) => f.write_char(character)?,
                    _ => octal(f, character.encode_utf8(&mut [0; 4]).as_bytes())?,
                }
            }
            octal(f, chunk.invalid())?;
        }
        f.write_char('"')
    }
}

/// Whether a character is neither a control character nor an invisible one that changes the text around it.
fn is_printable(character: char) -> bool {
    let changes_direction = matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}');
    let joins = matches!(character, '\u{2060}'..='\u{206f}' | '\u{feff}');
    !character.is_control() && !changes_direction && !joins
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(fields: Struct) -> String {
        let mut out = String::new();
        write(&fields, &mut out).unwrap();
        out
    }

    #[test]
    fn numbers_are_formatted_like_in_c() {
        let fields = Struct::from([
            ("zero", Value::Hex(0)),
            ("magic", Value::Hex(0x5846_5342)),
            ("mode", Value::Octal(0o40755)),
            ("owner", Value::Int(-5)),
            ("root", Value::Null),
            ("crc", Value::Crc { stored: 0xab00_0000, computed: Some(0xab00_0000) }),
            ("bad", Value::Crc { stored: 0, computed: Some(0xab00_0000) }),
            ("format", Value::Named(2, "extents")),
            ("a", Value::Empty),
        ]);
        assert_eq!(
            text(fields),
            "zero = 0\nmagic = 0x58465342\nmode = 040755\nowner = -5\nroot = null\ncrc = 0xab (correct)\n\
             bad = 0 (bad, should be 0xab)\nformat = 2 (extents)\na = (empty)\n"
        );
    }

    #[test]
    fn arrays_and_tables_have_indices() {
        let numbers = |items: &[u64]| items.iter().map(|n| Value::nullable(*n, 4)).collect::<Vec<_>>();
        let array = |first, items| Value::Array(Array { first, sparse: true, items });
        let table = Table {
            first: 1,
            columns: vec!["startblock", "blockcount"],
            rows: vec![numbers(&[3, 4]), numbers(&[9, 1])],
        };
        let fields = Struct::from([
            ("one", array(1, numbers(&[7]))),
            ("sparse", array(0, numbers(&[7, 0xffff_ffff, 8]))),
            ("none", array(0, Vec::new())),
            ("recs", Value::Table(table)),
            ("ents", Value::List(vec![Struct::from([("hashval", Value::Hex(0x2e))]).into()])),
        ]);
        assert_eq!(
            text(fields),
            "one[1] = 7\nsparse[0-2] = 0:7 2:8\nrecs[1-2] = [startblock,blockcount] \n1:[3,4] \n2:[9,1]\n\
             ents[0].hashval = 0x2e\n"
        );
    }

    #[test]
    fn names_cannot_control_a_terminal() {
        let fields = Struct::from([("name", Value::Text(b"a\"\\\x1b[2J\xff\xc3\xa4\xe2\x80\xae".to_vec()))]);
        assert_eq!(text(fields), "name = \"a\\\"\\\\\\033[2J\\377\u{e4}\\342\\200\\256\"\n");
    }

    #[test]
    fn times_are_dates_in_utc() {
        let time = |seconds| Struct::from([("atime", Value::Time { seconds, nanoseconds: 5 })]);
        assert_eq!(text(time(0)), "atime.sec = Thu Jan  1 00:00:00 1970\natime.nsec = 5\n");
        assert!(text(time(16_299_260_425)).starts_with("atime.sec = Tue Jul  2 20:20:25 2486\n"));
        assert!(text(time(i64::MAX)).starts_with("atime.sec = 9223372036854775807 seconds\n"));
    }

    #[test]
    fn many_bytes_are_a_hexdump() {
        let fields = Struct::from([("data", Value::Bytes(b"0123456789abcdefXY\0".to_vec()))]);
        let last = format!("0010: 58 59 00{} XY.\n", " ".repeat(39));
        assert!(text(fields).ends_with(&last));
    }
}
