//! Every operation on every combination of file types: each rule is obeyed once and violated once.
//!
//! Each case has its own directory, so no case depends on another.

use model::{FileKind, HOME, Id, Name, NewFile, Operation, RenameMode};

/// What exists under a name before an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Existing {
    Nothing,
    File,
    Symlink,
    Device,
    EmptyDir,
    FullDir,
}

const EXISTING: [Existing; 6] = [
    Existing::Nothing,
    Existing::File,
    Existing::Symlink,
    Existing::Device,
    Existing::EmptyDir,
    Existing::FullDir,
];
/// `Whiteout` gets a new identity each time.
const MODES: [RenameMode; 4] =
    [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange, RenameMode::Whiteout(HOME)];

/// Returns the operations of all cases.
pub fn operations() -> Vec<Operation> {
    let mut script = Script { next: 1, operations: Vec::new() };
    script.creations();
    script.links();
    script.removals();
    script.renames();
    script.renames_within_a_path();
    script.names();
    script.targets();
    script.operations
}

struct Script {
    next: u32,
    operations: Vec<Operation>,
}

fn kinds() -> [FileKind; 7] {
    let target = b"target".to_vec();
    let devices = (FileKind::CharDevice(1, 3), FileKind::BlockDevice(7, 0));
    [
        FileKind::File,
        FileKind::Directory,
        FileKind::Symlink(target),
        devices.0,
        devices.1,
        FileKind::Fifo,
        FileKind::Socket,
    ]
}

fn new(kind: FileKind) -> NewFile {
    // Symlinks always have all permissions on Linux.
    let mode = if matches!(kind, FileKind::Symlink(_)) { 0o777 } else { 0o640 };
    NewFile { kind, mode, uid: 1, gid: 2 }
}

impl Script {
    fn id(&mut self) -> Id {
        self.next += 1;
        Id(self.next)
    }

    fn add(&mut self, operation: Operation) {
        self.operations.push(operation);
    }

    fn create(&mut self, dir: Id, name: &[u8], kind: FileKind) -> Id {
        let id = self.id();
        self.add(Operation::Create { dir, name: name.to_vec(), new: new(kind), id });
        id
    }

    fn dir(&mut self, dir: Id, name: &[u8]) -> Id {
        self.create(dir, name, FileKind::Directory)
    }

    /// Creates the directory of a case.
    fn case(&mut self) -> Id {
        let name = format!("case {}", self.next);
        self.dir(HOME, name.as_bytes())
    }

    /// Creates a directory that is removed while it is open.
    fn removed(&mut self, case: Id) -> Id {
        let id = self.dir(case, b"removed");
        self.add(Operation::Open { id });
        self.add(Operation::Rmdir { dir: case, name: b"removed".to_vec() });
        id
    }

    fn prepare(&mut self, dir: Id, name: &[u8], existing: Existing) -> Option<Id> {
        Some(match existing {
            Existing::Nothing => return None,
            Existing::File => self.create(dir, name, FileKind::File),
            Existing::Symlink => self.create(dir, name, FileKind::Symlink(b"nowhere".to_vec())),
            Existing::Device => self.create(dir, name, FileKind::CharDevice(0, 0)),
            Existing::EmptyDir => self.dir(dir, name),
            Existing::FullDir => {
                let id = self.dir(dir, name);
                self.create(id, b"within", FileKind::File);
                id
            }
        })
    }

    fn rename(&mut self, (from, name): (Id, &[u8]), (to, to_name): (Id, &[u8]), mode: RenameMode) {
        let mode =
            if matches!(mode, RenameMode::Whiteout(_)) { RenameMode::Whiteout(self.id()) } else { mode };
        self.add(Operation::Rename { from, name: name.to_vec(), to, to_name: to_name.to_vec(), mode });
    }

    /// Creates files that cannot be used as a directory: a file, a symlink, and a removed directory.
    fn no_directories(&mut self, case: Id) -> [Id; 3] {
        let file = self.create(case, b"a file", FileKind::File);
        let link = self.create(case, b"a symlink", FileKind::Symlink(b".".to_vec()));
        [file, link, self.removed(case)]
    }

    fn creations(&mut self) {
        for kind in kinds() {
            for existing in EXISTING {
                let case = self.case();
                self.prepare(case, b"name", existing);
                self.create(case, b"name", kind.clone());
            }
            let case = self.case();
            for dir in self.no_directories(case) {
                self.create(dir, b"name", kind.clone());
            }
        }
        let case = self.case();
        for dir in self.no_directories(case).into_iter().take(2) {
            let id = self.id();
            self.add(Operation::Anonymous { dir, new: new(FileKind::File), id });
        }
    }

    fn links(&mut self) {
        for file in EXISTING {
            for existing in EXISTING {
                let case = self.case();
                let Some(id) = self.prepare(case, b"file", file) else { continue };
                self.prepare(case, b"name", existing);
                self.add(Operation::Link { id, dir: case, name: b"name".to_vec() });
                self.add(Operation::Link { id, dir: case, name: b"file".to_vec() });
            }
        }
        let case = self.case();
        let id = self.create(case, b"file", FileKind::File);
        for dir in self.no_directories(case) {
            self.add(Operation::Link { id, dir, name: b"name".to_vec() });
        }
        // A file whose last name was removed, and one that has never had a name: only the second can get one.
        self.add(Operation::Open { id });
        self.add(Operation::Unlink { dir: case, name: b"file".to_vec() });
        let nameless = self.id();
        self.add(Operation::Anonymous { dir: case, new: new(FileKind::File), id: nameless });
        for id in [id, nameless] {
            self.add(Operation::Link { id, dir: case, name: b"again".to_vec() });
            self.add(Operation::Link { id, dir: case, name: b"and again".to_vec() });
        }
    }

