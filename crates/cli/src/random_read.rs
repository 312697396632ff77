//! The gain of huge pages for random reads: measured, and kept until the machine reboots if it is precise.

use std::env;

use hugewise_linux::{
    interrupt::Interrupt,
    reading::{Reading, Reason},
    root::Root,
};
use hugewise_measure::random_read::RandomRead;

use crate::{
    cache::Cache,
    commands::compare::words::{percent, ratio},
    output::standard_error,
};

/// Time of a measurement, in words.
const DURATION: &str = "some 10 s";
/// Gain, as a share, below which the host probably backs the guest with small pages.
const SMALL_GAIN: f64 = 0.25;
/// Largest quotient of the bounds of a precise interval.
const PRECISE: f64 = 1.2;

/// The gain that was measured since the machine started; `None` if none was.
pub fn known(root: &Root) -> Option<RandomRead> {
    Cache::of_user()?.get(&key(root)?)
}

/// The gain that was measured since the machine started, or else the one measured now.
pub fn known_or_measured(root: &Root, interrupt: &Interrupt) -> Reading<RandomRead> {
    known(root).map_or_else(|| measured(root, interrupt), Reading::Known)
}

/// The gain, measured now; kept unless other programs disturbed the measurement.
pub fn measured(root: &Root, interrupt: &Interrupt) -> Reading<RandomRead> {
    standard_error::say(format_args!(
        "measuring random reads on this machine takes {DURATION}; a precise result is kept until the next reboot"
    ));
    let measured = env::current_exe()
        .map_err(Reason::from)
        .and_then(|program| RandomRead::measure(root, &program, interrupt));
    if let (Ok(measured), Some(cache), Some(key)) = (&measured, Cache::of_user(), key(root)) {
        if is_precise(measured) {
            cache.put(key, measured);
        }
    }
    Reading::from(measured)
}

/// Key of the cache: the gain holds for this boot, as measured by this version of hugewise.
fn key(root: &Root) -> Option<String> {
    let boot = root.read("proc/sys/kernel/random/boot_id").ok()?;
    Some(format!("random read, hugewise {}, boot {}", env!("CARGO_PKG_VERSION"), boot.trim()))
}

fn is_precise(read: &RandomRead) -> bool {
    read.ratio.high / read.ratio.low <= PRECISE
}

/// In a sentence: `Random reads in 512MiB on this machine take 39 % less time on THP than on base (ratio
/// with 95 % interval: 0.612 [0.580–0.645]).`
pub fn sentence(read: &RandomRead) -> String {
    let interval = format!("ratio with 95 % interval: {}", ratio(&read.ratio));
    let gain = 1.0 - read.ratio.estimate;
    let change = if read.ratio.low <= 1.0 && read.ratio.high >= 1.0 {
        match is_precise(read) {
            true => format!("about as long on THP as on base ({interval})"),
            false => format!(
                "between {} less and {} more time on THP than on base ({interval}): measured again on a quieter machine, \
                 it is more precise",
                percent(1.0 - read.ratio.low),
                percent(read.ratio.high - 1.0)
            ),
        }
    } else if gain > 0.0 {
        format!("{} less time on THP than on base ({interval})", percent(gain))
    } else {
        format!("{} more time on THP than on base ({interval})", percent(-gain))
    };
    let why = if read.ratio.low > 1.0 - SMALL_GAIN {
        "; in a virtual machine, the gain is small if the host backs it with small pages, which 'hugewise bench tlb' shows"
    } else {
        ""
    };
    format!("Random reads in {} on this machine take {change}{why}.", read.buffer)
}

#[cfg(test)]
mod tests {
    use hugewise_linux::units::Bytes;
    use hugewise_measure::statistics::Ratio;

    use super::*;

    #[test]
    fn a_small_gain_names_the_next_step() {
        let of = |low, estimate, high| {
            sentence(&RandomRead { ratio: Ratio { estimate, low, high }, buffer: Bytes(512 << 20) })
        };
        let large = of(0.58, 0.612, 0.645);
        assert!(large.contains("39 % less time") && !large.contains("bench tlb"), "{large}");
        let small = of(0.78, 0.8, 0.82);
        assert!(small.contains("20 % less time") && small.contains("hugewise bench tlb"), "{small}");
        assert!(of(0.95, 1.0, 1.1).contains("about as long"));
        let unclear = of(0.767, 0.887, 1.026);
        assert!(unclear.contains("between 23 % less and 2.6 % more time"), "{unclear}");
        assert!(of(1.05, 1.1, 1.15).contains("more time"));
    }
}
