//! Tests of the model's rules, of generators, sessions and fingerprints.

use std::collections::BTreeMap;

use base::time::Time;

use crate::memory::MemorySubject;
use crate::*;

fn at(seconds: i64) -> Time {
    Time { seconds, nanos: 0 }
}

fn tree() -> Tree {
    Tree::new(Stat::directory(), 1000)
}

/// A tree in which identities and inode numbers are equal.
struct Scene {
    tree: Tree,
    next: u32,
}

impl Scene {
    fn new() -> Self {
        Self { tree: tree(), next: 1 }
    }

    fn make(&mut self, dir: Id, name: &str, kind: FileKind) -> Id {
        let id = Id(self.next);
        self.next += 1;
        let new = NewFile { kind, mode: 0o644, uid: 0, gid: 0 };
        let operation = Operation::Create { dir, name: name.into(), new, id };
        self.tree.perform(&operation, at(id.0.into()), id.0.into()).unwrap();
        id
    }

    fn rename(&mut self, from: (Id, &str), to: (Id, &str), mode: RenameMode) -> Result<Outcome, Refusal> {
        let operation =
            Operation::Rename { from: from.0, name: from.1.into(), to: to.0, to_name: to.1.into(), mode };
        self.tree.perform(&operation, at(100), 99)
    }

    fn links(&self, id: Id) -> u32 {
        self.tree.node(id).map_or(0, |node| node.stat.links)
    }
}

#[test]
fn operations_are_parsed_back_from_their_text() {
    let mut generator = Generator::new(3, OperationMix { refused_in: 3, ..OperationMix::MIXED });
    let mut tree = tree();
    for n in 0..3000 {
        let operation = generator.next(&tree);
        assert_eq!(operation.to_string().parse(), Ok(operation.clone()));
        let _ = tree.perform(&operation, at(n), n as u64);
    }
    assert!("create 0 =a".parse::<Operation>().is_err() && "fly 0".parse::<Operation>().is_err());
    assert!("unlink 0 a".parse::<Operation>().is_err() && "unlink 0 =%4".parse::<Operation>().is_err());
}

#[test]
fn fingerprint_is_updated_by_every_change() {
    for mix in [OperationMix::MIXED, OperationMix::DIRECTORY_FORMATS, OperationMix::INODES] {
        let mut generator = Generator::new(5, mix);
        let mut tree = tree();
        for n in 0..1500 {
            let operation = generator.next(&tree);
            let before = tree.fingerprint();
            let outcome = tree.perform(&operation, at(n), 2000 + n as u64);
            assert_eq!(tree.fingerprint(), ObservedTree::of_tree(&tree).fingerprint(), "{operation}");
            assert!(outcome.is_ok() || tree.fingerprint() == before, "{operation} was refused");
        }
    }
}

/// Every operation occurs, both permitted and refused if it can be refused.
#[test]
fn generators_make_every_operation() {
    let mut observed: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    for seed in 0..8 {
        let mut generator = Generator::new(seed, OperationMix::MIXED);
        let mut tree = tree();
        for n in 0..2000 {
            let operation = generator.next(&tree);
            let text = operation.to_string();
            let mut words = text.split([' ', ':']);
            let mut kind = words.next().unwrap().to_string();
            if let Operation::Rename { mode, .. } = &operation {
                kind = format!("rename {mode:?}").split('(').next().unwrap().into();
            }
            if let Operation::Create { new, .. } = &operation {
                kind = format!("create {:?}", new.kind).split('(').next().unwrap().into();
            }
            let done = tree.perform(&operation, at(n), n as u64).is_ok();
            let count = observed.entry(kind).or_default();
            *(if done { &mut count.0 } else { &mut count.1 }) += 1;
        }
    }
    assert_eq!(observed.len(), 7 + 4 + 11, "{observed:?}");
    assert!(observed.values().all(|(done, _)| *done > 20), "{observed:?}");
    for kind in ["unlink", "rmdir", "link", "rename Replace", "rename NoReplace", "rename Exchange", "lookup"]
    {
        assert!(observed[kind].1 > 5, "{kind} is never refused: {observed:?}");
    }
}

#[test]
fn directories_grow_large_and_become_empty_again() {
    let mut generator = Generator::new(1, OperationMix::DIRECTORY_FORMATS);
    let mut tree = tree();
    let (mut most, mut emptied) = (0, false);
    for n in 0..20_000 {
        let operation = generator.next(&tree);
        let _ = tree.perform(&operation, at(n), n as u64);
        let entries = tree.nodes().map(|(_, node)| node.entries.len()).max().unwrap_or(0);
        most = most.max(entries);
        emptied |= most > 300 && tree.len() < 5;
    }
    assert!(most > 300 && emptied, "{most} entries, emptied: {emptied}");
}

