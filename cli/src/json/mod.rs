//! JSON output: the envelope of every document, arrays written element by element, and messages.

mod file;

use std::io::{self, Write as _};

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::failure::Failure;
use crate::names::hex;
use crate::output::{Level, Stdout};
pub use file::{FileJson, type_name};

/// Version of the documents. It rises when a field changes its meaning or is removed.
const VERSION: u32 = 1;

/// A document: the fields that every document begins with, and those of its command.
#[derive(Debug, Serialize)]
pub struct Envelope<'e, P> {
    version: u32,
    command: &'e str,
    #[serde(skip_serializing_if = "str::is_empty")]
    image: &'e str,
    #[serde(flatten)]
    payload: P,
}

impl<'e, P: Serialize> Envelope<'e, P> {
    /// The document of a command about an image.
    pub fn new(command: &'e str, image: &'e str, payload: P) -> Self {
        Self { version: VERSION, command, image, payload }
    }
}

/// A name in JSON, flattened into its object: a string under the key if the name is UTF-8, else hexadecimal under the
/// key with `_hex` appended.
#[derive(Clone, Copy, Debug)]
pub struct JsonName<'a>(pub &'static str, pub &'a [u8]);

impl Serialize for JsonName<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (key, name) = name(self.0, self.1);
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(&key, &name)?;
        map.end()
    }
}

/// Key and value of a name: see [`JsonName`].
pub fn name(key: &str, name: &[u8]) -> (String, Value) {
    match std::str::from_utf8(name) {
        Ok(text) => (key.into(), text.into()),
        Err(_) => (format!("{key}_hex"), hex(name).into()),
    }
}

/// Removes fields without a value from an object.
pub fn without_nulls(mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.retain(|_, value| !value.is_null());
    }
    object
}

/// Serializes a path, for `#[serde(flatten, serialize_with = "json::path")]`.
pub fn path<S: Serializer>(path: impl AsRef<[u8]>, serializer: S) -> Result<S::Ok, S::Error> {
    JsonName("path", path.as_ref()).serialize(serializer)
}

/// Writes one indented document to standard output.
pub fn write(command: &str, image: &str, payload: impl Serialize) -> anyhow::Result<()> {
    let mut out = Stdout::buffered();
    serde_json::to_writer_pretty(&mut out, &Envelope::new(command, image, payload))
        .map_err(io::Error::from)?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}

/// Separator of the elements of an array that is written element by element.
pub const SEPARATOR: &[u8] = b",\n";

/// Begins a document that ends with an array, whose elements follow.
pub fn begin(command: &str, image: &str, payload: impl Serialize, array: &str) -> Vec<u8> {
    let head = object(&Envelope::new(command, image, payload));
    format!("{},\"{array}\":[\n", head.strip_suffix('}').unwrap_or(&head)).into_bytes()
}

/// Ends such a document, with fields after the array.
pub fn end(payload: impl Serialize) -> Vec<u8> {
    match object(&payload).strip_prefix('{') {
        Some(fields) if fields != "}" => format!("\n],{fields}\n").into_bytes(),
        _ => b"\n]}\n".to_vec(),
    }
}

/// A message as a line of JSON. The image's name is a separate field, and removed from the text.
pub fn message(level: Level, image: &str, failure: &Failure) -> String {
    #[derive(Serialize)]
    struct Message<'m> {
        message: &'m str,
        #[serde(skip_serializing_if = "str::is_empty")]
        image: &'m str,
        #[serde(flatten)]
        path: Option<JsonName<'m>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        errno: Option<i32>,
    }
    let Failure { text, path, errno } = failure;
    let message = text.strip_prefix(image).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(text);
    let message =
        Message { message, image, path: path.as_deref().map(|path| JsonName("path", path)), errno: *errno };
    let level = match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Note => "note",
    };
    serde_json::json!({ level: message }).to_string()
}

/// An object in one line. Serializing the fields of the documents does not fail.
pub fn object(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_utf8_are_marked() {
        let text = |name| serde_json::to_string(&JsonName("name", name)).unwrap();
        assert_eq!(text(b"a\"b"), r#"{"name":"a\"b"}"#);
        assert_eq!(text(b"\xffz"), r#"{"name_hex":"ff7a"}"#);
    }
}
