//! Crash states: a moment of a recording, and what became of each write that was not yet stable then.
//!
//! A device may keep any of these writes, lose any, and keep any sectors of any: a cut is harder here than a prefix of
//! each write. What was flushed, or forced, is whole.

use std::ops::Range;

use block::{Durability, Event, Recording};
use model::Rng;

use crate::image::Image;

/// Bytes that reach a device wholly or not at all.
const SECTOR: usize = 512;

/// What becomes of the writes that are not stable at a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// All that had returned is there, and nothing of the one under way.
    Kept,
    /// All are lost.
    Lost,
    /// All that had returned is there, and some sectors of the one under way.
    TornLast(u64),
    /// The newest that had returned is lost, the others are there.
    NewestLost,
    /// The oldest is lost, the others are there, and the one under way, too.
    OldestLost,
    /// Each is kept, lost or torn, as a seed decides.
    Random(u64),
}

/// One crash state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Its number within the run.
    pub index: usize,
    /// The events before this one had returned.
    pub moment: usize,
    /// What became of the rest.
    pub fate: Fate,
}

/// All states of a run with so many random ones at each moment, in the order of their moments.
pub fn states(recording: &Recording, random: usize, seed: u64) -> Vec<State> {
    states_with_tears(recording, random, 1, seed)
}

/// The same with so many tears of each write under way.
pub fn states_with_tears(recording: &Recording, random: usize, tears: usize, seed: u64) -> Vec<State> {
    let mut states: Vec<State> = Vec::new();
    let mut unstable = 0;
    for moment in 0..=recording.events.len() {
        match moment.checked_sub(1).and_then(|last| recording.events.get(last)) {
            Some(Event::Flush) => unstable = 0,
            Some(Event::Write { how: Durability::Buffered, .. }) => unstable += 1,
            Some(Event::Write { .. }) | None => (),
        }
        let mut add = |fate| states.push(State { index: states.len(), moment, fate });
        let seed = Rng::part(seed, moment as u64).next_u64();
        let under_way = matches!(recording.events.get(moment), Some(Event::Write { .. }));
        add(Fate::Kept);
        if under_way {
            (0..tears).for_each(|n| add(Fate::TornLast(seed.wrapping_add(n as u64))));
        }
        if unstable > 0 {
            add(Fate::Lost);
        }
        if unstable > 1 {
            add(Fate::NewestLost);
            add(Fate::OldestLost);
        }
        if unstable > 0 {
            (0..random).for_each(|n| add(Fate::Random(seed.wrapping_add(n as u64))));
        }
    }
    states
}

/// Builds states of one recording, cheapest in the order of their moments.
pub struct Builder<'r> {
    recording: &'r Recording,
    before: &'r Image,
    /// Everything before `flushed` is in `stable`.
    stable: Image,
    flushed: usize,
    /// What tells `stable` from `before`.
    stable_print: u64,
    /// What tells the state built last from `before`.
    print: u64,
    /// Writes elsewhere are never torn.
    tears: Range<u64>,
}

impl<'r> Builder<'r> {
    /// Begins with the device as it was before the recording.
    pub fn new(before: &'r Image, recording: &'r Recording) -> Self {
        let (stable, tears) = (before.clone(), 0..u64::MAX);
        Self { recording, before, stable, flushed: 0, stable_print: 0, print: 0, tears }
    }

    /// Tears writes at these bytes alone: each of the others arrives, or does not.
    pub fn tearing_only(self, tears: Range<u64>) -> Self {
        Self { tears, ..self }
    }

    /// The fingerprint of the state that was built last: the same for states that hold the same bytes, wherever they
    /// were cut.
    pub fn fingerprint(&self) -> u64 {
        self.print
    }

    /// What the device holds in this state.
    pub fn build(&mut self, state: &State) -> Image {
        self.advance(state.moment);
        let events = &self.recording.events;
        let (mut image, mut print) = (self.stable.clone(), self.stable_print);
        let unstable = self.flushed..state.moment.min(events.len());
        let buffered = |index: &usize| {
            matches!(events.get(*index), Some(Event::Write { how: Durability::Buffered, .. }))
        };
        let (oldest, newest) = (unstable.clone().find(buffered), unstable.clone().rfind(buffered));
        for index in unstable.chain([state.moment]) {
            let Some(Event::Write { offset, data, how }) = events.get(index) else { continue };
            let under_way = index == state.moment;
            let kept = match state.fate {
                _ if *how == Durability::Fua && !under_way => Sectors::All,
                Fate::Kept if under_way => Sectors::None,
                Fate::NewestLost if under_way || Some(index) == newest => Sectors::None,
                Fate::OldestLost if Some(index) == oldest => Sectors::None,
                Fate::Kept | Fate::NewestLost | Fate::OldestLost => Sectors::All,
                Fate::Lost => Sectors::None,
                Fate::TornLast(seed) if under_way => Sectors::torn(&mut Rng::part(seed, index as u64)),
                Fate::TornLast(_) => Sectors::All,
                Fate::Random(seed) => Sectors::random(&mut Rng::part(seed, index as u64)),
            };
            let kept = if self.tears.contains(offset) { kept } else { kept.whole() };
            kept.write(&mut image, &mut print, *offset, data);
        }
        self.print = print;
        image
    }

    fn advance(&mut self, moment: usize) {
        let events = &self.recording.events;
        let until = events.get(..moment).unwrap_or(events);
        let flushed = until.iter().rposition(|event| matches!(event, Event::Flush)).map_or(0, |at| at + 1);
        if flushed < self.flushed {
            self.stable = self.before.clone();
            (self.flushed, self.stable_print) = (0, 0);
        }
        for event in &events[self.flushed..flushed] {
            if let Event::Write { offset, data, .. } = event {
                Sectors::All.write(&mut self.stable, &mut self.stable_print, *offset, data);
            }
        }
        self.flushed = flushed;
    }
}