#[test]
fn session_finds_differences() {
    let (subject, ticks) = (MemorySubject::new(), Ticks::default());
    for (seed, mix) in
        [(1, OperationMix::MIXED), (2, OperationMix::DIRECTORY_FORMATS), (3, OperationMix::INODES)]
    {
        let name = format!("home{seed}").into_bytes();
        let new = NewFile::directory();
        let home = subject.create(subject.root(), &name, &new).unwrap();
        let mut session = Session::new(&subject, &ticks, home, true).unwrap();
        let mut generator = Generator::new(seed, mix);
        for n in 1..1500 {
            let operation = generator.next(session.tree());
            assert_eq!(session.step(&operation, at(n)), Ok(StepOutcome::Agreed));
        }
        session.compare_all().unwrap();
        let observed = ObservedTree::of_subject(&subject, home, true).unwrap();
        let history = session.history();
        let last = history.entries.len();
        assert!(history.prefixes(observed.fingerprint(), 0).any(|length| length == last));
        assert_eq!(ObservedTree::of_tree(&history.tree(last)), observed);
        // A change outside the session is found.
        let new = NewFile { kind: FileKind::Fifo, mode: 0, uid: 0, gid: 0 };
        subject.create(home, b"unrecorded", &new).unwrap();
        assert!(session.compare_all().is_err());
        assert_eq!(
            history
                .prefixes(ObservedTree::of_subject(&subject, home, true).unwrap().fingerprint(), 0)
                .count(),
            0
        );
        let (nearest, differences) =
            history.nearest(&ObservedTree::of_subject(&subject, home, true).unwrap(), 0);
        assert!(nearest > 0 && differences.iter().any(|what| what.contains("unrecorded")), "{differences:?}");
    }
}

#[test]
fn rename_updates_link_counts_and_refuses_as_linux_does() {
    let mut scene = Scene::new();
    let a = scene.make(HOME, "a", FileKind::Directory);
    let b = scene.make(HOME, "b", FileKind::Directory);
    let deep = scene.make(a, "deep", FileKind::Directory);
    let file = scene.make(a, "file", FileKind::File);
    assert_eq!((scene.links(HOME), scene.links(a), scene.links(b)), (4, 3, 2));
    let mut refused = |from, to, mode| scene.rename(from, to, mode).unwrap_err();
    assert_eq!(refused((HOME, "a"), (deep, "x"), RenameMode::Replace), Refusal::Invalid);
    assert_eq!(refused((HOME, "a"), (a, "x"), RenameMode::NoReplace), Refusal::Invalid);
    assert_eq!(refused((a, "deep"), (HOME, "a"), RenameMode::Replace), Refusal::NotEmpty);
    assert_eq!(refused((a, "deep"), (HOME, "a"), RenameMode::Exchange), Refusal::Invalid);
    assert_eq!(refused((HOME, "b"), (HOME, "a"), RenameMode::Replace), Refusal::Exists);
    assert_eq!(refused((HOME, "b"), (a, "file"), RenameMode::Replace), Refusal::NotDirectory);
    assert_eq!(refused((a, "file"), (HOME, "b"), RenameMode::Replace), Refusal::IsDirectory);
    assert_eq!(refused((a, "file"), (HOME, "b"), RenameMode::NoReplace), Refusal::Exists);
    assert_eq!(refused((a, "file"), (HOME, "x"), RenameMode::Exchange), Refusal::NoEntry);
    assert_eq!(refused((a, "none"), (HOME, "x"), RenameMode::Replace), Refusal::NoEntry);
    assert_eq!(refused((file, "none"), (HOME, "x"), RenameMode::Replace), Refusal::NotDirectory);
    // A directory moves with its `..`; the empty directory that it replaces is gone.
    scene.rename((a, "deep"), (HOME, "b"), RenameMode::Replace).unwrap();
    assert_eq!((scene.links(HOME), scene.links(a), scene.links(b), scene.links(deep)), (4, 2, 0, 2));
    assert!(scene.tree.node(b).is_none());
    // A file and a directory in different parents are exchanged.
    scene.rename((a, "file"), (HOME, "b"), RenameMode::Exchange).unwrap();
    assert_eq!((scene.links(HOME), scene.links(a)), (3, 3));
    assert_eq!(scene.tree.path(deep), [b"a".to_vec(), b"file".to_vec()]);
    // A whiteout remains under the old name.
    scene.rename((HOME, "b"), (a, "new"), RenameMode::Whiteout(Id(50))).unwrap();
    let left = scene.tree.node(Id(50)).unwrap();
    assert_eq!((&left.stat.kind, left.stat.mode, left.stat.links), (&FileKind::CharDevice(0, 0), 0, 1));
}

