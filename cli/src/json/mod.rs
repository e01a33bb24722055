//! JSON output: the envelope of every document, arrays written element by element, and messages.

mod file;

use std::io::{self, Write as _};

use serde::Serialize;

use crate::failure::Failure;
use crate::names::JsonName;
use crate::output::{Level, Stdout};
pub use file::{FileJson, type_name};

/// Version of the documents. It rises when a field changes its meaning or is removed.
const VERSION: u32 = 1;

/// What every document begins with, and the fields of its command.
#[derive(Debug, Serialize)]
pub struct Envelope<'e, P> {
    version: u32,
    command: &'e str,
    #[serde(skip_serializing_if = "str::is_empty")]
    image: &'e str,
    #[serde(flatten)]
    payload: P,
}

/// The payload of commands that describe files.
#[derive(Debug, Serialize)]
pub struct Files<F> {
    /// One element per file.
    pub files: Vec<F>,
}

/// A payload without fields.
#[derive(Debug, Serialize)]
pub struct Empty {}

impl<'e, P: Serialize> Envelope<'e, P> {
    /// The document of a command about an image.
    pub fn new(command: &'e str, image: &'e str, payload: P) -> Self {
        Self { version: VERSION, command, image, payload }
    }
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

/// What separates the elements of an array that is written element by element.
pub const SEPARATOR: &[u8] = b",\n";

/// Begins a document that ends with an array, whose elements follow.
pub fn begin(command: &str, image: &str, payload: impl Serialize, array: &str) -> Vec<u8> {
    let head = object(&Envelope::new(command, image, payload));
    format!("{},\"{array}\":[\n", head.strip_suffix('}').unwrap_or(&head)).into_bytes()
}

/// Ends such a document, with fields behind the array.
pub fn end(payload: impl Serialize) -> Vec<u8> {
    match object(&payload).strip_prefix('{') {
        Some(fields) if fields != "}" => format!("\n],{fields}\n").into_bytes(),
        _ => b"\n]}\n".to_vec(),
    }
}

/// A message as a line of JSON. The image's name is a field of its own, and not part of the text.
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
    let message = Message { message, image, path: path.as_deref().map(JsonName::path), errno: *errno };
    let level = match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Note => "note",
    };
    serde_json::json!({ level: message }).to_string()
}

/// An object in one line. Every field of the documents can be written.
pub fn object(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
