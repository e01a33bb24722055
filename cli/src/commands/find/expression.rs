//! The expression of `find`: tests and actions, joined by `-a`, `-o`, `!` and parentheses.
//!
//! Each word is an option of the command line, so that `--help` and completions list it; what they mean together
//! follows from the places that they have on the command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use format::inode::{FileType, InodeTimes};
use format::timestamp::Timestamp;

use super::tests::{Age, Bound, Perm, Size, parse_type};
use crate::glob::Pattern;

/// A word of expressions: its name, the name of its value where it has one, and what it does.
type Word = (&'static str, Option<&'static str>, &'static str);

/// Parentheses deeper than this are refused.
const DEPTH_MAX: usize = 100;

const NUMBER: Option<&str> = Some("[+-]N");

/// All of them.
const WORDS: &[Word] = &[
    ("name", Some("PATTERN"), "The name matches a shell pattern"),
    ("iname", Some("PATTERN"), "The same without regard to case"),
    ("path", Some("PATTERN"), "The whole path matches a shell pattern, in which * matches / too"),
    ("ipath", Some("PATTERN"), "The same without regard to case"),
    (
        "type",
        Some("LETTERS"),
        "The type is one of these letters: f file, d directory, l link, p fifo, s socket, b and c devices; several \
         with commas",
    ),
    (
        "size",
        Some("[+-]N[cwbkMG]"),
        "The size: N, +N for more, -N for less; in units c bytes, w of 2, k, M, G, or b blocks of 512, and rounded \
         up to them",
    ),
    ("empty", None, "A file without contents, or a directory without entries"),
    ("inum", NUMBER, "The inode number"),
    ("links", NUMBER, "The number of links"),
    ("uid", NUMBER, "The owner, as a number"),
    ("gid", NUMBER, "The group, as a number"),
    ("user", Some("NAME"), "The owner, by the image's own /etc/passwd, or as a number"),
    ("group", Some("NAME"), "The group, by the image's own /etc/group, or as a number"),
    ("nouser", None, "The image's /etc/passwd has no name for the owner"),
    ("nogroup", None, "The image's /etc/group has no name for the group"),
    ("perm", Some("[-/]MODE"), "The permissions: exactly MODE, -MODE all of its bits, /MODE any of them"),
    ("mtime", NUMBER, "Contents changed N days ago, parts of a day left out; +N for longer ago, -N for less"),
    ("atime", NUMBER, "Read N days ago"),
    ("ctime", NUMBER, "Changed in any way N days ago"),
    ("mmin", NUMBER, "Contents changed N minutes ago"),
    ("amin", NUMBER, "Read N minutes ago"),
    ("cmin", NUMBER, "Changed in any way N minutes ago"),
    ("newer", Some("PATH"), "Contents changed later than those of this file of the image"),
    ("anewer", Some("PATH"), "Read later than the contents of this file of the image changed"),
    ("cnewer", Some("PATH"), "Changed in any way later than the contents of this file of the image"),
    ("newermt", Some("TIME"), "Contents changed later than this time, as `touch -d` takes it"),
    ("true", None, "Always"),
    ("false", None, "Never"),
    ("not", None, "The next test does not hold; also !"),
    ("and", None, "Both hold, as where nothing stands between two tests; also -a"),
    ("or", None, "One of both holds; also -o"),
    ("open", None, "Begin of a group; also ("),
    ("close", None, "End of a group; also )"),
    ("prune", None, "Do not descend into this directory; holds always"),
    ("print", None, "Show the path, which is done in any case where no action is named"),
    ("print0", None, "Show the path with a zero byte at its end"),
    ("ls", None, "Show what `ls -dils` would"),
];

/// What runs a command for each file. Peers have none, and a path of the image must not reach a program that takes it
/// for one of this machine: `-exec rm {} \;` would remove that.
const REFUSED: &[&str] = &["exec", "execdir", "ok", "okdir", "delete"];

/// Words that take one value, and are followed by it.
pub fn takes_value(word: &str) -> Option<bool> {
    let known = WORDS.iter().find(|(name, ..)| *name == word);
    known.map(|(_, value, _)| value.is_some()).or_else(|| REFUSED.contains(&word).then_some(false))
}

/// A word of the expression by the name of its option, as people write it.
pub fn spelled(argument: &OsStr) -> Option<&str> {
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

/// Tests and actions as they were written.
#[derive(Clone, Debug)]
pub struct Expression {
    /// What holds for each file that is shown.
    pub root: Node,
}

/// A part of an expression.
#[derive(Clone, Debug)]
pub enum Node {
    /// One of these holds; the first that does ends it.
    Or(Vec<Node>),
    /// All of these hold; the first that does not ends it.
    And(Vec<Node>),
    /// This does not hold.
    Not(Box<Node>),
    /// A test of the file.
    Test(Test),
    /// What is done with it; holds always.
    Action(Action),
}

/// One of an inode's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// Last read.
    Access,
    /// Last change of the contents.
    Modify,
    /// Last change of anything.
    Change,
}

impl Stamp {
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
    /// An owner by name, until the image is open.
    User(OsString),
    /// A group by name, until the image is open.
    Group(OsString),
    NoUser,
    NoGroup,
    Perm(Perm),
    Age(Stamp, Age),
    /// A time that is later than the change of a file's contents, until the image is open.
    Newer(Stamp, OsString),
    After(Stamp, Timestamp),
}

/// What is done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Print,
    Print0,
    Long,
    Prune,
}

