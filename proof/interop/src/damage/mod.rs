//! Damage of single fields, and the verdicts of xfs_repair.
//!
//! | part | subject |
//! |---|---|
//! | `mod` | a [`Case`], its file, and the [`Volume`] that is damaged and restored |
//! | [`locations`] | structures to damage, and how xfs_db finds them |
//! | [`record`] | creates the cases with xfs_db, and runs both versions of xfs_repair |
//! | [`judge`] | runs `xebec check` on each case, and compares it with the recorded verdicts |
//!
//! The cases are stored as patches of a few bytes to the volumes in `damage/*.xfs.xz`, so a thousand damaged images
//! take some hundred kilobytes, and every machine judges the same bytes. The kernel never mounts them.

pub mod judge;
pub mod locations;
pub mod record;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// Time limit of a program for one case.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Exit status of a program that exceeded the time limit.
pub const TIMED_OUT: i32 = 124;

/// One damaged field.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    /// Kind of the damaged structure.
    pub structure: String,
    /// Commands with which xfs_db finds it, in order.
    pub at: Vec<String>,
    /// The xfs_db command that damaged it.
    pub how: String,
    /// Its changes: offset in bytes, and the new bytes in hex.
    pub patch: Vec<(u64, String)>,
    /// Verdicts, by version of xfs_repair, of those that know the volume's features.
    pub repair: BTreeMap<String, Verdict>,
}

/// Verdict of a checker on a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Exit status; 128 plus the signal number after a crash, [`TIMED_OUT`] after a timeout.
    pub exit: i32,
    /// First finding.
    pub says: String,
}

/// Returns the folder of the recorded cases and their base volumes.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("damage")
}

/// Returns the names of the base volumes, sorted.
///
/// # Errors
/// The folder cannot be read.
pub fn bases() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder())? {
        let name = entry?.file_name();
        names.extend(name.to_str().and_then(|n| n.strip_suffix(".xfs.xz")).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// Loads the recorded cases of one base volume.
///
/// # Errors
/// The file cannot be read, or a line is not a case.
pub fn load(base: &str) -> Result<Vec<Case>> {
    let path = folder().join(base).with_extension("jsonl");
    let file = File::open(&path).with_context(|| path.display().to_string())?;
    let lines = BufReader::new(file).lines();
    lines.map(|line| serde_json::from_str(&line?).with_context(|| path.display().to_string())).collect()
}

/// Replaces the recorded cases of one base volume.
///
/// # Errors
/// The file cannot be written.
pub fn store(base: &str, cases: &[Case]) -> Result<()> {
    let mut out = BufWriter::new(File::create(folder().join(base).with_extension("jsonl"))?);
    for case in cases {
        serde_json::to_writer(&mut out, case)?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

/// A base volume in a temporary file, and its original bytes.
pub struct Volume {
    /// Path of the temporary file.
    pub path: PathBuf,
    /// Original bytes.
    pub healthy: Vec<u8>,
    file: File,
}

impl Volume {
    /// Unpacks the base volume into `dir`.
    ///
    /// # Errors
    /// `xz` is missing or fails.
    pub fn unpack(base: &str, dir: &Path) -> Result<Self> {
        let packed = folder().join(format!("{base}.xfs.xz"));
        let output =
            needs::command("xz").args(["--decompress", "--stdout"]).arg(&packed).output().context("xz")?;
        if !output.status.success() {
            bail!("xz: {}", String::from_utf8_lossy(&output.stderr));
        }
        let path = dir.join(base).with_extension("xfs");
        std::fs::write(&path, &output.stdout)?;
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        Ok(Self { path, healthy: output.stdout, file })
    }

    /// Applies the damage of a case.
    ///
    /// # Errors
    /// The patch is not hexadecimal, or the file cannot be written.
    pub fn damage(&self, case: &Case) -> Result<()> {
        for (at, hex) in &case.patch {
            self.file.write_all_at(&unhex(hex)?, *at)?;
        }
        Ok(())
    }

    /// Restores the bytes that a case damages.
    ///
    /// # Errors
    /// The patch is past the volume's end, or the file cannot be written.
    pub fn restore(&self, case: &Case) -> Result<()> {
        for (at, hex) in &case.patch {
            let at_byte = usize::try_from(*at)?;
            let healthy =
                self.healthy.get(at_byte..at_byte + hex.len() / 2).context("a patch past the end")?;
            self.file.write_all_at(healthy, *at)?;
        }
        Ok(())
    }

    /// Returns the ranges that differ from the original bytes.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn difference(&self) -> Result<Vec<(u64, String)>> {
        const CHUNK: usize = 1 << 16;
        /// Changes closer than this are merged into one range.
        const GAP: usize = 8;
        let mut runs: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut buffer = vec![0; CHUNK];
        for (index, healthy) in self.healthy.chunks(CHUNK).enumerate() {
            let now = &mut buffer[..healthy.len()];
            self.file.read_exact_at(now, (index * CHUNK) as u64)?;
            if now == healthy {
                continue;
            }
            for (i, _) in now.iter().zip(healthy).enumerate().filter(|(_, (a, b))| a != b) {
                let at = index * CHUNK + i;
                match runs.last_mut() {
                    Some((from, run)) if at < *from + run.len() + GAP && *from >= index * CHUNK => {
                        run.extend_from_slice(&now[*from + run.len() - index * CHUNK..=i]);
                    }
                    _ => runs.push((at, vec![now[i]])),
                }
            }
        }
        Ok(runs.into_iter().map(|(at, run)| (at as u64, read::manifest::hex(&run))).collect())
    }
}

fn unhex(text: &str) -> Result<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}

/// Runs a checker on a volume, and returns its exit status and output.
///
/// # Errors
/// The program cannot be started.
pub fn check(program: &Path, args: &[&str], image: &Path) -> Result<(i32, String)> {
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;
    let mut child = needs::own(program)
        .args(args)
        .arg(image)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| program.display().to_string())?;
    let (mut stdout, mut stderr) =
        (child.stdout.take().context("no stdout")?, child.stderr.take().context("no stderr")?);
    let reader = |pipe: &mut dyn Read| {
        let mut bytes = Vec::new();
        // Keep one megabyte, and drain the rest, so that the checker does not block.
        let _ = pipe.take(1 << 20).read_to_end(&mut bytes);
        let _ = std::io::copy(pipe, &mut std::io::sink());
        bytes
    };
    std::thread::scope(|scope| {
        let out = scope.spawn(move || reader(&mut stdout));
        let err = scope.spawn(move || reader(&mut stderr));
        let end = Instant::now() + TIMEOUT;
        let exit = loop {
            if let Some(status) = child.try_wait()? {
                break status.code().unwrap_or(128 + status.signal().unwrap_or(0));
            }
            if Instant::now() > end {
                child.kill()?;
                child.wait()?;
                break TIMED_OUT;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let mut text = err.join().unwrap_or_default();
        text.extend(out.join().unwrap_or_default());
        Ok((exit, String::from_utf8_lossy(&text).into_owned()))
    })
}
