//! Files and functions that may break a rule, each with its reason. Remove exceptions rather than add them.

/// A file that may be longer than the limit.
pub struct LongFile {
    /// Path of the file.
    pub path: &'static str,
    /// Maximum number of lines.
    pub lines: usize,
    /// Reason for not splitting it.
    pub why: &'static str,
}

/// A function that may be longer than the limit.
pub struct LongFunction {
    /// Path of its file.
    pub path: &'static str,
    /// Name of the function.
    pub name: &'static str,
    /// Maximum number of lines.
    pub lines: usize,
    /// Reason for not splitting it.
    pub why: &'static str,
}

/// Exceptions of [`super::length::files`].
pub const LONG_FILES: &[LongFile] = &[];

/// Exceptions of [`super::length::functions`].
pub const LONG_FUNCTIONS: &[LongFunction] = &[];

/// Files, and directories with a final `/`, that the project does not write: no rule about text applies.
pub const FOREIGN_TEXT: &[(&str, &str)] = &[
    ("Cargo.lock", "written by cargo"),
    ("docs/runs/", "written by `xebec bench --results`"),
    ("proof/fuzz/Cargo.lock", "written by cargo"),
    ("proof/interop/damage/", "written by `interop damage record`"),
    ("LICENSE-MIT", "must be verbatim"),
    ("LICENSE-APACHE", "must be verbatim"),
    ("proof/fuzz/regressions/", "inputs that fuzzing found"),
];
