//! Output of `diff`.

use std::io::{self, Write};

use format::inode::FileType;
use serde::Serialize;
use serde_json::{Map, Value, json};
use xebec::difference::{Difference, DifferenceReport, DifferentFile, FileProperty};

use crate::commands::ls::mode_text;
use crate::json::{self, JsonName};
use crate::names::{Quoting, quoted};
use crate::output::counted;
use crate::sizes::with_unit;

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// A letter, the path, and what differs.
    Details,
    /// As `diff -rq`.
    Brief,
    /// As `git diff --name-status`.
    NameStatus,
    NameOnly {
        null: bool,
    },
    /// Totals only.
    Totals,
    Json,
}

/// Writes differences.
pub struct Lines {
    format: OutputFormat,
    /// The operands.
    names: [Vec<u8>; 2],
    quoting: Quoting,
    coloured: bool,
    /// Whether an element of the array was written.
    has_elements: bool,
    /// The last directory that only one tree has.
    only: Option<Vec<u8>>,
}

impl Lines {
    pub fn new(format: OutputFormat, names: [Vec<u8>; 2], coloured: bool) -> Self {
        Self { format, names, quoting: Quoting::for_stdout(), coloured, has_elements: false, only: None }
    }

    /// Writes a difference.
    pub fn write(&mut self, out: &mut impl Write, difference: &Difference) -> io::Result<()> {
        match self.format {
            OutputFormat::Totals => Ok(()),
            OutputFormat::Json => {
                let separator = if self.has_elements { json::SEPARATOR } else { b"" };
                self.has_elements = true;
                out.write_all(separator)?;
                out.write_all(json::object(&Element::of(difference)).as_bytes())
            }
            OutputFormat::NameOnly { null: true } => {
                out.write_all(shown(difference))?;
                out.write_all(b"\0")
            }
            OutputFormat::NameOnly { null: false } => self.line(out, "", shown(difference), ""),
            OutputFormat::NameStatus => {
                self.line(out, &format!("{}\t", letter(difference)), shown(difference), "")
            }
            OutputFormat::Details => {
                let details = details(difference);
                let details = if details.is_empty() { details } else { format!("  ({details})") };
                self.line(out, &format!("{} ", letter(difference)), shown(difference), &details)
            }
            OutputFormat::Brief => self.brief(out, difference),
        }
    }

    fn line(&self, out: &mut impl Write, start: &str, path: &[u8], end: &str) -> io::Result<()> {
        let colour = match start.chars().next().filter(|_| self.coloured) {
            Some('A') => "\x1b[32m",
            Some('D') => "\x1b[31m",
            Some(_) => "\x1b[33m",
            None => "",
        };
        let mut line = colour.as_bytes().to_vec();
        line.extend_from_slice(start.as_bytes());
        self.quoting.push(&mut line, path);
        if !colour.is_empty() {
            line.extend_from_slice(b"\x1b[0m");
        }
        line.extend_from_slice(end.as_bytes());
        line.push(b'\n');
        out.write_all(&line)
    }

    /// A line of `diff -rq`.
    fn brief(&mut self, out: &mut impl Write, difference: &Difference) -> io::Result<()> {
        let Difference { path, old, new, properties, .. } = difference;
        let whole = |name: &Vec<u8>| match path.as_slice() {
            b"" => quoted(name),
            path => quoted(&[name.strip_suffix(b"/").unwrap_or(name), b"/", path].concat()),
        };
        let [left, right] = &self.names;
        if let (Some(old), Some(new)) = (old, new) {
            let (left, right) = (whole(left), whole(right));
            if properties.contains(&FileProperty::Type) {
                // The files in a directory that replaces another file are not listed, either.
                self.only = Some([path, &b"/"[..]].concat());
                let (old, new) = (type_text(old.kind), type_text(new.kind));
                return writeln!(out, "File {left} is a {old} while file {right} is a {new}");
            }
            return writeln!(out, "Files {left} and {right} differ");
        }
        if self.only.as_ref().is_some_and(|only| path.starts_with(only)) {
            return Ok(());
        }
        self.only = Some([path, &b"/"[..]].concat());
        let name = if old.is_some() { left } else { right };
        let (parent, last) = match path.iter().rposition(|byte| *byte == b'/').map(|at| path.split_at(at)) {
            Some((parent, last)) => {
                let name = name.strip_suffix(b"/").unwrap_or(name);
                ([name, b"/", parent].concat(), last.get(1..).unwrap_or_default())
            }
            None => (name.clone(), path.as_slice()),
        };
        writeln!(out, "Only in {}: {}", quoted(&parent), quoted(last))
    }