#[test]
fn rename_between_names_of_one_file_changes_nothing() {
    let mut scene = Scene::new();
    let file = scene.make(HOME, "file", FileKind::File);
    let link = Operation::Link { id: file, dir: HOME, name: b"other".to_vec() };
    scene.tree.perform(&link, at(9), 0).unwrap();
    let before = ObservedTree::of_tree(&scene.tree);
    for mode in [RenameMode::Replace, RenameMode::Exchange, RenameMode::Whiteout(Id(77))] {
        scene.rename((HOME, "file"), (HOME, "other"), mode).unwrap();
        assert_eq!(ObservedTree::of_tree(&scene.tree), before);
    }
}

#[test]
fn open_files_exist_beyond_their_last_name() {
    let mut scene = Scene::new();
    let file = scene.make(HOME, "file", FileKind::File);
    let mut perform = |operation: Operation| scene.tree.perform(&operation, at(50), 0);
    perform(Operation::Open { id: file }).unwrap();
    perform(Operation::Unlink { dir: HOME, name: b"file".to_vec() }).unwrap();
    perform(Operation::Stat { id: file }).unwrap();
    let again = Operation::Link { id: file, dir: HOME, name: b"again".to_vec() };
    assert_eq!(perform(again), Err(Refusal::NoEntry));
    perform(Operation::Close { id: file }).unwrap();
    assert_eq!(perform(Operation::Stat { id: file }), Err(Refusal::NoEntry));
    // A file that never had a name may get one, once.
    let new = NewFile { kind: FileKind::File, mode: 0o600, uid: 0, gid: 0 };
    perform(Operation::Anonymous { dir: HOME, new, id: Id(9) }).unwrap();
    perform(Operation::Link { id: Id(9), dir: HOME, name: b"named".to_vec() }).unwrap();
    perform(Operation::Close { id: Id(9) }).unwrap();
    perform(Operation::Stat { id: Id(9) }).unwrap();
}

/// A manifest of a file with contents, which the model does not support, is refused with a message.
#[test]
fn records_of_files_with_contents_are_refused() {
    let record = |size| read::manifest::Record {
        path: read::manifest::PathKey::new(b""),
        kind: read::manifest::EntryType::File,
        mode: "0644".into(),
        uid: 0,
        gid: 0,
        nlink: 1,
        size,
        ino: 7,
        atime: "1.000000002".into(),
        mtime: "-1.500000000".into(),
        ctime: "0.000000000".into(),
        btime: "0.000000000".into(),
        rdev: None,
        target: None,
        xattrs: BTreeMap::new(),
        sha256: None,
        projid: None,
        xflags: None,
    };
    let observed = ObservedTree::of_records(&[record(0)], true).unwrap();
    let times = observed.files[&7].stat.times.unwrap();
    assert_eq!((times.accessed.nanos, times.modified), (2, Time { seconds: -1, nanos: 500_000_000 }));
    assert!(ObservedTree::of_records(&[record(3)], true).unwrap_err().contains("size is 3"));
}

/// A device failed in another thread between a rename that leaves a whiteout and the lookup of the whiteout's inode
/// number. The history then had a whiteout with the number 0, which no recovered volume matches.
#[test]
fn rename_counts_as_failed_if_its_whiteout_cannot_be_looked_up() {
    let subject = MemorySubject::new().with_hook(Box::new(|operation, _, _| match operation {
        Operation::Lookup { .. } => Err(Failure { errno: 5, message: "shut down".into() }),
        _ => Ok(()),
    }));
    let ticks = Ticks::default();
    let tolerance = Tolerance { io_errors: true, ..Tolerance::default() };
    let mut session = Session::new(&subject, &ticks, subject.root(), true).unwrap().tolerating(tolerance);
    let new = NewFile { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0 };
    let create = Operation::Create { dir: HOME, name: b"old".to_vec(), new, id: Id(1) };
    assert_eq!(session.step(&create, at(1)), Ok(StepOutcome::Agreed));
    let mode = RenameMode::Whiteout(Id(2));
    let rename =
        Operation::Rename { from: HOME, name: b"old".to_vec(), to: HOME, to_name: b"new".to_vec(), mode };
    assert!(matches!(session.step(&rename, at(2)), Ok(StepOutcome::IoError(_))));
    let seen = ObservedTree::of_subject(&subject, subject.root(), true).unwrap();
    let tree = session.history().tree_with_failed_operation(&seen).unwrap();
    assert_eq!(ObservedTree::of_tree(&tree).fingerprint(), seen.fingerprint());
}
