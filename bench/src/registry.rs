//! All experiments, the publications that they follow, and what these report.

use std::fmt::Write as _;

use anyhow::bail;
use report::record::{Published, Results};

use crate::recorder::Recorder;
use crate::scale::{Scale, Size};
use crate::{claims, commands, contents, create, engine, mounted, sharing};

/// How a part is run.
#[derive(Clone, Copy)]
pub enum Run {
    /// On any file system, or with commands.
    Any(fn(&Scale, &mut Recorder<'_>) -> anyhow::Result<()>),
    /// Changes of metadata, as a library and in the kernel.
    Engine(fn(&engine::Scale, &mut Recorder<'_>) -> anyhow::Result<()>),
    /// File contents, as a library and in the kernel.
    Contents(fn(&contents::Scale, &mut Recorder<'_>) -> anyhow::Result<()>),
    /// Images of trees.
    Create(fn(&create::Scale, &mut Recorder<'_>) -> anyhow::Result<()>),
    /// Mounts of several file systems, which need root.
    Mounted,
}

/// A part of an experiment.
#[derive(Clone, Copy)]
pub struct Part {
    /// Name on the command line.
    pub name: &'static str,
    /// Expected seconds of a quick run on two CPUs.
    quick: f64,
    run: Run,
}

const fn part(name: &'static str, quick: f64, run: Run) -> Part {
    Part { name, quick, run }
}

impl Part {
    /// Expected seconds, for the time that is left: an estimate that need not fit each part.
    pub fn seconds(&self, size: Size, rounds: u32) -> f64 {
        let of_a_run = match size {
            Size::Full => 3.5,
            Size::Quick => 1.0,
            Size::Smoke => 0.2,
        };
        // A full measurement has a run that is not counted.
        self.quick * of_a_run * f64::from(rounds + u32::from(size == Size::Full))
    }

    /// Runs it, or notes why not.
    ///
    /// # Errors
    /// Xebec failed.
    pub fn run(&self, scale: &Scale, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
        match self.run {
            Run::Any(run) => run(scale, recorder),
            Run::Engine(run) => run(&scale.into(), recorder),
            Run::Contents(run) => run(&scale.into(), recorder),
            Run::Create(run) => run(&scale.into(), recorder),
            Run::Mounted => {
                let is_root = rustix::process::geteuid().is_root();
                let ready = match (is_root, std::path::Path::new("/dev/fuse").exists()) {
                    (false, _) => Err("it needs root".to_string()),
                    (_, false) => Err("there is no /dev/fuse".to_string()),
                    _ => Ok(()),
                };
                if recorder.has_peer("mounts", scale.alone, ready) {
                    mounted::run(&scale.into(), recorder)?;
                }
                Ok(())
            }
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
    parts: &'static [Part],
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
            part("any", 20.0, Run::Any(claims::file_ops::run)),
            part("namespace", 15.0, Run::Engine(engine::namespace::run)),
            part("stat", 6.0, Run::Engine(engine::paths::stat)),
            part("open", 4.0, Run::Engine(engine::paths::open)),
        ],
    },
    Experiment {
        name: "tree-diff",
        summary: "Threads that compare the metadata of trees in memory with what they recorded, and listing",
        source: PIGGIN,
        published: &[(
            "64 parallel git diff on 64 cached kernel trees",
            "4.911 s before, 0.183 s after",
            "git diff itself on mounts, and its calls without git; smaller trees; on two CPUs, 64 walkers take turns",
        )],
        parts: &[
            part("any", 8.0, Run::Any(claims::trees::run)),
            part("git", 20.0, Run::Any(claims::git::run)),
            part("list", 3.0, Run::Engine(engine::list::run)),
        ],
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
        parts: &[
            part("any", 3.0, Run::Any(claims::anonymous::run)),
            part("teardown", 5.0, Run::Any(claims::teardown::run)),
        ],
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
        parts: &[
            part("any", 40.0, Run::Any(claims::fs_mark::run)),
            part("small", 20.0, Run::Contents(contents::small::run)),
        ],
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
            part("writes", 4.0, Run::Contents(contents::small::writes)),
            part("device", 6.0, Run::Contents(contents::device::run)),
            part("flushers", 12.0, Run::Contents(contents::flushers::run)),
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
        parts: &[
            part("storm", 8.0, Run::Any(claims::syncs::run)),
            part("sync", 20.0, Run::Contents(contents::sync::run)),
        ],
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
        parts: &[part("policies", 30.0, Run::Contents(contents::reclaim::run))],
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
            part("after-frees", 12.0, Run::Engine(engine::finobt::run)),
            part("cost", 6.0, Run::Any(claims::finobt::cost)),
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
            part("commits", 3.0, Run::Engine(engine::commits::run)),
            part("fsync", 2.0, Run::Any(claims::cil::fsync)),
            part("moving", 3.0, Run::Any(claims::cil::moving)),
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
            part("calls", 60.0, Run::Any(claims::fxmark::run)),
            part("applications", 15.0, Run::Any(claims::applications::run)),
        ],
    },
    Experiment {
        name: "sharing",
        summary: "Cache lines that operations share that commute, and the throughput that a model predicts from them",
        source: "Clements and others, \"The Scalable Commutativity Rule\", SOSP 2013",
        published: &[(
            "pairs of 18 POSIX calls that commute, in Linux and in a kernel that was designed for it (sv6)",
            "Linux shares no memory in 68 % of 13,664 tests, sv6 in 99 %",
            "the share of the pairs below that share no line; they are ours, not those of the tests",
        )],
        parts: &[part("pairs", 60.0, Run::Any(sharing::run))],
    },
    Experiment {
        name: "images",
        summary: "Commands that create, check, list and extract images, beside what is installed",
        source: "",
        published: &[],
        parts: &[
            part("check", 8.0, Run::Any(commands::check)),
            part("ls", 10.0, Run::Any(commands::ls)),
            part("extract", 8.0, Run::Any(commands::extract)),
            part("create", 15.0, Run::Create(create::directory)),
            part("sync", 3.0, Run::Create(create::sync)),
            part("empty", 10.0, Run::Create(create::empty)),
        ],
    },
    Experiment {
        name: "contents",
        summary: "Large files, cached files and attributes",
        source: "",
        published: &[],
        parts: &[
            part("stream", 4.0, Run::Contents(contents::stream::run)),
            part("cached", 3.0, Run::Contents(contents::cached::run)),
            part("attributes", 2.0, Run::Contents(contents::attributes::run)),
        ],
    },
    Experiment {
        name: "mount",
        summary: "A mount beside fuse2fs, a FUSE server that does nothing, and the kernel",
        source: "",
        published: &[],
        parts: &[part("mount", 40.0, Run::Mounted)],
    },
    Experiment {
        name: "engine",
        summary: "Recovery, names with one hash, and instructions of single operations (with valgrind)",
        source: "",
        published: &[],
        parts: &[
            part("recovery", 4.0, Run::Engine(engine::recovery::run)),
            part("collisions", 10.0, Run::Engine(engine::collisions::run)),
            part("instructions", 60.0, Run::Engine(engine::instructions::run)),
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

/// An experiment, or some parts of it.
pub struct Chosen {
    /// The experiment.
    pub experiment: &'static Experiment,
    /// Their names; none for all.
    parts: Option<Vec<&'static str>>,
}

impl Chosen {
    /// The parts to run.
    pub fn parts(&self) -> impl Iterator<Item = Part> + '_ {
        let is_chosen = |part: &&Part| self.parts.as_ref().is_none_or(|parts| parts.contains(&part.name));
        self.experiment.parts.iter().filter(is_chosen).copied()
    }
}

/// The experiments that a command line names; all if it names none.
///
/// # Errors
/// There is none with such a name.
pub fn choose(names: &[String]) -> anyhow::Result<Vec<Chosen>> {
    if names.is_empty() {
        return Ok(EXPERIMENTS.iter().map(|experiment| Chosen { experiment, parts: None }).collect());
    }
    let mut all: Vec<Chosen> = Vec::new();
    for name in names {
        let (experiment, part) = name.split_once('/').map_or((&**name, None), |(of, part)| (of, Some(part)));
        let Some(experiment) = EXPERIMENTS.iter().find(|known| known.name == experiment) else {
            bail!("no experiment is named {experiment} (xebec bench --list shows them)");
        };
        let part = match part {
            None => None,
            Some(part) => match experiment.parts.iter().find(|known| known.name == part) {
                Some(known) => Some(known.name),
                None => bail!("{} has no part {part} (xebec bench --list shows them)", experiment.name),
            },
        };
        // Parts of one experiment have one result.
        match all.iter_mut().find(|chosen| chosen.experiment.name == experiment.name) {
            None => all.push(Chosen { experiment, parts: part.map(|part| vec![part]) }),
            Some(chosen) => {
                chosen.parts = chosen.parts.take().zip(part).map(|(mut parts, part)| {
                    parts.push(part);
                    parts
                });
            }
        }
    }
    Ok(all)
}

/// All experiments with their parts, for a person.
pub fn listing() -> String {
    let mut text = String::new();
    for Experiment { name, summary, source, parts, .. } in EXPERIMENTS {
        let parts: Vec<&str> = parts.iter().map(|part| part.name).collect();
        let _ = writeln!(text, "{name}\n    {summary}\n    parts: {}", parts.join(", "));
        if !source.is_empty() {
            let _ = writeln!(text, "    after: {source}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str]) -> Vec<(&'static str, usize)> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let chosen = choose(&names).expect("they exist");
        chosen.iter().map(|chosen| (chosen.experiment.name, chosen.parts().count())).collect()
    }

    #[test]
    fn parts_of_one_experiment_have_one_result() {
        assert_eq!(chosen(&["engine/recovery", "cil", "engine/collisions"]), [("engine", 2), ("cil", 3)]);
        assert_eq!(chosen(&["engine/recovery", "engine"]), [("engine", 3)]);
        assert_eq!(chosen(&["engine", "engine/recovery"]), [("engine", 3)]);
        assert_eq!(chosen(&[]).len(), EXPERIMENTS.len());
        assert!(choose(&["engine/gone".into()]).is_err() && choose(&["gone".into()]).is_err());
    }
}
