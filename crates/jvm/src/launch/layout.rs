//! Options that decide a JVM's memory layout. A JVM that is started to print its flags gets these and no
//! others: even with `-version`, any other option could write a file, load code or open a port.
//!
//! Source: `-XX:+PrintFlagsFinal` of JDK 8, 11, 17, 21 and 25, and the pages of the `java` command.

use std::collections::BTreeSet;

use crate::collector::SWITCHES;

use super::{
    EffectiveOptions, JvmOption, LaunchError, LaunchLine, OptionSource, Read, Variable, shell, takes_next,
};

/// `-XX:` flags that are passed on, by name. None of them takes a path; the few with a text value
/// (`CompilationMode`, `ShenandoahGCMode`, `ShenandoahGCHeuristics`) accept fixed words only. AlwaysPreTouch
/// is excluded: it touches memory, but changes neither a size nor an address.
#[rustfmt::skip]
const LAYOUT_FLAGS: &[&str] = &[
    // Availability of flags.
    "UnlockExperimentalVMOptions", "UnlockDiagnosticVMOptions", "UnlockCommercialFeatures",
    "IgnoreUnrecognizedVMOptions",
    // The collector, beside the flags of `collector::SWITCHES`.
    "ZGenerational", "UseAutoGCSelectPolicy", "AutoGCSelectPauseMillis", "CMSIncrementalMode",
    // CPUs, memory and NUMA nodes as the JVM sees them.
    "ActiveProcessorCount", "UseContainerSupport", "UseContainerCpuShares", "PreferContainerQuotaForCPUCount",
    "UseCGroupMemoryLimitForHeap", "AlwaysActAsServerClassMachine", "NeverActAsServerClassMachine",
    "MaxRAM", "MaxRAMFraction", "MaxRAMPercentage", "MinRAMFraction", "MinRAMPercentage",
    "InitialRAMFraction", "InitialRAMPercentage", "DefaultMaxRAMFraction", "ErgoHeapSizeLimit",
    "UseNUMA", "UseNUMAInterleaving", "ForceNUMA", "NUMAInterleaveGranularity", "BindGCTaskThreadsToCPUs",
    // Page sizes.
    "UseLargePages", "UseTransparentHugePages", "UseHugeTLBFS", "UseSHM", "LargePageSizeInBytes",
    "LargePageHeapSizeThreshold", "UseLargePagesIndividualAllocation", "UseLargePagesInMetaspace",
    "THPStackMitigation",
    // The heap and its generations.
    "AggressiveHeap", "AggressiveOpts", "InitialHeapSize", "MinHeapSize", "MaxHeapSize", "SoftMaxHeapSize",
    "NewSize", "MaxNewSize", "OldSize", "NewRatio", "InitialSurvivorRatio", "MinSurvivorRatio",
    "SurvivorRatio", "NewSizeThreadIncrease", "HeapSizePerGCThread", "MinHeapDeltaBytes",
    "MinHeapFreeRatio", "MaxHeapFreeRatio", "ShrinkHeapInSteps", "HeapBaseMinAddress",
    "ObjectAlignmentInBytes", "SurvivorAlignmentInBytes", "UseCompressedOops", "UseCompressedClassPointers",
    "UseCompactObjectHeaders", "UseAdaptiveSizePolicy", "UseAdaptiveGCBoundary",
    "UsePSAdaptiveSurvivorSizePolicy", "MaxTenuringThreshold", "InitialTenuringThreshold", "AlwaysTenure",
    "NeverTenure", "TargetSurvivorRatio", "PretenureSizeThreshold", "MinTLABSize", "TLABSize", "UseTLAB",
    "ResizeTLAB",
    // The collectors' tables, threads and targets.
    "ParallelGCThreads", "ConcGCThreads", "UseDynamicNumberOfGCThreads", "GCCardSizeInBytes",
    "MarkStackSize", "MarkStackSizeMax", "MaxGCPauseMillis", "MaxGCMinorPauseMillis",
    "GCPauseIntervalMillis", "GCTimeRatio", "GCTimeLimit", "GCHeapFreeLimit", "UseGCOverheadLimit",
    "InitiatingHeapOccupancyPercent", "ParallelRefProcEnabled", "ExplicitGCInvokesConcurrent",
    "DisableExplicitGC", "UseStringDeduplication",
    "G1HeapRegionSize", "G1NewSizePercent", "G1MaxNewSizePercent", "G1ReservePercent", "G1HeapWastePercent",
    "G1MixedGCLiveThresholdPercent", "G1MixedGCCountTarget", "G1ConcRefinementThreads",
    "G1RSetRegionEntries", "G1RSetSparseRegionEntries", "G1RSetUpdatingPauseTimePercent", "G1UseAdaptiveIHOP",
    "G1PeriodicGCInterval",
    "CMSInitiatingOccupancyFraction", "UseCMSInitiatingOccupancyOnly", "CMSParallelRemarkEnabled",
    "CMSScavengeBeforeRemark", "CMSClassUnloadingEnabled",
    "ZMarkStackSpaceLimit", "ZMarkStacksMax", "ZUncommit", "ZUncommitDelay", "ZCollectionInterval",
    "ZAllocationSpikeTolerance", "ZProactive", "ZFragmentationLimit", "ZYoungGCThreads", "ZOldGCThreads",
    "ZUseMediumPageSizeRange",
    "ShenandoahGCMode", "ShenandoahGCHeuristics", "ShenandoahRegionSize", "ShenandoahMinRegionSize",
    "ShenandoahMaxRegionSize", "ShenandoahTargetNumRegions", "ShenandoahHumongousThreshold",
    "ShenandoahCardBarrier", "ShenandoahUncommit", "ShenandoahUncommitDelay", "ShenandoahMinFreeThreshold",
    "ShenandoahGuaranteedGCInterval",
    // Compiled code.
    "ReservedCodeCacheSize", "InitialCodeCacheSize", "SegmentedCodeCache", "NonNMethodCodeHeapSize",
    "ProfiledCodeHeapSize", "NonProfiledCodeHeapSize", "CodeCacheExpansionSize", "CodeCacheMinimumUseSpace",
    "CodeCacheSegmentSize", "UseCodeCacheFlushing", "TieredCompilation", "TieredStopAtLevel",
    "CompilationMode", "CICompilerCount", "CICompilerCountPerCPU", "UseDynamicNumberOfCompilerThreads",
    "EnableJVMCI", "EnableJVMCIProduct", "UseJVMCICompiler",
    // Classes, stacks, and memory outside the heap.
    "MetaspaceSize", "MaxMetaspaceSize", "CompressedClassSpaceSize", "MinMetaspaceFreeRatio",
    "MaxMetaspaceFreeRatio", "PermSize", "MaxPermSize", "ThreadStackSize", "VMThreadStackSize",
    "CompilerThreadStackSize", "StackRedPages", "StackYellowPages", "StackReservedPages", "StackShadowPages",
    "MaxDirectMemorySize", "StringTableSize", "SymbolTableSize",
];

