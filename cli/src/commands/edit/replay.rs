//! `xebec replay`: replays a dirty log in place.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use serde_json::json;

use crate::args::Global;
use crate::json;
use crate::open;
use crate::output::exit_code;

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

/// Runs `replay`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let opened = open::writable(&arguments.image, global)?;
    let recovered = opened.volume.recovered();
    if global.json {
        let report = recovered.map(|recovery| &recovery.report);
        let document = json!({
            "replayed": recovered.is_some(),
            "items": report.map_or(0, |report| report.items_total()),
            "operations": report.map_or(0, |report| report.unfinished.len()),
            "freed_files": recovered.map_or(0, |recovery| recovery.unlinked),
        });
        json::write("replay", opened.messages.image(), document)?;
    }
    match recovered {
        Some(recovery) => opened.messages.note(format_args!("{recovery}")),
        None => opened.messages.note(format_args!("the log is clean: nothing to replay")),
    }
    opened.volume.unmount().context("the log was replayed, but the volume could not be unmounted")?;
    Ok(exit_code::OK)
}
