//! Compares the mappings of a fork with `bmap` of `xfs_db`, which prints a line for each:
//! `data offset 0 startblock 12 (0/12) count 1 flag 0`.

use dump::Dump;
use dump::value::{Struct, Value};

/// File offset, start block, length, unwritten.
type Mapping = [u64; 4];

/// Returns the first mapping that differs.
pub fn difference(ours: &Dump, theirs: &str) -> Option<String> {
    let (ours, theirs) = (merge(extents(ours)), merge(theirs.lines().filter_map(parse).collect()));
    if ours == theirs {
        return None;
    }
    let at = ours.iter().zip(&theirs).take_while(|(ours, theirs)| ours == theirs).count();
    Some(format!("extent {at}: {:?} is {:?}", ours.get(at), theirs.get(at)))
}

fn parse(line: &str) -> Option<Mapping> {
    let words: Vec<_> = line.split_whitespace().collect();
    let after =
        |name| words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1)?.parse().ok());
    Some([after("offset")?, after("startblock")?, after("count")?, after("flag")?])
}

fn extents(ours: &Dump) -> Vec<Mapping> {
    let Some(Value::Listing(listing)) = ours.structure.fields.get("extents") else { return Vec::new() };
    let mapping = |row: &Struct| {
        let number = |name| row.get(name).and_then(Value::number);
        Some([number("startoff")?, number("startblock")?, number("blockcount")?, number("unwritten")?])
    };
    listing.rows.iter().filter_map(mapping).collect()
}

/// Merges adjacent mappings: ours are split where sharing starts and ends.
fn merge(mappings: Vec<Mapping>) -> Vec<Mapping> {
    let mut joined: Vec<Mapping> = Vec::new();
    for mapping in mappings {
        match joined.last_mut() {
            Some([offset, start, count, unwritten])
                if [*offset + *count, *start + *count, *unwritten]
                    == [mapping[0], mapping[1], mapping[3]] =>
            {
                *count += mapping[2];
            }
            _ => joined.push(mapping),
        }
    }
    joined
}
