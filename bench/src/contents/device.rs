//! Writes to the device, and their sizes: as Xebec makes them, and as the kernel counts those of its loop device.

use std::sync::Arc;

use xebec::device::CountedDevice;
use xebec::{DirtyLimit, MemoryBudget, Options};

use super::{IMAGE_BYTES, KERNELS, LOG_BYTES, OURS, Scale, small, stream};
use crate::bench_volume::{BenchVolume, DeviceWrites, file_device, layout, make};
use crate::measure::compare;
use crate::recorder::{Recorder, Row};

/// Writes the files of a task. The caller syncs the volume afterwards.
type Work<'w> = &'w dyn Fn(&BenchVolume) -> anyhow::Result<()>;

/// Runs the measurement.
pub fn run(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    add(scale, table, &small::name(scale, 4), &|volume| small::write_all(scale, volume, 4))?;
    let name = format!("a file of {} MiB, written 1 MiB at a time", scale.stream_bytes >> 20);
    add(scale, table, &name, &|volume| stream::write(scale, volume))
}

fn add(scale: &Scale, table: &mut Recorder<'_>, name: &str, work: Work<'_>) -> anyhow::Result<()> {
    let image = scale.image();
    let (ours, other) =
        compare(table, (scale.rounds, scale.alone), || by_xebec(scale, work), || by_kernel(&image, work))?;
    let mut row = |what: &str, unit, of: fn(&DeviceWrites) -> f64| {
        table.add(Row {
            task: format!("{name}, and a sync: {what}"),
            unit,
            ours_is: OURS,
            other_is: KERNELS,
            ours: ours.iter().map(of).collect(),
            other: other.iter().map(of).collect(),
            target: None,
        });
    };
    row("writes to the device", "writes", |writes| writes.count as f64);
    row("bytes written to the device", "bytes", |writes| writes.bytes as f64);
    row("mean size of a write to the device", "KiB per write", |writes| {
        writes.bytes as f64 / 1024.0 / writes.count as f64
    });
    Ok(())
}

fn by_xebec(scale: &Scale, work: Work<'_>) -> anyhow::Result<DeviceWrites> {
    let image = scale.image();
    make(&image, &layout(IMAGE_BYTES, LOG_BYTES))?;
    let device = Arc::new(CountedDevice::new(file_device(&image)?));
    // The limit of dirty data that Linux has on a machine with 5 GiB (`vm.dirty_ratio`: 20 %). With a lower one,
    // writeback would begin earlier, and its writes would be more and smaller.
    let mut options = Options { memory: Some(MemoryBudget::new(4 << 30)), ..Options::default() };
    options.contents.dirty = Some(DirtyLimit::Bytes(1 << 30));
    let volume = BenchVolume::on(device.clone(), options)?;
    let counts = || {
        let counts = device.counts();
        DeviceWrites { count: counts.writes, bytes: counts.written_bytes }
    };
    let before = counts();
    work(&volume)?;
    volume.sync()?;
    let after = counts();
    volume.unmount()?;
    Ok(difference(before, after))
}

fn by_kernel(image: &std::path::Path, work: Work<'_>) -> anyhow::Result<DeviceWrites> {
    let volume = super::kernels(image)?;
    let before = volume.device_writes()?;
    work(&volume)?;
    volume.sync()?;
    let after = volume.device_writes()?;
    volume.unmount()?;
    Ok(difference(before, after))
}

fn difference(before: DeviceWrites, after: DeviceWrites) -> DeviceWrites {
    DeviceWrites { count: after.count - before.count, bytes: after.bytes - before.bytes }
}
