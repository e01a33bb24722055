//! One side of a pair: a thread's directory, file and names.

use std::cell::RefCell;

use anyhow::Context as _;
use base::{AgNumber, Ino};
use volume::{Dir, File, NewFile, OpenOptions, Result, SetAttribute, Volume};

use crate::operations::{Cost, Operation};
use crate::pairs::Place;

/// Bytes of a page of the cache.
pub const PAGE: usize = 4096;
/// Pages of each file.
const PAGES: usize = 4;

/// The directories of all pairs. A pair uses those of its [`Place`].
#[derive(Clone, Debug)]
pub struct Directories {
    /// For all sides.
    common: String,
    /// One for each side, in one AG.
    near: Vec<String>,
    /// One for each side, in different AGs as far as there are enough.
    far: Vec<String>,
}

impl Directories {
    /// Creates them, for a number of sides.
    ///
    /// # Errors
    /// Those of the volume; too few directories are in one AG.
    pub fn create(volume: &Volume, sides: usize) -> anyhow::Result<Self> {
        let root = Dir::root(volume)?;
        let ags: Vec<AgNumber> = volume.geometry().ags().collect();
        // Each CPU distributes its directories over AGs of its own.
        let mut of_ag: Vec<Vec<String>> = vec![Vec::new(); ags.len()];
        let near_ones = sides + 2;
        for number in 0..ags.len() * (sides + 2) {
            let name = format!("d{number}");
            base::percpu::override_current(Some(number));
            let ino = root.create_with(&name, &NewFile::directory())?.ino();
            let ag = ag_of(volume, ino)?;
            of_ag.get_mut(ag.get() as usize).context("no such AG")?.push(name);
            if of_ag.iter().any(|names| names.len() >= near_ones)
                && of_ag.iter().all(|names| !names.is_empty())
            {
                break;
            }
        }
        base::percpu::override_current(None);
        // The AG with the most is that of all sides.
        of_ag.sort_by_key(|names| std::cmp::Reverse(names.len()));
        let mut take = |ag: usize| {
            let names = of_ag.get_mut(ag % ags.len());
            names.and_then(Vec::pop).with_context(|| format!("AG {ag} has too few directories"))
        };
        let far = (0..sides).map(&mut take).collect::<anyhow::Result<_>>()?;
        let near = (0..sides).map(|_| take(0)).collect::<anyhow::Result<_>>()?;
        Ok(Self { common: take(0)?, near, far })
    }

    /// The directory of a side.
    fn of(&self, place: Place, side: usize) -> anyhow::Result<&str> {
        let own = match place {
            Place::Same | Place::Beside => return Ok(&self.common),
            Place::Near => &self.near,
            Place::Far => &self.far,
        };
        own.get(side).map(String::as_str).context("no directory of this side")
    }
}

fn ag_of(volume: &Volume, ino: Ino) -> anyhow::Result<AgNumber> {
    let (ag, _) = volume.geometry().split_ino(ino).context("no inode number")?;
    Ok(ag)
}

/// What the operations of one side work on. Everything that needs memory is allocated in advance.
#[derive(Debug)]
pub struct Actor<'v> {
    /// The volume.
    pub volume: &'v Volume,
    /// Number of the side: 0 or 1, in a measurement also more.
    pub side: usize,
    /// Directory of the file and of new names.
    pub dir: Dir<'v>,
    /// Path of the directory.
    pub dir_path: String,
    /// Name of the file in the directory.
    pub name: String,
    /// Path of the file.
    pub path: String,
    /// The file, open for reading and writing. It has some pages, an attribute, and a symbolic link beside it.
    pub file: File<'v>,
    /// Path of the symbolic link.
    pub link: String,
    /// What does not fit an inode.
    pub in_blocks: InBlocks,
    /// A path that does not exist.
    pub missing: String,
    /// New names, one for each round.
    pub names: Vec<String>,
    /// Other new names, one for each round.
    pub other_names: Vec<String>,
    /// Open files of the rounds.
    pub held: RefCell<Vec<Option<File<'v>>>>,
    /// A page.
    pub page: RefCell<Vec<u8>>,
}

