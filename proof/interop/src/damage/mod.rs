//! Damage, a field at a time, and what xfs_repair says of it.
//!
//! | part | subject |
//! |---|---|
//! | `mod` | a [`Case`], its file, and the [`Volume`] to which it is done and undone |
//! | [`places`] | the structures to damage, and how xfs_db finds them |
//! | [`record`] | makes the cases with xfs_db, and asks both generations of xfs_repair |
//! | [`judge`] | asks Xebec about each case, and sets its answers beside the recorded ones |
//!
//! The cases are kept as patches of a few bytes against volumes in `damage/*.xfs.xz`, so a thousand bad images are some
//! hundred kilobytes, and every machine judges the same bytes. The kernel never sees one of them.

pub mod judge;
pub mod places;
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

/// How long a program may look at one case.
const PATIENCE: Duration = Duration::from_secs(60);
/// The exit status of a program that ran out of patience.
pub const TIMED_OUT: i32 = 124;

/// One way to damage one place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    /// What kind of structure is damaged.
    pub structure: String,
    /// How xfs_db finds it: its commands, in order.
    pub at: Vec<String>,
    /// The xfs_db command that did the damage.
    pub how: String,
    /// What it changed: offset in bytes, and the new bytes in hex.
    pub patch: Vec<(u64, String)>,
    /// The verdict of each version of xfs_repair that knows the volume's features.
    pub repair: BTreeMap<String, Verdict>,
}

/// What a checker made of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Its exit status; 128 and the signal's number if it died, [`TIMED_OUT`] if it did not end.
    pub exit: i32,
    /// Its first complaint.
    pub says: String,
}

/// The folder of the recorded cases and their base volumes.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("damage")
}

/// The names of the base volumes, sorted.
///
/// # Errors
/// Those of reading the folder.
pub fn bases() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder())? {
        let name = entry?.file_name();
        names.extend(name.to_str().and_then(|n| n.strip_suffix(".xfs.xz")).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// The recorded cases of one base volume.
///
/// # Errors
/// A missing file, or a line that is no case.
pub fn load(base: &str) -> Result<Vec<Case>> {
    let path = folder().join(base).with_extension("jsonl");
    let file = File::open(&path).with_context(|| path.display().to_string())?;
    let lines = BufReader::new(file).lines();
    lines.map(|line| serde_json::from_str(&line?).with_context(|| path.display().to_string())).collect()
}

/// Replaces the recorded cases of one base volume.
///
/// # Errors
/// Those of writing.
pub fn store(base: &str, cases: &[Case]) -> Result<()> {
    let mut out = BufWriter::new(File::create(folder().join(base).with_extension("jsonl"))?);
    for case in cases {
        serde_json::to_writer(&mut out, case)?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

/// A base volume in a scratch file, and its healthy bytes.
pub struct Volume {
    /// Where the scratch file lies.
    pub path: PathBuf,
    /// Its bytes without damage.
    pub healthy: Vec<u8>,
    file: File,
}

impl Volume {
    /// Unpacks the base volume into `dir`.
    ///
    /// # Errors
    /// When `xz` is missing or fails.
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

    /// Does the damage of a case.
    ///
    /// # Errors
    /// A patch that is not hex, and those of writing.
    pub fn damage(&self, case: &Case) -> Result<()> {
        for (at, hex) in &case.patch {
            self.file.write_all_at(&unhex(hex)?, *at)?;
        }
        Ok(())
    }

    /// Undoes the damage of a case.
    ///
    /// # Errors
    /// A patch beyond the volume's end, and those of writing.
    pub fn heal(&self, case: &Case) -> Result<()> {
        for (at, hex) in &case.patch {
            let at_byte = usize::try_from(*at)?;
            let healthy =
                self.healthy.get(at_byte..at_byte + hex.len() / 2).context("a patch beyond the end")?;
            self.file.write_all_at(healthy, *at)?;
        }
        Ok(())
    }

    /// What differs from the healthy bytes, in runs.
    ///
    /// # Errors
    /// Those of reading.
    pub fn difference(&self) -> Result<Vec<(u64, String)>> {
        const PIECE: usize = 1 << 16;
        /// Changes that are nearer than this make one run.
        const GAP: usize = 8;
        let mut runs: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut piece = vec![0; PIECE];
        for (index, healthy) in self.healthy.chunks(PIECE).enumerate() {
            let now = &mut piece[..healthy.len()];
            self.file.read_exact_at(now, (index * PIECE) as u64)?;
            if now == healthy {
                continue;
            }
            for (i, _) in now.iter().zip(healthy).enumerate().filter(|(_, (a, b))| a != b) {
                let at = index * PIECE + i;
                match runs.last_mut() {
                    Some((from, run)) if at < *from + run.len() + GAP && *from >= index * PIECE => {
                        run.extend_from_slice(&now[*from + run.len() - index * PIECE..=i]);
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

/// Runs a checker on a volume, and gives its exit status and its output.
///
/// # Errors
/// When the program cannot be started.
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
        // What a checker says beyond a megabyte is of no interest, but it must be able to say it.
        let _ = pipe.take(1 << 20).read_to_end(&mut bytes);
        let _ = std::io::copy(pipe, &mut std::io::sink());
        bytes
    };
    std::thread::scope(|scope| {
        let out = scope.spawn(move || reader(&mut stdout));
        let err = scope.spawn(move || reader(&mut stderr));
        let end = Instant::now() + PATIENCE;
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
