//! Xebec and the kernel in turn on the files of one volume: each goes on with what the other left, unmounted or cut off
//! after a sync, and finds every byte.
//!
//! Who works next need not be told what the files hold: it follows the calls of all turns before on the model.

use std::path::Path;
use std::sync::Arc;

use crashsim::engine::check;
use crashsim::files::Files as XebecFiles;
use crashsim::{Image, ImageDevice};
use model::contents::{Call, Calls, Excused, Files, Session, Subject};
use xebec::{Options, Volume};

use crate::kernel;
use crate::posix::Folder;

/// What the inner test works on, and which turn of which volume it is.
const MOUNT: &str = "XEBEC_CONTENTS_MOUNT";
const TURN: &str = "XEBEC_CONTENTS_TURN";
const VOLUMES: u64 = 6;
/// Turns of both together.
const TURNS: u64 = 6;
const CALLS: usize = 250;
const FILES: usize = 3;

/// Works, as the inner test of `$1` does in turn `$2`, and shuts the volume down where `$3` is "cut".
const WORK: &str = r#"
XEBEC_CONTENTS_MOUNT=$mount XEBEC_CONTENTS_TURN=$2 "$1" --exact --ignored --nocapture contents::inner || exit
if [ "$3" = cut ]; then
    xfs_io -x -c shutdown "$mount" || exit
fi
umount "$mount"
"#;

/// A volume, and who works on it when.
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

    /// Whether a turn ends with a log that the next must recover.
    fn is_cut(self, turn: u64) -> bool {
        (self.volume + turn / 2).is_multiple_of(2)
    }

    fn calls(self, turn: u64) -> Calls {
        let usual = [300_000, 2_000_000][self.volume as usize / 2 % 2];
        // Not past the cache with the kernel: it answers EIO where that meets pages it cannot drop at the moment.
        let direct = turn.is_multiple_of(2).then_some(512);
        Calls::new(self.volume * 1000 + turn, usual, self.reflink(), direct)
    }

    /// The files as all turns before left them.
    fn before(self, turn: u64) -> Files {
        let mut files = Files::new(FILES, self.block().into());
        for turn in 0..turn {
            self.calls(turn).follow(&mut files, CALLS);
        }
        files
    }

    /// Finds everything as it was left, works, and syncs.
    fn take(self, turn: u64, subject: &impl Subject) -> Result<(), String> {
        let mut session = Session::resume(subject, "turns-", self.before(turn), Excused::default())
            .map_err(|why| why.to_string())?;
        session.compare_all().map_err(|why| format!("what was left: {why}"))?;
        session.run(&mut self.calls(turn), CALLS)?;
        session.compare_all()?;
        session.step(&Call::SyncAll)
    }

    fn make(self) -> Image {
        let device = ImageDevice::new(Image::new(300 << 20));
        let (block_size, reflink) = (self.block(), self.reflink());
        let options = mkfs::Options { block_size, reflink, ..mkfs::Options::default() };
        mkfs::format(&device, &options).unwrap();
        device.image()
    }

    fn xebec(self, turn: u64, image: Image) -> Result<Image, String> {
        let device = Arc::new(ImageDevice::new(image));
        let words = |error: xebec::Error| error.to_string();
        let options = Options { seed: Some(turn), ..Options::default() };
        let volume = Volume::open(device.clone(), options).map_err(words)?;
        let was_cut = turn > 0 && self.is_cut(turn - 1);
        if was_cut && volume.recovered().is_none() {
            return Err("the log was not dirty".into());
        }
        self.take(turn, &XebecFiles(&volume))?;
        if self.is_cut(turn) {
            return Ok(device.image());
        }
        volume.unmount().map_err(words)?;
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
        let mut image = self.make();
        for turn in 0..TURNS {
            let told = |why| format!("volume {}, turn {turn}: {why}", self.volume);
            if turn.is_multiple_of(2) {
                image = self.xebec(turn, image).map_err(told)?;
                image.save(&files.image).map_err(|error| error.to_string())?;
            } else {
                self.kernel(turn, &files).map_err(told)?;
                image = kernel::read(&files.image)?;
            }
            if !self.is_cut(turn) {
                files.repair().map_err(told)?;
            }
        }
        Ok(())
    }
}

#[test]
fn xebec_and_the_kernel_go_on_with_each_others_files() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    let all: Vec<_> = (0..VOLUMES).map(|volume| Turns { volume }).collect();
    let wrong: Vec<_> = kernel::each(&all, |turns| turns.run().err()).into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "run by xebec_and_the_kernel_go_on_with_each_others_files, on a mounted volume"]
fn inner() {
    let Some(folder) = std::env::var_os(MOUNT).map(|path| Folder(path.into())) else { return };
    let turn = std::env::var(TURN).unwrap();
    let (volume, turn) = turn.split_once('.').unwrap();
    let turns = Turns { volume: volume.parse().unwrap() };
    turns.take(turn.parse().unwrap(), &folder).unwrap();
}
