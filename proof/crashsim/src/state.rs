//! Crash states: a position in a recording, and the fate of each write that was not yet durable there.
//!
//! A device may keep or lose any of these writes, and any sectors of each. Writes that were flushed or forced (FUA) are
//! complete.

use std::ops::Range;

use block::Durability;
use devices::{Event, Recording};
use model::Rng;

use crate::image::Image;

/// Bytes that a device writes atomically.
const SECTOR: usize = 512;

/// The fate of the writes that are not durable at a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFate {
    /// Completed writes are kept; nothing of the write in flight.
    Kept,
    /// All writes are lost.
    Lost,
    /// Completed writes are kept, and some sectors of the write in flight, chosen by a seed.
    TornLast(u64),
    /// The newest completed write is lost, the others are kept.
    NewestLost,
    /// The oldest write is lost; the others are kept, including the one in flight.
    OldestLost,
    /// Each write is kept, lost or torn, decided by a seed.
    Random(u64),
}

/// One crash state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashState {
    /// Index within the run.
    pub index: usize,
    /// Index of the first event that had not completed.
    pub moment: usize,
    /// Fate of the writes that are not durable.
    pub fate: WriteFate,
}

/// Returns all states of a run, ordered by `moment`, with `random` random ones at each.
pub fn states(recording: &Recording, random: usize, seed: u64) -> Vec<CrashState> {
    states_with_tears(recording, random, 1, seed)
}

/// Returns the states of [`states`], with `tears` torn variants of each write in flight.
pub fn states_with_tears(recording: &Recording, random: usize, tears: usize, seed: u64) -> Vec<CrashState> {
    let mut states: Vec<CrashState> = Vec::new();
    let mut unstable = 0;
    for moment in 0..=recording.events.len() {
        match moment.checked_sub(1).and_then(|last| recording.events.get(last)) {
            Some(Event::Flush) => unstable = 0,
            Some(Event::Write { durability: Durability::Buffered, .. }) => unstable += 1,
            Some(Event::Write { .. }) | None => (),
        }
        let mut add = |fate| states.push(CrashState { index: states.len(), moment, fate });
        let seed = Rng::stream(seed, moment as u64).next_u64();
        let in_flight = matches!(recording.events.get(moment), Some(Event::Write { .. }));
        add(WriteFate::Kept);
        if in_flight {
            (0..tears).for_each(|n| add(WriteFate::TornLast(seed.wrapping_add(n as u64))));
        }
        if unstable > 0 {
            add(WriteFate::Lost);
        }
        if unstable > 1 {
            add(WriteFate::NewestLost);
            add(WriteFate::OldestLost);
        }
        if unstable > 0 {
            (0..random).for_each(|n| add(WriteFate::Random(seed.wrapping_add(n as u64))));
        }
    }
    states
}

/// Builds the states of one recording; this is cheapest in the order of `moment`.
pub struct StateBuilder<'r> {
    recording: &'r Recording,
    before: &'r Image,
    /// All writes of the events before `flushed`.
    stable: Image,
    flushed: usize,
    /// Fingerprint of the difference between `stable` and `before`.
    stable_fingerprint: u64,
    /// Fingerprint of the difference between the last state and `before`.
    fingerprint: u64,
    /// Offsets at which writes may be torn.
    tears: Range<u64>,
}

impl<'r> StateBuilder<'r> {
    /// Creates a builder; `before` is the device before the recording.
    pub fn new(before: &'r Image, recording: &'r Recording) -> Self {
        let (stable, tears) = (before.clone(), 0..u64::MAX);
        Self { recording, before, stable, flushed: 0, stable_fingerprint: 0, fingerprint: 0, tears }
    }

    /// Tears only writes at these offsets. All others are kept or lost as a whole.
    pub fn tearing_only(self, tears: Range<u64>) -> Self {
        Self { tears, ..self }
    }

