//! A plan as configuration of other tools.
//!
//! Each format is one complete file of one tool: comments on where to put it, how to load and undo it,
//! then the settings. A format that cannot express the plan, or needs nothing, gives a [`FormatError`],
//! not an empty file.

mod compose;
mod docker;
mod kernel;
mod kubernetes;
mod limits;
pub mod quote;
#[cfg(test)]
pub mod samples;
mod sysctl;
mod systemd;
#[cfg(test)]
mod tests;
mod tmpfiles;
mod tuned;
mod yaml;

use std::{collections::BTreeSet, error::Error, fmt};

use clap::ValueEnum;
use hugewise_jvm::{
    collector::SWITCHES,
    launch::{LaunchLine, option_value},
};
use hugewise_linux::{
    hugepages::backing::Backing,
    printable::is_printable,
    settings::Setting,
    shell,
    systemd::Unit,
    units::{Bytes, PageSize, Pages},
};
use hugewise_plan::plan::{Plan, PoolAvailability};

/// Configuration that a plan can be written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// sysctl.d: the pool of the default page size, limits of shared memory
    Sysctl,
    /// tmpfiles.d: pools of every size and node, and THP settings, applied early at boot by systemd
    Tmpfiles,
    /// limits.d: the memlock limit, set by PAM, that shared memory may need
    Limits,
    /// A drop-in for a systemd service: the JVM's options and capabilities
    Systemd,
    /// Parameters for the kernel's command line
    Kernel,
    /// A TuneD profile
    Tuned,
    /// A Pod, or a Deployment for more than one instance
    Kubernetes,
    /// A docker run command line
    Docker,
    /// A Docker Compose file
    Compose,
}

/// A format that the plan does not need, or that cannot express it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatError {
    pub why: String,
    /// What to do instead; `None` if the plan needs nothing in this format.
    pub instead: Option<String>,
}

impl FormatError {
    fn not_needed<T>(why: &str) -> Result<T, FormatError> {
        Err(FormatError { why: why.to_owned(), instead: None })
    }

    fn instead<T>(why: &str, instead: &str) -> Result<T, FormatError> {
        Err(FormatError { why: why.to_owned(), instead: Some(instead.to_owned()) })
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.instead {
            Some(instead) => write!(f, "{}; {instead}", self.why),
            None => write!(f, "{}: nothing to write", self.why),
        }
    }
}

impl Error for FormatError {}

/// The plan as a complete file of this format (for `docker`, a command line).
///
/// `service`: the systemd unit of the program, if it is known.
pub fn render(plan: &Plan, format: Format, service: Option<&Unit>) -> Result<String, FormatError> {
    // These values go into the files unquoted.
    let is_word = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    if let Some((setting, to)) = thp_settings(plan).find(|(_, to)| !is_word(to)) {
        let why = format!("'{}' is not a value of {setting}", to.escape_debug());
        return FormatError::instead(&why, "make a new plan");
    }
    let of_program = [Format::Systemd, Format::Kubernetes, Format::Docker, Format::Compose];
    if let Some(database) = plan.database.as_ref().filter(|_| of_program.contains(&format)) {
        let why = format!("{} reads its options from its own configuration", database.name);
        return FormatError::instead(
            &why,
            "set the machine's pools with --format tmpfiles, sysctl or kernel, and the options in that configuration",
        );
    }
    match format {
        Format::Sysctl => sysctl::render(plan),
        Format::Tmpfiles => tmpfiles::render(plan),
        Format::Limits => limits::render(plan),
        Format::Systemd => systemd::render(plan, service),
        Format::Kernel => kernel::render(plan),
        Format::Tuned => tuned::render(plan),
        Format::Kubernetes => kubernetes::render(plan),
        Format::Docker => Ok(docker::render(plan)),
        Format::Compose => Ok(compose::render(plan)),
    }
}

