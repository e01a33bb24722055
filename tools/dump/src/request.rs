//! What to show: the words of the command line, taken apart.

use std::ffi::OsStr;
use std::fmt;

use base::{AgBlock, AgNumber, Daddr, FileBlock, FsBlock, Ino};
use format::inode::ForkKind;

use crate::types::{self, Type};

/// The grammar, for a person.
pub const GRAMMAR: &str = "\
sb [AG]                     superblock (0, or a copy)
agf AG, agi AG, agfl AG     headers of an allocation group
bnobt|cntbt|inobt|finobt|rmapbt|refcountbt AG [CHILD...]
                            root of a tree, or the block that child numbers lead to, as ptrs[] counts them
bnobt|... AG block BLOCK    a block of a tree by its number in the AG
inode FILE                  an inode: core, forks, what lies in them
bmbt FILE [attr] [CHILD...] root of a fork's extent tree, or a block below (also: inode FILE bmap ...)
extents FILE [attr]         what a fork maps, like xfs_bmap -vp
dir FILE [BLOCK]            a directory's block by its number in the file; without one, the blocks there are
attr FILE [BLOCK]           the same of extended attributes
symlink FILE [BLOCK]        the block that holds a symbolic link's target
dquot user|group|project ID quota record
log [BLOCK]                 record header at a block of the log (512 bytes each)
freespace [AG]              free extents by size
block AG:BLOCK              any block of an AG, its type told by its magic
fsb NUMBER                  the same by the packed number that extents hold
daddr NUMBER                the same by its 512-byte sector
... as TYPE                 takes the bytes of block, fsb, daddr as this type

FILE is an inode number, or a path from the root that begins with \"/\". Numbers are decimal, or hexadecimal after 0x.";

/// The words that a request may begin with, for completion.
pub const VERBS: &[&str] = &[
    "sb",
    "agf",
    "agi",
    "agfl",
    "bnobt",
    "cntbt",
    "inobt",
    "finobt",
    "rmapbt",
    "refcountbt",
    "inode",
    "bmbt",
    "extents",
    "dir",
    "attr",
    "symlink",
    "dquot",
    "log",
    "freespace",
    "block",
    "fsb",
    "daddr",
];

/// One thing to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What, or where.
    pub target: Target,
    /// The type that the bytes at an address are taken for, whatever their magic says.
    pub force: Option<Type>,
}

/// What to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A superblock.
    Superblock(AgNumber),
    /// An AGF.
    Agf(AgNumber),
    /// An AGI.
    Agi(AgNumber),
    /// An AGFL.
    Agfl(AgNumber),
    /// A block of one of an AG's trees.
    Tree {
        /// Which tree.
        tree: AgTree,
        /// Which AG.
        ag: AgNumber,
        /// Which of its blocks.
        at: At,
    },
    /// An inode.
    Inode(File),
    /// The root or a block of a fork's tree.
    Bmbt {
        /// The file.
        file: File,
        /// Its fork.
        fork: ForkKind,
        /// From the root down; empty for the root itself.
        children: Vec<usize>,
    },
    /// What a fork maps.
    Extents {
        /// The file.
        file: File,
        /// Its fork.
        fork: ForkKind,
    },
    /// A directory block by its logical block, or which there are.
    Dir(File, Option<FileBlock>),
    /// A block of the attribute fork by its logical block, or which there are.
    Attr(File, Option<FileBlock>),
    /// A block of a symbolic link's target.
    Symlink(File, FileBlock),
    /// A quota record.
    Dquot(QuotaKind, u32),
    /// A record header at a block of the log, in 512-byte blocks.
    Log(u64),
    /// Free extents by size, of one AG or of all.
    FreeSpace(Option<AgNumber>),
    /// A block by AG and number.
    Block(AgNumber, AgBlock),
    /// A block by its packed number.
    FsBlock(FsBlock),
    /// A sector.
    Daddr(Daddr),
}

/// How a file is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum File {
    /// By inode number.
    Ino(Ino),
    /// By absolute path, any bytes.
    Path(Vec<u8>),
}

