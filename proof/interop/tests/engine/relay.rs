//! Xebec and the kernel in turn on one volume: each works, is cut off, and leaves a dirty log to the other, which
//! recovers it and shows the same tree.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use base::time::Time;
use block::{FileDevice, OpenOptions};
use crashsim::engine::{Engine, check, read_trees};
use crashsim::shape::SHAPES;
use crashsim::{Image, ImageDevice, Target};
use interop::needs;
use model::{Aim, Generator, How, Kind, New, Seen, Session, Stepped, Subject, Ticks};
use read::manifest::Record;

use crate::kernel;

/// Mounts `$1` on `$2`, works there, and shuts the volume down with its log flushed: it stays dirty. What it showed
/// before goes to `$4`, printed by `$3`.
const DIRTY: &str = r#"
mount -t xfs -o loop,nouuid,noatime "$1" "$2"
cd "$2"
mkdir -p kernel/deep/er; ln -s "$(printf 'x%.0s' {1..900})" kernel/link
for n in {1..300}; do : > "kernel/file $n of those that the kernel made"; done
for n in {1..200}; do ln "kernel/file $n of those that the kernel made" "kernel/deep/$n"; done
for n in {50..250}; do rm "kernel/file $n of those that the kernel made"; done
mv kernel/deep/er kernel/er; mknod kernel/null c 1 3; mkfifo kernel/pipe
for name in *; do [ "$name" = kernel ] || rm -rf -- "$name"; break; done
exec 9> kernel/held; rm kernel/held
xfs_io -c sync . ; sync
"$3" manifest "$2" > "$4"
cd /
xfs_io -x -c 'shutdown -f' "$2"
exec 9>&-
umount "$2"
"#;

fn kernel_works(image: &Path, work: &Path) -> Vec<Record> {
    let (mount, manifest) = (work.join("mnt"), work.join("before"));
    std::fs::create_dir_all(&mount).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "bash", "-euc", DIRTY, "dirty"]).arg(image).arg(&mount);
    command.arg(env!("CARGO_BIN_EXE_interop")).arg(&manifest);
    assert!(command.status().unwrap().success(), "the kernel cannot work on {}", image.display());
    let text = std::fs::read_to_string(&manifest).unwrap();
    text.lines().map(|line| Record::from_line(line).unwrap()).collect()
}

#[test]
fn xebec_and_the_kernel_recover_each_others_logs() {
    if let Err(why) = needs::mounting() {
        return needs::skip("xebec_and_the_kernel_recover_each_others_logs", &why);
    }
    for shape in SHAPES {
        let engine = Engine { shape };
        let name = engine.shape.name;
        let folder = tempfile::tempdir().unwrap();
        let path: PathBuf = folder.path().join(name);
        let mut image = engine.format().unwrap();
        for round in 0..3u64 {
            // Xebec works and is cut off.
            let device = Arc::new(ImageDevice::new(image));
            let volume =
                engine.open(device.clone()).unwrap_or_else(|why| panic!("{name}, round {round}: {why}"));
            let ours = format!("ours {round}");
            let new = New { kind: Kind::Directory, mode: 0o755, uid: 0, gid: 0 };
            let home = volume.create(volume.root(), ours.as_bytes(), &new).unwrap();
            let ticks = Ticks::default();
            let mut session = Session::new(&volume, &ticks, home, true).unwrap();
            let mut generator = Generator::new(round, Aim { refused_in: 0, ..Aim::MIXED });
            for step in 0..600 {
                let operation = generator.next(session.tree());
                let stepped = session.step(&operation, Time { seconds: 1_000_000 + step, nanos: 0 });
                assert_eq!(stepped, Ok(Stepped::Agreed), "{name}, round {round}, step {step}");
            }
            volume.sync().unwrap();
            let expected = Seen::of_tree(session.tree());
            std::fs::write(&path, device.image().to_bytes()).unwrap();
            drop(session);
            drop(volume);
            // The kernel replays our log and shows the same.
            let mount = folder.path().join("mnt");
            std::fs::create_dir_all(&mount).unwrap();
            let shown = kernel::show(&path, None, &mount);
            let seen = shown.unwrap_or_else(|why| panic!("{name}, round {round}: {why}")).below(home);
            assert_eq!(seen.differences(&expected), Vec::<String>::new(), "{name}, round {round}");
            kernel::repair(&path, None).unwrap_or_else(|why| panic!("{name}, round {round}: {why}"));
            // The kernel works and is cut off; Xebec recovers in place and shows the same.
            let before = kernel_works(&path, folder.path());
            let expected = Seen::of_records(&before, true).unwrap();
            let file = FileDevice::open(&path, &OpenOptions::default()).unwrap();
            let device = Arc::new(ImageDevice::new(Image::of_device(&file).unwrap()));
            let volume =
                engine.open(device.clone()).unwrap_or_else(|why| panic!("{name}, round {round}: {why}"));
            assert!(volume.volume().recovered().is_some(), "{name}: the kernel left a clean log");
            let root = volume.root();
            let seen = Seen::of_subject(&volume, root, true).unwrap();
            assert_eq!(seen.differences(&expected), Vec::<String>::new(), "{name}, round {round}");
            volume
                .rename((root, b"kernel"), (root, format!("theirs {round}").as_bytes()), How::NoReplace)
                .unwrap();
            engine.unmount(volume).unwrap();
            check(&*device).unwrap_or_else(|why| panic!("{name}, round {round}: {why}"));
            read_trees(device.clone(), &[root], true).unwrap();
            image = device.image();
        }
    }
}
