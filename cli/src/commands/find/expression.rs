//! The expression of `find`: tests and actions, joined by `-a`, `-o`, `!` and parentheses.
//!
//! Each word is an option of the command line, so that `--help` and completions list it; the expression is built from
//! their order.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use format::inode::{FileType, InodeTimes};
use format::timestamp::Timestamp;

use super::tests::{Age, Bound, Perm, Size, parse_type};
use crate::glob::Pattern;

/// A word of expressions: name, name of its value, and help.
type Word = (&'static str, Option<&'static str>, &'static str);

/// Maximum depth of parentheses.
const DEPTH_MAX: usize = 100;

const NUMBER: Option<&str> = Some("[+-]N");

/// All words.
const WORDS: &[Word] = &[
    ("name", Some("PATTERN"), "File name matches a shell pattern"),
    ("iname", Some("PATTERN"), "Like -name, case insensitive"),
    ("path", Some("PATTERN"), "Path matches a shell pattern, in which * also matches /"),
    ("ipath", Some("PATTERN"), "Like -path, case insensitive"),
    (
        "type",
        Some("LETTERS"),
        "File type: f file, d directory, l symbolic link, p FIFO, s socket, b block device, c character device; \
        several separated by commas",
    ),
    (
        "size",
        Some("[+-]N[cwbkMG]"),
        "File size N, +N for more, -N for less, rounded up to units: c bytes, w two bytes, k, M, G, b 512-byte \
        blocks (default)",
    ),
    ("empty", None, "Empty file or directory"),
    ("inum", NUMBER, "Inode number"),
    ("links", NUMBER, "Number of hard links"),
    ("uid", NUMBER, "Numeric user ID"),
    ("gid", NUMBER, "Numeric group ID"),
    ("user", Some("NAME"), "Owner: a name in /etc/passwd of the image, or an ID"),
    ("group", Some("NAME"), "Group: a name in /etc/group of the image, or an ID"),
    ("nouser", None, "Owner has no name in /etc/passwd of the image"),
    ("nogroup", None, "Group has no name in /etc/group of the image"),
    ("perm", Some("[-/]MODE"), "Permissions are exactly MODE; -MODE: all bits set; /MODE: any bit set"),
    ("mtime", NUMBER, "Data modified N days ago, ignoring fractions; +N for more, -N for less"),
    ("atime", NUMBER, "Accessed N days ago"),
    ("ctime", NUMBER, "Status changed N days ago"),
    ("mmin", NUMBER, "Data modified N minutes ago"),
    ("amin", NUMBER, "Accessed N minutes ago"),
    ("cmin", NUMBER, "Status changed N minutes ago"),
    ("newer", Some("PATH"), "Data modified later than that of this file in the image"),
    ("anewer", Some("PATH"), "Accessed later than data of this file in the image was modified"),
    ("cnewer", Some("PATH"), "Status changed later than data of this file in the image was modified"),
    ("newermt", Some("TIME"), "Data modified later than this time, as in `touch -d`"),
    ("true", None, "Always"),
    ("false", None, "Never"),
    ("not", None, "Negate the next test; also !"),
    ("and", None, "Both tests are true (default between two tests); also -a"),
    ("or", None, "At least one test is true; also -o"),
    ("open", None, "Start of a group; also ("),
    ("close", None, "End of a group; also )"),
    ("prune", None, "Do not descend into this directory; always true"),
    ("print", None, "Print the path (default action)"),
    ("print0", None, "Print the path, terminated by a null byte"),
    ("ls", None, "Print in the format of `ls -dils`"),
];

/// Actions of GNU find that run commands. They are refused: `-exec rm {} \;` would remove files of the host.
const REFUSED: &[&str] = &["exec", "execdir", "ok", "okdir", "delete"];

/// Whether a word takes a value.
pub fn takes_value(word: &str) -> Option<bool> {
    let known = WORDS.iter().find(|(name, ..)| *name == word);
    known.map(|(_, value, _)| value.is_some()).or_else(|| REFUSED.contains(&word).then_some(false))
}

/// The option of a word, which may be spelled with one dash or as an operator.
pub fn word_of(argument: &OsStr) -> Option<&str> {
    Some(match argument.to_str()? {
        "!" => "not",
        "-a" => "and",
        "-o" => "or",
        "(" => "open",
        ")" => "close",
        text => {
            let word = text.strip_prefix("--").or_else(|| text.strip_prefix('-'))?;
            return takes_value(word).map(|_| word);
        }
    })
}

/// The parsed expression.
#[derive(Clone, Debug)]
pub struct Expression {
    /// Root of the expression.
    pub root: Node,
}

/// A node of an expression.
#[derive(Clone, Debug)]
pub enum Node {
    /// Disjunction, evaluated up to the first true operand.
    Or(Vec<Node>),
    /// Conjunction, evaluated up to the first false operand.
    And(Vec<Node>),
    /// Negation.
    Not(Box<Node>),
    /// A test of the file.
    Test(Test),
    /// An action; always true.
    Action(Action),
}

/// A timestamp of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeField {
    /// Access time (atime).
    Access,
    /// Modification time (mtime).
    Modify,
    /// Status change time (ctime).
    Change,
}

