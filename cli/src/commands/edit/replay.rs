//! `xebec replay`: replays a dirty log in place.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;

use super::DONE;
use crate::args::Global;
use crate::json;
use crate::open;

/// Arguments of `replay`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Does what mounting and unmounting would do: replays the log, finishes unfinished operations, and \
    frees unlinked files that were open.\n\nExamples:\n  xebec replay disk.xfs"
)]
pub struct Arguments {
    /// The image.
    pub image: PathBuf,
}

/// The JSON payload, in the order of docs/json.md.
#[derive(Serialize)]
struct Document {
    replayed: bool,
    items: u64,
    operations: usize,
    freed_files: u64,
}

/// Runs `replay`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let opened = open::writable(&arguments.image, global)?;
    let recovered = opened.volume.recovered();
    if global.json {
        json::write(
            "replay",
            opened.messages.image(),
            Document {
                replayed: recovered.is_some(),
                items: recovered.map_or(0, |recovery| recovery.report.items_total()),
                operations: recovered.map_or(0, |recovery| recovery.report.unfinished.len()),
                freed_files: recovered.map_or(0, |recovery| recovery.unlinked),
            },
        )?;
    }
    match recovered {
        Some(recovery) => opened.messages.note(format_args!("{recovery}")),
        None => opened.messages.note(format_args!("the log is clean: nothing to replay")),
    }
    opened.volume.unmount().context("the log was replayed, but the volume could not be unmounted")?;
    Ok(DONE)
}
