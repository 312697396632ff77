//! What a process became: whether a JVM took the options that it was passed.

use std::io;

use hugewise_jvm::{
    environment::Environment,
    launch::{LaunchLine, OPTION_VARIABLES},
    regions::{self, PageFlags},
};
use hugewise_linux::{hugepages::backing::Backing, root::Root};
use serde::{Deserialize, Serialize};

/// Options of a backing that were passed to a program, for the JVM that it is or starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedOptions {
    pub backing: Backing,
    /// The variable that has them; `None` if they are on the command line, or could not be passed.
    pub variable: Option<String>,
    pub options: Vec<String>,
    /// Other variables with options of JVMs that the program reads.
    pub other_variables: Vec<String>,
}

/// Whether a JVM took its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    Yes,
    /// Its environment, or command line, does not have them.
    NotArrived,
    /// It has them, and these flags of its own command line.
    Overridden(Vec<String>),
    /// It has them, and does not use large pages nevertheless.
    Refused,
    /// Its flags could not be read.
    Unknown,
}

/// What is read of a running JVM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Readings {
    /// Its flags now; `None` if they could not be read.
    flags: Option<PageFlags>,
    /// Whether the options are in its environment or on its command line; `None` if these could not be read.
    arrived: Option<bool>,
    /// Other flags about pages on its command line.
    own: Vec<String>,
}

impl PassedOptions {
    /// Whether the JVM of process `pid` took these options; `None` if it is another program.
    pub fn taken_by(&self, root: &Root, pid: u32) -> Option<Taken> {
        regions::is_hotspot(root, pid).then(|| judge(self.backing, &self.read(root, pid)))
    }

    /// Why JVM `pid` did not take these options; `None` if it did, or if that is unknown.
    pub fn shortcoming(&self, taken: &Taken, pid: u32) -> Option<String> {
        let options = self.options.join(" ");
        let place = self.variable.as_deref().unwrap_or("the command line");
        Some(match taken {
            Taken::Yes | Taken::Unknown => return None,
            Taken::NotArrived => {
                let others = match self.other_variables.as_slice() {
                    [] => "put them into the options that it passes to its JVM".to_owned(),
                    names => format!("it reads {}: try {}='{options}'", names.join(", "), names[0]),
                };
                let lost = match &self.variable {
                    Some(variable) => {
                        format!("they are not in its {variable} or on its command line")
                    }
                    None => "nothing passes them to it".to_owned(),
                };
                format!("JVM {pid} did not get {options}: {lost}; {others}")
            }
            Taken::Overridden(own) => {
                let verb = if own.len() == 1 { "overrides" } else { "override" };
                format!("JVM {pid} has {} on its own command line, which {verb} {place}", own.join(" "))
            }
            Taken::Refused => {
                format!(
                    "JVM {pid} got {options} by {place}, and does not use large pages: look at its own messages"
                )
            }
        })
    }

    fn read(&self, root: &Root, pid: u32) -> Readings {
        let read = |name: &str| root.read_bytes(format!("proc/{pid}/{name}")).ok();
        let command = read("cmdline").map(|text| {
            let words = text.split(|byte| *byte == 0).filter(|word| !word.is_empty());
            words.map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>()
        });
        let is_there =
            |text: &str| self.options.iter().all(|option| text.split_whitespace().any(|w| w == option));
        let in_variable = |variable: &str| {
            let environment = Environment::parse(&read("environ")?);
            Some(environment.get(variable).is_some_and(is_there))
        };
        let on_command_line = command.as_ref().map(|command| is_there(&command.join(" ")));
        // Only these are read by a JVM itself; a script passes on what the others have.
        let variable = self.variable.as_deref().filter(|name| OPTION_VARIABLES.contains(name));
        let arrived = match variable.map(in_variable) {
            Some(Some(false)) | None => on_command_line,
            Some(found) => found,
        };
        // The files that its command line names are those of another user.
        let unread = |_: &str| Err(io::ErrorKind::Unsupported.into());
        let line = command.and_then(|command| LaunchLine::parse(&command, &unread)?.ok());
        let own = line.map(|line| line.with_page_flags(&[]).1).unwrap_or_default();
        Readings {
            flags: regions::page_flags(root, pid),
            arrived,
            own: own.into_iter().filter(|flag| !self.options.contains(flag)).collect(),
        }
    }
}

fn judge(backing: Backing, seen: &Readings) -> Taken {
    let fits = seen.flags.map(|flags| match backing {
        Backing::Base => !flags.large_pages && !flags.transparent,
        Backing::Thp => flags.transparent,
        Backing::Hugetlb(_) | Backing::Shm(_) => flags.large_pages && !flags.transparent,
    });
    match (fits, seen.arrived) {
        (Some(true), _) => Taken::Yes,
        (_, Some(false)) => Taken::NotArrived,
        (_, Some(true)) if !seen.own.is_empty() => Taken::Overridden(seen.own.clone()),
        (Some(false), Some(true)) => Taken::Refused,
        _ => Taken::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_decide_and_the_channel_explains() {
        let flags = |large_pages, transparent| Some(PageFlags { large_pages, transparent });
        let (thp, base, pool) = (Backing::Thp, Backing::Base, Backing::Hugetlb(None));
        let own = vec!["-XX:+UseLargePages".to_owned()];
        let none = Vec::new();
        for (backing, flags, arrived, own, taken) in [
            (thp, flags(true, true), Some(true), &none, Taken::Yes),
            // Passed by another way than ours.
            (thp, flags(true, true), Some(false), &own, Taken::Yes),
            (thp, flags(false, false), Some(false), &none, Taken::NotArrived),
            (thp, flags(true, false), Some(true), &own, Taken::Overridden(own.clone())),
            (base, flags(true, false), Some(true), &own, Taken::Overridden(own.clone())),
            (base, flags(false, false), Some(false), &none, Taken::Yes),
            (base, flags(false, true), Some(false), &none, Taken::NotArrived),
            (pool, flags(false, false), Some(true), &none, Taken::Refused),
            (pool, flags(true, true), Some(true), &none, Taken::Refused),
            (pool, flags(true, false), None, &none, Taken::Yes),
            (thp, None, None, &none, Taken::Unknown),
            (thp, None, Some(true), &none, Taken::Unknown),
            (thp, None, Some(false), &none, Taken::NotArrived),
        ] {
            let seen = Readings { flags, arrived, own: own.clone() };
            assert_eq!(judge(backing, &seen), taken, "{backing} {seen:?}");
        }
    }
}
