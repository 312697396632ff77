//! A plan as configuration, ready to be put in its place.
//!
//! Each format is one file of one tool, whole: comments that say where it goes, how it is loaded
//! and undone, then what that tool needs and nothing else. A tool that cannot do what the plan
//! needs, or has nothing to do, is no empty file but a [`CannotSay`].

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

use std::{error::Error, fmt};

use clap::ValueEnum;
use hugewise_jvm::launch::{LaunchLine, option_value};
use hugewise_linux::{
    hugepages::backing::Backing,
    settings::Setting,
    units::{Bytes, PageSize, Pages},
};
use hugewise_plan::plan::Plan;

/// What a plan can be written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// sysctl.d: the pool of the default page size, limits of shared memory
    Sysctl,
    /// tmpfiles.d: pools of every size and node, and THP, set early at boot by systemd
    Tmpfiles,
    /// limits.d: what PAM must allow
    Limits,
    /// A drop-in for a systemd service: the JVM's options and rights
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

/// A format that has nothing to say about a plan, or cannot say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CannotSay {
    /// Why.
    pub why: String,
    /// What to use in its place; nothing where nothing is needed.
    pub instead: Option<String>,
}

impl CannotSay {
    fn not_needed(why: impl Into<String>) -> CannotSay {
        CannotSay { why: why.into(), instead: None }
    }

    fn instead(why: impl Into<String>, instead: impl Into<String>) -> CannotSay {
        CannotSay { why: why.into(), instead: Some(instead.into()) }
    }
}

impl fmt::Display for CannotSay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.instead {
            Some(instead) => write!(f, "{}; {instead}", self.why),
            None => write!(f, "{}: nothing to be written", self.why),
        }
    }
}

impl Error for CannotSay {}

/// The plan in this format: a whole file (of `docker`, a command line), with a line's end at its end.
pub fn render(plan: &Plan, format: Format) -> Result<String, CannotSay> {
    // They are the kernel's own words, and go into the files as they are.
    let is_word = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    if let Some(odd) = thp_settings(plan).find(|(_, to)| !is_word(to)) {
        return Err(CannotSay::instead(
            format!("'{}' is no value for {}", odd.1.escape_debug(), odd.0),
            "plan again",
        ));
    }
    match format {
        Format::Sysctl => sysctl::render(plan),
        Format::Tmpfiles => tmpfiles::render(plan),
        Format::Limits => limits::render(plan),
        Format::Systemd => systemd::render(plan),
        Format::Kernel => kernel::render(plan),
        Format::Tuned => tuned::render(plan),
        Format::Kubernetes => kubernetes::render(plan),
        Format::Docker => Ok(docker::render(plan)),
        Format::Compose => Ok(compose::render(plan)),
    }
}

/// A pool as it must be when every instance has grown to its largest, those of others included.
#[derive(Clone, Copy, Debug)]
struct Target {
    size: PageSize,
    node: Option<u32>,
    pages: Pages,
    before: Pages,
}

impl Target {
    /// The file that sets it.
    fn path(self) -> String {
        file(Setting::Pool { page_size: self.size, node: self.node })
    }
}

/// The pools that the plan needs.
fn targets(plan: &Plan) -> Vec<Target> {
    let needed = plan.pools.iter().filter(|pool| pool.pages_needed > Pages(0));
    needed
        .map(|pool| Target {
            size: pool.page_size_bytes,
            node: pool.node,
            pages: pool.pages_in_pool + pool.pages_to_add,
            before: pool.pages_in_pool,
        })
        .collect()
}

/// Settings of transparent huge pages that must change, and their values.
fn thp_settings(plan: &Plan) -> impl Iterator<Item = (Setting, &str)> {
    let of_thp = plan.settings.iter().filter(|change| !matches!(change.setting, Setting::Pool { .. }));
    of_thp.map(|change| (change.setting, change.to.as_str()))
}

