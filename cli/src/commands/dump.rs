//! `xebec dump`: shows on-disk structures, selected by address or path.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use dump::request::Target;
use dump::{GRAMMAR, Request};

use crate::args::Global;
use crate::json;
use crate::names;
use crate::open;
use crate::output::{Coded, Messages, Stdout, exit_code};
use crate::urls::shown;

/// Arguments of `dump`.
#[derive(Clone, Debug, Args)]
#[command(after_help = format!("Structures:\n{GRAMMAR}\n\n\
    Damaged structures are shown, too: lines that start with # describe the damage. A dirty log is replayed in \
    memory first, except to show the log itself; --no-replay shows the metadata on disk as it is.\n\n\
    Examples:\n  xebec dump disk.xfs sb\n  xebec dump disk.xfs agf 0\n  xebec dump disk.xfs inode /etc/passwd\n  \
    xebec dump --json disk.xfs bnobt 2 1\n\n\
    Exit codes: 0 success, also for damaged structures; 1 not found or not readable; 2 usage error."))]
pub struct Arguments {
    /// The image.
    pub image: PathBuf,
    /// Structure to show.
    #[arg(required = true, value_name = "WHAT")]
    words: Vec<OsString>,
}

/// Runs `dump`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let words: Vec<_> = arguments.words.iter().map(OsString::as_os_str).collect();
    let request = Request::parse(&words).map_err(|error| Coded {
        code: exit_code::USAGE,
        error: anyhow::anyhow!("{error} (see `xebec dump --help`)"),
    })?;
    let messages = Messages::new(global, shown(&arguments.image));
    // Without replay: finishing operations in memory would write to the log.
    let device = match request.target {
        Target::Log(_) => open::device(&arguments.image, global)?.device,
        _ => open::open_damaged(&arguments.image, global, &messages)?.device,
    };
    let dumped = dump::dump_device(device, &request)?;
    if global.json {
        json::write("dump", messages.image(), dumped.to_json())?;
        return Ok(exit_code::OK);
    }
    let mut out = Stdout::buffered();
    let text = dumped.to_text();
    if Stdout::is_terminal() {
        for line in text.lines() {
            writeln!(out, "{}", names::printable(line.as_bytes()))?;
        }
    } else {
        out.write_all(text.as_bytes())?;
    }
    out.flush()?;
    Ok(exit_code::OK)
}
