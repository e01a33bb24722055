//! Things with stable numbers.

use std::collections::BTreeMap;

/// Values by slots. A slot is used again only after its value was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table<T> {
    slots: BTreeMap<u32, T>,
    next: u32,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { slots: BTreeMap::new(), next: 0 }
    }
}

impl<T> Table<T> {
    /// The value of a slot.
    pub fn get(&self, slot: u32) -> Option<&T> {
        self.slots.get(&slot)
    }

    /// The value of a slot.
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(&slot)
    }

    /// Removes a value.
    pub fn remove(&mut self, slot: u32) -> Option<T> {
        self.slots.remove(&slot)
    }

    /// Puts a value into a certain slot, when a table is read.
    pub fn put(&mut self, slot: u32, value: T) {
        self.slots.insert(slot, value);
        self.next = self.next.max(slot.saturating_add(1));
    }

    /// Adds a value; `None` if all slots are in use.
    pub fn add(&mut self, value: T) -> Option<u32> {
        let limit = super::location::SLOT_MAX;
        let free = |from: u32, to: u32| (from..to).find(|slot| !self.slots.contains_key(slot));
        let slot = free(self.next, limit).or_else(|| free(0, limit))?;
        self.put(slot, value);
        Some(slot)
    }

    /// All values with their slots.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().map(|(slot, value)| (*slot, value))
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.slots.len()
    }
}
