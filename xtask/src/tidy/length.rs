//! Maximum length of files and functions.

use super::Complaints;
use super::exceptions::{LONG_FILES, LONG_FUNCTIONS};
use super::rust::Function;
use super::tree::Tree;

const FILE_LINES_MAX: usize = 600;
const TEST_FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;

/// A Rust file or a script has at most [`FILE_LINES_MAX`] lines, a file of tests [`TEST_FILE_LINES_MAX`].
pub fn files(tree: &Tree, complaints: &mut Complaints) {
    for file in tree.files().filter(|file| file.ours()) {
        if !["rs", "sh", "py"].iter().any(|extension| file.has_extension(extension)) {
            continue;
        }
        let lines = file.text.lines().count();
        let limit = if is_test_file(&file.path) { TEST_FILE_LINES_MAX } else { FILE_LINES_MAX };
        let allowed = LONG_FILES.iter().find(|exception| exception.path == file.path);
        match allowed {
            None if lines > limit => {
                complaints.add(&file.path, lines, format_args!("{lines} lines, at most {limit}"));
            }
            Some(exception) if lines > exception.lines => complaints.add(
                &file.path,
                lines,
                format_args!("{lines} lines; its exception ({}) allows {}", exception.why, exception.lines),
            ),
            Some(_) if lines <= limit => {
                complaints.add(&file.path, lines, "no longer needs its exception in LONG_FILES");
            }
            _ => {}
        }
    }
    for exception in LONG_FILES.iter().filter(|exception| !tree.has(exception.path)) {
        complaints.add(exception.path, 1, "the exception in LONG_FILES names a file that does not exist");
    }
}

fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs")
}

/// A function has at most [`FUNCTION_LINES_MAX`] lines, in tests, too.
pub fn functions(tree: &Tree, complaints: &mut Complaints) {
    for (file, rust) in tree.rust_files() {
        for function in &rust.functions {
            let exception =
                LONG_FUNCTIONS.iter().find(|entry| entry.path == file.path && entry.name == function.name);
            let limit = exception.map_or(FUNCTION_LINES_MAX, |exception| exception.lines);
            let lines = length(function);
            if lines > limit {
                let name = &function.name;
                complaints.add(
                    &file.path,
                    *function.lines.start(),
                    format_args!("`{name}` has {lines} lines, at most {limit}"),
                );
            }
        }
    }
    for exception in LONG_FUNCTIONS {
        let needed = tree.file(exception.path).and_then(|file| file.rust.as_ref()).is_some_and(|rust| {
            rust.functions.iter().any(|f| f.name == exception.name && length(f) > FUNCTION_LINES_MAX)
        });
        if !needed {
            let (name, why) = (exception.name, exception.why);
            let message = format!("`{name}` no longer needs its exception ({why}) in LONG_FUNCTIONS");
            complaints.add(exception.path, 1, message);
        }
    }
}

fn length(function: &Function) -> usize {
    function.lines.end() + 1 - function.lines.start()
}
