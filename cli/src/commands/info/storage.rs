//! What a volume on object storage has in its store.

use std::fmt::Write as _;

use remote::{Snapshot, StoredUse, StoredVolume};
use serde::Serialize;
use serde_json::Value;

use crate::commands::remote::objects::requests_json;
use crate::names::printable;
use crate::output::counted;
use crate::sizes::with_unit;

/// The JSON payload, in the order of docs/json.md.
#[derive(Debug, Serialize)]
pub struct Storage {
    epoch: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    writer: Option<String>,
    segments: u64,
    segment_bytes: u64,
    parent_segments: u64,
    parent_bytes: u64,
    blocks: u64,
    live_blocks: u64,
    map_objects: u64,
    snapshots: Vec<State>,
    clones: Vec<State>,
    parents: Vec<String>,
    requests: Value,
}

/// A snapshot, or the state that a clone was made of.
#[derive(Debug, Serialize)]
struct State {
    name: String,
    time: String,
    size: u64,
}

impl State {
    fn of(Snapshot { name, made, size, .. }: Snapshot) -> Self {
        Self { name, time: format!("{made}.000000000"), size }
    }
}

impl Storage {
    /// The payload of a volume.
    pub fn of(StoredVolume { info, used, requests, .. }: StoredVolume) -> Self {
        let StoredUse { segments, segment_bytes, parent_segments, parent_bytes, blocks, live_blocks, maps } =
            used;
        Self {
            epoch: info.epoch,
            writer: info.writer,
            segments,
            segment_bytes,
            parent_segments,
            parent_bytes,
            blocks,
            live_blocks,
            map_objects: maps,
            snapshots: info.snapshots.into_iter().map(State::of).collect(),
            clones: info.pins.into_iter().map(State::of).collect(),
            parents: info.parents.into_iter().map(|parent| parent.url).collect(),
            requests: requests_json(&requests),
        }
    }

    /// Lines of the text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |key: &str, text: std::fmt::Arguments<'_>| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{key:<9}={text}");
        };
        let live = self.live_blocks * 100 / self.blocks.max(1);
        line(
            "stored",
            format_args!(
                "{} with {}, of which {live} % of the blocks are in use; {} with the map",
                counted(self.segments, "segment"),
                with_unit(self.segment_bytes),
                counted(self.map_objects, "object")
            ),
        );
        for parent in &self.parents {
            line("parent", format_args!("{}", printable(parent.as_bytes())));
        }
        if self.parent_segments > 0 {
            let (segments, bytes) = (counted(self.parent_segments, "segment"), with_unit(self.parent_bytes));
            line("shared", format_args!("{segments} with {bytes} of parents"));
        }
        for (key, states) in [("snapshot", &self.snapshots), ("clone", &self.clones)] {
            states.iter().for_each(|state| line(key, format_args!("{}", printable(state.name.as_bytes()))));
        }
        let writer = self.writer.as_ref().map_or("none".into(), |writer| printable(writer.as_bytes()));
        line("writer", format_args!("{writer}"));
        out
    }
}