/// Name of the attribute that each file has.
pub const ATTRIBUTE: &[u8] = b"user.attribute";
/// Name of an attribute with a long value.
pub const LONG_ATTRIBUTE: &[u8] = b"user.long";

/// Paths of files that do not fit their inodes. They are created for the operations that need them.
#[derive(Debug)]
pub struct InBlocks {
    /// A directory in leaf format.
    pub dir: String,
    /// A symbolic link with a long target.
    pub link: String,
    /// A file with attributes in a leaf, one of which has a long value.
    pub file: String,
}

impl InBlocks {
    /// Creates them, if they do not exist.
    ///
    /// # Errors
    /// Those of the volume.
    pub fn create(&self, at: &Actor<'_>) -> Result<()> {
        const NAMES: usize = 200;
        let root = Dir::root(at.volume)?;
        if root.symlink_metadata(&self.file).is_ok() {
            return Ok(());
        }
        root.symlink("t".repeat(1000), &self.link)?;
        let dir = root.create_with(&self.dir, &NewFile::directory())?.id();
        (0..NAMES).try_for_each(|n| at.volume.link(at.file.id(), dir, format!("entry {n}").as_bytes()))?;
        let file = root.create_with(&self.file, &NewFile::regular())?.id();
        at.volume.set_attribute(file, ATTRIBUTE, &[1; 1000], SetAttribute::Any)?;
        at.volume.set_attribute(file, LONG_ATTRIBUTE, &[2; 10_000], SetAttribute::Any)
    }
}

impl<'v> Actor<'v> {
    /// The side of a pair. New names begin with `tag`; `rounds` is the number of calls.
    ///
    /// # Errors
    /// Those of the volume.
    pub fn new(
        volume: &'v Volume,
        directories: &Directories,
        (operation, place): (&Operation, Place),
        (tag, side, rounds): (&str, usize, usize),
    ) -> anyhow::Result<Self> {
        let dir_path = directories.of(place, side)?.to_owned();
        let dir = Dir::open(volume, &dir_path)?;
        // Pairs use the same files: they need not be created each time.
        let name = if place == Place::Same { "file".to_owned() } else { format!("file{side}") };
        let link = format!("{name}-link");
        let mut options = OpenOptions::new();
        let file = dir.open_with(&name, options.read(true).write(true).create(true))?;
        if file.is_empty() {
            file.write_all_at(&[1; PAGES * PAGE], 0)?;
            volume.set_attribute(file.id(), ATTRIBUTE, b"some value", SetAttribute::Any)?;
            dir.symlink(&name, &link)?;
        }
        let names = if operation.cost == Cost::Change { rounds } else { 0 };
        let numbered = |what: &str| (0..names).map(|round| format!("{tag}-{side}-{what}{round}")).collect();
        Ok(Self {
            volume,
            side,
            path: format!("{dir_path}/{name}"),
            link: format!("{dir_path}/{link}"),
            in_blocks: InBlocks {
                dir: format!("{dir_path}/{name}-entries"),
                link: format!("{dir_path}/{name}-long-link"),
                file: format!("{dir_path}/{name}-attributes"),
            },
            missing: format!("{dir_path}/{name}-missing"),
            names: numbered("new"),
            other_names: numbered("other"),
            held: RefCell::new((0..rounds).map(|_| None).collect()),
            page: RefCell::new(vec![0; PAGE]),
            dir,
            dir_path,
            name,
            file,
        })
    }

    /// Prepares all rounds of an operation.
    ///
    /// # Errors
    /// Those of the volume.
    pub fn prepare(&self, operation: &Operation) -> anyhow::Result<()> {
        let prepare = operation.prepare.unwrap_or(|_, _| Ok(()));
        let rounds = self.held.borrow().len();
        Ok((0..rounds).try_for_each(|round| prepare(self, round))?)
    }
}
