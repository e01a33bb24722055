//! Every operation on everything that it can meet: each rule of names is kept once and broken once.
//!
//! Each case has a directory of its own, so that no case depends on another.

use model::{HOME, How, Id, Kind, Name, New, Operation};

/// What a name can stand for when an operation meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    Nothing,
    File,
    Symlink,
    Device,
    EmptyDir,
    FullDir,
}

const MET: [Met; 6] = [Met::Nothing, Met::File, Met::Symlink, Met::Device, Met::EmptyDir, Met::FullDir];
/// `Whiteout` gets an identity of its own each time.
const HOWS: [How; 4] = [How::Replace, How::NoReplace, How::Exchange, How::Whiteout(HOME)];

/// All cases, one after the other.
pub fn operations() -> Vec<Operation> {
    let mut script = Script { next: 1, operations: Vec::new() };
    script.creations();
    script.links();
    script.removals();
    script.renames();
    script.renames_within_a_line();
    script.names();
    script.targets();
    script.operations
}

struct Script {
    next: u32,
    operations: Vec<Operation>,
}

fn kinds() -> [Kind; 7] {
    let target = b"target".to_vec();
    let devices = (Kind::CharDevice(1, 3), Kind::BlockDevice(7, 0));
    [Kind::File, Kind::Directory, Kind::Symlink(target), devices.0, devices.1, Kind::Fifo, Kind::Socket]
}

fn new(kind: Kind) -> New {
    // Linux gives symlinks all permissions.
    let mode = if matches!(kind, Kind::Symlink(_)) { 0o777 } else { 0o640 };
    New { kind, mode, uid: 1, gid: 2 }
}

impl Script {
    fn id(&mut self) -> Id {
        self.next += 1;
        Id(self.next)
    }

    fn add(&mut self, operation: Operation) {
        self.operations.push(operation);
    }

    fn create(&mut self, dir: Id, name: &[u8], kind: Kind) -> Id {
        let id = self.id();
        self.add(Operation::Create { dir, name: name.to_vec(), new: new(kind), id });
        id
    }

    fn dir(&mut self, dir: Id, name: &[u8]) -> Id {
        self.create(dir, name, Kind::Directory)
    }

    /// A directory for a case.
    fn case(&mut self) -> Id {
        let name = format!("case {}", self.next);
        self.dir(HOME, name.as_bytes())
    }

    /// A directory that was removed while it was held.
    fn removed(&mut self, case: Id) -> Id {
        let id = self.dir(case, b"removed");
        self.add(Operation::Hold { id });
        self.add(Operation::Rmdir { dir: case, name: b"removed".to_vec() });
        id
    }

    fn met(&mut self, dir: Id, name: &[u8], met: Met) -> Option<Id> {
        Some(match met {
            Met::Nothing => return None,
            Met::File => self.create(dir, name, Kind::File),
            Met::Symlink => self.create(dir, name, Kind::Symlink(b"nowhere".to_vec())),
            Met::Device => self.create(dir, name, Kind::CharDevice(0, 0)),
            Met::EmptyDir => self.dir(dir, name),
            Met::FullDir => {
                let id = self.dir(dir, name);
                self.create(id, b"within", Kind::File);
                id
            }
        })
    }

    fn rename(&mut self, (from, name): (Id, &[u8]), (to, to_name): (Id, &[u8]), how: How) {
        let how = if matches!(how, How::Whiteout(_)) { How::Whiteout(self.id()) } else { how };
        self.add(Operation::Rename { from, name: name.to_vec(), to, to_name: to_name.to_vec(), how });
    }

    /// Directories that are none, or no more: a file, a symlink, and one that was removed.
    fn no_directories(&mut self, case: Id) -> [Id; 3] {
        let file = self.create(case, b"a file", Kind::File);
        let link = self.create(case, b"a symlink", Kind::Symlink(b".".to_vec()));
        [file, link, self.removed(case)]
    }