/// Other options that are passed on: those without a value, and those followed by a size.
#[rustfmt::skip]
const LAYOUT_WORDS: &[&str] = &[
    "-server", "-client", "-minimal", "-d32", "-d64", "-Xint", "-Xcomp", "-Xmixed", "-Xincgc", "-Xconcgc",
];
#[rustfmt::skip]
const LAYOUT_SIZES: &[&str] = &[
    "-Xmx", "-Xms", "-Xmn", "-Xss", "-Xmaxf", "-Xminf", "-Xmaxjitcodesize", "-mx", "-ms", "-ss",
];

/// Flags that change the memory layout and are excluded nevertheless, because they write to the path that
/// they name.
const HEAP_IN_A_FILE: [&str; 3] = ["AllocateHeapAt", "AllocateOldGenAt", "ZPath"];

/// Options and variables for a JVM that is started to print its flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LayoutOptions {
    /// Options of the command line; the options of an option file replace the option that names it.
    pub options: Vec<String>,
    /// Values of those [`super::OPTION_VARIABLES`] that are set, or that receive the settings of `-XX:Flags`.
    pub variables: Vec<(&'static str, String)>,
}

impl LaunchLine {
    /// Options of this line, its files and its environment that decide the memory layout.
    pub(crate) fn layout_options(
        &self,
        outer: &Variable<'_>,
        read: &Read<'_>,
    ) -> Result<LayoutOptions, LaunchError> {
        let effective = self.effective(None, outer, read)?;
        let of = |variable: Option<&'static str>| -> Vec<String> {
            let stands_there = |source: &OptionSource| match source {
                OptionSource::CommandLine => variable.is_none(),
                OptionSource::Variable(name) => variable == Some(name),
                OptionSource::OptionsFile { named_in, .. } => *named_in == variable,
                // Settings precede all other options, like the options of this variable.
                OptionSource::SettingsFile(_) => variable == Some(EARLIEST),
            };
            let there = effective.without_values().filter(|option| stands_there(&option.from));
            there.map(|option| &option.text).filter(|text| is_layout_option(text)).cloned().collect()
        };
        let set = self.environment(outer);
        let variables = super::OPTION_VARIABLES.into_iter().filter_map(|name| {
            let options = of(Some(name));
            let is_set = set.iter().any(|(variable, _)| *variable == name);
            let value = shell::option_value(&options);
            (is_set || !options.is_empty()).then_some((name, value))
        });
        Ok(LayoutOptions { options: of(None), variables: variables.collect() })
    }
}