impl Node {
    /// Whether some part of it is like this.
    pub fn any(&self, is: &dyn Fn(&Node) -> bool) -> bool {
        is(self)
            || match self {
                Self::Or(parts) | Self::And(parts) => parts.iter().any(|part| part.any(is)),
                Self::Not(part) => part.any(is),
                Self::Test(_) | Self::Action(_) => false,
            }
    }

    /// The same with each test put in the place of what `ready` gives for it.
    pub fn with_tests<E>(self, ready: &mut dyn FnMut(Test) -> Result<Test, E>) -> Result<Self, E> {
        let mut all = |parts: Vec<Node>| {
            parts.into_iter().map(|part| part.with_tests(ready)).collect::<Result<Vec<_>, E>>()
        };
        Ok(match self {
            Self::Or(parts) => Self::Or(all(parts)?),
            Self::And(parts) => Self::And(all(parts)?),
            Self::Not(part) => Self::Not(Box::new(part.with_tests(ready)?)),
            Self::Test(test) => Self::Test(ready(test)?),
            Self::Action(action) => Self::Action(action),
        })
    }
}

impl Test {
    /// Whether it looks into the inode, which a directory entry does not have.
    pub fn needs_inode(&self) -> bool {
        !matches!(self, Self::Constant(_) | Self::Name(_) | Self::Path(_) | Self::Type(_) | Self::Inode(_))
    }

    fn new(word: &str, value: &OsStr) -> Result<Self, String> {
        let pattern = |fold| Pattern::new(value.as_bytes(), fold);
        let text = value.to_str().ok_or_else(|| format!("-{word}: the value is not UTF-8"));
        let said = |problem: String| format!("-{word}: {problem}");
        let number = || Bound::parse(text.clone()?).map_err(said);
        let age = |stamp, seconds| Ok(Self::Age(stamp, Age::parse(text.clone()?, seconds).map_err(said)?));
        const DAY: i128 = 24 * 60 * 60;
        match word {
            "true" | "false" => Ok(Self::Constant(word == "true")),
            "name" | "iname" => Ok(Self::Name(pattern(word == "iname"))),
            "path" | "ipath" => Ok(Self::Path(pattern(word == "ipath"))),
            "type" => {
                let types: Result<_, String> = text?.split(',').map(parse_type).collect();
                Ok(Self::Type(types.map_err(said)?))
            }
            "size" => Ok(Self::Size(Size::parse(text?).map_err(said)?)),
            "empty" => Ok(Self::Empty),
            "inum" => Ok(Self::Inode(number()?)),
            "links" => Ok(Self::Links(number()?)),
            "uid" => Ok(Self::Uid(number()?)),
            "gid" => Ok(Self::Gid(number()?)),
            "user" => Ok(Self::User(value.into())),
            "group" => Ok(Self::Group(value.into())),
            "nouser" => Ok(Self::NoUser),
            "nogroup" => Ok(Self::NoGroup),
            "perm" => Ok(Self::Perm(Perm::parse(text?).map_err(said)?)),
            "mtime" => age(Stamp::Modify, DAY),
            "atime" => age(Stamp::Access, DAY),
            "ctime" => age(Stamp::Change, DAY),
            "mmin" => age(Stamp::Modify, 60),
            "amin" => age(Stamp::Access, 60),
            "cmin" => age(Stamp::Change, 60),
            "newer" => Ok(Self::Newer(Stamp::Modify, value.into())),
            "anewer" => Ok(Self::Newer(Stamp::Access, value.into())),
            "cnewer" => Ok(Self::Newer(Stamp::Change, value.into())),
            "newermt" => {
                let time = crate::times::parse_moment(text?).map_err(said)?;
                Ok(Self::After(Stamp::Modify, Timestamp { seconds: time.seconds, nanoseconds: time.nanos }))
            }
            _ => Err(format!("-{word} is not known")),
        }
    }
}