/// A tree of an AG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgTree {
    /// Free space by block.
    Bnobt,
    /// Free space by size.
    Cntbt,
    /// Inode chunks.
    Inobt,
    /// Inode chunks with free inodes.
    Finobt,
    /// Reverse mappings.
    Rmapbt,
    /// Reference counts.
    Refcountbt,
}

/// A block of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// From the root down, each step the index of a pointer as `ptrs[]` counts them, from 1.
    Path(Vec<usize>),
    /// By its number in the AG.
    Block(AgBlock),
}

/// Whose quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    /// A user's.
    User,
    /// A group's.
    Group,
    /// A project's.
    Project,
}

/// Words that name nothing that can be shown. Displays what was wrong; [`GRAMMAR`] says what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

type Result<T> = std::result::Result<T, Usage>;

impl Request {
    /// Takes the words of a command line apart: see [`GRAMMAR`]. They may be `&str` or `&OsStr`: paths are bytes.
    pub fn parse<S: AsRef<OsStr>>(words: &[S]) -> Result<Self> {
        let mut words = Words { rest: words.iter().map(AsRef::as_ref).collect() };
        let force = words.take_force()?;
        let target = words.target()?;
        if let Some(word) = words.rest.first() {
            return Err(Usage(format!("{}: one word too many", word.display())));
        }
        let by_address = matches!(target, Target::Block(..) | Target::FsBlock(_) | Target::Daddr(_));
        if force.is_some() && !by_address {
            return Err(Usage("\"as TYPE\" goes with block, fsb and daddr only".into()));
        }
        Ok(Self { target, force })
    }
}

/// The words that are left.
struct Words<'a> {
    rest: Vec<&'a OsStr>,
}

impl<'a> Words<'a> {
    /// Takes `as TYPE`, `--as TYPE` or `--as=TYPE` out of the end.
    fn take_force(&mut self) -> Result<Option<Type>> {
        let name = match self.rest.as_slice() {
            [.., last] if last.to_str().is_some_and(|last| last.starts_with("--as=")) => {
                let name = last.to_str().and_then(|last| last.strip_prefix("--as="));
                self.rest.pop();
                name.unwrap_or_default()
            }
            [_, .., flag, name] if *flag == "as" || *flag == "--as" => {
                let name = name.to_str().unwrap_or_default();
                self.rest.truncate(self.rest.len() - 2);
                name
            }
            _ => return Ok(None),
        };
        Type::from_name(name).map(Some).ok_or_else(|| {
            let all: Vec<_> = types::ALL.iter().map(|description| description.name).collect();
            Usage(format!("as \"{name}\": no such type; there are {}", all.join(", ")))
        })
    }