/// A pool that suffices for all instances at their largest size and for other programs.
#[derive(Clone, Copy, Debug)]
struct Target {
    size: PageSize,
    node: Option<u32>,
    /// Total pages, with those of other programs.
    pages: Pages,
    /// Total pages when the plan was made.
    before: Pages,
    /// Whether the pages to add are available now.
    obtainable: bool,
}

impl Target {
    /// The absolute path of the file that sets the pool.
    fn path(self) -> String {
        file(Setting::Pool { page_size: self.size, node: self.node })
    }
}

fn targets(plan: &Plan) -> Vec<Target> {
    let needed = plan.pools.iter().filter(|pool| pool.pages_needed > Pages(0));
    needed
        .map(|pool| Target {
            size: pool.page_size_bytes,
            node: pool.node,
            pages: pool.pages_in_pool + pool.pages_to_add,
            before: pool.pages_in_pool,
            obtainable: pool.obtainable == PoolAvailability::Yes,
        })
        .collect()
}

/// THP settings that must change, with the values that the plan needs.
fn thp_settings(plan: &Plan) -> impl Iterator<Item = (Setting, &str)> {
    let of_thp = plan.settings.iter().filter(|change| !matches!(change.setting, Setting::Pool { .. }));
    of_thp.map(|change| (change.setting, change.to.as_str()))
}

/// Pool memory of one instance, by page size.
fn of_one(plan: &Plan) -> Vec<(PageSize, Bytes)> {
    let pages = |size| {
        let all: Pages =
            plan.pools.iter().filter(|pool| pool.page_size_bytes == size).map(|pool| pool.pages_needed).sum();
        Pages(all.0.div_ceil(u64::from(plan.instances.max(1))))
    };
    sizes(&targets(plan)).into_iter().map(|size| (size, pages(size) * size)).collect()
}

fn sizes(targets: &[Target]) -> BTreeSet<PageSize> {
    targets.iter().map(|target| target.size).collect()
}

/// Whether the backing is SysV shared memory, which needs a capability or a group.
fn is_shm(plan: &Plan) -> bool {
    matches!(plan.backing, Backing::Shm(_))
}

/// The absolute path of the file of a setting.
fn file(setting: Setting) -> String {
    format!("/{}", setting.path().display())
}

/// A page size without the suffix `cut`: `2M` as in kernel parameters without `iB`, `2Mi` as in Kubernetes
/// without `B`.
fn short(size: PageSize, cut: &str) -> String {
    let text = size.to_string();
    text.strip_suffix(cut).map_or(text.clone(), str::to_owned)
}

/// In place of the image in Kubernetes and Compose.
const IMAGE: &str = "registry.example/your-image:tag";

/// Escapes dollar signs: Kubernetes expands `$(NAME)`, Compose `$NAME`, and both replace `$$` by a dollar sign.
fn unexpanded(word: &str) -> String {
    word.replace('$', "$$")
}

