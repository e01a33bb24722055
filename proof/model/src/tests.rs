//! The model's rules, and that generators, sessions and fingerprints work.

use std::collections::BTreeMap;

use base::time::Time;

use crate::standin::StandIn;
use crate::*;

fn at(seconds: i64) -> Time {
    Time { seconds, nanos: 0 }
}

fn tree() -> Tree {
    let facts =
        Facts { kind: Kind::Directory, mode: 0o755, uid: 0, gid: 0, links: 2, times: Some(Times::default()) };
    Tree::new(facts, 1000)
}

/// A tree and what was done to it, with numbers as identities.
struct Scene {
    tree: Tree,
    next: u32,
}

impl Scene {
    fn new() -> Self {
        Self { tree: tree(), next: 1 }
    }

    fn make(&mut self, dir: Id, name: &str, kind: Kind) -> Id {
        let id = Id(self.next);
        self.next += 1;
        let new = New { kind, mode: 0o644, uid: 0, gid: 0 };
        let operation = Operation::Create { dir, name: name.into(), new, id };
        self.tree.perform(&operation, at(id.0.into()), id.0.into()).unwrap();
        id
    }

    fn rename(&mut self, from: (Id, &str), to: (Id, &str), how: How) -> Result<Outcome, Refusal> {
        let operation =
            Operation::Rename { from: from.0, name: from.1.into(), to: to.0, to_name: to.1.into(), how };
        self.tree.perform(&operation, at(100), 99)
    }

    fn links(&self, id: Id) -> u32 {
        self.tree.node(id).map_or(0, |node| node.facts.links)
    }
}

