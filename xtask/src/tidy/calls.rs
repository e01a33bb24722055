//! Calls that have no place in this code, or not in this room of it.

use super::Complaints;
use super::dead;
use super::tree::Tree;

/// Where a ban holds, as beginnings of paths.
struct Ban {
    /// As in [`super::rust::Call::what`].
    calls: &'static [&'static str],
    /// Rooms in which they are banned; empty for all.
    within: &'static [&'static str],
    /// Rooms in which they are not.
    except: &'static [&'static str],
    /// Whether tests may.
    tests_may: bool,
    /// What to do instead.
    instead: &'static str,
}

/// The crates that read what a disk says.
const LIBRARIES: &[&str] = &["base/", "format/", "block/", "log/", "ag/", "inode/", "tools/"];

const BANS: &[Ban] = &[
    Ban {
        calls: &["todo!", "unimplemented!", "dbg!"],
        within: &[],
        except: &[],
        tests_may: false,
        instead: "what is not finished does not land",
    },
    Ban {
        calls: &[".unwrap(", ".expect(", ".unwrap_err(", ".expect_err(", "panic!"],
        within: LIBRARIES,
        except: &[],
        tests_may: true,
        instead: "bytes from a disk must not be able to panic the program: return an error",
    },
    Ban {
        calls: &["process::exit("],
        within: &[],
        except: &["doors/"],
        tests_may: false,
        instead: "return an ExitCode: destructors must run",
    },
    Ban {
        calls: &["println!", "print!", "eprintln!", "eprint!"],
        within: LIBRARIES,
        except: &[],
        tests_may: true,
        instead: "a library returns what it has to say; the doors print",
    },
    Ban {
        calls: &["Barrier::new("],
        within: &[],
        except: &[],
        tests_may: false,
        instead: "who panics before it leaves the others waiting: send on a channel, or stop by base::stop",
    },
    Ban {
        calls: &["Instant::now("],
        within: &["base/", "format/", "log/"],
        except: &[],
        tests_may: true,
        instead: "a clock is handed in, so that a run can be replayed",
    },
    Ban {
        calls: &["SystemTime::now("],
        within: LIBRARIES,
        except: &[],
        tests_may: true,
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
                if ban.tests_may && (whole_file_tests || rust.is_test_line(call.line)) {
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
