//! Runs `xebec check` on each case, and compares its verdict with the recorded ones.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::record::{judges, run_repair};
use super::{Case, TIMED_OUT, Volume, check, load};

/// Options of `damage judge`.
#[derive(clap::Args)]
pub struct Options {
    /// Base volumes; all if none is given.
    pub bases: Vec<String>,
    /// The program `xebec`.
    #[arg(long)]
    pub xebec: PathBuf,
    /// Print all differences, not only the table.
    #[arg(long)]
    pub differences: bool,
}

/// Verdict of Xebec on a case.
pub struct XebecVerdict {
    /// The case.
    pub case: Case,
    /// Exit status of `xebec check`: 0 for clean, 4 for damage, 8 for a volume that cannot be opened.
    pub exit: i32,
    /// Its output.
    pub output: String,
}

impl XebecVerdict {
    /// Returns true if Xebec reports damage.
    pub fn finds_damage(&self) -> bool {
        matches!(self.exit, 4 | 8 | 12)
    }

    /// Returns true if Xebec crashed or timed out.
    pub fn crashed(&self) -> bool {
        self.exit == TIMED_OUT || self.exit >= 101 && self.exit != 0
    }

    /// Returns true if the newest xfs_repair that judged the case finds damage.
    pub fn repair_finds_damage(&self) -> bool {
        newest(&self.case).is_some_and(|exit| exit != 0)
    }

    /// Returns true if the two versions of xfs_repair disagree.
    pub fn judges_differ(&self) -> bool {
        let mut verdicts = self.case.repair.values().map(|v| v.exit != 0);
        let first = verdicts.next();
        verdicts.any(|v| Some(v) != first)
    }
}

/// Returns the exit status of the newest xfs_repair. Versions are compared by number: 6.13 is newer than 6.1.
fn newest(case: &Case) -> Option<i32> {
    let numbers = |version: &str| version.split('.').map(|n| n.parse().unwrap_or(0u32)).collect::<Vec<_>>();
    case.repair.iter().max_by_key(|(version, _)| numbers(version)).map(|(_, verdict)| verdict.exit)
}

/// Runs Xebec on every case of a base volume. The log is not replayed, as `xfs_repair -n` does not replay it either.
///
/// # Errors
/// Xebec finds the healthy volume damaged or cannot be started, or the volume cannot be written.
pub fn answers(base: &str, xebec: &Path) -> Result<Vec<XebecVerdict>> {
    let work = tempfile::tempdir()?;
    let volume = Volume::unpack(base, work.path())?;
    let (exit, says) = check(xebec, &["check", "--no-replay"], &volume.path)?;
    if exit != 0 {
        bail!("the healthy {base}: {exit}: {says}");
    }
    let mut answers = Vec::new();
    for case in load(base)? {
        volume.damage(&case)?;
        let (exit, output) = check(xebec, &["check", "--no-replay"], &volume.path)?;
        volume.restore(&case)?;
        answers.push(XebecVerdict { case, exit, output });
    }
    Ok(answers)
}

/// Counts of verdicts, by damaged structure.
#[derive(Default)]
pub struct Table(BTreeMap<String, [usize; 6]>);

impl Table {
    /// Counts one verdict.
    pub fn count(&mut self, answer: &XebecVerdict) {
        let row = self.0.entry(answer.case.structure.clone()).or_default();
        row[0] += 1;
        row[match (answer.finds_damage(), answer.repair_finds_damage()) {
            (true, true) => 1,
            (true, false) => 2,
            (false, true) => 3,
            (false, false) => 4,
        }] += 1;
        row[5] += usize::from(answer.judges_differ());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = ["cases", "both", "only xebec", "only repair", "neither", "repairs differ"];
        write!(f, "{:36}", "damaged structure")?;
        heads.iter().try_for_each(|head| write!(f, "{head:>16}"))?;
        writeln!(f)?;
        let mut sum = [0; 6];
        for (structure, row) in &self.0 {
            write!(f, "{structure:36}")?;
            row.iter().try_for_each(|n| write!(f, "{n:>16}"))?;
            writeln!(f)?;
            sum.iter_mut().zip(row).for_each(|(s, n)| *s += n);
        }
        write!(f, "{:36}", "all")?;
        sum.iter().try_for_each(|n| write!(f, "{n:>16}"))?;
        writeln!(f)?;
        writeln!(f, "both, only, neither: which of them find the damage; repair: the newest xfs_repair -n.")
    }
}

/// Judges all cases and prints the table.
///
/// # Errors
/// A program cannot be started.
pub fn run(options: &Options) -> Result<()> {
    let bases = if options.bases.is_empty() { super::bases()? } else { options.bases.clone() };
    let mut table = Table::default();
    for base in &bases {
        for answer in answers(base, &options.xebec)? {
            table.count(&answer);
            let differ = answer.repair_finds_damage() != answer.finds_damage();
            if answer.crashed() || options.differences && differ {
                println!("{}", describe(base, &answer));
            }
        }
    }
    print!("{table}");
    Ok(())
}

/// Describes one verdict in one line.
pub fn describe(base: &str, answer: &XebecVerdict) -> String {
    let case = &answer.case;
    let repair: Vec<String> = case
        .repair
        .iter()
        .map(|(version, v)| format!("xfs_repair {version}: {} {}", v.exit, v.says))
        .collect();
    let says = answer.output.lines().next().unwrap_or("nothing");
    format!(
        "{base}: {}: {}; {}: xebec: {} {says}; {}",
        case.structure,
        case.at.join("; "),
        case.how,
        answer.exit,
        repair.join("; ")
    )
}

/// Runs xfs_repair again on every `step`th case, and returns the cases with a changed verdict.
///
/// # Errors
/// A program cannot be started.
pub fn recheck(base: &str, step: usize) -> Result<Vec<String>> {
    let work = tempfile::tempdir()?;
    let volume = Volume::unpack(base, work.path())?;
    let judges = judges()?;
    let mut changed = Vec::new();
    for case in load(base)?.into_iter().step_by(step.max(1)) {
        volume.damage(&case)?;
        for (version, recorded) in &case.repair {
            let judge = judges.iter().find(|j| j.version == *version);
            let judge = judge.with_context(|| format!("xfs_repair {version} is not installed"))?;
            let verdict = run_repair(&judge.repair, &volume.path)?;
            // Compare only the exit status: the order of messages depends on threads.
            if verdict.exit != recorded.exit {
                changed.push(format!(
                    "{base}: {}; {}: {recorded:?}, now {verdict:?}",
                    case.at.join("; "),
                    case.how
                ));
            }
        }
        volume.restore(&case)?;
    }
    Ok(changed)
}
