//! Lists of named values, printed for people and serialised for programs.

use std::fmt;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

/// Value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogValue {
    /// Printed in decimal.
    Number(u64),
    /// Printed in hexadecimal: identifiers, masks.
    Hex(u64),
    /// A signed number.
    Signed(i64),
    /// Text.
    Text(String),
    /// Names of set bits, and the number.
    Flags(Vec<&'static str>, u64),
    /// A name from the disk, which need not be UTF-8.
    Name(Vec<u8>),
    /// Several lists of fields.
    List(Vec<LogFields>),
}

/// Named values in display order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFields(Vec<(&'static str, LogValue)>);

impl LogFields {
    /// No fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field.
    pub fn with(mut self, name: &'static str, value: LogValue) -> Self {
        self.0.push((name, value));
        self
    }

    /// Adds a number.
    pub fn number(self, name: &'static str, value: impl Into<u64>) -> Self {
        self.with(name, LogValue::Number(value.into()))
    }

    /// Adds a number printed in hexadecimal.
    pub fn hex(self, name: &'static str, value: impl Into<u64>) -> Self {
        self.with(name, LogValue::Hex(value.into()))
    }

    /// Adds a text.
    pub fn text(self, name: &'static str, value: impl Into<String>) -> Self {
        self.with(name, LogValue::Text(value.into()))
    }

    /// Adds the named bits of a mask; unknown bits appear only in the number.
    pub fn flags<T: Copy + Into<u64>>(
        self,
        name: &'static str,
        word: T,
        known: &[(T, &'static str)],
    ) -> Self {
        let word = word.into();
        let names =
            known.iter().filter(|(bit, _)| word & (*bit).into() != 0).map(|(_, name)| *name).collect();
        self.with(name, LogValue::Flags(names, word))
    }
}

impl fmt::Display for LogValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Hex(number) => write!(f, "{number:#x}"),
            Self::Signed(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::Flags(names, 0) if names.is_empty() => f.write_str("none"),
            Self::Flags(names, word) if names.is_empty() => write!(f, "{word:#x}"),
            Self::Flags(names, _) => f.write_str(&names.join("|")),
            Self::Name(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::List(list) => {
                for (n, fields) in list.iter().enumerate() {
                    let comma = if n == 0 { "" } else { ", " };
                    write!(f, "{comma}({fields})")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for LogFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (name, value)) in self.0.iter().enumerate() {
            let space = if n == 0 { "" } else { " " };
            write!(f, "{space}{name} {value}")?;
        }
        Ok(())
    }
}

impl Serialize for LogValue {
    /// Numbers are integers, flags are lists of names, names are strings or, if not UTF-8, `{"bytes": [...]}`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) | Self::Hex(number) => serializer.serialize_u64(*number),
            Self::Signed(number) => serializer.serialize_i64(*number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Flags(names, _) => names.serialize(serializer),
            Self::Name(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => serializer.serialize_str(text),
                Err(_) => {
                    let mut map = serializer.serialize_map(Some(1))?;
                    map.serialize_entry("bytes", bytes)?;
                    map.end()
                }
            },
            Self::List(list) => {
                let mut sequence = serializer.serialize_seq(Some(list.len()))?;
                for fields in list {
                    sequence.serialize_element(fields)?;
                }
                sequence.end()
            }
        }
    }
}

impl Serialize for LogFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_printed_and_serialised() {
        let fields = LogFields::new()
            .number("ino", 131u64)
            .hex("id", 0xffffu64)
            .flags("flags", 5u16, &[(1, "a"), (2, "b"), (4, "c")])
            .with("name", LogValue::Name(b"x\xff".to_vec()))
            .with("list", LogValue::List(vec![LogFields::new().number("blocks", 1u32)]));
        assert_eq!(fields.to_string(), r#"ino 131 id 0xffff flags a|c name "x\xff" list (blocks 1)"#);
        let json = serde_json::to_value(&fields).unwrap();
        assert_eq!(json["id"], 65535);
        assert_eq!(json["flags"], serde_json::json!(["a", "c"]));
        assert_eq!(json["name"], serde_json::json!({"bytes": [120, 255]}));
        assert_eq!(json["list"][0]["blocks"], 1);
    }
}
