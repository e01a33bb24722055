//! Parses the words of a command line that select a structure.

use std::ffi::OsStr;
use std::fmt;

use base::{AgBlock, AgNumber, Daddr, FileBlock, FsBlock, Ino};
use format::inode::ForkKind;

use crate::types::{self, Type};

/// The syntax of requests, for help texts.
pub const GRAMMAR: &str = "\
sb [AG]                     superblock of AG 0, or a copy
agf AG, agi AG, agfl AG     headers of an allocation group
bnobt|cntbt|inobt|finobt|rmapbt|refcountbt AG [CHILD...]
                            root of a btree; each CHILD is the index of a pointer (ptrs[]) to the next lower block
bnobt|... AG block BLOCK    block of a btree by its number in the AG
inode FILE                  inode with its forks
bmbt FILE [attr] [CHILD...] root of a fork's bmap btree, or a lower block (also: inode FILE bmap ...)
extents FILE [attr]         extents of a fork, like xfs_bmap -vp
dir FILE [BLOCK]            directory block by logical block number; without BLOCK, list the blocks
attr FILE [BLOCK]           block of extended attributes; without BLOCK, list the blocks
symlink FILE [BLOCK]        block of a symlink target
dquot user|group|project ID quota record
log [BLOCK]                 log record header at a 512-byte block of the log
freespace [AG]              histogram of free extents
block AG:BLOCK              block of an AG; its magic number determines the type
fsb NUMBER                  the same, by file system block number as in extents
daddr NUMBER                the same, by 512-byte sector
... as TYPE                 decode the bytes at block, fsb or daddr as this type

FILE is an inode number, or an absolute path in the volume. Numbers are decimal, or hexadecimal with the prefix 0x.";

/// A request for one structure or listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The structure or listing.
    pub target: Target,
    /// Decode the bytes at an address as this type instead of the type of the magic number.
    pub as_type: Option<Type>,
}

/// A structure or listing.
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
    /// A block of a btree of an AG.
    Tree {
        /// The btree.
        tree: AgBtree,
        /// The AG.
        ag: AgNumber,
        /// The block.
        block: TreeBlock,
    },
    /// An inode.
    Inode(FileSelector),
    /// A block of a bmap btree.
    Bmbt {
        /// The file.
        file: FileSelector,
        /// Its fork.
        fork: ForkKind,
        /// Indices of pointers from the root down, as in [`TreeBlock::Path`]; empty for the root.
        children: Vec<usize>,
    },
    /// The extents of a fork.
    Extents {
        /// The file.
        file: FileSelector,
        /// Its fork.
        fork: ForkKind,
    },
    /// A directory block by logical block number, or a list of the blocks.
    Dir(FileSelector, Option<FileBlock>),
    /// A block of the attribute fork by logical block number, or a list of the blocks.
    Attr(FileSelector, Option<FileBlock>),
    /// A block of a symlink target.
    Symlink(FileSelector, FileBlock),
    /// A quota record by ID.
    Dquot(QuotaType, u32),
    /// A record header at a 512-byte block of the log.
    Log(u64),
    /// A histogram of free extents, of one AG or of all.
    FreeSpace(Option<AgNumber>),
    /// A block of an AG.
    Block(AgNumber, AgBlock),
    /// A file system block.
    FsBlock(FsBlock),
    /// A sector.
    Daddr(Daddr),
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileSelector {
    /// By inode number.
    Ino(Ino),
    /// By absolute path, in any encoding.
    Path(Vec<u8>),
}

/// A btree of an AG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgBtree {
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

/// A block of a btree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeBlock {
    /// Indices of pointers from the root down, counted from 1 like `ptrs[]` in the output; empty for the root.
    Path(Vec<usize>),
    /// By its number in the AG.
    Block(AgBlock),
}

/// Quota type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaType {
    /// User quota.
    User,
    /// Group quota.
    Group,
    /// Project quota.
    Project,
}

/// An invalid request. [`GRAMMAR`] describes the valid ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError(String);

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RequestError {}

type Result<T> = std::result::Result<T, RequestError>;