/// Which sectors of a write arrived.
enum Sectors {
    All,
    None,
    /// The first so many in a hundred.
    First(u64),
    /// Each with an even chance.
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

    /// Of a write that cannot be torn.
    fn whole(self) -> Self {
        let whole = match self {
            Self::First(percent) => percent >= 50,
            Self::Any(mut rng) => rng.one_in(2),
            Self::All | Self::None => return self,
        };
        if whole { Self::All } else { Self::None }
    }

    fn write(mut self, image: &mut Image, print: &mut u64, offset: u64, data: &[u8]) {
        let sectors = data.len().div_ceil(SECTOR) as u64;
        for (n, (at, sector)) in (0u64..).zip((offset..).step_by(SECTOR).zip(data.chunks(SECTOR))) {
            let arrived = match &mut self {
                Self::All => true,
                Self::None => false,
                Self::First(percent) => n < sectors * *percent / 100,
                Self::Any(rng) => rng.one_in(2),
            };
            if arrived {
                write_sector(image, print, at, sector);
            }
        }
    }
}

/// Writes a sector or less. The fingerprint is a sum over all sectors, so that their order does not matter.
fn write_sector(image: &mut Image, print: &mut u64, at: u64, data: &[u8]) {
    let mut old = [0; SECTOR];
    let Some(old) = old.get_mut(..data.len()) else { return };
    image.read(at, old);
    if old != data {
        image.write(at, data);
        *print = print.wrapping_sub(sector_print(at, old)).wrapping_add(sector_print(at, data));
    }
}

/// A number for what lies where; for telling states apart, of which nobody chooses the bytes.
fn sector_print(at: u64, data: &[u8]) -> u64 {
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
    use block::{Device, RecordDevice};

    /// Writes 1 | flush | writes 2 (buffered), 3 (forced), 4 (buffered, two sectors).
    fn recording() -> (Image, Recording) {
        let before = Image::new(8192);
        let device = RecordDevice::new(ImageDevice::new(before.clone()));
        let write = |n: u8, how| device.write_at(u64::from(n) * 1024, &[n; 1024], how).unwrap();
        write(1, Durability::Buffered);
        device.flush().unwrap();
        write(2, Durability::Buffered);
        write(3, Durability::Fua);
        write(4, Durability::Buffered);
        (before, device.into_recording())
    }

    fn there(image: &Image) -> [usize; 4] {
        let bytes = image.to_bytes();
        [1u8, 2, 3, 4].map(|n| bytes.iter().filter(|byte| **byte == n).count())
    }

    #[test]
    fn what_is_stable_survives_every_fate() {
        let (before, recording) = recording();
        let mut builder = Builder::new(&before, &recording);
        let states = states(&recording, 20, 1);
        let mut torn = false;
        for state in &states {
            let [one, two, three, four] = there(&builder.build(state));
            assert!(state.moment < 2 || one == 1024, "{state:?}");
            assert!(state.moment < 4 || three == 1024, "{state:?}");
            assert!(state.moment > 1 || two + three + four == 0, "{state:?}");
            assert!(state.moment > 3 || four == 0, "{state:?}");
            torn |= four == 512;
        }
        assert!(torn && states.iter().zip(0..).all(|(state, n)| state.index == n));
    }

    #[test]
    fn a_fingerprint_tells_states_apart_by_their_bytes_alone() {
        let (before, recording) = recording();
        let mut builder = Builder::new(&before, &recording);
        let (mut known, mut same) = (std::collections::HashMap::new(), 0);
        for state in states(&recording, 20, 1) {
            let bytes = builder.build(&state).to_bytes();
            let print = builder.fingerprint();
            same += usize::from(known.contains_key(&print));
            assert_eq!(*known.entry(print).or_insert(bytes.clone()), bytes, "{state:?}");
        }
        let mut different: Vec<_> = known.into_values().collect();
        let prints = different.len();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), prints);
        assert!(same > 10, "{same}");
    }

    #[test]
    fn writes_are_torn_where_they_may_be_alone() {
        let (before, recording) = recording();
        let torn = |tears: Range<u64>| {
            let mut builder = Builder::new(&before, &recording).tearing_only(tears);
            let states = states(&recording, 20, 1);
            let images: Vec<_> = states.iter().map(|state| there(&builder.build(state))).collect();
            // Of those that are not forced.
            [1, 3].map(|n| images.iter().any(|there| there[n] == 512))
        };
        assert_eq!(torn(0..8192), [true, true]);
        assert_eq!(torn(2048..3072), [true, false]);
    }

    #[test]
    fn each_fate_is_what_it_says() {
        let (before, recording) = recording();
        let mut builder = Builder::new(&before, &recording);
        let mut at = |moment, fate| there(&builder.build(&State { index: 0, moment, fate }));
        assert_eq!(at(5, Fate::Kept), [1024, 1024, 1024, 1024]);
        assert_eq!(at(5, Fate::Lost), [1024, 0, 1024, 0]);
        assert_eq!(at(5, Fate::NewestLost), [1024, 1024, 1024, 0]);
        assert_eq!(at(5, Fate::OldestLost), [1024, 0, 1024, 1024]);
        assert_eq!(at(4, Fate::Kept), [1024, 1024, 1024, 0]);
        assert_eq!(at(1, Fate::Lost), [0, 0, 0, 0], "a builder may go back, too");
        assert_eq!(at(2, Fate::Lost), [1024, 0, 0, 0]);
    }
}
