//! The machine, or the container, that a plan is for.

use std::{collections::BTreeSet, env::consts::ARCH, str::FromStr};

use hugewise_jvm::{
    collector::{Collector, SWITCHES},
    flags::FinalFlags,
    launch::{EffectiveOptions, LaunchLine},
    rehearsal::{self, DemandError},
};
use hugewise_linux::{
    action::Action,
    cgroup::CgroupLimits,
    facts::Facts,
    hugepages::{contiguity::Contiguity, page_sizes::PageSizes, pools::Pool},
    reading::{Reading, Reason},
    units::{Bytes, PageSize, Pages},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// With less memory, a JVM before JDK 27 chooses the Serial collector. Source: `os::is_server_class_machine` of HotSpot.
const SERVER_CLASS: Bytes = Bytes(1792 << 20);
/// The first JDK that chooses G1 on every machine (JEP 523).
const G1_EVERYWHERE: u32 = 27;
/// Heaps that follow from the memory end near this size, the limit of compressed pointers, unless the memory is given by
/// a flag.
const COMPRESSED_LIMIT: Bytes = Bytes(29 << 30);
const UNKNOWN: &str = "only the sizes of the target are known here";

/// What a plan was made for: a start elsewhere may need other pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Target {
    /// Where the following values come from.
    pub source: TargetSource,
    /// The memory that the program sees, in bytes: that of the machine, or the smaller limit of its control group.
    pub memory_bytes: Reading<Bytes>,
    /// The CPUs that it may use.
    pub cpus: Reading<u32>,
    /// The architecture of its programs, such as `x86_64`.
    pub architecture: String,
    /// The size of base pages, in bytes.
    pub base_page_size_bytes: PageSize,
    /// The NUMA nodes to which its memory is bound; `null` if to none.
    pub nodes: Option<BTreeSet<u32>>,
    /// The most memory that programs may commit, in bytes; `null` if the kernel sets no limit, or if it is unknown.
    pub commit_limit_bytes: Option<Bytes>,
}

impl Target {
    /// The values by which a plan would be another one elsewhere.
    pub fn values(&self) -> String {
        let memory = self.memory_bytes.known().map(|memory| format!("{memory} of memory"));
        let cpus =
            self.cpus.known().map(|cpus| format!("{cpus} {}", if *cpus == 1 { "CPU" } else { "CPUs" }));
        let machine = format!("{}, base pages of {}", self.architecture, self.base_page_size_bytes);
        let nodes = self.nodes.as_ref().map(|nodes| {
            let nodes: Vec<String> = nodes.iter().map(u32::to_string).collect();
            format!("memory of node {}", nodes.join(" and "))
        });
        let commit = self.commit_limit_bytes.map(|limit| format!("programs may commit {limit}"));
        let values = [memory, cpus, Some(machine), nodes, commit].into_iter().flatten();
        values.collect::<Vec<_>>().join(" · ")
    }
}

/// How a target is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TargetSource {
    /// It is the machine, or the container, on which the plan was made.
    #[default]
    ThisMachine,
    /// Its files were captured.
    Captured,
    /// Its sizes were given. Its pools, settings and limits are unknown.
    Given,
}

/// The sizes by which a JVM chooses a heap and a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetSizes {
    pub memory: Bytes,
    /// `None` if it has as many CPUs as this machine.
    pub cpus: Option<u32>,
}

impl FromStr for TargetSizes {
    type Err = Reason;

    /// `memory=64GiB,cpus=8`; the CPUs may be missing.
    fn from_str(text: &str) -> Result<TargetSizes, Reason> {
        let (mut memory, mut cpus) = (None, None);
        for part in text.split(',') {
            match part.split_once('=') {
                Some(("memory", size)) => {
                    let size: Bytes = size.parse().map_err(|error| Reason::new(format!("{error}")))?;
                    memory = Some(size).filter(|size| *size > Bytes::ZERO);
                }
                Some(("cpus", number)) => {
                    cpus = Some(number.parse().ok().filter(|cpus| *cpus > 0).ok_or_else(expected)?);
                }
                _ => return Err(expected()),
            }
        }
        Ok(TargetSizes { memory: memory.ok_or_else(expected)?, cpus })
    }
}