    fn creations(&mut self) {
        for kind in kinds() {
            for met in MET {
                let case = self.case();
                self.met(case, b"name", met);
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
            self.add(Operation::Anonymous { dir, new: new(Kind::File), id });
        }
    }

    fn links(&mut self) {
        for file in MET {
            for met in MET {
                let case = self.case();
                let Some(id) = self.met(case, b"file", file) else { continue };
                self.met(case, b"name", met);
                self.add(Operation::Link { id, dir: case, name: b"name".to_vec() });
                self.add(Operation::Link { id, dir: case, name: b"file".to_vec() });
            }
        }
        let case = self.case();
        let id = self.create(case, b"file", Kind::File);
        for dir in self.no_directories(case) {
            self.add(Operation::Link { id, dir, name: b"name".to_vec() });
        }
        // A file whose last name is gone, and one that never had any: only the second can get one.
        self.add(Operation::Hold { id });
        self.add(Operation::Unlink { dir: case, name: b"file".to_vec() });
        let nameless = self.id();
        self.add(Operation::Anonymous { dir: case, new: new(Kind::File), id: nameless });
        for id in [id, nameless] {
            self.add(Operation::Link { id, dir: case, name: b"again".to_vec() });
            self.add(Operation::Link { id, dir: case, name: b"and again".to_vec() });
        }
    }

    fn removals(&mut self) {
        for met in MET {
            let case = self.case();
            self.met(case, b"name", met);
            self.add(Operation::Rmdir { dir: case, name: b"name".to_vec() });
            self.met(case, b"other", met);
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
        for how in HOWS {
            for (source, target) in MET.into_iter().flat_map(|one| MET.map(|other| (one, other))) {
                let case = self.case();
                self.met(case, b"from", source);
                self.met(case, b"to", target);
                self.rename((case, b"from"), (case, b"to"), how);
                let (one, other) = (self.dir(case, b"one"), self.dir(case, b"other"));
                self.met(one, b"from", source);
                self.met(other, b"to", target);
                self.rename((one, b"from"), (other, b"to"), how);
            }
            for met in MET {
                let case = self.case();
                self.met(case, b"same", met);
                self.rename((case, b"same"), (case, b"same"), how);
                let source = self.case();
                self.met(source, b"from", met);
                for to in self.no_directories(case) {
                    self.rename((source, b"from"), (to, b"to"), how);
                    self.rename((to, b"to"), (source, b"from"), how);
                }
            }
            // Two names of one file.
            let case = self.case();
            let id = self.create(case, b"one", Kind::File);
            let below = self.dir(case, b"below");
            for dir in [case, below] {
                self.add(Operation::Link { id, dir, name: b"other".to_vec() });
                self.rename((case, b"one"), (dir, b"other"), how);
            }
        }
    }

    /// Directories one in the other, and names of them that are moved up and down the line.
    fn renames_within_a_line(&mut self) {
        for how in HOWS {
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
            // Upwards last, since that alone is allowed and changes the line.
            for (at, from) in places.into_iter().enumerate() {
                for to in places.into_iter().skip(at) {
                    self.rename(from, to, how);
                }
            }
            for (at, to) in places.into_iter().enumerate() {
                for from in places.into_iter().skip(at + 1) {
                    self.rename(from, to, how);
                }
            }
        }
    }

    /// The longest name, one that is longer, and the two that every directory has.
    fn names(&mut self) {
        let names: [Name; 4] = [vec![b'n'; 255], vec![b'n'; 256], b".".to_vec(), b"..".to_vec()];
        for name in names {
            let case = self.case();
            let file = self.create(case, b"file", Kind::File);
            for kind in kinds() {
                self.create(case, &name, kind);
                self.add(Operation::Lookup { dir: case, name: name.clone() });
                self.add(Operation::Unlink { dir: case, name: name.clone() });
                self.add(Operation::Rmdir { dir: case, name: name.clone() });
            }
            self.add(Operation::Link { id: file, dir: case, name: name.clone() });
            self.add(Operation::Unlink { dir: case, name: name.clone() });
            for how in HOWS {
                self.rename((case, b"file"), (case, &name), how);
                self.rename((case, &name), (case, b"file"), how);
                self.rename((case, &name), (case, &name), how);
                self.rename((case, b"nothing"), (case, &name), how);
            }
            for dir in self.no_directories(case) {
                self.create(dir, &name, Kind::File);
                // What `.` and `..` are in a removed directory is nobody's business.
                if name.len() > 2 {
                    self.add(Operation::Lookup { dir, name: name.clone() });
                }
                self.add(Operation::Unlink { dir, name: name.clone() });
                self.add(Operation::Rmdir { dir, name: name.clone() });
            }
        }
    }

    /// Targets of symlinks: as long as they may be, longer, and none.
    fn targets(&mut self) {
        let case = self.case();
        for length in [1, 255, 1023, 1024, 4095, 0] {
            let name = format!("to {length}");
            self.create(case, name.as_bytes(), Kind::Symlink(vec![b't'; length]));
        }
        // Which rule counts, where a target is too long and the name exists?
        self.create(case, b"to 1", Kind::Symlink(vec![b't'; 1024]));
        self.create(case, b"to 1", Kind::Symlink(Vec::new()));
    }
}
