//! Calls that have no place in this code, or not in this room of it.

use super::Complaints;
use super::dead;
use super::tree::Tree;

/// Which code a ban is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Code {
    All,
    Tests,
    OutsideOfTests,
}

/// Where a ban holds, as beginnings of paths.
struct Ban {
    /// As in [`super::rust::Call::what`].
    calls: &'static [&'static str],
    /// Rooms in which they are banned; empty for all.
    within: &'static [&'static str],
    /// Rooms in which they are not.
    except: &'static [&'static str],
    /// In which code.
    code: Code,
    /// What to do instead.
    instead: &'static str,
}

/// The crates that read what a disk says.
const LIBRARIES: &[&str] = &["base/", "format/", "block/", "journal/", "ag/", "inode/", "tools/"];

/// How tests start programs.
const COMMANDS: &str =
    "a test asks for programs and starts them by the crate needs, so that it can be skipped";

const BANS: &[Ban] = &[
    Ban {
        calls: &["todo!", "unimplemented!", "dbg!"],
        within: &[],
        except: &[],
        code: Code::All,
        instead: "what is not finished does not land",
    },
    Ban {
        calls: &[".unwrap(", ".expect(", ".unwrap_err(", ".expect_err(", "panic!"],
        within: LIBRARIES,
        except: &[],
        code: Code::OutsideOfTests,
        instead: "bytes from a disk must not be able to panic the program: return an error",
    },
    Ban {
        calls: &["process::exit("],
        within: &[],
        except: &["cli/"],
        code: Code::All,
        instead: "return an ExitCode: destructors must run",
    },
    Ban {
        calls: &["println!", "print!", "eprintln!", "eprint!"],
        within: LIBRARIES,
        except: &[],
        code: Code::OutsideOfTests,
        instead: "a library returns what it has to say; the front ends print",
    },
    Ban {
        calls: &["Barrier::new("],
        within: &[],
        except: &[],
        code: Code::All,
        instead: "who panics before it leaves the others waiting: send on a channel, or stop by base::stop",
    },
    Ban {
        calls: &["Command::new("],
        within: &[],
        except: &["proof/needs/"],
        code: Code::Tests,
        instead: COMMANDS,
    },
    Ban {
        calls: &["Command::new("],
        within: &["proof/"],
        except: &["proof/needs/", "proof/bench/"],
        code: Code::All,
        instead: COMMANDS,
    },
    Ban {
        calls: &["Instant::now("],
        within: &["base/", "format/", "journal/"],
        except: &[],
        code: Code::OutsideOfTests,
        instead: "a clock is handed in, so that a run can be replayed",
    },
    Ban {
        calls: &["SystemTime::now("],
        within: LIBRARIES,
        except: &[],
        code: Code::OutsideOfTests,
        instead: "a clock is handed in, so that a run can be replayed",
    },
];

/// No call of [`BANS`] where it is banned.
pub fn banned(tree: &Tree, complaints: &mut Complaints) {
    let test_files = dead::test_files(tree);
    for (file, rust) in tree.rust_files() {
        let is = |rooms: &[&str]| rooms.iter().any(|room| file.path.starts_with(room));
        let whole_file_tests = test_files.contains(&file.path);
        for ban in BANS.iter().filter(|ban| (ban.within.is_empty() || is(ban.within)) && !is(ban.except)) {
            for call in rust.calls.iter().filter(|call| ban.calls.contains(&call.what.as_str())) {
                let is_test = whole_file_tests || rust.is_test_line(call.line);
                if ban.code == if is_test { Code::OutsideOfTests } else { Code::Tests } {
                    continue;
                }
                complaints.add(&file.path, call.line, format_args!("`{}`: {}", call.what, ban.instead));
            }
        }
    }
}

/// Every Rust file parses: one that does not would escape the rules that read its syntax.
pub fn parses(tree: &Tree, complaints: &mut Complaints) {
    for file in tree.files().filter(|file| file.has_extension("rs") && file.rust.is_none()) {
        complaints.add(&file.path, 1, "does not parse as Rust");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests named programs one by one. On a machine without `.ci/install` some failed where they should be skipped,
    /// and some passed without a word.
    #[test]
    fn tests_start_programs_by_one_crate_alone() {
        let start = |test: &str| format!("{test}\nfn f() {{ std::process::{}(\"xz\"); }}\n", "Command::new");
        let tree = Tree::of_files([
            ("cli/src/main.rs", start("")),
            ("cli/tests/cli.rs", start("#[test]")),
            ("journal/src/lib.rs", start("#[cfg(test)]")),
            ("proof/interop/src/lib.rs", start("")),
            ("proof/needs/src/lib.rs", start("")),
        ]);
        let mut complaints = Complaints::default();
        banned(&tree, &mut complaints);
        let places: Vec<&str> = complaints.lines.iter().filter_map(|line| line.split(':').next()).collect();
        assert_eq!(places, ["cli/tests/cli.rs", "journal/src/lib.rs", "proof/interop/src/lib.rs"]);
    }
}
