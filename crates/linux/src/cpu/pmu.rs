//! Whether this machine can count TLB misses in hardware, and whether this process is permitted to.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{reading::Reading, root::Root};

/// Path of the event sources.
pub const DEVICES: &str = "sys/bus/event_source/devices";
/// Path of the restriction on counting.
pub const PARANOID: &str = "proc/sys/kernel/perf_event_paranoid";

/// The performance monitoring units of the processor cores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pmu {
    /// The units of the cores: `cpu`; `cpu_core` and `cpu_atom`; `armv8_pmuv3_0`. If the list is empty, no
    /// TLB misses can be counted; a unit does not guarantee TLB events.
    pub cores: Reading<Vec<String>>,
    /// `perf_event_paranoid`. Without CAP_PERFMON a process can count its own events up to 2.
    pub paranoid: Reading<i32>,
}

impl Pmu {
    /// True if a unit counts on the cores; `None` if unknown.
    pub fn has_cores(&self) -> Option<bool> {
        self.cores.known().map(|cores| !cores.is_empty())
    }
}

pub fn read(root: &Root) -> Pmu {
    let counts_on_cores = |name: &String| {
        let device = Path::new(DEVICES).join(name);
        // Read for every device, so that a captured tree contains all devices.
        let exists = root.read(device.join("type")).is_ok();
        // Units of cores have a file `cpus`, except the single one of x86 and that of s390.
        exists && (name == "cpu" || name == "cpum_cf" || root.has_file(device.join("cpus")))
    };
    Pmu {
        cores: root.list(DEVICES).map(|names| names.into_iter().filter(counts_on_cores).collect()).into(),
        paranoid: root.value(PARANOID, "a number").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tree;

    #[test]
    fn units_of_cores_are_distinguished_from_the_rest() {
        let (_dir, root) = tree(&[
            ("sys/bus/event_source/devices/software/type", "1"),
            ("sys/bus/event_source/devices/cpu_core/type", "4"),
            ("sys/bus/event_source/devices/cpu_core/cpus", "0-7"),
            ("sys/bus/event_source/devices/cpu/type", "4"),
            (PARANOID, "-1\n"),
        ]);
        let pmu = read(&root);
        assert_eq!(pmu.cores, Reading::Known(vec!["cpu".to_owned(), "cpu_core".to_owned()]));
        assert_eq!(pmu.paranoid, Reading::Known(-1));
    }

    #[test]
    fn no_counters_and_no_sys_are_different_answers() {
        let (_dir, without) = tree(&[("sys/bus/event_source/devices/software/type", "1")]);
        assert_eq!(read(&without).has_cores(), Some(false));
        let (_dir, no_sys) = tree(&[]);
        assert_eq!(read(&no_sys).has_cores(), None);
    }
}
