//! The places that may break a rule, each with its reason. Shorter is better: a ratchet turns one way only.

/// A file that may be longer than its rule allows.
pub struct LongFile {
    /// The file.
    pub path: &'static str,
    /// Lines it may have.
    pub lines: usize,
    /// Why it is one subject.
    pub why: &'static str,
}

/// A function that may be longer than its rule allows.
pub struct LongFunction {
    /// Its file.
    pub path: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Lines it may have.
    pub lines: usize,
    /// Why it is one step.
    pub why: &'static str,
}

/// Files past [`super::length`]'s limits.
pub const LONG_FILES: &[LongFile] = &[];

/// Functions past [`super::length`]'s limit.
pub const LONG_FUNCTIONS: &[LongFunction] = &[];

/// Files, or folders with a final `/`, whose text is not prose or code of ours: no rule about text applies.
pub const FOREIGN_TEXT: &[(&str, &str)] = &[
    ("Cargo.lock", "written by cargo"),
    ("proof/fuzz/Cargo.lock", "written by cargo"),
    ("proof/interop/damage/", "written by `interop damage record`"),
    ("LICENSE-MIT", "must be verbatim"),
    ("LICENSE-APACHE", "must be verbatim"),
    ("proof/fuzz/regressions/", "bytes that fuzzing found"),
];
