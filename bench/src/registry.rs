//! All experiments, the publications that they follow, and what these report.

use std::fmt::Write as _;

use anyhow::bail;

use crate::record::{Published, Results};
use crate::recorder::Recorder;
use crate::scale::Scale;
use crate::{claims, commands, contents, create, engine, mounted};

/// A part of an experiment.
#[derive(Clone, Copy)]
pub enum Part {
    /// On any file system.
    Any(fn(&Scale, &mut Recorder<'_>) -> anyhow::Result<()>),
    /// Changes of metadata, as a library and in the kernel.
    Engine(fn(&engine::Scale, &mut Recorder<'_>) -> anyhow::Result<()>),
    /// File contents, as a library and in the kernel.
    Contents(fn(&contents::Scale, &mut Recorder<'_>) -> anyhow::Result<()>),
    /// Images of trees. With peers only.
    Create(fn(&create::Scale, &mut Recorder<'_>) -> anyhow::Result<()>),
    /// Commands and their peers.
    Commands(fn(&Scale, &mut Recorder<'_>) -> anyhow::Result<()>),
    /// Mounts of several file systems.
    Mounted,
}

impl Part {
    /// Runs it, or notes why not.
    ///
    /// # Errors
    /// Xebec failed.
    pub fn run(self, scale: &Scale, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
        let needs_root = matches!(self, Self::Create(_) | Self::Commands(_) | Self::Mounted);
        let is_root = rustix::process::geteuid().is_root();
        if needs_root && (scale.alone || !is_root) {
            recorder.note("not measured: its peers are mounts by the kernel, which need root".into());
            return Ok(());
        }
        // Without root there are no mounts by the kernel.
        let scale = &Scale { alone: scale.alone || !is_root, ..scale.clone() };
        match self {
            Self::Any(run) | Self::Commands(run) => run(scale, recorder),
            Self::Engine(run) => run(&scale.into(), recorder),
            Self::Contents(run) => run(&scale.into(), recorder),
            Self::Create(run) => run(&scale.into(), recorder),
            Self::Mounted => mounted::run(&scale.into(), recorder),
        }
    }
}

/// An experiment.
pub struct Experiment {
    /// Name on the command line.
    pub name: &'static str,
    summary: &'static str,
    source: &'static str,
    /// What was measured there, the figures, and what is comparable.
    published: &'static [(&'static str, &'static str, &'static str)],
    parts: &'static [(&'static str, Part)],
}

const PIGGIN: &str = "Nick Piggin, VFS scalability patches, 2010 (4 sockets, 32 cores, 64 threads)";
const GORMAN: &str = "Mel Gorman, \"Reduce filesystem writeback from page reclaim\", 2011";
const FOSTER: &str = "Brian Foster, \"xfs: add a free inode btree\", 2013";
const KARA_CHINNER: &str = "Jan Kara and Dave Chinner, writeback per superblock and plugged, 2014";
const CHINNER: &str =
    "Dave Chinner, \"xfs: CIL scalability\", 2022; bug report by Darrick Wong, 2023 (32 CPUs)";
const FXMARK: &str =
    "Min, Kashyap, Maass, Kim, \"Understanding Manycore Scalability of File Systems\", USENIX ATC 2016";

/// All experiments, in the order in which they run.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "file-ops",
        summary: "Open and close, create and unlink, and stat, in different directories and in the same one",
        source: PIGGIN,
        published: &[
            (
                "open and close by 1 to 64 threads, relative throughput",
                "different directories: 119 by one thread, 18.7 by 32 before and 3,469 after; the same directory by \
                 64: 6.0 before, 27.7 after",
                "the growth with threads, on as many CPUs; not the numbers themselves",
            ),
            (
                "create and unlink, relative throughput",
                "different directories: 75 by one thread, 15.8 by 32 before and 1,724 after; the same directory: 75 \
                 by one, 7.4 by 64 after",
                "as above; --ab measures coarse locks",
            ),
        ],
        parts: &[
            ("any", Part::Any(claims::file_ops::run)),
            ("namespace", Part::Engine(engine::namespace::run)),
            ("stat", Part::Engine(engine::paths::stat)),
            ("open", Part::Engine(engine::paths::open)),
        ],
    },
    Experiment {
        name: "tree-diff",
        summary: "Threads that compare the metadata of trees in memory with what they recorded, and listing",
        source: PIGGIN,
        published: &[(
            "64 parallel git diff on 64 cached kernel trees",
            "4.911 s before, 0.183 s after",
            "the calls of git diff without git; on two CPUs, 64 threads take turns",
        )],
        parts: &[("any", Part::Any(claims::trees::run)), ("list", Part::Engine(engine::list::run))],
    },
    Experiment {
        name: "anon",
        summary: "Files without names, made and closed in a storm",
        source: PIGGIN,
        published: &[(
            "sockets opened and closed, which have inodes without names",
            "67.8 s before, 3.2 s after",
            "O_TMPFILE in place of sockets: inodes without names, which are on a disk here",
        )],
        parts: &[("any", Part::Any(claims::anonymous::run))],
    },
    Experiment {
        name: "fs-mark",
        summary: "Files created, written and closed in directories of their threads, until they are on disk",
        source: KARA_CHINNER,
        published: &[(
            "fs_mark, 8 directories, files of 4 KiB",
            "32,500 files/s before the plug, 52,900 after",
            "the calls and the sizes; not the device (an array of SSDs there, an image in the page cache here)",
        )],
        parts: &[("any", Part::Any(claims::fs_mark::run)), ("small", Part::Contents(contents::small::run))],
    },
    Experiment {
        name: "plug",
        summary: "Writes to the device for small files, with one plug for a pass of writeback and one for each file",
        source: KARA_CHINNER,
        published: &[(
            "writes to the device for files of 4 KiB",
            "28,000 a second before, 1,500 after; 150 MB/s before, 280 MB/s after",
            "the ratio of the numbers of writes",
        )],
        parts: &[
            ("writes", Part::Contents(contents::small::writes)),
            ("flushers", Part::Contents(contents::flushers::run)),
        ],
    },
    Experiment {
        name: "sync-storm",
        summary: "Syncs beside many clean inodes in memory",
        source: KARA_CHINNER,
        published: &[(
            "many concurrent syncs beside millions of clean inodes on another volume",
            "15 minutes and more, instead of 36 s",
            "whether clean inodes cost anything: with and without them",
        )],
        parts: &[("storm", Part::Any(claims::syncs::run)), ("sync", Part::Contents(contents::sync::run))],
    },
    Experiment {
        name: "reclaim",
        summary: "Three times as much written as there is memory, by three policies of reclaim",
        source: GORMAN,
        published: &[(
            "fs_mark with files of 10 MiB, three times the memory",
            "6 to 14 % more files/s without writes from reclaim, in all cases but one",
            "the three policies beside each other on a device of 500 MB/s, and that reclaim wrote nothing",
        )],
        parts: &[("policies", Part::Contents(contents::reclaim::run))],
    },
    Experiment {
        name: "finobt",
        summary: "Inodes allocated after some of many were freed at random; and what the finobt costs",
        source: FOSTER,
        published: &[
            (
                "10,000 files created after 10,000 of 10 million were freed, one AG",
                "86.6 s without the finobt, 1.8 s with it",
                "the ratio; a fresh volume stands beside it",
            ),
            (
                "a million files created on an empty volume",
                "95.3 s without the finobt, 102.4 s with it",
                "the ratio",
            ),
        ],
        parts: &[
            ("after-frees", Part::Engine(engine::finobt::run)),
            ("cost", Part::Any(claims::finobt::cost)),
        ],
    },
    Experiment {
        name: "cil",
        summary: "Commits by threads and lists, fsync beside them, and threads that move between CPUs",
        source: CHINNER,
        published: &[
            (
                "commits a second",
                "700,000 by 16 threads before, which 32 do not exceed; over 1.4 million after",
                "the growth with threads; one list of commits is the state before",
            ),
            (
                "CPUs that go off and on line",
                "a reservation ran out, and the file system shut down",
                "threads move between CPUs here; CPUs stay on line",
            ),
        ],
        parts: &[
            ("commits", Part::Engine(engine::commits::run)),
            ("fsync", Part::Any(claims::cil::fsync)),
            ("moving", Part::Any(claims::cil::moving)),
        ],
    },
    Experiment {
        name: "fxmark",
        summary: "The microbenchmarks of FxMark, and patterns of applications",
        source: FXMARK,
        published: &[(
            "five file systems on up to 80 cores",
            "curves, which are not repeated here",
            "the calls, and how rates grow with threads",
        )],
        parts: &[
            ("calls", Part::Any(claims::fxmark::run)),
            ("applications", Part::Any(claims::applications::run)),
        ],
    },
    Experiment {
        name: "images",
        summary: "Commands that create, check, list and extract images, beside what is installed",
        source: "",
        published: &[],
        parts: &[
            ("check", Part::Commands(commands::check)),
            ("ls", Part::Commands(commands::ls)),
            ("extract", Part::Commands(commands::extract)),
            ("create", Part::Create(create::directory)),
            ("sync", Part::Create(create::sync)),
            ("empty", Part::Create(create::empty)),
        ],
    },
    Experiment {
        name: "contents",
        summary: "Large files, cached files and attributes",
        source: "",
        published: &[],
        parts: &[
            ("stream", Part::Contents(contents::stream::run)),
            ("cached", Part::Contents(contents::cached::run)),
            ("attributes", Part::Contents(contents::attributes::run)),
        ],
    },
    Experiment {
        name: "mount",
        summary: "A mount beside fuse2fs, a FUSE server that does nothing, and the kernel",
        source: "",
        published: &[],
        parts: &[("mount", Part::Mounted)],
    },
    Experiment {
        name: "engine",
        summary: "Recovery, names with one hash, and instructions of single operations (with valgrind)",
        source: "",
        published: &[],
        parts: &[
            ("recovery", Part::Engine(engine::recovery::run)),
            ("collisions", Part::Engine(engine::collisions::run)),
            ("instructions", Part::Engine(engine::instructions::run)),
        ],
    },
];

impl Experiment {
    /// Empty results with its description.
    pub fn results(&self) -> Results {
        let published = self.published.iter().map(|(what, figures, comparable)| Published {
            what: (*what).into(),
            figures: (*figures).into(),
            comparable: (*comparable).into(),
        });
        Results {
            experiment: self.name.into(),
            summary: self.summary.into(),
            source: self.source.into(),
            published: published.collect(),
            ..Results::default()
        }
    }
}

/// An experiment, or one part of it.
pub struct Chosen {
    /// The experiment.
    pub experiment: &'static Experiment,
    part: Option<&'static str>,
}

impl Chosen {
    /// The parts to run.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, Part)> + '_ {
        let is_chosen = |(name, _): &&(&'static str, Part)| self.part.is_none_or(|part| part == *name);
        self.experiment.parts.iter().filter(is_chosen).copied()
    }
}

/// The experiments that a command line names; all if it names none.
///
/// # Errors
/// There is none with such a name.
pub fn choose(names: &[String]) -> anyhow::Result<Vec<Chosen>> {
    if names.is_empty() {
        return Ok(EXPERIMENTS.iter().map(|experiment| Chosen { experiment, part: None }).collect());
    }
    let mut all = Vec::new();
    for name in names {
        let (experiment, part) = name.split_once('/').map_or((&**name, None), |(of, part)| (of, Some(part)));
        let Some(experiment) = EXPERIMENTS.iter().find(|known| known.name == experiment) else {
            bail!("no experiment is named {experiment} (xebec bench --list shows them)");
        };
        let part = match part {
            None => None,
            Some(part) => match experiment.parts.iter().find(|(known, _)| *known == part) {
                Some((known, _)) => Some(*known),
                None => bail!("{} has no part {part} (xebec bench --list shows them)", experiment.name),
            },
        };
        all.push(Chosen { experiment, part });
    }
    Ok(all)
}

/// All experiments with their parts, for a person.
pub fn listing() -> String {
    let mut text = String::new();
    for Experiment { name, summary, source, parts, .. } in EXPERIMENTS {
        let parts: Vec<&str> = parts.iter().map(|(name, _)| *name).collect();
        let _ = writeln!(text, "{name}\n    {summary}\n    parts: {}", parts.join(", "));
        if !source.is_empty() {
            let _ = writeln!(text, "    after: {source}");
        }
    }
    text
}