impl Request {
    /// Parses the words of a command line; see [`GRAMMAR`].
    pub fn parse<S: AsRef<OsStr>>(words: &[S]) -> Result<Self> {
        let mut parser = Parser { rest: words.iter().map(AsRef::as_ref).collect() };
        let as_type = parser.as_type()?;
        let target = parser.target()?;
        if let Some(word) = parser.rest.first() {
            return Err(RequestError(format!("extra operand \"{}\"", word.display())));
        }
        let by_address = matches!(target, Target::Block(..) | Target::FsBlock(_) | Target::Daddr(_));
        if as_type.is_some() && !by_address {
            return Err(RequestError("\"as TYPE\" is valid only with block, fsb and daddr".into()));
        }
        Ok(Self { target, as_type })
    }
}

/// Parses words from the first to the last.
struct Parser<'a> {
    rest: Vec<&'a OsStr>,
}

impl<'a> Parser<'a> {
    /// Parses and removes `as TYPE`, `--as TYPE` or `--as=TYPE` at the end.
    fn as_type(&mut self) -> Result<Option<Type>> {
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
            let names: Vec<_> = types::ALL.iter().map(|info| info.name).collect();
            RequestError(format!("unknown type \"{name}\"; the types are {}", names.join(", ")))
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
        let verb = self.next().ok_or_else(|| RequestError("missing structure".into()))?;
        let verb = verb.to_str().unwrap_or_default();
        if let Some(tree) = AgBtree::from_name(verb) {
            let ag = self.ag(verb)?;
            return Ok(Target::Tree { tree, ag, block: self.tree_block()? });
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
            _ => return Err(RequestError(format!("unknown structure \"{verb}\""))),
        })
    }

    fn number<N: TryFrom<u64>>(&mut self, verb: &str, what: &str) -> Result<N> {
        let word = self.next().ok_or_else(|| RequestError(format!("{verb}: missing operand: {what}")))?;
        parse_number(word)
            .and_then(|number| N::try_from(number).ok())
            .ok_or_else(|| RequestError(format!("{verb}: \"{}\" is not {what}", word.display())))
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

    fn file(&mut self, verb: &str) -> Result<FileSelector> {
        let word = self
            .next()
            .ok_or_else(|| RequestError(format!("{verb}: missing operand: an inode number or a path")))?;
        let bytes = word.as_encoded_bytes();
        if bytes.first() == Some(&b'/') {
            return Ok(FileSelector::Path(bytes.to_vec()));
        }
        parse_number(word).map(|number| FileSelector::Ino(Ino(number))).ok_or_else(|| {
            RequestError(format!(
                "{verb}: \"{}\" is neither an inode number nor an absolute path",
                word.display()
            ))
        })
    }

    fn bmbt(&mut self, file: FileSelector) -> Result<Target> {
        Ok(Target::Bmbt { file, fork: self.fork(), children: self.children()? })
    }

    fn fork(&mut self) -> ForkKind {
        if self.next_if("attr") { ForkKind::Attr } else { ForkKind::Data }
    }

    fn file_block(&mut self) -> Result<Option<FileBlock>> {
        Ok(self.optional("a block of the file")?.map(FileBlock))
    }

    fn tree_block(&mut self) -> Result<TreeBlock> {
        if self.next_if("block") {
            return Ok(TreeBlock::Block(AgBlock(self.number("block", "a block of the AG")?)));
        }
        Ok(TreeBlock::Path(self.children()?))
    }

    fn children(&mut self) -> Result<Vec<usize>> {
        let mut children = Vec::new();
        while let Some(child) = self.optional("the index of a pointer")? {
            children.push(child);
        }
        Ok(children)
    }

    fn dquot(&mut self) -> Result<Target> {
        let kind = match self.next().and_then(OsStr::to_str) {
            Some("user") => QuotaType::User,
            Some("group") => QuotaType::Group,
            Some("project") => QuotaType::Project,
            _ => return Err(RequestError("dquot: missing operand: user, group or project".into())),
        };
        Ok(Target::Dquot(kind, self.number("dquot", "an ID")?))
    }

    fn block(&mut self) -> Result<Target> {
        let word = self.next().and_then(OsStr::to_str).unwrap_or_default();
        let parts = word.split_once(':').and_then(|(ag, block)| {
            let number = |text: &str| parse_number(OsStr::new(text)).and_then(|n| u32::try_from(n).ok());
            Some(Target::Block(AgNumber(number(ag)?), AgBlock(number(block)?)))
        });
        parts.ok_or_else(|| RequestError(format!("block: \"{word}\" is not AG:BLOCK")))
    }
}