/// A command line with the plan's options.
struct Launch {
    command: Vec<String>,
    /// Environment variable with the options; `None` if they are in `command`.
    variable: Option<(&'static str, String)>,
}

/// Inserts the options into the command line, or puts them into a variable if the line has no visible `java`
/// or uses a file of the machine.
fn launch(plan: &Plan) -> Launch {
    let no_file = |_: &str| Err(std::io::ErrorKind::Unsupported.into());
    if plan.options.is_empty() {
        return Launch { command: plan.command.clone(), variable: None };
    }
    match LaunchLine::parse(&plan.command, &no_file) {
        Some(Ok(line)) => {
            let mut options = plan.options.clone();
            options.extend(pinned_heap(plan, &line.options));
            options.extend(pinned_collector(plan, &line.options));
            Launch { command: line.with_page_flags(&options).0.command(), variable: None }
        }
        // Options that are not visible here override the heap; with a second collector, the JVM would not start.
        Some(Err(_)) | None => {
            let options = [plan.options.clone(), pinned_heap(plan, &plan.command)].concat();
            let variable = (variable_name(plan), option_value(&options));
            Launch { command: plan.command.clone(), variable: Some(variable) }
        }
    }
}

/// Options for the heap that a JVM would derive from the memory of the place where it starts, and derived here from
/// that of this machine: a container's limit on memory does not include pages of pools.
fn pinned_heap(plan: &Plan, options: &[String]) -> Vec<String> {
    let Some(heap) = plan.heap else { return Vec::new() };
    let sizes = [("-Xmx", "MaxHeapSize", heap.max_bytes), ("-Xms", "InitialHeapSize", heap.initial_bytes)];
    let open = sizes.into_iter().filter(|(short, flag, _)| {
        let long = format!("-XX:{flag}=");
        !options.iter().any(|option| option.starts_with(short) || option.starts_with(&long))
    });
    open.map(|(_, flag, bytes)| format!("-XX:{flag}={}", bytes.0)).collect()
}

/// The flag of the collector that a JVM would choose by the memory and the CPUs of the place where it starts.
fn pinned_collector(plan: &Plan, options: &[String]) -> Option<String> {
    let is_chosen = |flag: &str| options.contains(&format!("-XX:+{flag}"));
    let name = &plan.java.as_ref()?.collector;
    let (flag, _) = SWITCHES.iter().find(|(_, collector)| collector.name() == name)?;
    (!SWITCHES.iter().any(|(flag, _)| is_chosen(flag))).then(|| format!("-XX:+{flag}"))
}

/// The environment variable, with the options of the plan, that this JVM reads.
fn variable(plan: &Plan) -> (&'static str, String) {
    (variable_name(plan), option_value(&plan.options))
}

fn variable_name(plan: &Plan) -> &'static str {
    let version = plan.java.as_ref().map_or("", |java| &java.version);
    let is_8 = version.starts_with("1.8") || version == "8" || version.starts_with("8.");
    if is_8 { "JAVA_TOOL_OPTIONS" } else { "JDK_JAVA_OPTIONS" }
}

const VARIABLE_NOTE: &str = "Large page flags on the command line, or in its argument files, override the \
                             variable: remove them there.";

fn same_java(plan: &Plan) -> Option<String> {
    plan.java.as_ref().map(|java| {
        format!(
            "Planned with java {} ({}). If the image contains another java, plan with that one.",
            java.version, java.collector
        )
    })
}

/// The comments at the top of a file: backing and command line, then the paragraphs.
fn header<T: AsRef<str>>(plan: &Plan, paragraphs: &[T]) -> String {
    let instances = match plan.instances {
        0 | 1 => String::new(),
        more => format!(" {more} instances of"),
    };
    let mut text = comment(&format!("Huge pages ({}) for{instances}:", plan.backing));
    text.push_str(&comment(&format!("  {}", shell::line(&plan.command))));
    if let Some(target) = &plan.target {
        text.push_str(&comment(&format!("Planned for {}", target.values())));
    }
    for paragraph in paragraphs {
        text.push_str("#\n");
        paragraph.as_ref().lines().for_each(|line| text.push_str(&comment(line)));
    }
    text
}

/// `text` as a single line of comment; line ends and invisible characters are escaped.
fn comment(text: &str) -> String {
    let mut line = String::from("# ");
    for c in text.chars() {
        if is_printable(c) { line.push(c) } else { line.extend(c.escape_unicode()) }
    }
    line.truncate(line.trim_end().len());
    line + "\n"
}

/// The note that a pool may become smaller than requested, with commands that read it back.
fn read_back(targets: &[Target]) -> String {
    let each =
        targets.iter().map(|target| format!("\n  cat {}   # {} requested", target.path(), target.pages));
    let note =
        "The kernel allocates as many pages as are available, without an error if they are fewer. Check:";
    note.to_owned() + &each.collect::<String>()
}