/// The variable whose options precede all others, in every JDK.
const EARLIEST: &str = "JAVA_TOOL_OPTIONS";

impl EffectiveOptions {
    /// Names of the options that are not passed on, without their values; `-D` for all system properties.
    pub fn left_out(&self) -> Vec<String> {
        let options = self.without_values().map(|option| option.text.as_str());
        let left_out = options
            .filter(|option| option.starts_with('-') && !is_option_file(option) && !is_layout_option(option));
        let names: BTreeSet<&str> = left_out.map(name).collect();
        names.into_iter().map(str::to_owned).collect()
    }

    /// The flags of `-XX:` that are not passed on and that the JVM does not list, as they were given. The JVM
    /// refuses or ignores such a flag, which cannot write a file.
    pub(crate) fn unlisted(&self, is_listed: &dyn Fn(&str) -> bool) -> Vec<String> {
        let options = self.without_values().map(|option| option.text.as_str());
        let unlisted = options.filter(|option| {
            let name = option.strip_prefix("-XX:").map(flag_name);
            !is_option_file(option) && !is_layout_option(option) && name.is_some_and(|name| !is_listed(name))
        });
        unlisted.map(str::to_owned).collect()
    }

    /// The options, without words that are the value of the preceding launcher option.
    fn without_values(&self) -> impl Iterator<Item = &JvmOption> {
        let mut is_value = false;
        self.options.iter().filter(move |option| {
            let skipped = is_value;
            is_value = !is_value && takes_next(&option.text);
            !skipped
        })
    }

    /// The flag that puts the heap, or a part of it, into a file, if one is set. It is not passed on.
    pub fn heap_in_a_file(&self) -> Option<&'static str> {
        HEAP_IN_A_FILE.into_iter().find(|flag| self.value(flag).is_some())
    }
}

/// Whether the option names a file of options, which are listed one by one.
fn is_option_file(option: &str) -> bool {
    ["-XX:VMOptionsFile=", "-XX:Flags="].iter().any(|file| option.starts_with(file))
}

/// `MaxHeapSize` of `MaxHeapSize=1g`, `UseZGC` of `+UseZGC`.
pub(super) fn flag_name(flag: &str) -> &str {
    let flag = flag.strip_prefix(['+', '-']).unwrap_or(flag);
    flag.split_once('=').map_or(flag, |(name, _)| name)
}

/// Whether an option is passed on.
fn is_layout_option(option: &str) -> bool {
    if let Some(flag) = option.strip_prefix("-XX:") {
        let name = flag_name(flag);
        return LAYOUT_FLAGS.contains(&name) || SWITCHES.iter().any(|(switch, _)| *switch == name);
    }
    let has_size = |prefix: &&str| {
        option.strip_prefix(*prefix).is_some_and(|size| size.starts_with(|c: char| c.is_ascii_digit()))
    };
    LAYOUT_WORDS.contains(&option) || LAYOUT_SIZES.iter().any(has_size)
}

