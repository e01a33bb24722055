//! Xebec and the kernel change the files of one volume in turn, each after an unmount or a crash of the other, and
//! verify all contents.
//!
//! The expected contents are not passed on: each turn applies the calls of all earlier turns to the model.

use std::path::Path;
use std::sync::Arc;

use crashsim::engine::check;
use crashsim::files::ContentsSubject;
use crashsim::{Image, ImageDevice};
use interop::memory::budget;
use model::Tolerance;
use model::contents::{Call, CallGenerator, Files, Session, Subject};
use xebec::{Options, Volume};

use crate::kernel;
use crate::posix::Folder;

/// Mount point, volume and turn of the inner test.
const MOUNT: &str = "XEBEC_CONTENTS_MOUNT";
const TURN: &str = "XEBEC_CONTENTS_TURN";
const VOLUMES: u64 = 6;
/// Turns of both.
const TURNS: u64 = 6;
const CALLS: usize = 250;
const FILES: usize = 3;

/// Runs the inner test in program `$1` for turn `$2`, and shuts the volume down if `$3` is "cut".
const WORK: &str = r#"
XEBEC_CONTENTS_MOUNT=$mount XEBEC_CONTENTS_TURN=$2 "$1" --exact --ignored --nocapture contents::inner || exit
if [ "$3" = cut ]; then
    xfs_io -x -c shutdown "$mount" || exit
fi
umount "$mount"
"#;

/// One volume and the parameters of its turns.
#[derive(Clone, Copy)]
struct Turns {
    volume: u64,
}

impl Turns {
    fn block(self) -> u32 {
        [4096, 1024, 4096][self.volume as usize % 3]
    }

    fn reflink(self) -> bool {
        self.volume != 3
    }

    /// Returns true if a turn ends with a dirty log.
    fn is_cut(self, turn: u64) -> bool {
        (self.volume + turn / 2).is_multiple_of(2)
    }

    fn calls(self, turn: u64) -> CallGenerator {
        let size_max = [300_000, 2_000_000][self.volume as usize / 2 % 2];
        // No direct I/O on Linux: it returns EIO for a page that it cannot drop from the cache at the moment.
        let direct = turn.is_multiple_of(2).then_some(512);
        CallGenerator::new(self.volume * 1000 + turn, size_max, self.reflink(), direct)
    }

    /// Returns the model's files after all earlier turns.
    fn before(self, turn: u64) -> Files {
        let mut files = Files::new(FILES, self.block().into());
        for turn in 0..turn {
            self.calls(turn).follow(&mut files, CALLS);
        }
        files
    }

    /// Verifies all files, runs the calls of a turn, and syncs.
    fn run_turn(self, turn: u64, subject: &impl Subject) -> Result<(), String> {
        let mut session = Session::resume(subject, "turns-", self.before(turn), Tolerance::default())
            .map_err(|why| why.to_string())?;
        session.compare_all().map_err(|why| format!("before this turn: {why}"))?;
        session.run(&mut self.calls(turn), CALLS)?;
        session.compare_all()?;
        session.step(&Call::SyncAll)
    }

    fn format(self) -> Image {
        let device = ImageDevice::new(Image::new(300 << 20));
        let (block_size, reflink) = (self.block(), self.reflink());
        let options = mkfs::Options { block_size, reflink, ..mkfs::Options::default() };
        mkfs::format(&device, &options).unwrap();
        device.image()
    }

    fn xebec(self, turn: u64, image: Image) -> Result<Image, String> {
        let device = Arc::new(ImageDevice::new(image));
        let message = |error: xebec::Error| error.to_string();
        let options = Options { seed: Some(turn), memory: budget(), ..Options::default() };
        let volume = Volume::open(device.clone(), options).map_err(message)?;
        let was_cut = turn > 0 && self.is_cut(turn - 1);
        if was_cut && volume.recovered().is_none() {
            return Err("the log was not dirty".into());
        }
        self.run_turn(turn, &ContentsSubject(&volume))?;
        if self.is_cut(turn) {
            return Ok(device.image());
        }
        volume.unmount().map_err(message)?;
        check(&*device)?;
        Ok(device.image())
    }

    fn kernel(self, turn: u64, files: &kernel::Files) -> Result<(), String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let (which, end) = (format!("{}.{turn}", self.volume), if self.is_cut(turn) { "cut" } else { "" });
        files.mounted(WORK, &[&program, Path::new(&which), Path::new(end)]).map(drop)
    }

    fn run(self) -> Result<(), String> {
        let folder = kernel::scratch();
        let files = kernel::Files::new(folder.path(), "volume");
        let mut image = self.format();
        for turn in 0..TURNS {
            let context = |why| format!("volume {}, turn {turn}: {why}", self.volume);
            if turn.is_multiple_of(2) {
                image = self.xebec(turn, image).map_err(context)?;
                image.save(&files.image).map_err(|error| error.to_string())?;
            } else {
                self.kernel(turn, &files).map_err(context)?;
                image = kernel::read(&files.image)?;
            }
            if !self.is_cut(turn) {
                files.repair().map_err(context)?;
            }
        }
        Ok(())
    }
}

#[test]
fn xebec_and_kernel_continue_each_others_files() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    let all: Vec<_> = (0..VOLUMES).map(|volume| Turns { volume }).collect();
    let wrong: Vec<_> = kernel::each(&all, |turns| turns.run().err()).into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "run by xebec_and_kernel_continue_each_others_files, on a mounted volume"]
fn inner() {
    let Some(folder) = std::env::var_os(MOUNT).map(|path| Folder(path.into())) else { return };
    let turn = std::env::var(TURN).unwrap();
    let (volume, turn) = turn.split_once('.').unwrap();
    let turns = Turns { volume: volume.parse().unwrap() };
    turns.run_turn(turn.parse().unwrap(), &folder).unwrap();
}
