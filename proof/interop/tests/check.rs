//! The checker must find all recorded damage that `xfs_repair -n` finds. Findings of the checker alone must be
//! explained in `docs/check-vs-repair.md`. xfsprogs is not needed: its verdicts are recorded.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use block::{FileDevice, OpenOptions};
use check::{CheckError, Finding, Observer, Options};
use interop::damage::{Case, Volume, bases, load};

/// Stores the first finding, for the message of a failed test.
#[derive(Default)]
struct First(Mutex<Option<String>>);

impl Observer for First {
    fn finding(&self, finding: &Finding) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| finding.to_string());
    }
}

/// Returns the checker's first finding; `None` for a clean volume.
fn first_finding(volume: &Volume, threads: usize) -> Option<String> {
    let device = FileDevice::open(&volume.path, &OpenOptions::default()).unwrap();
    let first = First::default();
    let options = Options { threads, ..Options::default() };
    match check::check(&device, &options, &first) {
        Ok(summary) if summary.findings.errors == 0 => None,
        Ok(_) => first.0.into_inner().unwrap(),
        Err(refusal @ CheckError::Refused(_)) => Some(refusal.to_string()),
        Err(error) => panic!("{error}"),
    }
}

/// Returns true if the newest xfs_repair that judged the case finds damage; 6.13 is newer than 6.1.
fn repair_finds_damage(case: &Case) -> bool {
    let numbers = |version: &str| version.split('.').map(|n| n.parse().unwrap_or(0u32)).collect::<Vec<_>>();
    let newest = case.repair.iter().max_by_key(|(version, _)| numbers(version));
    newest.is_some_and(|(_, verdict)| verdict.exit != 0)
}

/// Returns the rows of the table of differences: patterns of structures and of fields.
fn explained() -> Vec<(Vec<String>, Vec<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/check-vs-repair.md");
    let text = std::fs::read_to_string(path).unwrap();
    let section =
        text.split("## What only `xebec check` finds").nth(1).unwrap().split("\n## ").next().unwrap();
    let cells = |cell: &str| cell.split(',').map(|item| item.trim().to_owned()).collect::<Vec<_>>();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| {
        let mut columns = row.trim_matches('|').split('|');
        (cells(columns.next().unwrap()), cells(columns.next().unwrap()))
    })
    .collect()
}

/// Returns true if a text matches a pattern, in which `*` matches any text.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => text.strip_prefix(head).is_some_and(|rest| {
            (0..=rest.len()).filter_map(|at| rest.get(at..)).any(|rest| matches(tail, rest))
        }),
    }
}

/// Returns the damaged field without indices: `keys[3].startblock` becomes `keys[].startblock`.
fn field(case: &Case) -> String {
    let name = case.how.split_whitespace().find(|word| !word.starts_with('-') && *word != "fuzz");
    let mut inside = false;
    let keep = |c: &char| {
        let kept = !inside || *c == ']';
        inside = if *c == '[' { true } else { inside && *c != ']' };
        kept
    };
    name.unwrap_or_default().chars().filter(keep).collect()
}

fn judge(base: &str) {
    let work = tempfile::tempdir().unwrap();
    let volume = Volume::unpack(base, work.path()).unwrap();
    assert_eq!(first_finding(&volume, 2), None, "{base} without damage");
    let table = explained();
    let any = |patterns: &[String], text: &str| patterns.iter().any(|pattern| matches(pattern, text));
    let (mut missed, mut unexplained) = (Vec::new(), Vec::new());
    for case in load(base).unwrap() {
        volume.damage(&case).unwrap();
        let found = first_finding(&volume, 2);
        volume.restore(&case).unwrap();
        let what = format!("{}: {}; {}", case.structure, case.at.join("; "), case.how);
        match (repair_finds_damage(&case), found) {
            (true, None) => missed.push(format!("{what}: {:?}", case.repair)),
            (false, Some(found)) => {
                let row = |(structures, fields): &(Vec<String>, Vec<String>)| {
                    any(structures, &case.structure) && any(fields, &field(&case))
                };
                if !table.iter().any(row) {
                    unexplained.push(format!("{what}: {found}"));
                }
            }
            _ => (),
        }
    }
    assert!(missed.is_empty(), "only xfs_repair finds:\n{}", missed.join("\n"));
    assert!(unexplained.is_empty(), "not in docs/check-vs-repair.md:\n{}", unexplained.join("\n"));
}

#[test]
fn checker_finds_all_damage_that_xfs_repair_finds() {
    let Some(()) = needs::met(needs::tools(&["xz"])) else { return };
    let bases = bases().unwrap();
    assert!(!bases.is_empty());
    std::thread::scope(|scope| {
        bases.iter().for_each(|base| {
            scope.spawn(move || judge(base));
        });
    });
}

#[test]
fn patterns_match_fields() {
    assert!(matches("*", "") && matches("keys[]*", "keys[].owner_hi") && matches("*lsn", "hdr.info.lsn"));
    assert!(!matches("keys[]", "keys[].owner") && !matches("*lsn", "lsnx"));
}
