//! When a program is ready to be looked at: its memory has stopped growing.

use std::time::Duration;

use hugewise_linux::units::Bytes;

/// So long its memory must not have grown.
pub const QUIET: Duration = Duration::from_secs(2);
/// Less than this share more is no growth.
const TOLERANCE: u64 = 50;
/// Less than this is no growth, of however little.
const LEAST: Bytes = Bytes(8 << 20);

/// What was seen so far.
#[derive(Debug, Default)]
pub struct Readiness {
    /// When its memory was last seen to grow, and to what.
    grown: Option<(Duration, Bytes)>,
}

impl Readiness {
    /// Takes a look at it: so much was resident at that time. Is it ready?
    pub fn look(&mut self, at: Duration, resident: Bytes) -> bool {
        match self.grown {
            Some((since, then)) if resident <= then + LEAST.max(Bytes(then.0 / TOLERANCE)) => {
                // What it gave back it may take again.
                if resident < then.saturating_sub(LEAST) {
                    self.grown = Some((since, resident));
                }
                at.saturating_sub(since) >= QUIET
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
        let looks = (0u64..).zip(memory);
        looks
            .map(|(n, mib)| readiness.look(Duration::from_millis(500 * n), Bytes(mib << 20)))
            .position(|ready| ready)
    }

    #[test]
    fn it_is_ready_when_it_no_longer_grows() {
        assert_eq!(ready_at(&[10, 200, 400, 400, 401, 402, 403, 404]), Some(6));
        // Growing steadily, however slowly: never within these looks.
        assert_eq!(ready_at(&[100, 109, 118, 127, 136, 145, 154, 163]), None);
        assert_eq!(ready_at(&[]), None);
        // Less memory is quiet, too; more after it is growth.
        assert_eq!(ready_at(&[400, 100, 100, 400, 400, 400, 400, 400]), Some(7));
    }
}