fn parse_number(word: &OsStr) -> Option<u64> {
    let word = word.to_str()?;
    // `from_str_radix` would accept a sign.
    let digits = |text: &str, radix| {
        text.starts_with(|first: char| first.is_digit(radix))
            .then(|| u64::from_str_radix(text, radix).ok())?
    };
    match word.strip_prefix("0x") {
        Some(hexadecimal) => digits(hexadecimal, 16),
        None => digits(word, 10),
    }
}

impl AgBtree {
    /// All btrees of an AG.
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
    fn requests_are_parsed() {
        assert_eq!(parse("sb"), Ok(Target::Superblock(AgNumber(0))));
        assert_eq!(parse("agf 0x3"), Ok(Target::Agf(AgNumber(3))));
        let tree = |block| Target::Tree { tree: AgBtree::Rmapbt, ag: AgNumber(1), block };
        assert_eq!(parse("rmapbt 1 2 7"), Ok(tree(TreeBlock::Path(vec![2, 7]))));
        assert_eq!(parse("rmapbt 1 block 9"), Ok(tree(TreeBlock::Block(AgBlock(9)))));
        assert_eq!(parse("inode 128"), Ok(Target::Inode(FileSelector::Ino(Ino(128)))));
        assert_eq!(parse("inode /a/b"), Ok(Target::Inode(FileSelector::Path(b"/a/b".to_vec()))));
        assert_eq!(parse("inode /a bmap attr 2"), parse("bmbt /a attr 2"));
        let bmbt = Target::Bmbt { file: FileSelector::Ino(Ino(7)), fork: ForkKind::Attr, children: vec![1] };
        assert_eq!(parse("bmbt 7 attr 1"), Ok(bmbt));
        assert_eq!(
            parse("dir 7 8388608"),
            Ok(Target::Dir(FileSelector::Ino(Ino(7)), Some(FileBlock(8_388_608))))
        );
        assert_eq!(parse("attr 7"), Ok(Target::Attr(FileSelector::Ino(Ino(7)), None)));
        assert_eq!(parse("block 2:0x10"), Ok(Target::Block(AgNumber(2), AgBlock(16))));
        assert_eq!(parse("dquot user 1000"), Ok(Target::Dquot(QuotaType::User, 1000)));
    }

    #[test]
    fn a_type_can_be_given_in_three_ways() {
        for words in
            [&["daddr", "8", "as", "raw"][..], &["daddr", "8", "--as", "raw"], &["daddr", "8", "--as=raw"]]
        {
            let expected = Request { target: Target::Daddr(Daddr(8)), as_type: Some(Type::Raw) };
            assert_eq!(Request::parse(words), Ok(expected));
        }
    }

    #[test]
    fn the_grammar_lists_all_verbs() {
        let verbs = "sb agf agi agfl bnobt cntbt inobt finobt rmapbt refcountbt inode bmbt extents dir attr \
                     symlink dquot log freespace block fsb daddr";
        for verb in verbs.split_whitespace() {
            let results = ["", " 1", " 1:1", " user 1"].map(|rest| parse(&format!("{verb}{rest}")));
            assert!(results.iter().any(Result::is_ok), "{verb}: {results:?}");
            assert!(GRAMMAR.split([' ', '|', '\n']).any(|word| word == verb), "{verb}");
        }
    }

    #[test]
    fn errors_name_the_word() {
        for (words, part) in [
            ("", "missing structure"),
            ("agf", "missing operand: an AG number"),
            ("agf x", "\"x\" is not an AG number"),
            ("agf +1", "\"+1\" is not"),
            ("agf 4294967296", "is not an AG number"),
            ("inode a/b", "neither an inode number nor an absolute path"),
            ("sb 0 1", "extra operand \"1\""),
            ("frob", "unknown structure \"frob\""),
            ("daddr 1 as frob", "unknown type \"frob\"; the types are sb, agf"),
            ("agf 1 as raw", "valid only with block"),
            ("block 1", "is not AG:BLOCK"),
            ("dquot 1", "user, group or project"),
        ] {
            let message = parse(words).unwrap_err().to_string();
            assert!(message.contains(part), "{words}: {message}");
        }
    }
}