/// What one instance takes from the pools, by page size.
fn of_one(plan: &Plan) -> Vec<(PageSize, Bytes)> {
    let mut sizes: Vec<PageSize> = targets(plan).iter().map(|target| target.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let pages = |size| {
        let all: Pages =
            plan.pools.iter().filter(|pool| pool.page_size_bytes == size).map(|pool| pool.pages_needed).sum();
        Pages(all.0.div_ceil(u64::from(plan.instances.max(1))))
    };
    sizes.into_iter().map(|size| (size, pages(size) * size)).collect()
}

/// Is it SysV shared memory, which takes a right?
fn is_shm(plan: &Plan) -> bool {
    matches!(plan.backing, Backing::Shm(_))
}

/// A setting's file, from the root.
fn file(setting: Setting) -> String {
    format!("/{}", setting.path().display())
}

/// A page size as kernel and Kubernetes shorten it: `2M` with the suffix that is cut off, `iB`; `2Mi` with `B`.
fn short(size: PageSize, cut: &str) -> String {
    let text = size.to_string();
    text.strip_suffix(cut).map_or(text.clone(), str::to_owned)
}

/// How a line is started with the plan's options.
struct Launch {
    /// The words.
    command: Vec<String>,
    /// A variable, where the options could not be put into the line.
    variable: Option<(&'static str, String)>,
}

/// Puts the options into the line. Where that takes a file which only the machine has, or the line
/// starts no `java` that could be seen, a variable carries them.
fn launch(plan: &Plan) -> Launch {
    let no_file = |_: &str| Err(std::io::ErrorKind::Unsupported.into());
    if plan.options.is_empty() {
        return Launch { command: plan.command.clone(), variable: None };
    }
    match LaunchLine::parse(&plan.command, &no_file) {
        Some(Ok(line)) => Launch { command: line.with_page_flags(&plan.options).0.command(), variable: None },
        Some(Err(_)) | None => Launch { command: plan.command.clone(), variable: Some(variable(plan)) },
    }
}

/// The options as a variable that this JVM reads.
fn variable(plan: &Plan) -> (&'static str, String) {
    let version = &plan.java.version;
    let is_8 = version.starts_with("1.8") || version == "8" || version.starts_with("8.");
    (if is_8 { "JAVA_TOOL_OPTIONS" } else { "JDK_JAVA_OPTIONS" }, option_value(&plan.options))
}

/// What is true of a variable with options.
const VARIABLE_NOTE: &str = "Flags about large pages on the command line, or in its argument files, win over \
                             the variable: take them out there.";

/// That another java may ask for something else.
fn same_java(plan: &Plan) -> String {
    format!(
        "Planned with java {} ({}). Does the image hold another? Then plan with that one.",
        plan.java.version, plan.java.collector
    )
}

/// The comments at the top: for what this is, then the paragraphs.
fn header<T: AsRef<str>>(plan: &Plan, paragraphs: &[T]) -> String {
    let instances = match plan.instances {
        0 | 1 => String::new(),
        more => format!(", {more} at once"),
    };
    let mut text = comment(&format!("Huge pages ({}){instances}, for:", plan.backing));
    text.push_str(&comment(&format!("  {}", quote::shell_line(&plan.command))));
    for paragraph in paragraphs {
        text.push_str("#\n");
        paragraph.as_ref().lines().for_each(|line| text.push_str(&comment(line)));
    }
    text
}

/// One line of comment, whatever stands in it.
fn comment(text: &str) -> String {
    let mut line = String::from("# ");
    for c in text.chars() {
        if quote::is_unprintable(c) { line.extend(c.escape_unicode()) } else { line.push(c) }
    }
    line.truncate(line.trim_end().len());
    line + "\n"
}

/// That a pool may have become smaller than it was set.
fn read_back(targets: &[Target]) -> String {
    let mut text = "The kernel adds as many pages as it finds, and reports no error for the rest. See what \
                    it found:"
        .to_owned();
    for target in targets {
        text.push_str(&format!("\n  cat {}   # {} are wanted", target.path(), target.pages));
    }
    text
}
