//! `xebec push`, `xebec pull`: whole images to and from volumes that URLs name.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use remote::{ImageCopied, Pull as PullOptions, Push as PushOptions};
use serde_json::json;
use xebec::Cancel;
use xebec::device::{Copied, OpenImageOptions, OpenOptions, open_disk};

use super::expect_url;
use crate::args::Global;
use crate::interrupt;
use crate::json;
use crate::output::{Messages, exit_code};
use crate::progress::CopyProgress;
use crate::sizes::with_unit;
use crate::urls::{expect_file, shown};

/// Threads by default: they wait for the network, not for a processor.
const THREADS: usize = 8;

/// Arguments of `push`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "IMAGE is a raw image, a block device or a qcow2 file, with or without a partition table; it must \
    not change meanwhile. Holes and zeros are not sent, and blocks are compressed. The volume gets the size of the \
    image.\n\n\
    The beginning of the volume is written last: an interrupted push leaves no file system. Run the same command again \
    to continue: it compares what is there, and sends the rest. With --force, so does a push to a volume with a file \
    system: only differences are sent.\n\n\
    Examples:\n  \
    xebec push disk.xfs s3://bucket/home\n  \
    xebec push --force disk.xfs s3://bucket/home      # differences only\n  \
    xebec push /dev/sdb1 rbd://rbd/home\n\n\
    Exit codes: 0 success; 1 failure, run it again to continue; 2 usage error; 130 interrupted."
)]
pub struct Push {
    /// Image file or block device.
    pub image: PathBuf,
    /// The volume, which is created if it does not exist.
    url: PathBuf,
    /// Replace what the volume contains.
    #[arg(short, long)]
    force: bool,
}

/// Arguments of `pull`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "The file is bit for bit the volume, and unallocated blocks are holes. It is called \
    FILE.partial until it is complete. If a pull is interrupted, run the same command again to continue; if the volume \
    has changed meanwhile, it begins again. A volume in use is pulled as it was when the command began: a snapshot \
    (URL@NAME) does not change, and its objects are kept.\n\n\
    Examples:\n  \
    xebec pull s3://bucket/home@monday disk.xfs\n  \
    xebec pull rbd://rbd/home@monday disk.xfs\n\n\
    Exit codes: 0 success; 1 failure, run it again to continue; 2 usage error; 130 interrupted.")]
pub struct Pull {
    /// The volume or snapshot.
    pub url: PathBuf,
    /// New file.
    file: PathBuf,
    /// Replace an existing file.
    #[arg(short, long)]
    force: bool,
}

/// Runs `push`.
pub fn push(arguments: &Push, global: &Global) -> anyhow::Result<u8> {
    let Push { image, url: path, force } = arguments;
    expect_file(image, "push reads")?;
    let url = expect_url(path, "push is")?;
    let options = OpenImageOptions {
        file: OpenOptions { direct: global.direct, ..OpenOptions::default() },
        backing: global.backing,
        ..OpenImageOptions::default()
    };
    let source = open_disk(image, &options)?;
    let messages = Messages::new(global, shown(path));
    let (progress, began) = (CopyProgress::new(global, source.size()), Instant::now());
    let push = PushOptions { replace: *force, threads: threads(global) };
    let cancel = on_interrupt(path);
    let done =
        url.push(&*source, &push, &global.remote(true), &mut |copied| show(&progress, &cancel, copied));
    progress.clear();
    let done = done.map_err(|error| interrupt::with_exit_code(error.into()))?;
    if done.size != source.size() {
        messages.note(format_args!("it is {} bytes longer than the image", done.size - source.size()));
    }
    report("push", &done, began, &messages, global)?;
    Ok(exit_code::OK)
}

/// Runs `pull`.
pub fn pull(arguments: &Pull, global: &Global) -> anyhow::Result<u8> {
    let Pull { url: path, file, force } = arguments;
    let url = expect_url(path, "pull is")?;
    expect_file(file, "pull writes")?;
    let messages = Messages::new(global, shown(path));
    let source = url.open_to_pull(&global.remote(false))?;
    if let Some(writer) = &source.volume.writer {
        messages.warn(format_args!(
            "{writer} has it open for changes: the file gets its state as of now, with a dirty log (a snapshot does \
             not change)"
        ));
    }
    let (progress, began) = (CopyProgress::new(global, source.volume.device.size()), Instant::now());
    let pull = PullOptions { replace: *force, wait: global.wait(), threads: threads(global) };
    let cancel = on_interrupt(path);
    let done = source.pull(file, &pull, &mut |copied| show(&progress, &cancel, copied));
    progress.clear();
    let done = done.map_err(|error| interrupt::with_exit_code(error.into()))?;
    report("pull", &done, began, &messages, global)?;
    Ok(exit_code::OK)
}

fn threads(global: &Global) -> usize {
    global.threads.first().map_or(THREADS, |threads| threads.get())
}

/// Stops the copy on a signal, so that it is closed, and can be continued.
fn on_interrupt(path: &Path) -> Cancel {
    let cancel = Cancel::default();
    let message = format!("{}: interrupted: run the command again to continue", shown(path));
    interrupt::cancel(message, cancel.clone());
    cancel
}

fn show(progress: &CopyProgress, cancel: &Cancel, copied: Copied) -> ControlFlow<()> {
    progress.advance(copied.up_to, copied.read);
    match cancel.is_cancelled() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

fn report(
    command: &str,
    done: &ImageCopied,
    began: Instant,
    messages: &Messages,
    global: &Global,
) -> anyhow::Result<()> {
    let ImageCopied { size, copied: Copied { read, written, .. }, resumed } = *done;
    let seconds = began.elapsed().as_secs_f64();
    if global.json {
        let document = json!({
            "size": size,
            "read_bytes": read,
            "written_bytes": written,
            "resumed": resumed,
            "seconds": seconds,
        });
        return json::write(command, messages.image(), document);
    }
    let how = if resumed { ", continued" } else { "" };
    messages.detail(format_args!(
        "{}, {} of data, {} written{how} in {seconds:.2} s",
        with_unit(size),
        with_unit(read),
        with_unit(written)
    ));
    Ok(())
}