impl TimeField {
    /// The time of a file.
    pub fn of(self, times: &InodeTimes) -> Timestamp {
        match self {
            Self::Access => times.access,
            Self::Modify => times.modify,
            Self::Change => times.change,
        }
    }
}

/// A test of a file.
#[derive(Clone, Debug)]
pub enum Test {
    Constant(bool),
    Name(Pattern),
    Path(Pattern),
    Type(Vec<FileType>),
    Inode(Bound),
    Size(Size),
    Empty,
    Links(Bound),
    Uid(Bound),
    Gid(Bound),
    /// An owner by name, resolved when the image is open.
    User(OsString),
    /// A group by name, resolved when the image is open.
    Group(OsString),
    NoUser,
    NoGroup,
    Perm(Perm),
    Age(TimeField, Age),
    /// Comparison with the mtime of a file, resolved when the image is open.
    Newer(TimeField, OsString),
    After(TimeField, Timestamp),
}

/// An action on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Print,
    Print0,
    Long,
    Prune,
}

impl Node {
    /// Whether any node satisfies a predicate.
    pub fn any(&self, predicate: &dyn Fn(&Node) -> bool) -> bool {
        predicate(self)
            || match self {
                Self::Or(operands) | Self::And(operands) => operands.iter().any(|node| node.any(predicate)),
                Self::Not(node) => node.any(predicate),
                Self::Test(_) | Self::Action(_) => false,
            }
    }

    /// Replaces each test by the result of `resolve`.
    pub fn with_tests<E>(self, resolve: &mut dyn FnMut(Test) -> Result<Test, E>) -> Result<Self, E> {
        let mut all = |operands: Vec<Node>| {
            operands.into_iter().map(|node| node.with_tests(resolve)).collect::<Result<Vec<_>, E>>()
        };
        Ok(match self {
            Self::Or(operands) => Self::Or(all(operands)?),
            Self::And(operands) => Self::And(all(operands)?),
            Self::Not(node) => Self::Not(Box::new(node.with_tests(resolve)?)),
            Self::Test(test) => Self::Test(resolve(test)?),
            Self::Action(action) => Self::Action(action),
        })
    }
}

impl Test {
    /// Whether it needs the inode.
    pub fn needs_inode(&self) -> bool {
        !matches!(self, Self::Constant(_) | Self::Name(_) | Self::Path(_) | Self::Type(_) | Self::Inode(_))
    }