/// Name of an option: `-XX:HeapDumpPath`, `-XX:+LogVMOutput`, `-Xlog`, `-javaagent`, `-D`.
fn name(option: &str) -> &str {
    if option.starts_with("-D") {
        return "-D";
    }
    // The colon of `-XX:` belongs to the name.
    let start = if option.starts_with("-XX:") { "-XX:".len() } else { 0 };
    let end = option[start..].find(['=', ':']).map_or(option.len(), |at| start + at);
    &option[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::tests::{effective, files, line};

    #[test]
    fn only_options_that_decide_are_let_through() {
        for option in [
            "-Xmx1g",
            "-Xms64m",
            "-Xss1m",
            "-XX:+UseZGC",
            "-XX:-UseCompressedOops",
            "-XX:MaxRAMPercentage=70",
            "-XX:ShenandoahGCMode=generational",
            "-server",
            "-Xint",
        ] {
            assert!(is_layout_option(option), "{option}");
        }
        for option in [
            "-XX:AOTCacheOutput=app.aot",
            "-XX:+LogVMOutput",
            "-XX:LogFile=vm.log",
            "-Xlog:gc:file=gc.log",
            "-Xloggc:gc.log",
            "-javaagent:a.jar",
            "-agentpath:x.so",
            "-Xrunhprof",
            "-XXaltjvm=/tmp/jvm",
            "-XX:AllocateHeapAt=/mnt",
            "-XX:+AlwaysPreTouch",
            "-Xmx",
            "-Xmxgiant",
            "-XX:",
            "-XX:+",
            "-X",
            "-XX:NoSuchFlag=1",
            "-XX:MaxHeapSizes=1",
            "--dry-run",
            "-Dx=y",
            "-Xshare:dump",
            "Main",
            "",
        ] {
            assert!(!is_layout_option(option), "{option}");
        }
    }

    #[test]
    fn files_and_variables_are_filtered_where_they_count() {
        let line =
            line("java -Xmx3g -XX:VMOptionsFile=vm -XX:Flags=settings -Xlog:gc:file=x -cp -Xmx9g Main");
        let variables =
            [("_JAVA_OPTIONS", "-XX:+UseSerialGC -XX:+LogVMOutput"), ("JDK_JAVA_OPTIONS", "-Da=b")];
        let outer =
            |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        let asked = line.layout_options(&outer, &files).expect("readable files");
        assert_eq!(asked.options, ["-Xmx3g", "-Xmx2g", "-XX:+UseZGC"]);
        let expected = [
            ("JDK_JAVA_OPTIONS", String::new()),
            ("JAVA_TOOL_OPTIONS", "-XX:+UseLargePages -XX:MaxHeapSize=4g".to_owned()),
            ("_JAVA_OPTIONS", "-XX:+UseSerialGC".to_owned()),
        ];
        assert_eq!(asked.variables, expected);
        let left_out = line.effective(None, &outer, &files).expect("readable files").left_out();
        assert_eq!(left_out, ["-D", "-XX:+LogVMOutput", "-Xlog", "-cp"]);
    }

    #[test]
    fn options_are_named_without_their_values() {
        for (option, expected) in [
            ("-XX:HeapDumpPath=/secret", "-XX:HeapDumpPath"),
            ("-XX:+LogVMOutput", "-XX:+LogVMOutput"),
            ("-Xlog:gc*:file=a=b", "-Xlog"),
            ("-javaagent:a.jar=key", "-javaagent"),
            ("-Dpassword=secret", "-D"),
            ("--add-opens=a=b", "--add-opens"),
        ] {
            assert_eq!(name(option), expected);
        }
        let found = effective("java -XX:AllocateHeapAt=/mnt Main", 17, &[]);
        assert_eq!(found.heap_in_a_file(), Some("AllocateHeapAt"));
    }
}