/// A word with its value, empty where it has none.
type Token = (&'static str, OsString);

/// Takes an expression apart from left to right.
struct Parser<'t> {
    rest: std::iter::Peekable<std::slice::Iter<'t, Token>>,
}

impl Parser<'_> {
    fn next_is(&mut self, word: &str) -> bool {
        self.rest.next_if(|(name, _)| *name == word).is_some()
    }

    fn or(&mut self, depth: usize) -> Result<Node, String> {
        let mut parts = vec![self.and(depth)?];
        while self.next_is("or") {
            parts.push(self.and(depth)?);
        }
        Ok(one_or(parts, Node::Or))
    }

    fn and(&mut self, depth: usize) -> Result<Node, String> {
        let mut parts = vec![self.part(depth)?];
        loop {
            let joined = self.next_is("and");
            match self.rest.peek() {
                None | Some(("or" | "close", _)) if !joined => return Ok(one_or(parts, Node::And)),
                _ => parts.push(self.part(depth)?),
            }
        }
    }

    fn part(&mut self, depth: usize) -> Result<Node, String> {
        if depth > DEPTH_MAX {
            return Err("parentheses or ! are nested too deep".into());
        }
        let Some((word, value)) = self.rest.next() else { return Err("a test is missing at the end".into()) };
        match *word {
            "not" => Ok(Node::Not(Box::new(self.part(depth + 1)?))),
            "open" => {
                let inside = self.or(depth + 1)?;
                if !self.next_is("close") {
                    return Err("a ) is missing".into());
                }
                Ok(inside)
            }
            "and" | "or" | "close" => Err(format!("a test is missing before {}", shown(word))),
            "print" => Ok(Node::Action(Action::Print)),
            "print0" => Ok(Node::Action(Action::Print0)),
            "ls" => Ok(Node::Action(Action::Long)),
            "prune" => Ok(Node::Action(Action::Prune)),
            word => Test::new(word, value).map(Node::Test),
        }
    }
}

fn shown(word: &str) -> &str {
    match word {
        "and" => "-a",
        "or" => "-o",
        _ => ")",
    }
}

fn one_or(mut parts: Vec<Node>, several: fn(Vec<Node>) -> Node) -> Node {
    match parts.len() {
        1 => parts.remove(0),
        _ => several(parts),
    }
}

/// The expression of these words. Without an action, what holds is printed.
fn parse(tokens: &[Token]) -> Result<Expression, String> {
    let mut root = Node::And(Vec::new());
    if !tokens.is_empty() {
        let mut parser = Parser { rest: tokens.iter().peekable() };
        root = parser.or(0)?;
        if parser.rest.peek().is_some() {
            return Err("a ( is missing".into());
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
        let wrong = |problem: String| clap::Error::raw(ErrorKind::ValueValidation, problem);
        if let Some(word) = REFUSED.iter().find(|word| matches.get_flag(word)) {
            return Err(wrong(format!(
                "-{word}: files of an image are no files of this machine, on which a command works; give their paths \
                 to xebec instead: `xebec find disk.xfs ... -print0 | xargs -0 xebec rm disk.xfs`"
            )));
        }
        let mut placed: Vec<(usize, Token)> = Vec::new();
        for (name, ..) in WORDS {
            let (Some(places), Some(values)) = (matches.indices_of(name), matches.get_raw(name)) else {
                continue;
            };
            placed.extend(places.zip(values).map(|(place, value)| (place, (*name, value.to_owned()))));
        }
        placed.sort_by_key(|(place, _)| *place);
        let tokens: Vec<Token> = placed.into_iter().map(|(_, token)| token).collect();
        parse(&tokens).map_err(wrong)
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
    fn or_binds_weaker_than_and_and_what_is_open_is_closed() {
        let tree =
            parsed(&[("name", "a"), ("or", ""), ("name", "b"), ("not", ""), ("empty", "")]).unwrap().root;
        let Node::And(parts) = &tree else { panic!("{tree:?}") };
        let [Node::Or(sides), Node::Action(Action::Print)] = parts.as_slice() else { panic!("{tree:?}") };
        let [Node::Test(Test::Name(_)), Node::And(both)] = sides.as_slice() else { panic!("{tree:?}") };
        assert!(matches!(both.as_slice(), [Node::Test(Test::Name(_)), Node::Not(_)]), "{tree:?}");
        for wrong in [
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
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
        assert!(parsed(&vec![("not", ""); 1000]).is_err());
    }
}