    fn new(word: &str, value: &OsStr) -> Result<Self, String> {
        let pattern = |fold| Pattern::new(value.as_bytes(), fold);
        let text = value.to_str().ok_or_else(|| format!("-{word}: the value is not UTF-8"));
        let error = |problem: String| format!("-{word}: {problem}");
        let number = || Bound::parse(text.clone()?).map_err(error);
        let age = |field, seconds| Ok(Self::Age(field, Age::parse(text.clone()?, seconds).map_err(error)?));
        const DAY: i128 = 24 * 60 * 60;
        match word {
            "true" | "false" => Ok(Self::Constant(word == "true")),
            "name" | "iname" => Ok(Self::Name(pattern(word == "iname"))),
            "path" | "ipath" => Ok(Self::Path(pattern(word == "ipath"))),
            "type" => {
                let types: Result<_, String> = text?.split(',').map(parse_type).collect();
                Ok(Self::Type(types.map_err(error)?))
            }
            "size" => Ok(Self::Size(Size::parse(text?).map_err(error)?)),
            "empty" => Ok(Self::Empty),
            "inum" => Ok(Self::Inode(number()?)),
            "links" => Ok(Self::Links(number()?)),
            "uid" => Ok(Self::Uid(number()?)),
            "gid" => Ok(Self::Gid(number()?)),
            "user" => Ok(Self::User(value.into())),
            "group" => Ok(Self::Group(value.into())),
            "nouser" => Ok(Self::NoUser),
            "nogroup" => Ok(Self::NoGroup),
            "perm" => Ok(Self::Perm(Perm::parse(text?).map_err(error)?)),
            "mtime" => age(TimeField::Modify, DAY),
            "atime" => age(TimeField::Access, DAY),
            "ctime" => age(TimeField::Change, DAY),
            "mmin" => age(TimeField::Modify, 60),
            "amin" => age(TimeField::Access, 60),
            "cmin" => age(TimeField::Change, 60),
            "newer" => Ok(Self::Newer(TimeField::Modify, value.into())),
            "anewer" => Ok(Self::Newer(TimeField::Access, value.into())),
            "cnewer" => Ok(Self::Newer(TimeField::Change, value.into())),
            "newermt" => {
                let time = crate::times::parse_date(text?).map_err(error)?;
                Ok(Self::After(
                    TimeField::Modify,
                    Timestamp { seconds: time.seconds, nanoseconds: time.nanos },
                ))
            }
            _ => Err(format!("unknown predicate -{word}")),
        }
    }
}

/// A word and its value, or an empty one.
type Token = (&'static str, OsString);

/// Parser of an expression.
struct Parser<'t> {
    rest: std::iter::Peekable<std::slice::Iter<'t, Token>>,
}

impl Parser<'_> {
    fn next_is(&mut self, word: &str) -> bool {
        self.rest.next_if(|(name, _)| *name == word).is_some()
    }

    fn or(&mut self, depth: usize) -> Result<Node, String> {
        let mut operands = vec![self.and(depth)?];
        while self.next_is("or") {
            operands.push(self.and(depth)?);
        }
        Ok(single_or(operands, Node::Or))
    }

    fn and(&mut self, depth: usize) -> Result<Node, String> {
        let mut operands = vec![self.operand(depth)?];
        loop {
            let has_operator = self.next_is("and");
            match self.rest.peek() {
                None | Some(("or" | "close", _)) if !has_operator => {
                    return Ok(single_or(operands, Node::And));
                }
                _ => operands.push(self.operand(depth)?),
            }
        }
    }

    fn operand(&mut self, depth: usize) -> Result<Node, String> {
        if depth > DEPTH_MAX {
            return Err("parentheses or ! are nested too deeply".into());
        }
        let Some((word, value)) = self.rest.next() else { return Err("missing test at the end".into()) };
        match *word {
            "not" => Ok(Node::Not(Box::new(self.operand(depth + 1)?))),
            "open" => {
                let inside = self.or(depth + 1)?;
                if !self.next_is("close") {
                    return Err("missing )".into());
                }
                Ok(inside)
            }
            "and" | "or" | "close" => Err(format!("missing test before {}", operator(word))),
            "print" => Ok(Node::Action(Action::Print)),
            "print0" => Ok(Node::Action(Action::Print0)),
            "ls" => Ok(Node::Action(Action::Long)),
            "prune" => Ok(Node::Action(Action::Prune)),
            word => Test::new(word, value).map(Node::Test),
        }
    }
}

