//! Messages with several possible causes: each cause has a test on the facts of the log, and only those that
//! survive are named.

use hugewise_linux::{action::Action, units::Bytes};

use super::{Program, explain::Explainer};

/// Smallest share of the memory that an idle pool must withhold to explain a shortage: a twentieth.
const IDLE_SHARE: u64 = 20;

impl Explainer<'_> {
    /// Cause and action of SIGBUS.
    pub(super) fn bus_error(&self) -> (String, Action) {
        let capture = &self.log.capture;
        if let Some(file) = capture.faulted_file.as_deref().filter(|file| !file.contains("huge")) {
            return (
                format!(
                    "The address lies in the mapped file {file}: the file was truncated, or its file system is full. Huge pages \
                     are not the cause."
                ),
                Action::new(format!(
                    "Find out who truncates {file}; compare its size, and the free space of its file system"
                ))
                .by(format!("df -h {file}")),
            );
        }
        let pool = capture.pool();
        match (capture.requested_pool(), capture.free.map(|free| free.0), pool) {
            (Some(true), Some(1..), Some(pool)) => (
                format!(
                    "The JVM was started with -XX:+UseLargePages, and died at the first touch of a page. In the file, the pool \
                     has {pool}: it is not empty. So a limit of the control group (container) on hugetlb pages is smaller than \
                     the mapping: mmap succeeds, and the first touch above the limit is SIGBUS. Kubernetes sets the limit to 0 \
                     if the pod requests no huge pages."
                ),
                self.request_or_switch_off(),
            ),
            (Some(true), Some(0), Some(pool)) => (
                format!(
                    "The JVM was started with -XX:+UseLargePages, and touched a page that the kernel could not provide. In the \
                     file, the pool has {pool}: other programs took the pages, or the nodes that the JVM may use have none."
                ),
                Action::new(
                    "Grow the pool to the demand of all programs on it (hugewise apply -- COMMAND), on the nodes that this JVM \
                     may use, or run without -XX:+UseLargePages",
                ),
            ),
            (Some(false), ..) => (
                "The JVM requested no pages of a pool: huge pages are not the cause. Causes of SIGBUS are a mapped file that was \
                 truncated, a full /dev/shm or /tmp (the JVM's own file hsperfdata), and a hardware memory error."
                    .into(),
                Action::new("Read the address in 'siginfo' and the file mapped there in the list of libraries; compare free space")
                    .by("df -h /dev/shm /tmp"),
            ),
            _ => (
                "The process touched memory that the kernel could not provide. With huge pages the usual cause is \
                 a control group (container) whose hugetlb limit is smaller than the mapping: mmap succeeds, and \
                 the first touch above the limit kills the process. Other causes: a truncated mapped file, a full \
                 /dev/shm."
                    .into(),
                Action::new(self.bus_error_remedy()),
            ),
        }
    }

    /// Request the pages for the container, or switch the flag off.
    fn request_or_switch_off(&self) -> Action {
        let capture = &self.log.capture;
        let options = capture.command_line.as_deref().unwrap_or_default();
        let own = match options.contains("start.jar") || options.contains("solr") {
            true => {
                " (Solr's start script sets the flag itself: set GC_TUNE without it, or SOLR_OPTS=-XX:-UseLargePages)"
            }
            false => " (look for the flag in the start script and its variables)",
        };
        let reserved = match (capture.reserved, capture.page_size) {
            (Some(pages), Some(size)) if pages.0 > 0 => {
                format!(
                    "; in the file, {pages} pages of {size} were reserved, those of other programs included"
                )
            }
            _ => String::new(),
        };
        Action::new(format!(
            "Run without -XX:+UseLargePages{own}, or request hugepages-SIZE for the container, requests equal to limits: the \
             pages that hugewise plan -- java OPTIONS prints{reserved}"
        ))
    }

    /// Cause and action of a failure to commit memory on base pages.
    pub(super) fn commit(&self) -> (String, Action) {
        let capture = &self.log.capture;
        let bytes = self.found.message.bytes.map_or_else(|| "Memory".to_owned(), |bytes| bytes.to_string());
        let of_memory = |idle: Bytes| capture.memory.is_some_and(|memory| idle.0 >= memory.0 / IDLE_SHARE);
        match (capture.idle(), capture.page_size) {
            (Some((pages, idle)), Some(size)) if pages.0 > 0 && of_memory(idle) => {
                let memory = capture.memory.map(|memory| format!(" of {memory}")).unwrap_or_default();
                let available = match capture.available {
                    Some(available) => format!(" {available} were available to other programs."),
                    None => String::new(),
                };
                let used = capture.total.map_or(0, |total| total.0).saturating_sub(pages.0);
                (
                    format!(
                        "{bytes} on base pages could not be committed. In the file, the pool has {}: {pages} idle pages withhold \
                         {idle}{memory} from this program, which did not request huge pages.{available} It is not a shortage of \
                         huge pages, but a surplus.",
                        capture.pool().unwrap_or_default()
                    ),
                    Action::new("Return the idle pages of the pool on that machine, instead of adding memory; or start the \
                                 program that the pool was reserved for")
                    .by(format!("sudo hugewise apply --pool {size}={used}"))
                    .verified_by("hugewise check"),
                )
            }
            (Some(_), _) => (
                format!(
                    "{bytes} on base pages could not be committed: memory, swap or the commit limit was exhausted. In the file, no \
                     pool withholds a large part of the memory: huge pages are not the cause."
                ),
                Action::new("Reduce -Xmx or the load of the machine; with vm.overcommit_memory=2, compare CommitLimit and Committed_AS"),
            ),
            (None, _) => (
                format!(
                    "{bytes} on base pages could not be committed: memory, swap or the commit limit was exhausted. An idle hugetlb \
                     pool withholds its pages from programs that do not request them; the text does not contain the pools."
                ),
                Action::new("Compare HugePages_Free with MemTotal in /proc/meminfo of that machine, or give the hs_err file, which has them")
                    .by("grep -E 'Huge|Mem|Commit' /proc/meminfo"),
            ),
        }
    }

    /// How to avoid SIGBUS, for the program of the log.
    fn bus_error_remedy(&self) -> &'static str {
        let postgres = self.found.message.speaker == "PostgreSQL" || self.log.names(Program::PostgreSql);
        match (postgres, self.log.names(Program::Java)) {
            (true, false) => {
                "Set huge_pages = off in postgresql.conf (initdb: -c huge_pages=off), or request huge pages for the pod or \
                 container (Kubernetes: hugepages-SIZE, requests equal to limits) for shared_buffers and the rest: hugewise plan \
                 -- postgres -D DIRECTORY prints the pages. A runtime that also limits rsvd lets huge_pages = try fall back"
            }
            (false, false) => {
                "Raise the container's limit on huge pages (Kubernetes: hugepages-SIZE, requests equal to limits) to the \
                 demand of the program (hugewise plan -- COMMAND), or switch huge pages off: java with -XX:-UseLargePages, \
                 PostgreSQL with huge_pages = off"
            }
            _ => {
                "Raise the container's limit on huge pages (Kubernetes: hugepages-SIZE, requests equal to limits) \
                 to the demand that hugewise plan -- java … prints, or run without -XX:+UseLargePages"
            }
        }
    }

    /// Facts of the log that concern the message, marked as such; empty if it has none.
    pub(super) fn captured(&self) -> Vec<String> {
        let capture = &self.log.capture;
        let mut evidence = Vec::new();
        evidence.extend(capture.pool().map(|pool| format!("in the file, the pool has {pool}")));
        if let Some(requested) = capture.requested_pool() {
            let has = if requested { "requests large pages" } else { "requests no pages of a pool" };
            evidence.push(format!("in the file, the command line {has}"));
        }
        if let (Some(available), Some(memory)) = (capture.available, capture.memory) {
            evidence.push(format!("in the file, {available} of {memory} are available"));
        }
        if !evidence.is_empty() {
            evidence.push(
                "the file has its own readings: those of this machine do not count for this message"
                    .to_owned(),
            );
        }
        evidence
    }
}