    fn next(&mut self) -> Option<&'a OsStr> {
        if self.rest.is_empty() { None } else { Some(self.rest.remove(0)) }
    }

    fn next_if(&mut self, word: &str) -> bool {
        let found = self.rest.first().is_some_and(|first| *first == word);
        if found {
            self.rest.remove(0);
        }
        found
    }

    fn target(&mut self) -> Result<Target> {
        let verb = self.next().ok_or_else(|| Usage("nothing to show was named".into()))?;
        let verb = verb.to_str().unwrap_or_default();
        if let Some(tree) = AgTree::from_name(verb) {
            let ag = self.ag(verb)?;
            return Ok(Target::Tree { tree, ag, at: self.at()? });
        }
        Ok(match verb {
            "sb" if self.rest.is_empty() => Target::Superblock(AgNumber(0)),
            "sb" => Target::Superblock(self.ag(verb)?),
            "agf" => Target::Agf(self.ag(verb)?),
            "agi" => Target::Agi(self.ag(verb)?),
            "agfl" => Target::Agfl(self.ag(verb)?),
            "inode" => {
                let file = self.file(verb)?;
                if self.next_if("bmap") { self.bmbt(file)? } else { Target::Inode(file) }
            }
            "bmbt" => {
                let file = self.file(verb)?;
                self.bmbt(file)?
            }
            "extents" => Target::Extents { file: self.file(verb)?, fork: self.fork() },
            "dir" => Target::Dir(self.file(verb)?, self.file_block()?),
            "attr" => Target::Attr(self.file(verb)?, self.file_block()?),
            "symlink" => Target::Symlink(self.file(verb)?, self.file_block()?.unwrap_or_default()),
            "dquot" => self.dquot()?,
            "log" => Target::Log(self.optional("a block of the log")?.unwrap_or(0)),
            "freespace" => Target::FreeSpace(self.optional("an AG")?.map(AgNumber)),
            "block" => self.block()?,
            "fsb" => Target::FsBlock(FsBlock(self.number("fsb", "a block number")?)),
            "daddr" => Target::Daddr(Daddr(self.number("daddr", "a sector number")?)),
            _ => return Err(Usage(format!("\"{verb}\" is nothing that can be shown"))),
        })
    }

    fn number<N: TryFrom<u64>>(&mut self, verb: &str, what: &str) -> Result<N> {
        let word = self.next().ok_or_else(|| Usage(format!("{verb}: {what} is missing")))?;
        parse_number(word)
            .and_then(|number| N::try_from(number).ok())
            .ok_or_else(|| Usage(format!("{verb}: \"{}\" is not {what}", word.display())))
    }

    fn optional<N: TryFrom<u64>>(&mut self, what: &str) -> Result<Option<N>> {
        match self.rest.first() {
            None => Ok(None),
            Some(word) => {
                let verb = word.to_string_lossy().into_owned();
                self.number(&verb, what).map(Some)
            }
        }
    }

    fn ag(&mut self, verb: &str) -> Result<AgNumber> {
        self.number(verb, "an AG number").map(AgNumber)
    }

    fn file(&mut self, verb: &str) -> Result<File> {
        let word =
            self.next().ok_or_else(|| Usage(format!("{verb}: an inode number or a path is missing")))?;
        let bytes = word.as_encoded_bytes();
        if bytes.first() == Some(&b'/') {
            return Ok(File::Path(bytes.to_vec()));
        }
        parse_number(word).map(|number| File::Ino(Ino(number))).ok_or_else(|| {
            Usage(format!("{verb}: \"{}\" is neither an inode number nor a path from /", word.display()))
        })
    }

    fn bmbt(&mut self, file: File) -> Result<Target> {
        Ok(Target::Bmbt { file, fork: self.fork(), children: self.children()? })
    }

    fn fork(&mut self) -> ForkKind {
        if self.next_if("attr") { ForkKind::Attr } else { ForkKind::Data }
    }

    fn file_block(&mut self) -> Result<Option<FileBlock>> {
        Ok(self.optional("a block of the file")?.map(FileBlock))
    }

    fn at(&mut self) -> Result<At> {
        if self.next_if("block") {
            return Ok(At::Block(AgBlock(self.number("block", "a block of the AG")?)));
        }
        Ok(At::Path(self.children()?))
    }

    fn children(&mut self) -> Result<Vec<usize>> {
        let mut children = Vec::new();
        while let Some(child) = self.optional("the number of a child")? {
            children.push(child);
        }
        Ok(children)
    }

    fn dquot(&mut self) -> Result<Target> {
        let kind = match self.next().and_then(OsStr::to_str) {
            Some("user") => QuotaKind::User,
            Some("group") => QuotaKind::Group,
            Some("project") => QuotaKind::Project,
            _ => return Err(Usage("dquot: user, group or project is missing".into())),
        };
        Ok(Target::Dquot(kind, self.number("dquot", "an id")?))
    }

    fn block(&mut self) -> Result<Target> {
        let word = self.next().and_then(OsStr::to_str).unwrap_or_default();
        let parts = word.split_once(':').and_then(|(ag, block)| {
            let number = |text: &str| parse_number(OsStr::new(text)).and_then(|n| u32::try_from(n).ok());
            Some(Target::Block(AgNumber(number(ag)?), AgBlock(number(block)?)))
        });
        parts.ok_or_else(|| Usage(format!("block: \"{word}\" is not AG:BLOCK")))
    }
}

fn parse_number(word: &OsStr) -> Option<u64> {
    let word = word.to_str()?;
    // The parser of numbers would accept a sign.
    let digits = |text: &str, radix| {
        text.starts_with(|first: char| first.is_digit(radix))
            .then(|| u64::from_str_radix(text, radix).ok())?
    };
    match word.strip_prefix("0x") {
        Some(hexadecimal) => digits(hexadecimal, 16),
        None => digits(word, 10),
    }
}

