//! Chance that can be had again: a seed gives the same numbers every time.

use std::time::Duration;

/// A stream of numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Streams of one seed are apart from each other.
    pub fn of(seed: u64, stream: u64) -> Self {
        let mut chance = Self(seed ^ stream.wrapping_mul(0xA076_1D64_78BD_642F));
        chance.next();
        chance
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Whether the event with this chance in a hundred happens.
    pub fn percent(&mut self, n: u64) -> bool {
        self.below(100) < n
    }

    /// A place in a list of that length, which is not 0.
    pub fn place(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// A place in `weights`, each as likely as its weight.
    pub fn weighed(&mut self, weights: &[u64]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (place, weight) in weights.iter().enumerate() {
            if left < *weight {
                return place;
            }
            left -= weight;
        }
        0
    }

    /// A time from `least` on, below `most`, in milliseconds.
    pub fn ms(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.below(most - least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_streams_differ() {
        let numbers = |seed, stream| {
            let mut chance = Chance::of(seed, stream);
            (0..5).map(|_| chance.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(7, 1), numbers(7, 1));
        assert_ne!(numbers(7, 1), numbers(7, 2));
        let mut chance = Chance::of(1, 1);
        let of_two: Vec<_> = (0..1000).map(|_| chance.weighed(&[1, 0, 3])).collect();
        assert!(of_two.iter().all(|p| *p != 1) && of_two.iter().filter(|p| **p == 2).count() > 600);
    }
}
