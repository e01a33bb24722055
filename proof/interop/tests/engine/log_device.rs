//! A volume with an external log: Xebec and the kernel each recover it after a crash of the other.

use std::path::Path;
use std::sync::Arc;

use block::FileDevice;
use block::OpenOptions;
use crashsim::engine::{Engine, OpenVolume};
use crashsim::shape::BASE;
use crashsim::{Image, ImageDevice, Workload, work};
use model::{ObservedTree, OperationMix, Subject, Tolerance};
use xebec::Volume;

use crate::kernel::{self, Files};
use crate::volumes;

/// Creates and removes files, and shuts the volume down.
const WORK: &str = r#"
mkdir "$mount/theirs"
for n in {1..300}; do : > "$mount/theirs/file $n of those that the kernel made"; done
for n in {1..200}; do rm "$mount/theirs/file $n of those that the kernel made"; done
sync --file-system "$mount"
mv "$mount/theirs" "$mount/not synced"
xfs_io -x -c shutdown "$mount"
umount "$mount"
"#;

struct Devices {
    data: Arc<ImageDevice>,
    log: Arc<ImageDevice>,
}

impl Devices {
    fn read(files: &Files) -> Self {
        let image = |path: &Path| {
            let file = FileDevice::open(path, &OpenOptions::default()).unwrap();
            Arc::new(ImageDevice::new(Image::of_device(&file).unwrap()))
        };
        Self { data: image(&files.image), log: image(files.log.as_deref().unwrap()) }
    }

    fn open(&self) -> OpenVolume {
        let options = Engine { shape: BASE }.options();
        let options = xebec::Options { log_device: Some(self.log.clone()), ..options };
        OpenVolume::new(Volume::open(self.data.clone(), options).unwrap())
    }

    fn save(&self, files: &Files) {
        self.data.image().save(&files.image).unwrap();
        self.log.image().save(files.log.as_deref().unwrap()).unwrap();
    }
}

#[test]
fn xebec_and_kernel_recover_each_others_external_log() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    let folder = kernel::scratch();
    let log = folder.path().join("log");
    let files = Files { log: Some(log.clone()), ..Files::new(folder.path(), "image") };
    std::fs::File::create(&log).unwrap().set_len(16 << 20).unwrap();
    volumes::make(&files.image, 64 << 20, &format!("-l logdev={},size=16m", log.display()));

    let devices = Devices::read(&files);
    let volume = devices.open();
    let home = volume.root();
    let workload = Workload {
        seed: 1,
        threads: 1,
        operations: 2000,
        mix: OperationMix::MIXED,
        times: true,
        unmount: false,
        tolerance: Tolerance::default(),
    };
    let worked = work(&volume, &[home], &workload, &|| 0).unwrap();
    volume.sync().unwrap();
    drop(volume);
    let history = &worked.histories[0];
    let expected = ObservedTree::of_tree(&history.tree(history.entries.len()));
    devices.save(&files);
    assert_eq!(files.show().unwrap().differences(&expected), Vec::<String>::new());
    files.repair().unwrap();

    files.mounted(WORK, &[]).unwrap();
    let devices = Devices::read(&files);
    let volume = devices.open();
    assert!(volume.volume().recovered().is_some());
    let ours = ObservedTree::of_subject(&volume, home, true).unwrap();
    let theirs = files.show().unwrap();
    assert_eq!(ours.differences(&theirs), Vec::<String>::new());
    assert_eq!(ours.files.len(), expected.files.len() + 101);
    volume.into_volume().unmount().unwrap();
    devices.save(&files);
    files.repair().unwrap();
    assert_eq!(files.show().unwrap().differences(&theirs), Vec::<String>::new());
}