impl AgTree {
    /// Every tree.
    pub const ALL: [Self; 6] =
        [Self::Bnobt, Self::Cntbt, Self::Inobt, Self::Finobt, Self::Rmapbt, Self::Refcountbt];

    /// The type of its blocks.
    pub fn block_type(self) -> Type {
        match self {
            Self::Bnobt => Type::Bnobt,
            Self::Cntbt => Type::Cntbt,
            Self::Inobt => Type::Inobt,
            Self::Finobt => Type::Finobt,
            Self::Rmapbt => Type::Rmapbt,
            Self::Refcountbt => Type::Refcountbt,
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tree| tree.block_type().name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Target> {
        Request::parse(&words.split_whitespace().collect::<Vec<_>>()).map(|request| request.target)
    }

    #[test]
    fn the_grammar_is_understood() {
        assert_eq!(parse("sb"), Ok(Target::Superblock(AgNumber(0))));
        assert_eq!(parse("agf 0x3"), Ok(Target::Agf(AgNumber(3))));
        let tree = |at| Target::Tree { tree: AgTree::Rmapbt, ag: AgNumber(1), at };
        assert_eq!(parse("rmapbt 1 2 7"), Ok(tree(At::Path(vec![2, 7]))));
        assert_eq!(parse("rmapbt 1 block 9"), Ok(tree(At::Block(AgBlock(9)))));
        assert_eq!(parse("inode 128"), Ok(Target::Inode(File::Ino(Ino(128)))));
        assert_eq!(parse("inode /a/b"), Ok(Target::Inode(File::Path(b"/a/b".to_vec()))));
        assert_eq!(parse("inode /a bmap attr 2"), parse("bmbt /a attr 2"));
        let bmbt = Target::Bmbt { file: File::Ino(Ino(7)), fork: ForkKind::Attr, children: vec![1] };
        assert_eq!(parse("bmbt 7 attr 1"), Ok(bmbt));
        assert_eq!(parse("dir 7 8388608"), Ok(Target::Dir(File::Ino(Ino(7)), Some(FileBlock(8_388_608)))));
        assert_eq!(parse("attr 7"), Ok(Target::Attr(File::Ino(Ino(7)), None)));
        assert_eq!(parse("block 2:0x10"), Ok(Target::Block(AgNumber(2), AgBlock(16))));
        assert_eq!(parse("dquot user 1000"), Ok(Target::Dquot(QuotaKind::User, 1000)));
    }

    #[test]
    fn a_type_is_forced_in_each_spelling() {
        for words in
            [&["daddr", "8", "as", "raw"][..], &["daddr", "8", "--as", "raw"], &["daddr", "8", "--as=raw"]]
        {
            let expected = Request { target: Target::Daddr(Daddr(8)), force: Some(Type::Raw) };
            assert_eq!(Request::parse(words), Ok(expected));
        }
    }

    #[test]
    fn every_verb_is_known_and_explained() {
        for verb in VERBS {
            let outcome = ["", " 1", " 1:1", " user 1"].map(|rest| parse(&format!("{verb}{rest}")));
            assert!(outcome.iter().any(Result::is_ok), "{verb}: {outcome:?}");
            assert!(
                GRAMMAR.split([' ', '|', '\n', ',']).any(|word| word == *verb),
                "{verb} is not explained"
            );
        }
    }

    #[test]
    fn errors_name_the_word() {
        for (words, part) in [
            ("", "nothing to show"),
            ("agf", "an AG number is missing"),
            ("agf x", "\"x\" is not an AG number"),
            ("agf +1", "\"+1\" is not"),
            ("agf 4294967296", "is not an AG number"),
            ("inode a/b", "neither an inode number nor a path"),
            ("sb 0 1", "1: one word too many"),
            ("frob", "\"frob\" is nothing"),
            ("daddr 1 as frob", "no such type; there are sb, agf"),
            ("agf 1 as raw", "goes with block"),
            ("block 1", "is not AG:BLOCK"),
            ("dquot 1", "user, group or project"),
        ] {
            let message = parse(words).unwrap_err().to_string();
            assert!(message.contains(part), "{words}: {message}");
        }
    }
}
