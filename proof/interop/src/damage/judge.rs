//! Asks Xebec about each case, and sets its answers beside the recorded ones.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::record::{ask, judges};
use super::{Case, TIMED_OUT, Volume, check, load};

/// What to judge.
#[derive(clap::Args)]
pub struct Options {
    /// The base volumes; all, without any.
    pub bases: Vec<String>,
    /// The program that is judged.
    #[arg(long)]
    pub xebec: PathBuf,
    /// Print every difference, not only the table.
    #[arg(long)]
    pub differences: bool,
}

/// Xebec's answer to a case.
pub struct Answer {
    /// The case.
    pub case: Case,
    /// The exit status of `xebec check`: 0 for clean, 4 for damage, 8 for a volume that cannot be opened.
    pub exit: i32,
    /// All that it said.
    pub says: String,
}

impl Answer {
    /// Whether Xebec complains in an orderly way.
    pub fn complains(&self) -> bool {
        matches!(self.exit, 4 | 8 | 12)
    }

    /// Whether Xebec died or did not end, which no image excuses.
    pub fn broke(&self) -> bool {
        self.exit == TIMED_OUT || self.exit >= 101 && self.exit != 0
    }

    /// Whether the newest xfs_repair that judged the case complains.
    pub fn repair_complains(&self) -> bool {
        newest(&self.case).is_some_and(|exit| exit != 0)
    }

    /// Whether the two generations of xfs_repair differ.
    pub fn judges_differ(&self) -> bool {
        let mut verdicts = self.case.repair.values().map(|v| v.exit != 0);
        let first = verdicts.next();
        verdicts.any(|v| Some(v) != first)
    }
}

/// The exit status of the newest version. Versions are compared number by number: 6.13 is newer than 6.1.
fn newest(case: &Case) -> Option<i32> {
    let numbers = |version: &str| version.split('.').map(|n| n.parse().unwrap_or(0u32)).collect::<Vec<_>>();
    case.repair.iter().max_by_key(|(version, _)| numbers(version)).map(|(_, verdict)| verdict.exit)
}

/// Asks Xebec about every case of a base volume. Its log is not replayed: `xfs_repair -n` judges what lies there, too.
///
/// # Errors
/// When Xebec finds the healthy volume damaged or cannot be started, or the scratch volume not be written.
pub fn answers(base: &str, xebec: &Path) -> Result<Vec<Answer>> {
    let work = tempfile::tempdir()?;
    let volume = Volume::unpack(base, work.path())?;
    let (exit, says) = check(xebec, &["check", "--no-replay"], &volume.path)?;
    if exit != 0 {
        bail!("the healthy {base}: {exit}: {says}");
    }
    let mut answers = Vec::new();
    for case in load(base)? {
        volume.damage(&case)?;
        let (exit, says) = check(xebec, &["check", "--no-replay"], &volume.path)?;
        volume.heal(&case)?;
        answers.push(Answer { case, exit, says });
    }
    Ok(answers)
}

/// How often each pair of answers was given, by kind of structure.
#[derive(Default)]
pub struct Table(BTreeMap<String, [usize; 6]>);

impl Table {
    /// Counts one answer.
    pub fn count(&mut self, answer: &Answer) {
        let row = self.0.entry(answer.case.structure.clone()).or_default();
        row[0] += 1;
        row[match (answer.complains(), answer.repair_complains()) {
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
        writeln!(f, "both, only, neither: who complains of the damage; repair: the newest xfs_repair -n.")
    }
}

/// Judges, and prints the table.
///
/// # Errors
/// When a program cannot be started.
pub fn run(options: &Options) -> Result<()> {
    let bases = if options.bases.is_empty() { super::bases()? } else { options.bases.clone() };
    let mut table = Table::default();
    for base in &bases {
        for answer in answers(base, &options.xebec)? {
            table.count(&answer);
            let differ = answer.repair_complains() != answer.complains();
            if answer.broke() || options.differences && differ {
                println!("{}", describe(base, &answer));
            }
        }
    }
    print!("{table}");
    Ok(())
}

/// One line about one answer.
pub fn describe(base: &str, answer: &Answer) -> String {
    let case = &answer.case;
    let repair: Vec<String> = case
        .repair
        .iter()
        .map(|(version, v)| format!("xfs_repair {version}: {} {}", v.exit, v.says))
        .collect();
    let says = answer.says.lines().next().unwrap_or("nothing");
    format!(
        "{base}: {}: {}; {}: xebec: {} {says}; {}",
        case.structure,
        case.at.join("; "),
        case.how,
        answer.exit,
        repair.join("; ")
    )
}

/// Asks xfs_repair again about every `step`-th case, and gives those whose verdict is not the recorded one.
///
/// # Errors
/// When a program cannot be started.
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
            let verdict = ask(&judge.repair, &volume.path)?;
            // Not what it says first: its threads take turns.
            if verdict.exit != recorded.exit {
                changed.push(format!(
                    "{base}: {}; {}: {recorded:?}, now {verdict:?}",
                    case.at.join("; "),
                    case.how
                ));
            }
        }
        volume.heal(&case)?;
    }
    Ok(changed)
}