#[test]
fn operations_read_back_from_their_text() {
    let mut generator = Generator::new(3, Aim { refused_in: 3, ..Aim::MIXED });
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
fn the_fingerprint_follows_every_change() {
    for aim in [Aim::MIXED, Aim::FORMS, Aim::INODES] {
        let mut generator = Generator::new(5, aim);
        let mut tree = tree();
        for n in 0..1500 {
            let operation = generator.next(&tree);
            let before = tree.fingerprint();
            let outcome = tree.perform(&operation, at(n), 2000 + n as u64);
            assert_eq!(tree.fingerprint(), Seen::of_tree(&tree).fingerprint(), "{operation}");
            assert!(outcome.is_ok() || tree.fingerprint() == before, "{operation} was refused");
        }
    }
}

/// Every operation appears, each both done and refused where it can be.
#[test]
fn generators_make_everything() {
    let mut seen: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    for seed in 0..8 {
        let mut generator = Generator::new(seed, Aim::MIXED);
        let mut tree = tree();
        for n in 0..2000 {
            let operation = generator.next(&tree);
            let text = operation.to_string();
            let mut words = text.split([' ', ':']);
            let mut kind = words.next().unwrap().to_string();
            if let Operation::Rename { how, .. } = &operation {
                kind = format!("rename {how:?}").split('(').next().unwrap().into();
            }
            if let Operation::Create { new, .. } = &operation {
                kind = format!("create {:?}", new.kind).split('(').next().unwrap().into();
            }
            let done = tree.perform(&operation, at(n), n as u64).is_ok();
            let count = seen.entry(kind).or_default();
            *(if done { &mut count.0 } else { &mut count.1 }) += 1;
        }
    }
    assert_eq!(seen.len(), 7 + 4 + 11, "{seen:?}");
    assert!(seen.values().all(|(done, _)| *done > 20), "{seen:?}");
    for kind in ["unlink", "rmdir", "link", "rename Replace", "rename NoReplace", "rename Exchange", "lookup"]
    {
        assert!(seen[kind].1 > 5, "{kind} is never refused: {seen:?}");
    }
}

#[test]
fn directories_grow_large_and_become_empty_again() {
    let mut generator = Generator::new(1, Aim::FORMS);
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
fn a_session_finds_what_differs() {
    let (subject, ticks) = (StandIn::new(), Ticks::default());
    for (seed, aim) in [(1, Aim::MIXED), (2, Aim::FORMS), (3, Aim::INODES)] {
        let name = format!("home{seed}").into_bytes();
        let new = New { kind: Kind::Directory, mode: 0o755, uid: 0, gid: 0 };
        let home = subject.create(subject.root(), &name, &new).unwrap();
        let mut session = Session::new(&subject, &ticks, home, true).unwrap();
        let mut generator = Generator::new(seed, aim);
        for n in 1..1500 {
            let operation = generator.next(session.tree());
            assert_eq!(session.step(&operation, at(n)), Ok(Stepped::Agreed));
        }
        session.compare_all().unwrap();
        let seen = Seen::of_subject(&subject, home, true).unwrap();
        let history = session.history();
        let last = history.steps.len();
        assert!(history.prefixes(seen.fingerprint(), 0).any(|length| length == last));
        assert_eq!(Seen::of_tree(&history.tree(last)), seen);
        // What changes behind the session's back is found.
        let new = New { kind: Kind::Fifo, mode: 0, uid: 0, gid: 0 };
        subject.create(home, b"not told", &new).unwrap();
        assert!(session.compare_all().is_err());
        assert_eq!(
            history.prefixes(Seen::of_subject(&subject, home, true).unwrap().fingerprint(), 0).count(),
            0
        );
        let (nearest, differences) = history.nearest(&Seen::of_subject(&subject, home, true).unwrap(), 0);
        assert!(nearest > 0 && differences.iter().any(|what| what.contains("not told")), "{differences:?}");
    }
}

#[test]
fn renames_count_links_and_refuse_what_linux_refuses() {
    let mut scene = Scene::new();
    let a = scene.make(HOME, "a", Kind::Directory);
    let b = scene.make(HOME, "b", Kind::Directory);
    let deep = scene.make(a, "deep", Kind::Directory);
    let file = scene.make(a, "file", Kind::File);
    assert_eq!((scene.links(HOME), scene.links(a), scene.links(b)), (4, 3, 2));
    let mut refused = |from, to, how| scene.rename(from, to, how).unwrap_err();
    assert_eq!(refused((HOME, "a"), (deep, "x"), How::Replace), Refusal::Invalid);
    assert_eq!(refused((HOME, "a"), (a, "x"), How::NoReplace), Refusal::Invalid);
    assert_eq!(refused((a, "deep"), (HOME, "a"), How::Replace), Refusal::NotEmpty);
    assert_eq!(refused((a, "deep"), (HOME, "a"), How::Exchange), Refusal::Invalid);
    assert_eq!(refused((HOME, "b"), (HOME, "a"), How::Replace), Refusal::Exists);
    assert_eq!(refused((HOME, "b"), (a, "file"), How::Replace), Refusal::NotDirectory);
    assert_eq!(refused((a, "file"), (HOME, "b"), How::Replace), Refusal::IsDirectory);
    assert_eq!(refused((a, "file"), (HOME, "b"), How::NoReplace), Refusal::Exists);
    assert_eq!(refused((a, "file"), (HOME, "x"), How::Exchange), Refusal::NoEntry);
    assert_eq!(refused((a, "none"), (HOME, "x"), How::Replace), Refusal::NoEntry);
    assert_eq!(refused((file, "none"), (HOME, "x"), How::Replace), Refusal::NotDirectory);
    // A directory moves and takes its `..` along; an empty one that it replaces is gone.
    scene.rename((a, "deep"), (HOME, "b"), How::Replace).unwrap();
    assert_eq!((scene.links(HOME), scene.links(a), scene.links(b), scene.links(deep)), (4, 2, 0, 2));
    assert!(scene.tree.node(b).is_none());
    // A file and a directory of different parents change places.
    scene.rename((a, "file"), (HOME, "b"), How::Exchange).unwrap();
    assert_eq!((scene.links(HOME), scene.links(a)), (3, 3));
    assert_eq!(scene.tree.path(deep), [b"a".to_vec(), b"file".to_vec()]);
    // A whiteout stays behind.
    scene.rename((HOME, "b"), (a, "new"), How::Whiteout(Id(50))).unwrap();
    let left = scene.tree.node(Id(50)).unwrap();
    assert_eq!((&left.facts.kind, left.facts.mode, left.facts.links), (&Kind::CharDevice(0, 0), 0, 1));
}

#[test]
fn two_names_of_one_file_rename_to_nothing() {
    let mut scene = Scene::new();
    let file = scene.make(HOME, "file", Kind::File);
    let link = Operation::Link { id: file, dir: HOME, name: b"other".to_vec() };
    scene.tree.perform(&link, at(9), 0).unwrap();
    let before = Seen::of_tree(&scene.tree);
    for how in [How::Replace, How::Exchange, How::Whiteout(Id(77))] {
        scene.rename((HOME, "file"), (HOME, "other"), how).unwrap();
        assert_eq!(Seen::of_tree(&scene.tree), before);
    }
}

#[test]
fn files_outlive_their_names_while_they_are_held() {
    let mut scene = Scene::new();
    let file = scene.make(HOME, "file", Kind::File);
    let mut perform = |operation: Operation| scene.tree.perform(&operation, at(50), 0);
    perform(Operation::Hold { id: file }).unwrap();
    perform(Operation::Unlink { dir: HOME, name: b"file".to_vec() }).unwrap();
    perform(Operation::Stat { id: file }).unwrap();
    let again = Operation::Link { id: file, dir: HOME, name: b"again".to_vec() };
    assert_eq!(perform(again), Err(Refusal::NoEntry));
    perform(Operation::Release { id: file }).unwrap();
    assert_eq!(perform(Operation::Stat { id: file }), Err(Refusal::NoEntry));
    // A file that never had a name may get one, once.
    let new = New { kind: Kind::File, mode: 0o600, uid: 0, gid: 0 };
    perform(Operation::Anonymous { dir: HOME, new, id: Id(9) }).unwrap();
    perform(Operation::Link { id: Id(9), dir: HOME, name: b"named".to_vec() }).unwrap();
    perform(Operation::Release { id: Id(9) }).unwrap();
    perform(Operation::Stat { id: Id(9) }).unwrap();
}

/// The kernel made this volume, and its files carry data: what the reader gives is refused in words, not wrong.
#[test]
fn what_the_model_does_not_know_is_refused_in_words() {
    let record = |size| read::manifest::Record {
        path: read::manifest::PathKey::new(b""),
        kind: read::manifest::Kind::File,
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
    let seen = Seen::of_records(&[record(0)], true).unwrap();
    let times = seen.files[&7].facts.times.unwrap();
    assert_eq!((times.accessed.nanos, times.modified), (2, Time { seconds: -1, nanos: 500_000_000 }));
    assert!(Seen::of_records(&[record(3)], true).unwrap_err().contains("size is 3"));
}