    fn removals(&mut self) {
        for existing in EXISTING {
            let case = self.case();
            self.prepare(case, b"name", existing);
            self.add(Operation::Rmdir { dir: case, name: b"name".to_vec() });
            self.prepare(case, b"other", existing);
            self.add(Operation::Unlink { dir: case, name: b"other".to_vec() });
            for name in ["name", "other"] {
                self.add(Operation::Lookup { dir: case, name: name.into() });
            }
        }
        let case = self.case();
        for dir in self.no_directories(case) {
            self.add(Operation::Unlink { dir, name: b"name".to_vec() });
            self.add(Operation::Rmdir { dir, name: b"name".to_vec() });
            self.add(Operation::Lookup { dir, name: b"name".to_vec() });
            self.add(Operation::List { dir });
        }
    }

    fn renames(&mut self) {
        for mode in MODES {
            for (source, target) in EXISTING.into_iter().flat_map(|one| EXISTING.map(|other| (one, other))) {
                let case = self.case();
                self.prepare(case, b"from", source);
                self.prepare(case, b"to", target);
                self.rename((case, b"from"), (case, b"to"), mode);
                let (one, other) = (self.dir(case, b"one"), self.dir(case, b"other"));
                self.prepare(one, b"from", source);
                self.prepare(other, b"to", target);
                self.rename((one, b"from"), (other, b"to"), mode);
            }
            for existing in EXISTING {
                let case = self.case();
                self.prepare(case, b"same", existing);
                self.rename((case, b"same"), (case, b"same"), mode);
                let source = self.case();
                self.prepare(source, b"from", existing);
                for to in self.no_directories(case) {
                    self.rename((source, b"from"), (to, b"to"), mode);
                    self.rename((to, b"to"), (source, b"from"), mode);
                }
            }
            // Two links of one file.
            let case = self.case();
            let id = self.create(case, b"one", FileKind::File);
            let below = self.dir(case, b"below");
            for dir in [case, below] {
                self.add(Operation::Link { id, dir, name: b"other".to_vec() });
                self.rename((case, b"one"), (dir, b"other"), mode);
            }
        }
    }

    /// Renames nested directories into their ancestors and descendants.
    fn renames_within_a_path(&mut self) {
        for mode in MODES {
            let case = self.case();
            let outer = self.dir(case, b"outer");
            let middle = self.dir(outer, b"middle");
            let inner = self.dir(middle, b"inner");
            let places: [(Id, &[u8]); 6] = [
                (case, b"outer"),
                (outer, b"middle"),
                (middle, b"inner"),
                (inner, b"nothing"),
                (outer, b"nothing"),
                (case, b"nothing"),
            ];
            // Upwards last: only these renames are permitted, and they change the paths.
            for (at, from) in places.into_iter().enumerate() {
                for to in places.into_iter().skip(at) {
                    self.rename(from, to, mode);
                }
            }
            for (at, to) in places.into_iter().enumerate() {
                for from in places.into_iter().skip(at + 1) {
                    self.rename(from, to, mode);
                }
            }
        }
    }

    /// The longest name, a longer one, `.` and `..`.
    fn names(&mut self) {
        let names: [Name; 4] = [vec![b'n'; 255], vec![b'n'; 256], b".".to_vec(), b"..".to_vec()];
        for name in names {
            let case = self.case();
            let file = self.create(case, b"file", FileKind::File);
            for kind in kinds() {
                self.create(case, &name, kind);
                self.add(Operation::Lookup { dir: case, name: name.clone() });
                self.add(Operation::Unlink { dir: case, name: name.clone() });
                self.add(Operation::Rmdir { dir: case, name: name.clone() });
            }
            self.add(Operation::Link { id: file, dir: case, name: name.clone() });
            self.add(Operation::Unlink { dir: case, name: name.clone() });
            for mode in MODES {
                self.rename((case, b"file"), (case, &name), mode);
                self.rename((case, &name), (case, b"file"), mode);
                self.rename((case, &name), (case, &name), mode);
                self.rename((case, b"nothing"), (case, &name), mode);
            }
            for dir in self.no_directories(case) {
                self.create(dir, &name, FileKind::File);
                // `.` and `..` in a removed directory are not specified.
                if name.len() > 2 {
                    self.add(Operation::Lookup { dir, name: name.clone() });
                }
                self.add(Operation::Unlink { dir, name: name.clone() });
                self.add(Operation::Rmdir { dir, name: name.clone() });
            }
        }
    }

    /// Targets of symlinks: of the maximum length, longer, and empty.
    fn targets(&mut self) {
        let case = self.case();
        for length in [1, 255, 1023, 1024, 4095, 0] {
            let name = format!("to {length}");
            self.create(case, name.as_bytes(), FileKind::Symlink(vec![b't'; length]));
        }
        // Order of the checks: the target is too long, and the name exists.
        self.create(case, b"to 1", FileKind::Symlink(vec![b't'; 1024]));
        self.create(case, b"to 1", FileKind::Symlink(Vec::new()));
    }
}