    /// Returns the fingerprint of the last state: equal for states with equal contents.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Returns the contents of the device in a state.
    pub fn build(&mut self, state: &CrashState) -> Image {
        self.advance(state.moment);
        let events = &self.recording.events;
        let (mut image, mut fingerprint) = (self.stable.clone(), self.stable_fingerprint);
        let unstable = self.flushed..state.moment.min(events.len());
        let buffered = |index: &usize| {
            matches!(events.get(*index), Some(Event::Write { durability: Durability::Buffered, .. }))
        };
        let (oldest, newest) = (unstable.clone().find(buffered), unstable.clone().rfind(buffered));
        for index in unstable.chain([state.moment]) {
            let Some(Event::Write { offset, data, durability }) = events.get(index) else { continue };
            let in_flight = index == state.moment;
            let kept = match state.fate {
                _ if *durability == Durability::Fua && !in_flight => Sectors::All,
                WriteFate::Kept if in_flight => Sectors::None,
                WriteFate::NewestLost if in_flight || Some(index) == newest => Sectors::None,
                WriteFate::OldestLost if Some(index) == oldest => Sectors::None,
                WriteFate::Kept | WriteFate::NewestLost | WriteFate::OldestLost => Sectors::All,
                WriteFate::Lost => Sectors::None,
                WriteFate::TornLast(seed) if in_flight => Sectors::torn(&mut Rng::stream(seed, index as u64)),
                WriteFate::TornLast(_) => Sectors::All,
                WriteFate::Random(seed) => Sectors::random(&mut Rng::stream(seed, index as u64)),
            };
            let kept = if self.tears.contains(offset) { kept } else { kept.whole() };
            kept.write(&mut image, &mut fingerprint, *offset, data);
        }
        self.fingerprint = fingerprint;
        image
    }

    fn advance(&mut self, moment: usize) {
        let events = &self.recording.events;
        let until = events.get(..moment).unwrap_or(events);
        let flushed = until.iter().rposition(|event| matches!(event, Event::Flush)).map_or(0, |at| at + 1);
        if flushed < self.flushed {
            self.stable = self.before.clone();
            (self.flushed, self.stable_fingerprint) = (0, 0);
        }
        for event in &events[self.flushed..flushed] {
            if let Event::Write { offset, data, .. } = event {
                Sectors::All.write(&mut self.stable, &mut self.stable_fingerprint, *offset, data);
            }
        }
        self.flushed = flushed;
    }
}

/// Sectors of a write that reached the device.
enum Sectors {
    All,
    None,
    /// The first sectors, in percent.
    First(u64),
    /// Each with probability 1/2.
    Any(Rng),
}

impl Sectors {
    fn torn(rng: &mut Rng) -> Self {
        if rng.one_in(2) { Self::First(rng.below(100)) } else { Self::Any(rng.clone()) }
    }

    fn random(rng: &mut Rng) -> Self {
        match rng.below(4) {
            0 | 1 => Self::All,
            2 => Self::None,
            _ => Self::torn(rng),
        }
    }

    /// Decides for a write that cannot be torn.
    fn whole(self) -> Self {
        let whole = match self {
            Self::First(percent) => percent >= 50,
            Self::Any(mut rng) => rng.one_in(2),
            Self::All | Self::None => return self,
        };
        if whole { Self::All } else { Self::None }
    }

    fn write(mut self, image: &mut Image, fingerprint: &mut u64, offset: u64, data: &[u8]) {
        let sectors = data.len().div_ceil(SECTOR) as u64;
        for (n, (at, sector)) in (0u64..).zip((offset..).step_by(SECTOR).zip(data.chunks(SECTOR))) {
            let arrived = match &mut self {
                Self::All => true,
                Self::None => false,
                Self::First(percent) => n < sectors * *percent / 100,
                Self::Any(rng) => rng.one_in(2),
            };
            if arrived {
                write_sector(image, fingerprint, at, sector);
            }
        }
    }
}

/// Writes at most one sector. The fingerprint is a sum over sectors, so it does not depend on the order of writes.
fn write_sector(image: &mut Image, fingerprint: &mut u64, at: u64, data: &[u8]) {
    let mut old = [0; SECTOR];
    let Some(old) = old.get_mut(..data.len()) else { return };
    image.read(at, old);
    if old != data {
        image.write(at, data);
        *fingerprint =
            fingerprint.wrapping_sub(sector_fingerprint(at, old)).wrapping_add(sector_fingerprint(at, data));
    }
}

