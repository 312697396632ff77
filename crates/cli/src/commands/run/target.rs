//! The program that `run` starts: readings and queries before the start, and its arguments and environment.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs, iter,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::PermissionsExt,
    },
    path::PathBuf,
};

use anyhow::Context;
use hugewise_jvm::{
    collector::Collector,
    flags::{self, FinalFlags},
    large_page_flags,
    launch::{LaunchError, LaunchLine, read_option_file},
    rehearsal::{self, DemandError},
};
use hugewise_launch::{launcher::Launcher, proof::PassedOptions};
use hugewise_linux::{
    c_library, cgroup,
    executable::find,
    facts::{OSRELEASE, kernel_version},
    hugepages::{backing::Backing, page_sizes::PageSizes, pools, thp::Thp, touch},
    proc::limits::{self, Capabilities},
    reading::Reason,
    root::Root,
    sys::file,
    units::{PageSize, Pages},
};
use hugewise_plan::backing_selection::{
    BackingRequest, BackingSelection, BackingSupport, JvmAnswers, SelectionFacts,
};

use super::{cache_key, script};
use crate::cache::Cache;

/// First Linux that can collapse the memory of another process.
const MIN_COLLAPSE_KERNEL: (u32, u32) = (6, 1);

/// What exec needs to start a program.
pub struct Handover {
    /// The file.
    pub program: OsString,
    /// Its arguments; the first is its name.
    pub words: Vec<OsString>,
    /// `NAME=VALUE`.
    pub environment: Vec<OsString>,
}

/// A program to be started.
pub struct Target {
    /// The command line as given.
    command: Vec<OsString>,
    /// The parsed command line of a `java`; `None` for other programs, or if parsing failed.
    pub line: Option<LaunchLine>,
    /// The program that the command starts; `None` for a `java` command line, and for a program that was not found.
    pub launcher: Option<Launcher>,
    /// Why the command line of a `java` could not be parsed.
    pub not_understood: Option<LaunchError>,
    /// Variables with JVM options, without their large-page flags.
    variables: Vec<(&'static str, String)>,
    /// Large-page flags that were removed from the variables.
    aside: Vec<String>,
    /// The program's file; with a wrapper, that of the `java`.
    file: PathBuf,
}

impl Target {
    /// Parses a command line and finds its program.
    pub fn new(command: &[OsString]) -> anyhow::Result<Target> {
        let words: Option<Vec<String>> =
            command.iter().map(|word| word.to_str().map(str::to_owned)).collect();
        let words = words.unwrap_or_default();
        let (line, not_understood) = match LaunchLine::parse(&words, &read_option_file) {
            Some(Err(error)) => (None, Some(error)),
            line => (line.and_then(Result::ok), None),
        };
        let is_launcher = line.is_none() && matches!(not_understood, None | Some(LaunchError::Script { .. }));
        let launcher = if is_launcher { Launcher::of(&words, &Root::live()) } else { None };
        let not_understood = not_understood.filter(|_| launcher.is_none());
        let first = command.first().context("no program was named")?;
        let inner = line.as_ref().map(|line| &line.java);
        let inner = inner.or(launcher.as_ref().and_then(|launcher| launcher.words.first()));
        let named = inner.map_or(first.clone(), OsString::from);
        // A wrapper may find the program with its own PATH; otherwise exec reports the error.
        let wrapped = named != *first;
        let file = find(&named).or_else(|error| if wrapped { find(first) } else { Err(error) });
        let file = file.and_then(std::path::absolute);
        let file = file.with_context(|| format!("{} was not found", named.to_string_lossy()))?;
        let of_line = |line: &LaunchLine| line.variables_without_page_flags(&|name| env::var(name).ok());
        let (variables, aside) = line.as_ref().map(of_line).unwrap_or_default();
        Ok(Target { command: command.to_vec(), line, launcher, not_understood, variables, aside, file })
    }

