//! Facts of the machine and the program that a log or a crash file contains.

use hugewise_linux::units::{Bytes, PageSize, Pages};

/// Facts in a text. `None`: the text does not contain the fact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    /// Pages of the pool of the default size: all, free, reserved.
    pub total: Option<Pages>,
    pub free: Option<Pages>,
    pub reserved: Option<Pages>,
    pub page_size: Option<PageSize>,
    /// Memory of the machine.
    pub memory: Option<Bytes>,
    pub available: Option<Bytes>,
    /// Options of the JVM.
    pub command_line: Option<String>,
    /// Address of the fault.
    fault: Option<u64>,
    /// File that was mapped at the address of the fault.
    pub faulted_file: Option<String>,
}

/// Longest command line that is kept, in characters.
const MAX_COMMAND_CHARS: usize = 4000;

impl Capture {
    /// Takes the facts of a line; the first value of each counts.
    pub(super) fn line(&mut self, line: &str) {
        match line.as_bytes().first() {
            Some(b'H' | b'M') => self.meminfo(line),
            Some(b'C' | b'j' | b'V') => {
                let options = ["Command Line: ", "jvm_args: ", "VM Arguments: ", "CommandLine flags: "];
                let found = options.iter().find_map(|begins| line.strip_prefix(begins));
                let kept = |options: &str| options.chars().take(MAX_COMMAND_CHARS).collect();
                self.command_line = self.command_line.take().or_else(|| found.map(kept));
            }
            Some(b's') if line.starts_with("siginfo: ") => {
                let address = line.split_once("si_addr: 0x").map(|(_, rest)| rest.trim());
                self.fault = self.fault.or_else(|| u64::from_str_radix(address?, 16).ok());
            }
            Some(b'0'..=b'9' | b'a'..=b'f') if self.fault.is_some() && self.faulted_file.is_none() => {
                self.faulted_file = self.mapped(line);
            }
            _ => {}
        }
    }

    fn meminfo(&mut self, line: &str) {
        let Some((name, value)) = line.split_once(':') else { return };
        let Some(number) = value.split_whitespace().next().and_then(|number| number.parse().ok()) else {
            return;
        };
        let pages = Some(Pages(number));
        let bytes = Some(Bytes::from_kib(number));
        match name {
            "HugePages_Total" => self.total = self.total.or(pages),
            "HugePages_Free" => self.free = self.free.or(pages),
            "HugePages_Rsvd" => self.reserved = self.reserved.or(pages),
            "Hugepagesize" => {
                self.page_size = self.page_size.or_else(|| PageSize::new(Bytes::from_kib(number)).ok());
            }
            "MemTotal" => self.memory = self.memory.or(bytes),
            "MemAvailable" => self.available = self.available.or(bytes),
            _ => {}
        }
    }

    /// The file of a line of `/proc/PID/maps` that contains the address of the fault.
    fn mapped(&self, line: &str) -> Option<String> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).ok());
        let path = words.nth(4)?;
        ((start?..end?).contains(&self.fault?) && path.starts_with('/')).then(|| path.to_owned())
    }

    /// Whether the JVM requested pages of a pool; `None` if its options are unknown.
    pub fn requested_pool(&self) -> Option<bool> {
        let options = self.command_line.as_deref()?;
        let last = |flag: &str| {
            let on = options.rfind(&format!("-XX:+{flag}"));
            on.is_some() && on > options.rfind(&format!("-XX:-{flag}"))
        };
        let flags = ["UseLargePages", "UseHugeTLBFS", "UseSHM"];
        Some(flags.into_iter().any(last) && !last("UseTransparentHugePages"))
    }

    /// Pages that are free and not reserved: withheld from all other programs.
    pub fn idle(&self) -> Option<(Pages, Bytes)> {
        let idle = self.free?.0.saturating_sub(self.reserved.unwrap_or(Pages(0)).0);
        Some((Pages(idle), Bytes(self.page_size?.bytes().0.saturating_mul(idle))))
    }

    /// The pool as text: `1024 pages of 2MiB, 1024 free, 978 reserved`.
    pub fn pool(&self) -> Option<String> {
        let (total, free) = (self.total?, self.free?);
        let size = self.page_size.map_or_else(|| "the default size".to_owned(), |size| size.to_string());
        let reserved = self.reserved.map_or_else(|| "?".to_owned(), |pages| pages.to_string());
        Some(format!("{total} pages of {size}, {free} free, {reserved} reserved"))
    }
}