/// Returns a hash of a sector and its offset. It need not resist chosen contents.
fn sector_fingerprint(at: u64, data: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |sum: u64, word: u64| {
        let product = u128::from(sum ^ word) * u128::from(MULTIPLIER);
        (product as u64) ^ ((product >> 64) as u64).rotate_left(29)
    };
    let (words, rest) = data.as_chunks::<8>();
    let sum = words.iter().fold(mix(MULTIPLIER, at), |sum, word| mix(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(mix(sum, MULTIPLIER), |sum, byte| mix(sum, u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::ImageDevice;
    use block::Device;
    use devices::RecordDevice;

    /// Write 1, flush, write 2 (buffered), write 3 (FUA), write 4 (buffered), of two sectors each.
    fn recording() -> (Image, Recording) {
        let before = Image::new(8192);
        let device = RecordDevice::new(std::sync::Arc::new(ImageDevice::new(before.clone())));
        let write = |n: u8, how| device.write_at(u64::from(n) * 1024, &[n; 1024], how).unwrap();
        write(1, Durability::Buffered);
        device.flush().unwrap();
        write(2, Durability::Buffered);
        write(3, Durability::Fua);
        write(4, Durability::Buffered);
        (before, device.take())
    }

    fn bytes_written(image: &Image) -> [usize; 4] {
        let bytes = image.to_bytes();
        [1u8, 2, 3, 4].map(|n| bytes.iter().filter(|byte| **byte == n).count())
    }

    #[test]
    fn durable_writes_survive_every_fate() {
        let (before, recording) = recording();
        let mut builder = StateBuilder::new(&before, &recording);
        let states = states(&recording, 20, 1);
        let mut torn = false;
        for state in &states {
            let [one, two, three, four] = bytes_written(&builder.build(state));
            assert!(state.moment < 2 || one == 1024, "{state:?}");
            assert!(state.moment < 4 || three == 1024, "{state:?}");
            assert!(state.moment > 1 || two + three + four == 0, "{state:?}");
            assert!(state.moment > 3 || four == 0, "{state:?}");
            torn |= four == 512;
        }
        assert!(torn && states.iter().zip(0..).all(|(state, n)| state.index == n));
    }

    #[test]
    fn fingerprints_are_equal_only_for_equal_contents() {
        let (before, recording) = recording();
        let mut builder = StateBuilder::new(&before, &recording);
        let (mut known, mut same) = (std::collections::HashMap::new(), 0);
        for state in states(&recording, 20, 1) {
            let bytes = builder.build(&state).to_bytes();
            let fingerprint = builder.fingerprint();
            same += usize::from(known.contains_key(&fingerprint));
            assert_eq!(*known.entry(fingerprint).or_insert(bytes.clone()), bytes, "{state:?}");
        }
        let mut different: Vec<_> = known.into_values().collect();
        let fingerprints = different.len();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), fingerprints);
        assert!(same > 10, "{same}");
    }

    #[test]
    fn only_writes_in_the_given_range_are_torn() {
        let (before, recording) = recording();
        let torn = |tears: Range<u64>| {
            let mut builder = StateBuilder::new(&before, &recording).tearing_only(tears);
            let states = states(&recording, 20, 1);
            let images: Vec<_> = states.iter().map(|state| bytes_written(&builder.build(state))).collect();
            // Only buffered writes.
            [1, 3].map(|n| images.iter().any(|written| written[n] == 512))
        };
        assert_eq!(torn(0..8192), [true, true]);
        assert_eq!(torn(2048..3072), [true, false]);
    }

    #[test]
    fn each_fate_keeps_the_right_writes() {
        let (before, recording) = recording();
        let mut builder = StateBuilder::new(&before, &recording);
        let mut at = |moment, fate| bytes_written(&builder.build(&CrashState { index: 0, moment, fate }));
        assert_eq!(at(5, WriteFate::Kept), [1024, 1024, 1024, 1024]);
        assert_eq!(at(5, WriteFate::Lost), [1024, 0, 1024, 0]);
        assert_eq!(at(5, WriteFate::NewestLost), [1024, 1024, 1024, 0]);
        assert_eq!(at(5, WriteFate::OldestLost), [1024, 0, 1024, 1024]);
        assert_eq!(at(4, WriteFate::Kept), [1024, 1024, 1024, 0]);
        assert_eq!(at(1, WriteFate::Lost), [0, 0, 0, 0], "a builder may go back");
        assert_eq!(at(2, WriteFate::Lost), [1024, 0, 0, 0]);
    }
}