    /// Writes what follows the differences.
    pub fn end(&self, out: &mut impl Write, report: &DifferenceReport) -> io::Result<()> {
        let DifferenceReport {
            files,
            added,
            removed,
            changed,
            rewritten,
            bytes_added,
            bytes_removed,
            failed,
        } = *report;
        match self.format {
            OutputFormat::Json => out.write_all(&json::end(json!({
                "files": files,
                "added": added,
                "removed": removed,
                "changed": changed,
                "rewritten": rewritten,
                "bytes_added": bytes_added,
                "bytes_removed": bytes_removed,
                "failed": failed,
            }))),
            OutputFormat::Totals => {
                writeln!(
                    out,
                    "{}, {added} added, {removed} removed, {changed} changed",
                    counted(files, "file")
                )?;
                writeln!(out, "{} of the changed files with other contents", rewritten)?;
                writeln!(out, "{} added, {} removed", with_unit(bytes_added), with_unit(bytes_removed))
            }
            _ => Ok(()),
        }
    }
}

/// The path of a difference; `.` for the roots.
fn shown(difference: &Difference) -> &[u8] {
    if difference.path.is_empty() { b"." } else { &difference.path }
}

/// The letter of git for a difference.
fn letter(difference: &Difference) -> char {
    match (&difference.old, &difference.new) {
        (None, _) => 'A',
        (_, None) => 'D',
        _ if difference.properties.contains(&FileProperty::Type) => 'T',
        _ => 'M',
    }
}

/// A file type as `diff` names it.
fn type_text(kind: FileType) -> &'static str {
    match kind {
        FileType::Regular => "regular file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::BlockDevice => "block special file",
        FileType::CharDevice => "character special file",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}

/// What differs, in words.
fn details(difference: &Difference) -> String {
    let (Some(old), Some(new)) = (&difference.old, &difference.new) else { return String::new() };
    let property = |property: &FileProperty| match property {
        FileProperty::Type => format!("{} -> {}", type_text(old.kind), type_text(new.kind)),
        FileProperty::Contents if old.size == new.size => "contents".into(),
        FileProperty::Contents => format!("size {} -> {}", old.size, new.size),
        FileProperty::Target => {
            let target = |file: &DifferentFile| quoted(file.target.as_deref().unwrap_or_default());
            format!("target {} -> {}", target(old), target(new))
        }
        FileProperty::Device => {
            let number = |file: &DifferentFile| format!("{}:{}", file.device.major, file.device.minor);
            format!("device {} -> {}", number(old), number(new))
        }
        FileProperty::Mode => {
            let mode = |file: &DifferentFile| {
                String::from_utf8_lossy(&mode_text(file.kind, file.permissions)).into_owned()
            };
            format!("mode {} -> {}", mode(old), mode(new))
        }
        FileProperty::Owner => format!("owner {}:{} -> {}:{}", old.uid, old.gid, new.uid, new.gid),
        FileProperty::Attributes => {
            let names: Vec<_> = difference.attributes.iter().map(|name| quoted(name)).collect();
            names.join(", ")
        }
        FileProperty::Modified => "mtime".into(),
    };
    difference.properties.iter().map(property).collect::<Vec<_>>().join(", ")
}

/// A difference in JSON.
#[derive(Serialize)]
struct Element<'e> {
    #[serde(flatten)]
    path: JsonName<'e>,
    change: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    properties: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    xattrs: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    old: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new: Option<Value>,
}

impl<'e> Element<'e> {
    fn of(difference: &'e Difference) -> Self {
        let property = |property: &FileProperty| match property {
            FileProperty::Type => "type",
            FileProperty::Contents => "contents",
            FileProperty::Target => "target",
            FileProperty::Device => "rdev",
            FileProperty::Mode => "mode",
            FileProperty::Owner => "owner",
            FileProperty::Attributes => "xattrs",
            FileProperty::Modified => "mtime",
        };
        let change = match letter(difference) {
            'A' => "added",
            'D' => "removed",
            _ => "changed",
        };
        Self {
            path: JsonName("path", shown(difference)),
            change,
            properties: difference.properties.iter().map(property).collect(),
            xattrs: difference.attributes.iter().map(|name| read::manifest::xattr_key(name)).collect(),
            old: difference.old.as_ref().map(file),
            new: difference.new.as_ref().map(file),
        }
    }
}

/// A file in JSON, with the keys of the manifest.
fn file(file: &DifferentFile) -> Value {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| drop(object.insert(key.into(), value));
    put("type", json::type_name(file.kind).into());
    put("mode", format!("{:04o}", file.permissions).into());
    put("uid", file.uid.into());
    put("gid", file.gid.into());
    if file.kind == FileType::Regular {
        put("size", file.size.into());
    }
    put("mtime", format!("{}.{:09}", file.modified.seconds, file.modified.nanos).into());
    if matches!(file.kind, FileType::BlockDevice | FileType::CharDevice) {
        put("rdev", format!("{}:{}", file.device.major, file.device.minor).into());
    }
    if let Some(target) = &file.target {
        let (key, target) = json::name("target", target);
        put(&key, target);
    }
    object.into()
}
