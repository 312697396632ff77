//! Options of all JVMs, JVMs other than HotSpot, and programs compiled by `native-image`.

use super::{Wording, row};
use crate::messages::{Family::*, Harm};

#[rustfmt::skip]
pub(super) const WORDINGS: &[Wording] = &[
    row(ProgramSetting, Harm::Stopped, "a JVM",
        r"Improperly specified VM option '(?<name>LargePageSizeInBytes|PreTouchParallelChunkSize)\b",
        "Improperly specified VM option 'LargePageSizeInBytes=3m'",
        "The value of {name} is not valid: the JVM did not start.",
        "Set {name} to a power of two that is a page size of this machine: hugewise check"),
    row(ProgramPool, Harm::NotHuge, "OpenJ9",
        r"Requested (?<name>\w+) page size (?<page>\d+[KMG]) could not be satisfied; using \d+[KMG] instead",
        "JVMJ9GC088I Requested objectheap page size 2M could not be satisfied; using 4K instead",
        "The pool of {size} pages is too small for the {name} of OpenJ9, which falls back to the size that the message names.",
        "Grow the pool by the size of -Xmx (objectheap) or of the code cache (codecache), or remove -Xlp"),
    row(ProgramSetting, Harm::Stopped, "OpenJ9",
        r"System configuration does not support option '(?<name>-Xlp[^']*)'",
        "JVMJ9GC032E System configuration does not support option '-Xlp'",
        "The machine has no pool of the page size that {name} requests: OpenJ9 did not start. It refuses -Xlp4k as well where \
         the machine has no pools.",
        "Remove {name}, or reserve pages of that size: hugewise check lists the pools"),
    row(Information, Harm::None, "OpenJ9",
        r"-Xlp:\w+:pagesize=\S+ +large page size|available large page sizes",
        "  -Xlp:objectheap:pagesize=2M         large page size",
        "The page sizes that -verbose:sizes lists. They do not prove that OpenJ9 has such pages.", ""),
    row(ProgramPool, Harm::NotHuge, "OpenJ9",
        r"JVMJ9\w+ .*(?i:large|huge) pages?\b",
        "JVMJ9GC028E Option too large: -Xlp:objectheap:pagesize=2M, large pages are not supported",
        "OpenJ9 cannot use the pages that -Xlp requests, and falls back to smaller ones or stops.",
        "Compare -Xlp:objectheap and -Xlp:codecache with the pools of the machine (hugewise check); -verbose:sizes prints what OpenJ9 uses"),
    row(ProgramPool, Harm::Stopped, "Azul Zing",
        r"Memory management: unable to \w+ .*account|unable to fund \w+(?: \w+)* account|az_pmem_reserve_pages",
        "ERROR: Memory management: unable to fund java heap account",
        "Zing could not reserve memory for its heap, in blocks of 2MiB that it takes from the kernel or from its own \
         memory module (ZST), not from the hugetlb pool: memory is short, or free but fragmented.",
        "Compare 'free' with -Xmx. If enough is free, compact memory (echo 1 | sudo tee /proc/sys/vm/compact_memory) or \
         reserve it at boot with ZST; reduce an idle hugetlb pool, whose pages Zing cannot use"),
    row(ProgramSetting, Harm::NotHuge, "a JVM on Windows",
        r"JVM cannot use large page(?: memory because it does not have enough privilege|s due to either the large page setting)",
        "OpenJDK 64-Bit Server VM warning: JVM cannot use large page memory because it does not have enough privilege to lock pages in memory.",
        "On Windows, large pages need the right 'Lock pages in memory' of the user who starts the JVM, which runs on base pages.",
        "Give the user that right (Local Security Policy, User Rights Assignment) and log in again, or remove -XX:+UseLargePages; \
         Solr's start script sets it itself"),
    row(UnknownFlag, Harm::Stopped, "a native image",
        r"[Cc]ould not find option '(?<name>Use\w*(?:LargePages|HugePages|HugeTLBFS)\w*)'",
        "error: Could not find option 'UseLargePages'. Use -XX:PrintFlags= to list all available options.",
        "Programs compiled by native-image do not have {name}, and never take pages from a pool: the program did not start.",
        "Remove the option. The heap is mapped by mmap: THP mode always, or 'hugewise collapse PID', gives it huge pages"),
];
