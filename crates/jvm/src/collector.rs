//! HotSpot's collectors, with their flags and names.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Collector {
    /// `UseSerialGC`.
    Serial,
    /// `UseParallelGC`.
    Parallel,
    /// `UseG1GC`.
    G1,
    /// `UseZGC`.
    #[serde(rename = "ZGC")]
    Z,
    /// `UseShenandoahGC`.
    Shenandoah,
    /// `UseEpsilonGC`.
    Epsilon,
    /// `UseConcMarkSweepGC`, removed in JDK 14.
    #[serde(rename = "CMS")]
    ConcurrentMarkSweep,
}

/// The flags that select a collector; the last two are older flags, which another flag can imply.
pub const SWITCHES: [(&str, Collector); 9] = [
    ("UseSerialGC", Collector::Serial),
    ("UseParallelGC", Collector::Parallel),
    ("UseG1GC", Collector::G1),
    ("UseZGC", Collector::Z),
    ("UseShenandoahGC", Collector::Shenandoah),
    ("UseEpsilonGC", Collector::Epsilon),
    ("UseConcMarkSweepGC", Collector::ConcurrentMarkSweep),
    ("UseParallelOldGC", Collector::Parallel),
    ("UseParNewGC", Collector::ConcurrentMarkSweep),
];
const CURRENT_FLAG_COUNT: usize = 7;

impl Collector {
    /// The collector whose flag is on; `None` if no such flag is on.
    pub fn selected(is_on: impl Fn(&str) -> bool) -> Option<Collector> {
        SWITCHES[..CURRENT_FLAG_COUNT].iter().find(|(flag, _)| is_on(flag)).map(|(_, collector)| *collector)
    }

    pub fn name(self) -> &'static str {
        match self {
            Collector::Serial => "Serial",
            Collector::Parallel => "Parallel",
            Collector::G1 => "G1",
            Collector::Z => "ZGC",
            Collector::Shenandoah => "Shenandoah",
            Collector::Epsilon => "Epsilon",
            Collector::ConcurrentMarkSweep => "CMS",
        }
    }

    /// The name in the first lines of a log, after `Using`.
    fn name_in_log(self) -> &'static str {
        match self {
            Collector::Z => "The Z Garbage Collector",
            Collector::ConcurrentMarkSweep => "Concurrent Mark Sweep",
            other => other.name(),
        }
    }

    /// Whether a log's text after `Using` starts with the name of a collector.
    pub(crate) fn is_named(text: &[u8]) -> bool {
        SWITCHES.iter().any(|(_, collector)| text.starts_with(collector.name_in_log().as_bytes()))
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
