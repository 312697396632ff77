//! A program is ready for its report when its memory has stopped growing.

use std::time::Duration;

use hugewise_linux::units::Bytes;

/// Time without growth after which a program is ready.
pub const MIN_QUIET_TIME: Duration = Duration::from_secs(2);
/// Smallest increase that counts as growth, as a fraction of the resident bytes: 1/`MIN_GROWTH_DIVISOR`.
const MIN_GROWTH_DIVISOR: u64 = 50;
/// Smallest increase that counts as growth, in bytes.
const MIN_GROWTH_BYTES: Bytes = Bytes(8 << 20);

#[derive(Debug, Default)]
pub struct Readiness {
    /// Time of the last growth, and the resident bytes then.
    grown: Option<(Duration, Bytes)>,
}

impl Readiness {
    /// Adds a sample of `resident` bytes at the time `at`; true if the program is ready.
    pub fn add_sample(&mut self, at: Duration, resident: Bytes) -> bool {
        match self.grown {
            Some((since, then))
                if resident <= then + MIN_GROWTH_BYTES.max(Bytes(then.0 / MIN_GROWTH_DIVISOR)) =>
            {
                // Allocating released memory again counts as growth.
                if resident < then.saturating_sub(MIN_GROWTH_BYTES) {
                    self.grown = Some((since, resident));
                }
                at.saturating_sub(since) >= MIN_QUIET_TIME
            }
            _ => {
                self.grown = Some((at, resident));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready_at(memory: &[u64]) -> Option<usize> {
        let mut readiness = Readiness::default();
        let samples = (0u64..).zip(memory);
        samples
            .map(|(n, mib)| readiness.add_sample(Duration::from_millis(500 * n), Bytes(mib << 20)))
            .position(|ready| ready)
    }

    #[test]
    fn it_is_ready_when_it_no_longer_grows() {
        assert_eq!(ready_at(&[10, 200, 400, 400, 401, 402, 403, 404]), Some(6));
        // Steady growth: not ready within these samples.
        assert_eq!(ready_at(&[100, 109, 118, 127, 136, 145, 154, 163]), None);
        assert_eq!(ready_at(&[]), None);
        // A decrease does not count as growth; an increase after it does.
        assert_eq!(ready_at(&[400, 100, 100, 400, 400, 400, 400, 400]), Some(7));
    }
}
