//! Values as JSON.
//!
//! | value | JSON |
//! |---|---|
//! | number in any base, flag | an integer |
//! | null | `null` |
//! | number with a name | `{"value": 2, "name": "extents"}` |
//! | checksum | `{"stored": 1, "computed": 1, "correct": true}` |
//! | UUID | a string |
//! | log sequence number | `{"cycle": 1, "block": 2}` |
//! | time | `{"seconds": 0, "nanoseconds": 0}` |
//! | text in UTF-8 | a string |
//! | other text | its bytes in lowercase hex; the name ends with `_hex` |
//! | bytes, array of numbers | an array of integers |
//! | records, listing | an array of objects |

use format::uuid::UuidText;
use serde_json::{Map, Value as Json, json};

use crate::value::{Struct, Table, Value};

/// Fields as an object. The first one of a duplicate name is used.
pub fn fields(fields: &Struct) -> Json {
    let mut object = Map::new();
    for (name, item) in &fields.0 {
        let (name, item) = match item {
            Value::Text(bytes) if std::str::from_utf8(bytes).is_err() => {
                (format!("{name}_hex"), json!(read::manifest::hex(bytes)))
            }
            _ => (name.to_string(), value(item)),
        };
        object.entry(name).or_insert(item);
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
        // Text occurs only in fields, which handle other encodings.
        Value::Text(bytes) => json!(String::from_utf8_lossy(bytes)),
        Value::Bytes(bytes) => json!(bytes),
        Value::Array(array) => array.items.iter().map(value).collect(),
        Value::Table(table) => table_rows(table),
        Value::Listing(listing) => listing.rows.iter().map(fields).collect(),
        Value::List(items) => items.iter().map(value).collect(),
        Value::Struct(inner) => fields(inner),
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
    fn text_that_is_not_utf8_is_hex() {
        let text = |bytes: &[u8]| fields(&Struct::from([("name", Value::Text(bytes.to_vec()))]));
        assert_eq!(text(b"plain"), json!({ "name": "plain" }));
        assert_eq!(text(b"a\xff"), json!({ "name_hex": "61ff" }));
    }

    #[test]
    fn records_are_objects() {
        let rows = vec![vec![Value::Uint(1), Value::Null]];
        let table = Value::Table(Table { first: 1, columns: vec!["startblock", "owner"], rows });
        assert_eq!(value(&table), json!([{ "startblock": 1, "owner": null }]));
    }
}
