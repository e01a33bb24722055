//! SELinux labels from a `file_contexts` file, as in `setfiles` (`selabel_file(5)`).
//!
//! A line has a regular expression for a whole path from the root of the volume, optionally a file type (`--`, `-d`,
//! `-l`, `-c`, `-b`, `-p`, `-s`), and a context, or `<<none>>` for no label. `#` begins a comment. A literal path takes
//! precedence over expressions; of those, the last match decides.
//!
//! # Invariants
//! Expressions have no look-around and no back-references, so that matching takes time linear in the path.

use std::collections::HashMap;

use format::inode::FileType;
use regex::bytes::{Regex, RegexBuilder};

use crate::item::EntryKind;
use crate::overrides::BadLine;

/// The extended attribute of a label.
pub const ATTRIBUTE: &[u8] = b"security.selinux";

/// Labels by path.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    /// Lines with literal paths.
    literals: HashMap<Vec<u8>, Vec<Line>>,
    /// The other lines, in order.
    expressions: Vec<(Expression, Line)>,
}

#[derive(Clone, Debug)]
struct Line {
    /// The file type; `None` for all.
    kind: Option<FileType>,
    /// The context with a trailing NUL, as Linux stores it; `None` for `<<none>>`.
    context: Option<Vec<u8>>,
}

#[derive(Clone, Debug)]
struct Expression {
    /// Common prefix of all matching paths: it rejects most paths.
    stem: Vec<u8>,
    regex: Regex,
}

/// The file type of a mark.
fn marked(mark: &str) -> Option<FileType> {
    Some(match mark {
        "--" => FileType::Regular,
        "-d" => FileType::Directory,
        "-l" => FileType::Symlink,
        "-c" => FileType::CharDevice,
        "-b" => FileType::BlockDevice,
        "-p" => FileType::Fifo,
        "-s" => FileType::Socket,
        _ => return None,
    })
}

/// The file type of an entry. `None` for a hard link, which has its label already.
fn type_of(kind: &EntryKind) -> Option<FileType> {
    Some(match kind {
        EntryKind::File { .. } => FileType::Regular,
        EntryKind::Directory => FileType::Directory,
        EntryKind::Symlink(_) => FileType::Symlink,
        EntryKind::CharDevice(_) => FileType::CharDevice,
        EntryKind::BlockDevice(_) => FileType::BlockDevice,
        EntryKind::Fifo => FileType::Fifo,
        EntryKind::Socket => FileType::Socket,
        EntryKind::Link(_) => return None,
    })
}

impl Labels {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// The first invalid line.
    pub fn parse(text: &str) -> Result<Self, BadLine> {
        let mut labels = Self::default();
        for (index, line) in text.lines().enumerate() {
            labels.add(line).map_err(|problem| BadLine { number: index + 1, problem })?;
        }
        Ok(labels)
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<_> = line.split_whitespace().collect();
        let (path, kind, context) = match words.as_slice() {
            [] => return Ok(()),
            [first, ..] if first.starts_with('#') => return Ok(()),
            [path, context] => (path, None, context),
            [path, kind, context] => {
                let mark = marked(kind)
                    .ok_or_else(|| format!("\"{kind}\" is not a file type: --, -d, -l, -c, -b, -p or -s"))?;
                (path, Some(mark), context)
            }
            _ => return Err("expected EXPRESSION [TYPE] CONTEXT".into()),
        };
        let context = match *context {
            "<<none>>" => None,
            context if context.split(':').count() >= 3 => Some([context.as_bytes(), b"\0"].concat()),
            context => return Err(format!("\"{context}\" is not a context: USER:ROLE:TYPE[:LEVEL]")),
        };
        let line = Line { kind, context };
        if let Some(literal) = literal(path) {
            self.literals.entry(literal).or_default().push(line);
            return Ok(());
        }
        let mut builder = RegexBuilder::new(&format!(r"\A(?:{path})\z"));
        let regex = builder.unicode(false).dot_matches_new_line(true).build();
        let regex = regex.map_err(|error| error.to_string())?;
        self.expressions.push((Expression { stem: stem(path), regex }, line));
        Ok(())
    }

    /// The label of a file with this path below the root; `None` if it gets none.
    pub fn of(&self, path: &[u8], kind: &EntryKind) -> Option<&[u8]> {
        let mark = type_of(kind)?;
        let path = [b"/", path].concat();
        let fits = |line: &&Line| line.kind.is_none_or(|kind| kind == mark);
        let literal = self.literals.get(&path).and_then(|lines| lines.iter().rev().find(fits));
        let line = literal.or_else(|| {
            let mut fitting = self.expressions.iter().rev().filter(|(_, line)| fits(&line));
            let found =
                fitting.find(|(found, _)| path.starts_with(&found.stem) && found.regex.is_match(&path));
            found.map(|(_, line)| line)
        });
        line?.context.as_deref()
    }
}