    /// The file name without its directory.
    pub fn name(&self) -> String {
        if let Some(launcher) = &self.launcher {
            return launcher.name().to_owned();
        }
        self.file.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Reads the facts about machine and program that the backing selection needs.
    pub fn facts(
        &self,
        root: &Root,
        sizes: &PageSizes,
        thp: &Thp,
        wanted: &BackingRequest,
        answers: Option<&JvmAnswers>,
    ) -> SelectionFacts {
        let pools = pools::read(root).unwrap_or_default();
        let malloc_matters = !self.is_for_jvms() || wanted.off_heap.is_some();
        let path = self.file.strip_prefix("/").unwrap_or(&self.file);
        let program = match malloc_matters {
            true => c_library::of_program(root, path).map_err(Reason::from),
            false => Reason::err("it was not read"),
        };
        let takes_pages = pools.iter().any(|pool| pool.available() > Pages(0));
        let mut cgroup = cgroup::read(root, if takes_pages { &sizes.hugetlb } else { &[] });
        if wanted.backing.is_none_or(Backing::is_explicit) || wanted.off_heap.is_some() {
            let offers = answers.iter().flat_map(|answers| &answers.offers);
            let needed: Vec<(PageSize, Pages)> = offers.flat_map(|offer| offer.pages.clone()).collect();
            let most = |size| needed.iter().filter(|(of, _)| *of == size).map(|(_, pages)| *pages).max();
            // The demand of other memory is unknown.
            let needed = |size| most(size).filter(|_| wanted.off_heap.is_none()).unwrap_or(Pages(u64::MAX));
            touch::try_hidden_limits(root, &mut cgroup, &pools, &needed);
        }
        SelectionFacts {
            cgroup,
            may_use_huge_segments: limits::read(root).may_use_huge_segments(),
            pools,
            thp: thp.pmd_enabled().map(|(word, _)| word.to_owned()),
            shared_thp: thp.pmd_shmem_enabled().map(|(word, _)| word.to_owned()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            jemalloc: program.as_ref().ok().and_then(|program| program.jemalloc(root)),
            allocator: program.as_ref().ok().and_then(|program| program.allocator),
            c_library: program.map(|program| program.c_library),
            privileged: malloc_matters && self.is_privileged(),
            collapse_obstacle: collapse_obstacle(root),
            sizes: sizes.clone(),
        }
    }

    /// Whether the program is setuid or setgid, or has file capabilities.
    pub fn is_privileged(&self) -> bool {
        let set_id = fs::metadata(&self.file).is_ok_and(|found| found.permissions().mode() & 0o6000 != 0);
        set_id || file::has_capabilities(&self.file)
    }

    /// The JVM's answers, from the cache if possible; `None` for other programs.
    pub fn answers(
        &self,
        root: &Root,
        wanted: &BackingRequest,
        sizes: &PageSizes,
        thp: &Thp,
        cache: Option<&Cache>,
    ) -> anyhow::Result<Option<JvmAnswers>> {
        let Some(line) = &self.line else {
            return Ok(self.jvm_launcher().map(|_| script::answers(wanted)));
        };
        let words: Vec<String> =
            self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let key = cache.and_then(|cache| {
            let java = fs::canonicalize(&self.file).ok()?;
            Some((cache, cache_key::key(root, &words, line, &java, wanted, sizes, thp)?))
        });
        if let Some(answers) = key.as_ref().and_then(|(cache, key)| cache.get(key)) {
            return Ok(Some(answers));
        }
        let (answers, exact) = ask(&line.with_environment(&self.variables), wanted, sizes)?;
        if let Some((cache, key)) = key.filter(|_| exact) {
            cache.put(key, &answers);
        }
        Ok(Some(answers))
    }

    /// The large-page flags that are removed from the command line and the variables.
    pub fn set_aside(&self, choice: &BackingSelection) -> Vec<String> {
        let (_, mut aside) =
            self.line.as_ref().map(|line| line.with_page_flags(&choice.options)).unwrap_or_default();
        if let Some(passed) = self.passed(choice) {
            aside.extend(self.launcher.iter().flat_map(|launcher| launcher.variables(&passed.options).1));
        }
        aside.extend(self.aside.iter().cloned());
        aside
    }

    /// How the program is started.
    pub fn handover(&self, choice: Option<&BackingSelection>) -> anyhow::Result<Handover> {
        let mut words = self.command.clone();
        let mut changed: Vec<(String, String)> = Vec::new();
        if let Some(choice) = choice {
            if let Some(malloc) = &choice.malloc {
                let variables = malloc.variables(&|name| self.variable(name));
                changed = variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            }
            if let Some((launcher, passed)) = self.launcher.as_ref().zip(self.passed(choice)) {
                changed.extend(launcher.variables(&passed.options).0);
                if !launcher.wrapper.is_empty() {
                    // Set after the wrapper, which may change variables.
                    words = launcher.with_environment(&changed).into_iter().map(OsString::from).collect();
                    changed.clear();
                }
            }
            if let Some(line) = &self.line {
                let variables = self.variables.iter().cloned();
                changed.extend(variables.map(|(name, value)| (name.to_owned(), value)));
                words = self.with_options(line, &choice.options);
                if !line.wrapper.is_empty() && !changed.is_empty() {
                    // Set after the wrapper, which may change variables.
                    let (line, _) = line.with_page_flags(&choice.options);
                    words =
                        line.with_environment(&changed).command().into_iter().map(OsString::from).collect();
                    changed.clear();
                }
            }
        }
        let first = words.first().context("no program was named")?;
        let program = find(first).with_context(|| format!("{} was not found", first.to_string_lossy()))?;
        let ours = |name: &OsStr| changed.iter().any(|(of, _)| name == OsStr::new(of));
        let others = env::vars_os().filter(|(name, _)| !ours(name));
        let changed = changed.iter().map(|(name, value)| (name.into(), value.into()));
        let environment = others.chain(changed).map(|(name, value)| assignment(&name, &value)).collect();
        Ok(Handover { program: program.into_os_string(), words, environment })
    }

    /// The program, if it most likely starts a JVM: then its own memory stays as it is.
    fn jvm_launcher(&self) -> Option<&Launcher> {
        self.launcher.as_ref().filter(|launcher| launcher.names_java())
    }

    /// Whether the backing is for heaps only.
    pub fn is_for_jvms(&self) -> bool {
        self.line.is_some() || self.jvm_launcher().is_some()
    }

    /// The options for the JVMs of the program; `None` if none are passed.
    pub fn passed(&self, choice: &BackingSelection) -> Option<PassedOptions> {
        if self.line.is_some() {
            let options = choice.options.clone();
            let backing = choice.backing;
            return Some(PassedOptions { backing, variable: None, options, other_variables: Vec::new() });
        }
        let launcher = self.launcher.as_ref()?;
        if self.jvm_launcher().is_none() && choice.malloc.is_none() && !choice.disable_thp {
            return None;
        }
        launcher.passed(choice.backing).ok()
    }

    /// The value of a variable as the program would see it.
    fn variable(&self, name: &str) -> Option<String> {
        let of_launcher = self.launcher.as_ref().map(|launcher| launcher.wrapper.as_slice());
        let wrapper =
            self.line.as_ref().map(|line| line.wrapper.as_slice()).or(of_launcher).unwrap_or_default();
        let assigned = wrapper.iter().rev().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        assigned.map(str::to_owned).or_else(|| env::var(name).ok())
    }

    /// The command with these options. Argument files stay unexpanded if possible: every user can read the
    /// arguments of a process, but not necessarily an argument file.
    fn with_options(&self, line: &LaunchLine, options: &[String]) -> Vec<OsString> {
        let (wanted, aside) = line.with_page_flags(options);
        let given: Vec<String> =
            self.command.iter().filter_map(|word| word.to_str().map(str::to_owned)).collect();
        let at = line.wrapper.len();
        if given.get(at) == Some(&line.java) && given[..at] == line.wrapper[..] {
            let mut words = given;
            for flag in &aside {
                if let Some(found) = words.iter().skip(at).position(|word| word == flag) {
                    words.remove(at + found);
                }
            }
            words.splice(at + 1..at + 1, options.iter().cloned());
            let same = LaunchLine::parse(&words, &read_option_file);
            if same.is_some_and(|same| same.is_ok_and(|same| same == wanted)) {
                return words.into_iter().map(OsString::from).collect();
            }
        }
        wanted.command().into_iter().map(OsString::from).collect()
    }
}

/// Queries a JVM. The flag is true if all page counts are exact, false if they are upper bounds.
fn ask(line: &LaunchLine, wanted: &BackingRequest, sizes: &PageSizes) -> anyhow::Result<(JvmAnswers, bool)> {
    // A JVM that cannot be rehearsed can still be started, with an upper bound of its demand.
    let (flags, exact) = match rehearsal::flags_of(line, sizes) {
        Err(DemandError::Rehearse { .. }) => (flags::final_flags(line)?, false),
        flags => (flags?, true),
    };
    let first = wanted.backing.unwrap_or(Backing::Hugetlb(None));
    let others = [Backing::Thp, Backing::Base].into_iter().filter(|backing| *backing != first);
    let offer = |backing| {
        let mut offer = BackingSupport {
            backing,
            options: large_page_flags::options(&flags, backing).map_err(String::from),
            pages: Vec::new(),
        };
        if !backing.is_explicit() || offer.options.is_err() || sizes.missing(backing).is_some() {
            return offer;
        }
        if !exact {
            offer.pages = bound(&flags, backing, sizes);
            return offer;
        }
        match rehearsal::launch_demand_with(line, &flags, backing, sizes) {
            Ok(asked) => {
                let pages = sizes.hugetlb.iter().map(|size| (*size, asked.demand.pages(*size).1));
                offer.pages = pages.filter(|(_, pages)| *pages > Pages(0)).collect();
            }
            Err(error) => offer.options = Err(error.to_string()),
        }
        offer
    };
    let offers = iter::once(first).chain(others).map(offer).collect();
    let answers = JvmAnswers {
        version: flags.version.clone(),
        collector: flags.collector().map_or("unknown", Collector::name).to_owned(),
        max_heap: flags.bytes("MaxHeapSize").unwrap_or_default(),
        offers,
    };
    Ok((answers, exact))
}

/// Upper bound of the pool pages of a JVM that could not be rehearsed.
fn bound(flags: &FinalFlags, backing: Backing, sizes: &PageSizes) -> Vec<(PageSize, Pages)> {
    let (Some(demand), Some(default)) = (flags.explicit_demand(), sizes.default_hugetlb) else {
        return Vec::new();
    };
    let of_heap = sizes.huge_page_of(backing).unwrap_or(default);
    if of_heap == default {
        return vec![(default, (demand.heap + demand.others).pages_needed(default))];
    }
    vec![(of_heap, demand.heap.pages_needed(of_heap)), (default, demand.others.pages_needed(default))]
}

/// Why this process cannot collapse the memory of another one; `None` if it can.
fn collapse_obstacle(root: &Root) -> Option<String> {
    let kernel = root.read(OSRELEASE).unwrap_or_default();
    if kernel_version(&kernel).is_none_or(|version| version < MIN_COLLAPSE_KERNEL) {
        return Some(format!("a collapse needs Linux 6.1, and this is {}", kernel.trim()));
    }
    match limits::read(root).capabilities.known() {
        Some(capabilities) if capabilities.has(Capabilities::SYS_NICE) => None,
        _ => Some("a collapse needs CAP_SYS_NICE, which root has".to_owned()),
    }
}

fn assignment(name: &OsStr, value: &OsStr) -> OsString {
    OsString::from_vec([name.as_bytes(), b"=", value.as_bytes()].concat())
}
