//! Calls that are banned, everywhere or in some crates.

use super::Complaints;
use super::dead;
use super::tree::Tree;

/// The code that a ban applies to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Code {
    All,
    Tests,
    OutsideOfTests,
}

/// A ban of calls, by path prefixes.
struct Ban {
    /// Banned calls, as in [`super::rust::Call::name`].
    calls: &'static [&'static str],
    /// Directories in which they are banned; empty for all.
    within: &'static [&'static str],
    /// Directories in which they are allowed.
    except: &'static [&'static str],
    /// Tests, other code, or both.
    code: Code,
    /// Replacement, or the reason.
    instead: &'static str,
}

/// Crates that parse bytes from a disk or a store.
const LIBRARIES: &[&str] = &["base/", "format/", "block/", "journal/", "ag/", "inode/", "tools/", "remote/"];

/// Tests start programs through one crate.
const COMMANDS: &str =
    "a test starts programs through the crate `needs`, so that it is skipped where they are missing";

const BANS: &[Ban] = &[
    Ban {
        calls: &["todo!", "unimplemented!", "dbg!"],
        within: &[],
        except: &[],
        code: Code::All,
        instead: "unfinished code is not committed",
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
        instead: "a library returns its results; front ends print",
    },
    Ban {
        calls: &["Barrier::new("],
        within: &[],
        except: &[],
        code: Code::All,
        instead: "a thread that panics leaves the others waiting: use a channel or base::stop",
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
        except: &["proof/needs/"],
        code: Code::All,
        instead: COMMANDS,
    },
    Ban {
        calls: &["Instant::now("],
        within: &["base/", "format/", "journal/", "remote/"],
        except: &[],
        code: Code::OutsideOfTests,
        instead: "use the clock that is passed in, so that a run can be replayed",
    },
    Ban {
        calls: &["SystemTime::now("],
        within: LIBRARIES,
        except: &[],
        code: Code::OutsideOfTests,
        instead: "use the clock that is passed in, so that a run can be replayed",
    },
];

/// No file makes a call that [`BANS`] bans there.
pub fn banned(tree: &Tree, complaints: &mut Complaints) {
    let test_files = dead::test_files(tree);
    for (file, rust) in tree.rust_files() {
        let is_in = |folders: &[&str]| folders.iter().any(|folder| file.path.starts_with(folder));
        let whole_file_tests = test_files.contains(&file.path);
        for ban in
            BANS.iter().filter(|ban| (ban.within.is_empty() || is_in(ban.within)) && !is_in(ban.except))
        {
            for call in rust.calls.iter().filter(|call| ban.calls.contains(&call.name.as_str())) {
                let is_test = whole_file_tests || rust.is_test_line(call.line);
                if ban.code == if is_test { Code::OutsideOfTests } else { Code::Tests } {
                    continue;
                }
                complaints.add(&file.path, call.line, format_args!("`{}`: {}", call.name, ban.instead));
            }
        }
    }
}

/// Every Rust file parses: other rules skip a file that does not.
pub fn parses(tree: &Tree, complaints: &mut Complaints) {
    for file in tree.files().filter(|file| file.has_extension("rs") && file.rust.is_none()) {
        complaints.add(&file.path, 1, "does not parse as Rust");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests once checked for programs on their own. On a machine without `.ci/install` some failed instead of being
    /// skipped, and some passed without testing anything.
    #[test]
    fn tests_start_programs_through_one_crate() {
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
        let paths: Vec<&str> = complaints.lines.iter().filter_map(|line| line.split(':').next()).collect();
        assert_eq!(paths, ["cli/tests/cli.rs", "journal/src/lib.rs", "proof/interop/src/lib.rs"]);
    }
}
