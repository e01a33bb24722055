//! A tree of values as JSON.
//!
//! | value | JSON |
//! |---|---|
//! | numbers of every base, flags | an integer |
//! | "none" | `null` |
//! | a number that stands for a word | `{"value": 2, "name": "extents"}` |
//! | checksum | `{"stored": 1, "computed": 1, "correct": true}` |
//! | UUID | a string |
//! | log sequence number | `{"cycle": 1, "block": 2}` |
//! | time | `{"seconds": 0, "nanoseconds": 0}` |
//! | text that is UTF-8 | a string |
//! | text that is not UTF-8 | `{"lossy": "...", "bytes": [...]}` |
//! | raw bytes, rows of numbers | an array of integers |
//! | records, listings | an array of objects |

use format::uuid::UuidText;
use serde_json::{Map, Value as Json, json};

use crate::value::{Struct, Table, Value};

/// Fields as an object. A name that occurs twice keeps its first value.
pub fn fields(fields: &Struct) -> Json {
    let mut object = Map::new();
    for (name, item) in &fields.0 {
        object.entry(name.as_ref()).or_insert_with(|| value(item));
    }
    Json::Object(object)
}

/// One value.
pub fn value(item: &Value) -> Json {
    match item {
        Value::Uint(number) | Value::Hex(number) | Value::Octal(number) => json!(number),
        Value::Int(number) => json!(number),
        Value::Null | Value::Empty => Json::Null,
        Value::Named(number, name) => json!({ "value": number, "name": name }),
        Value::Crc { stored, computed } => {
            json!({ "stored": stored, "computed": computed, "correct": computed.map(|computed| computed == *stored) })
        }
        Value::Uuid(uuid) => json!(UuidText(*uuid).to_string()),
        Value::Lsn(number) => json!({ "cycle": number >> 32, "block": *number as u32 }),
        Value::Time { seconds, nanoseconds } => json!({ "seconds": seconds, "nanoseconds": nanoseconds }),
        Value::Text(bytes) => text(bytes),
        Value::Bytes(bytes) => json!(bytes),
        Value::Array(array) => array.items.iter().map(value).collect(),
        Value::Table(table) => table_rows(table),
        Value::Listing(listing) => listing.rows.iter().map(fields).collect(),
        Value::List(items) => items.iter().map(value).collect(),
        Value::Struct(inner) => fields(inner),
    }
}

/// Text as a string; marked, with its bytes, where it is not UTF-8.
pub fn text(bytes: &[u8]) -> Json {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({ "lossy": String::from_utf8_lossy(bytes), "bytes": bytes }),
    }
}

fn table_rows(table: &Table) -> Json {
    let row = |values: &Vec<Value>| -> Json {
        let columns = table.columns.iter().map(|column| (*column).to_string());
        Json::Object(columns.zip(values.iter().map(value)).collect())
    };
    table.rows.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_utf8_are_marked() {
        assert_eq!(text(b"plain"), json!("plain"));
        assert_eq!(text(b"a\xff"), json!({ "lossy": "a\u{fffd}", "bytes": [97, 255] }));
    }

    #[test]
    fn records_are_objects() {
        let rows = vec![vec![Value::Uint(1), Value::Null]];
        let table = Value::Table(Table { first: 1, columns: vec!["startblock", "owner"], rows });
        assert_eq!(value(&table), json!([{ "startblock": 1, "owner": null }]));
    }
}