fn expected() -> Reason {
    Reason::new("expected memory=SIZE or memory=SIZE,cpus=N, such as memory=64GiB,cpus=8")
}

impl TargetSizes {
    /// Those of the machine of these facts; `None` if its memory is unknown.
    pub fn of(facts: &Facts) -> Option<TargetSizes> {
        Some(TargetSizes {
            memory: memory(facts).known().copied()?,
            cpus: facts.allowed.cpus.known().copied(),
        })
    }

    /// The line with options that make a JVM on this machine choose as on one of these sizes, and its flags then.
    pub(crate) fn line(
        &self,
        line: &LaunchLine,
        here: &FinalFlags,
        sizes: &PageSizes,
    ) -> Result<(LaunchLine, FinalFlags), DemandError> {
        let effective = line.effective_here(here.major())?;
        let mut line = line.clone();
        line.options.splice(..0, self.options(&effective, here.major()));
        let flags = rehearsal::flags_of(&line, sizes)?;
        let heap = flags.bytes("MaxHeapSize").unwrap_or_default();
        if heap > COMPRESSED_LIMIT && follows_compression(&effective, &flags) {
            return Err(DemandError::Impossible(format!(
                "the default heap of a machine of {} ends near 32GiB, by the limit of compressed pointers, which cannot be \
                 rehearsed on a smaller machine: give -Xmx",
                self.memory
            )));
        }
        Ok((line, flags))
    }

    fn options(&self, effective: &EffectiveOptions, major: Option<u32>) -> Vec<String> {
        let mut options = Vec::new();
        if effective.value("MaxRAM").is_none() {
            options.push(format!("-XX:MaxRAM={}", self.memory.0));
        }
        if let Some(cpus) = self.cpus.filter(|_| effective.value("ActiveProcessorCount").is_none()) {
            options.push(format!("-XX:ActiveProcessorCount={cpus}"));
        }
        let is_chosen = SWITCHES.iter().any(|(flag, _)| effective.switch(flag).is_some());
        if self.memory < SERVER_CLASS && !is_chosen && major.is_some_and(|major| major < G1_EVERYWHERE) {
            options.push("-XX:+UseSerialGC".to_owned());
        }
        options
    }

    /// The facts of a machine of these sizes of which nothing else is known, with pools of the page sizes of `facts`.
    pub fn facts(&self, mut facts: Facts) -> Facts {
        let empty = |pool: &Pool| Pool {
            total: Pages(0),
            free: Pages(0),
            reserved: Some(Pages(0)),
            surplus: Pages(0),
            overcommit: Some(Pages(0)),
            ..pool.clone()
        };
        facts.pools = Reading::Known(facts.machine_pools().map(empty).collect());
        facts.meminfo.total = Reading::Known(self.memory);
        facts.meminfo.available = Reading::unknown(UNKNOWN);
        facts.overcommit.memory = Reading::unknown(UNKNOWN);
        facts.pool_use = Default::default();
        facts.at_boot = Vec::new();
        facts.thp.enabled = Reading::unknown(UNKNOWN);
        facts.thp.shmem_enabled = Reading::unknown(UNKNOWN);
        facts.contiguity = Contiguity { sizes: Vec::new(), ..facts.contiguity };
        facts.cgroup = CgroupLimits {
            memory_group: Reading::unknown(UNKNOWN),
            memory: Reading::Known(None),
            hugetlb_group: Reading::unknown(UNKNOWN),
            hugetlb: Vec::new(),
            memory_counts_hugetlb: Reading::unknown(UNKNOWN),
        };
        facts.limits.shmmax = Reading::unknown(UNKNOWN);
        facts.limits.shmall = Reading::unknown(UNKNOWN);
        facts.limits.hugetlb_shm_group = Reading::unknown(UNKNOWN);
        facts.limits.settings_are_read_only = Reading::unknown(UNKNOWN);
        facts.limits.in_user_namespace = Reading::unknown(UNKNOWN);
        facts.allowed.nodes = Reading::unknown(UNKNOWN);
        if let Some(cpus) = self.cpus {
            facts.allowed.cpus = Reading::Known(cpus);
        }
        facts
    }
}