fn operator(word: &str) -> &str {
    match word {
        "and" => "-a",
        "or" => "-o",
        _ => ")",
    }
}

fn single_or(mut operands: Vec<Node>, join: fn(Vec<Node>) -> Node) -> Node {
    match operands.len() {
        1 => operands.remove(0),
        _ => join(operands),
    }
}

/// Parses an expression. Without an action, `-print` is added.
fn parse(tokens: &[Token]) -> Result<Expression, String> {
    let mut root = Node::And(Vec::new());
    if !tokens.is_empty() {
        let mut parser = Parser { rest: tokens.iter().peekable() };
        root = parser.or(0)?;
        if parser.rest.peek().is_some() {
            return Err("missing (".into());
        }
    }
    if !root.any(&|node| matches!(node, Node::Action(action) if *action != Action::Prune)) {
        root = Node::And(vec![root, Node::Action(Action::Print)]);
    }
    Ok(Expression { root })
}

impl clap::Args for Expression {
    fn augment_args(command: Command) -> Command {
        let words = WORDS.iter().map(|(name, value, help)| {
            let arg = Arg::new(*name).long(*name).help(*help).action(ArgAction::Append);
            match value {
                Some(value) => {
                    let any = clap::builder::OsStringValueParser::new();
                    arg.value_name(*value).allow_hyphen_values(true).value_parser(any)
                }
                None => arg.num_args(0).default_missing_value(""),
            }
            .help_heading("Tests and actions")
        });
        let refused =
            REFUSED.iter().map(|name| Arg::new(*name).long(*name).hide(true).action(ArgAction::SetTrue));
        command.args(words).args(refused)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Expression {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let usage_error = |problem: String| clap::Error::raw(ErrorKind::ValueValidation, problem);
        if let Some(word) = REFUSED.iter().find(|word| matches.get_flag(word)) {
            return Err(usage_error(format!(
                "-{word} is not supported: commands cannot access files in an image; pass their paths to xebec: \
                `xebec find disk.xfs ... -print0 | xargs -0 xebec rm disk.xfs`"
            )));
        }
        let mut indexed: Vec<(usize, Token)> = Vec::new();
        for (name, ..) in WORDS {
            let (Some(indices), Some(values)) = (matches.indices_of(name), matches.get_raw(name)) else {
                continue;
            };
            indexed.extend(indices.zip(values).map(|(index, value)| (index, (*name, value.to_owned()))));
        }
        indexed.sort_by_key(|(index, _)| *index);
        let tokens: Vec<Token> = indexed.into_iter().map(|(_, token)| token).collect();
        parse(&tokens).map_err(usage_error)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    fn parsed(words: &[(&'static str, &str)]) -> Result<Expression, String> {
        let tokens: Vec<Token> = words.iter().map(|(word, value)| (*word, OsString::from(value))).collect();
        parse(&tokens)
    }

    #[test]
    fn parses_operators_by_precedence_and_refuses_invalid_expressions() {
        let tree =
            parsed(&[("name", "a"), ("or", ""), ("name", "b"), ("not", ""), ("empty", "")]).unwrap().root;
        let Node::And(operands) = &tree else { panic!("{tree:?}") };
        let [Node::Or(branches), Node::Action(Action::Print)] = operands.as_slice() else {
            panic!("{tree:?}")
        };
        let [Node::Test(Test::Name(_)), Node::And(both)] = branches.as_slice() else { panic!("{tree:?}") };
        assert!(matches!(both.as_slice(), [Node::Test(Test::Name(_)), Node::Not(_)]), "{tree:?}");
        for invalid in [
            &[("open", ""), ("true", "")][..],
            &[("true", ""), ("close", "")],
            &[("or", ""), ("true", "")],
            &[("true", ""), ("and", "")],
            &[("not", "")],
            &[("open", ""), ("close", "")],
            &[("size", "x")],
            &[("perm", "9")],
            &[("mtime", "soon")],
        ] {
            assert!(parsed(invalid).is_err(), "{invalid:?}");
        }
        assert!(parsed(&vec![("not", ""); 1000]).is_err());
    }
}
