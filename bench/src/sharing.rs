//! Which cache lines operations share that commute: what the program `xebec-sharing` finds in memory traces.
//!
//! The program is no part of `xebec`: it traces a program of its own under valgrind, built with the profile `traced`.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use report::sharing::Sharing;

use crate::child;
use crate::peers;
use crate::recorder::Recorder;
use crate::scale::Scale;

const PROGRAM: &str = "xebec-sharing";

/// Pairs that a quick measurement traces: those that contain this text.
const QUICK: &str = "create";

/// Runs the measurement, or reads its results.
///
/// # Errors
/// The results cannot be read; the program failed.
pub fn run(scale: &Scale, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let sharing = match &scale.sharing {
        Some(path) => read(path)?,
        None => {
            let found = program().ok_or_else(|| {
                format!(
                    "{PROGRAM} is not beside this program: build it (cargo build --profile traced -p {PROGRAM}), or \
                     name its results (--sharing-results)"
                )
            });
            let ready = found.and_then(|program| peers::installed(&["valgrind"]).map(|()| program));
            match ready {
                Ok(program) => trace(&program, scale.pick("", QUICK, "stat / stat"))?,
                Err(why) => {
                    recorder.note(format!("not traced: {why}"));
                    return Ok(());
                }
            }
        }
    };
    for complaint in sharing.pairs.iter().flat_map(|pair| &pair.complaints) {
        recorder.note(complaint.lines().next().unwrap_or_default().into());
    }
    recorder.results.sharing = Some(sharing);
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Sharing> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&bytes)
        .with_context(|| format!("{} is not what `{PROGRAM} --json` writes", path.display()))
}

/// The program beside this one, or the traced build of the checkout that this program was built from.
fn program() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok()?.with_file_name(PROGRAM);
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join("target");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(checkout, PathBuf::from);
    [beside, target.join("traced").join(PROGRAM)].into_iter().find(|program| program.is_file())
}

fn trace(program: &Path, pairs: &str) -> anyhow::Result<Sharing> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let output = child::command(program).args(["--json", "--jobs", &jobs, "--pair", pairs]).output();
    let output = output.with_context(|| program.display().to_string())?;
    // It fails if a pair shares what it should not: the report says which.
    match serde_json::from_slice(&output.stdout) {
        Ok(sharing) => Ok(sharing),
        Err(_) => bail!("{PROGRAM}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim()),
    }
}
