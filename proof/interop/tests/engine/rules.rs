//! The model's rules against the kernel's: the same random operations on both, every answer compared, and the whole
//! tree at the end. What the model says is what Linux says, or every judgement by it would be in doubt.

use std::path::PathBuf;
use std::process::Command;

use base::time::Time;
use interop::needs;
use model::{Aim, Generator, Session, Stepped, Subject, Ticks};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::calls::Calls;

/// Where the inner test finds the mounted volume.
const MOUNT: &str = "XEBEC_RULES_MOUNT";

/// Makes a volume `$1`, mounts it on `$2`, and runs the inner test of `$3`.
const RUN: &str = r#"
truncate -s 512M "$1"
mkfs.xfs -q "$1"
mount -t xfs -o loop,nouuid "$1" "$2"
"$3" --exact --ignored --nocapture rules::inner
umount "$2"
"#;

#[test]
fn the_model_answers_as_the_kernel_does() {
    if let Err(why) = needs::mounting() {
        return needs::skip("the_model_answers_as_the_kernel_does", &why);
    }
    let work = tempfile::tempdir().unwrap();
    let mount = work.path().join("mnt");
    std::fs::create_dir(&mount).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "bash", "-euc", RUN, "rules"]).arg(work.path().join("volume"));
    command.args([&mount, &std::env::current_exe().unwrap()]).env(MOUNT, &mount);
    assert!(command.status().unwrap().success());
}

#[test]
#[ignore = "run by the_model_answers_as_the_kernel_does, on a mounted volume"]
fn inner() {
    let Some(mount) = std::env::var_os(MOUNT).map(PathBuf::from) else { return };
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    let (calls, ticks) = (Calls::new(&mount), Ticks::default());
    for (seed, aim) in [(1, Aim::MIXED), (2, Aim::INODES), (3, Aim::FORMS), (4, Aim::MIXED)] {
        let aim = Aim { refused_in: 4, sync_in: 0, ..aim };
        let new = model::New { kind: model::Kind::Directory, mode: 0o755, uid: 0, gid: 0 };
        let home = calls.create(calls.root(), format!("home{seed}").as_bytes(), &new).unwrap();
        let mut session = Session::new(&calls, &ticks, home, false).unwrap();
        let mut generator = Generator::new(seed, aim);
        for step in 0..6000 {
            let operation = generator.next(session.tree());
            let stepped = session.step(&operation, Time { seconds: step, nanos: 0 });
            assert_eq!(stepped, Ok(Stepped::Agreed), "seed {seed}, step {step}");
            if step % 500 == 0 {
                session.compare_all().unwrap();
            }
        }
        session.compare_all().unwrap();
    }
}