/// Special characters of expressions.
const META: &[u8] = b".^$?*+|[]{}()";

/// The path of an expression that matches only one; a backslash escapes special characters.
fn literal(expression: &str) -> Option<Vec<u8>> {
    let (mut literal, mut bytes) = (Vec::new(), expression.bytes());
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => literal.push(bytes.next().filter(|byte| !byte.is_ascii_alphanumeric())?),
            byte if META.contains(&byte) => return None,
            byte => literal.push(byte),
        }
    }
    Some(literal)
}

/// The directories that an expression begins with. A character before `?` or `*` may be missing, and what precedes `|`
/// is one of several alternatives.
fn stem(expression: &str) -> Vec<u8> {
    if expression.contains('|') && !expression.contains('(') {
        return Vec::new();
    }
    let is_plain = |byte: &u8| !META.contains(byte) && *byte != b'\\';
    let plain: Vec<u8> = expression.bytes().take_while(is_plain).collect();
    let before = plain.get(..plain.len().saturating_sub(1)).unwrap_or_default();
    let end = before.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    before.get(..end).unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Data;

    const TEXT: &str = "\
# A policy in small.
/.*                     system_u:object_r:default_t:s0
/                  -d   system_u:object_r:root_t:s0
/usr(/.*)?              system_u:object_r:usr_t:s0
/usr/(.*/)?bin(/.*)?    system_u:object_r:bin_t:s0
/etc/hosts\\.conf        system_u:object_r:literal_t:s0
/etc/.*                 system_u:object_r:etc_t:s0

/etc/.*            -l   system_u:object_r:etc_link_t:s0
/proc/.*                <<none>>
/dev/tty[0-9]+     -c   system_u:object_r:tty_t:s0
/a|/b/c                 system_u:object_r:either_t:s0
/opt/?                  system_u:object_r:opt_t:s0
";

    fn label(labels: &Labels, path: &str, kind: &EntryKind) -> Option<String> {
        let label = labels.of(path.as_bytes(), kind)?;
        let text = String::from_utf8(label.strip_suffix(b"\0").unwrap().to_vec()).unwrap();
        text.split(':').nth(2).map(Into::into)
    }

    #[test]
    fn the_last_expression_that_matches_decides_and_a_path_beats_all() {
        let labels = Labels::parse(TEXT).unwrap();
        let file = EntryKind::File { size: 0, data: Data::default() };
        let (link, tty) = (
            EntryKind::Symlink(b"x".to_vec()),
            EntryKind::CharDevice(volume::DeviceNumber { major: 4, minor: 1 }),
        );
        for (path, kind, expected) in [
            ("", &EntryKind::Directory, Some("root_t")),
            ("home", &EntryKind::Directory, Some("default_t")),
            ("usr", &EntryKind::Directory, Some("usr_t")),
            ("usr/share/x", &file, Some("usr_t")),
            ("usr/bin", &EntryKind::Directory, Some("bin_t")),
            ("usr/local/bin/x", &file, Some("bin_t")),
            ("usrlocal", &file, Some("default_t")),
            ("etc/hosts.conf", &file, Some("literal_t")),
            ("etc/hostsxconf", &file, Some("etc_t")),
            ("etc/hosts.conf", &link, Some("literal_t")),
            ("etc/mtab", &link, Some("etc_link_t")),
            ("proc/1", &file, None),
            ("dev/tty12", &tty, Some("tty_t")),
            ("dev/tty12", &file, Some("default_t")),
            ("a", &file, Some("either_t")),
            ("b/c", &file, Some("either_t")),
            ("a/b/c", &file, Some("default_t")),
            ("opt", &EntryKind::Directory, Some("opt_t")),
            ("etc/other", &EntryKind::Link(b"etc/hosts.conf".to_vec()), None),
        ] {
            assert_eq!(label(&labels, path, kind).as_deref(), expected, "{path}");
        }
        // Bytes that are not UTF-8, and a name with a newline.
        assert!(labels.of(b"etc/\xff\n", &file).is_some_and(|label| label.ends_with(b"etc_t:s0\0")));
    }

    #[test]
    fn invalid_lines_are_named() {
        for (text, number, part) in [
            ("\n/etc/.* -x system_u:object_r:etc_t", 2, "not a file type"),
            ("/etc", 1, "EXPRESSION"),
            ("/etc etc_t", 1, "not a context"),
            ("/etc/( system_u:object_r:etc_t", 1, "unclosed"),
            ("/(?=x)y system_u:object_r:etc_t", 1, "look-around"),
        ] {
            let bad = Labels::parse(text).unwrap_err();
            assert!(bad.number == number && bad.problem.contains(part), "{bad}");
        }
    }
}