/// Whether compressed pointers would limit the heap if the memory was that of the machine, and not given by a flag.
fn follows_compression(effective: &EffectiveOptions, flags: &FinalFlags) -> bool {
    let shares = ["MaxRAM", "MaxRAMPercentage", "MinRAMPercentage", "InitialRAMPercentage", "MaxRAMFraction"];
    !effective.fixes_heap()
        && !shares.iter().any(|flag| effective.value(flag).is_some())
        && effective.switch("UseCompressedOops").is_none_or(|(on, _)| on)
        && flags.collector() != Some(Collector::Z)
}

/// The memory that a program sees on the machine of these facts.
fn memory(facts: &Facts) -> Reading<Bytes> {
    let limit = facts.cgroup.memory.known().and_then(Option::as_ref).map(|limit| limit.bytes);
    facts.meminfo.total.clone().map(|total| limit.map_or(total, |limit| limit.min(total)))
}

/// The target that `facts` describe, for a program behind this wrapper.
pub(crate) fn of(command: &[String], source: TargetSource, facts: &Facts, sizes: &PageSizes) -> Target {
    let commit = facts.meminfo.commit_limit.known().filter(|_| facts.overcommit.is_strict());
    Target {
        source,
        memory_bytes: memory(facts),
        cpus: facts.allowed.cpus.clone(),
        architecture: ARCH.to_owned(),
        base_page_size_bytes: sizes.base,
        nodes: bound_nodes(command, facts),
        commit_limit_bytes: commit.copied(),
    }
}

/// The actions of a plan, which say where they belong.
pub fn located(mut actions: Vec<Action>, source: TargetSource) -> Vec<Action> {
    for action in actions.iter_mut().filter(|_| source != TargetSource::ThisMachine) {
        let mut change = action.change.clone();
        if let Some(first) = change.get_mut(..1) {
            first.make_ascii_lowercase();
        }
        action.change = format!("On the target: {change}");
    }
    actions
}

/// The nodes with pools to which the memory of a program is bound, by `numactl --membind` or the CPU set of this process;
/// `None` if to none, or if they are unknown.
pub(crate) fn bound_nodes(command: &[String], facts: &Facts) -> Option<BTreeSet<u32>> {
    let all: BTreeSet<u32> = facts.pools.known()?.iter().filter_map(|pool| pool.node).collect();
    let mut nodes = all.clone();
    for allowed in [facts.allowed.nodes.known().cloned(), of_numactl(command, &all)].into_iter().flatten() {
        nodes.retain(|node| allowed.contains(node));
    }
    (nodes != all).then_some(nodes)
}

