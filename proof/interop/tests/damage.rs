//! Wherever `xfs_repair -n` complains of damage, `xebec check` does.

use interop::damage::bases;
use interop::damage::judge::{Table, answers, describe};
use interop::needs;

/// Damage of which xfs_repair complains and Xebec does not, with the reason. `docs/check-vs-repair.md` has more.
const KNOWN: &[(&str, &str, &str)] = &[(
    "attribute",
    ".incomplete",
    "an incomplete attribute is what a crash may leave behind, and readers pass over it: a warning, not damage",
)];

fn known(structure: &str, how: &str) -> bool {
    KNOWN.iter().any(|(place, field, _)| structure.contains(place) && how.contains(field))
}

#[test]
fn check_complains_wherever_xfs_repair_does() {
    if let Err(why) = needs::tools(&["xz"]) {
        return needs::skip("check_complains_wherever_xfs_repair_does", &why);
    }
    let xebec = needs::xebec().unwrap();
    let mut table = Table::default();
    let (mut cases, mut missed) = (0, Vec::new());
    for base in bases().unwrap() {
        for answer in answers(&base, &xebec).unwrap() {
            cases += 1;
            table.count(&answer);
            let silent = answer.repair_complains() && !answer.complains();
            if answer.broke() || silent && !known(&answer.case.structure, &answer.case.how) {
                missed.push(describe(&base, &answer));
            }
        }
    }
    println!("{table}");
    assert!(cases >= 500, "{cases} cases only");
    assert!(missed.is_empty(), "{} of {cases} cases:\n{}", missed.len(), missed.join("\n"));
}