/// The nodes of `numactl --membind`; `None` without it, or if it is not a list of numbers.
fn of_numactl(command: &[String], all: &BTreeSet<u32>) -> Option<BTreeSet<u32>> {
    let at = command.iter().position(|word| word.rsplit('/').next() == Some("numactl"))?;
    let words = &command[at + 1..];
    let options = words.iter().take_while(|word| word.starts_with('-') || !word.contains('/'));
    let list = options.enumerate().find_map(|(n, word)| match word.as_str() {
        "-m" | "--membind" => words.get(n + 1).map(String::as_str),
        word => word.strip_prefix("--membind=").or_else(|| word.strip_prefix("-m")),
    })?;
    match (list, list.strip_prefix('!')) {
        ("all", _) => Some(all.clone()),
        (_, Some(but)) => {
            let but = hugewise_linux::numa::parse(but)?;
            Some(all.iter().copied().filter(|node| !but.contains(node)).collect())
        }
        _ => hugewise_linux::numa::parse(list),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use crate::{decide::available_pools, testing::machine};

    type TestResult = Result<(), Box<dyn Error>>;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn sizes_are_read_with_units() {
        let sizes = |text: &str| text.parse::<TargetSizes>().ok().map(|sizes| (sizes.memory.0, sizes.cpus));
        assert_eq!(sizes("memory=64GiB,cpus=8"), Some((64 << 30, Some(8))));
        assert_eq!(sizes("cpus=2,memory=1536M"), Some((1536 << 20, Some(2))));
        assert_eq!(sizes("memory=2g"), Some((2 << 30, None)));
        for wrong in ["", "64GiB", "cpus=8", "memory=0", "memory=1g,cpus=0", "memory=1g,nodes=2", "memory=x"]
        {
            assert_eq!(sizes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_membind_list_binds_to_its_nodes() {
        let all: BTreeSet<u32> = [0, 1, 2].into();
        let nodes =
            |line: &str| of_numactl(&words(line), &all).map(|nodes| nodes.into_iter().collect::<Vec<_>>());
        assert_eq!(nodes("env A=1 /usr/bin/numactl -N 1 -m 0 java"), Some(vec![0]));
        assert_eq!(nodes("numactl --membind=1 taskset -c 3 java"), Some(vec![1]));
        assert_eq!(nodes("numactl -m1 java"), Some(vec![1]));
        assert_eq!(nodes("numactl --membind 0,2 java"), Some(vec![0, 2]));
        assert_eq!(nodes("numactl --membind=!1 java"), Some(vec![0, 2]));
        assert_eq!(nodes("numactl -m all java"), Some(vec![0, 1, 2]));
        assert_eq!(nodes("numactl --membind=netdev:eth0 java"), None);
        assert_eq!(nodes("numactl --cpunodebind=1 java"), None);
        assert_eq!(nodes("taskset -m 1 java"), None);
        assert_eq!(nodes("numactl -N 0 /usr/bin/java -mx1g"), None);
    }

    /// A machine with 100 free pages on node 0 and 20 on node 1.
    fn two_nodes() -> Result<(Facts, PageSizes), Box<dyn Error>> {
        let (mut facts, sizes) = machine(120, 120)?;
        let machine = facts.machine_pools().next().cloned().ok_or("no pool")?;
        let of_node = |node, pages| Pool {
            node: Some(node),
            total: Pages(pages),
            free: Pages(pages),
            overcommit: None,
            ..machine.clone()
        };
        facts.pools = Reading::Known(vec![machine.clone(), of_node(0, 100), of_node(1, 20)]);
        Ok((facts, sizes))
    }

    #[test]
    fn pages_of_other_nodes_do_not_count_for_a_bound_program() -> TestResult {
        let (mut facts, _) = two_nodes()?;
        let size: PageSize = "2m".parse()?;
        let pages = |line: &str, facts: &Facts| {
            available_pools(facts, bound_nodes(&words(line), facts).as_ref()).get(&size).copied()
        };
        assert_eq!(pages("java", &facts), Some(Pages(120)));
        assert_eq!(pages("numactl -m 0 java", &facts), Some(Pages(100)));
        assert_eq!(pages("numactl -m 1 java", &facts), Some(Pages(20)));
        assert_eq!(pages("numactl -m 0,1 java", &facts), Some(Pages(120)));
        facts.allowed.nodes = Reading::Known([1].into());
        assert_eq!(pages("java", &facts), Some(Pages(20)));
        assert_eq!(pages("numactl -m 0,1 java", &facts), Some(Pages(20)));
        Ok(())
    }

    #[test]
    fn nothing_of_this_machine_is_said_of_a_target_of_given_sizes() -> TestResult {
        let (facts, _) = machine(100, 100)?;
        let sizes: TargetSizes = "memory=64GiB,cpus=8".parse()?;
        let facts = sizes.facts(facts);
        assert_eq!(facts.machine_pools().map(Pool::available).collect::<Vec<_>>(), [Pages(0)]);
        assert_eq!(TargetSizes::of(&facts), Some(sizes));
        assert!(facts.meminfo.available.known().is_none() && facts.thp.enabled.known().is_none());
        Ok(())
    }
}
