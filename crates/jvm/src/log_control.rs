//! Logs of a JVM: lists them, and starts and stops an additional log while the JVM runs.
//!
//! Uses the diagnostic command `VM.log` of JDK 9 and later, and the options `-Xlog` and `-Xloggc`.

use std::path::{Path, PathBuf};

use crate::{
    attach::{AttachError, Jvm},
    collector::Collector,
};

/// Tags of pauses, their CPU time and safepoints. `gc*` would log several times as many lines, each of which
/// takes about 5 µs of the pause.
const LOG_SELECTION: &str = "gc=info,gc+cpu=info,safepoint=info";
/// ZGC logs its pauses under this tag; other collectors log the phases of their pauses under it.
const ZGC_PAUSE_SELECTION: &str = "gc+phases=info";
/// `timenanos` is CLOCK_MONOTONIC.
const DECORATORS: &str = "timenanos,pid,tid,level,tags";

/// File into which a JVM logs its pauses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// Path as given to the JVM; may be relative to its working directory.
    pub file: PathBuf,
    /// Whether each line carries CLOCK_MONOTONIC.
    pub monotonic: bool,
    /// Whether it contains safepoints.
    pub safepoints: bool,
}

/// Option with which a JVM (JDK 9 or later) logs into `file` from its start; `is_zgc` adds the tag of ZGC's
/// pauses.
pub fn option(file: &Path, is_zgc: bool) -> String {
    format!("-Xlog:{}:file=\"{}\":{DECORATORS}:filecount=0", what(is_zgc), file.display())
}

fn what(is_zgc: bool) -> String {
    if is_zgc { format!("{LOG_SELECTION},{ZGC_PAUSE_SELECTION}") } else { LOG_SELECTION.to_owned() }
}

/// Files into which a running JVM logs its pauses.
pub fn files(jvm: &Jvm<'_>) -> Result<Vec<LogFile>, AttachError> {
    Ok(listed(&jvm.command("VM.log list")?))
}

/// Parses the answer of `VM.log list`.
pub fn listed(answer: &str) -> Vec<LogFile> {
    answer.lines().filter_map(output).collect()
}

/// Makes a running JVM log pauses and safepoints into `file` as well. `file` contains no space and no quote.
pub fn switch_on(jvm: &Jvm<'_>, file: &str) -> Result<(), AttachError> {
    let flags = jvm.command("VM.flags")?;
    let is_on = |name: &str| flags.split_whitespace().any(|flag| flag.strip_prefix("-XX:+") == Some(name));
    let what = what(Collector::selected(is_on) == Some(Collector::Z));
    let command = format!(
        "VM.log output=\"file={file}\" what=\"{what}\" decorators=\"{DECORATORS}\" output_options=\"filecount=0\""
    );
    jvm.command(&command).map(drop)
}

/// Stops logging into `file`; does nothing if that is already off.
pub fn switch_off(jvm: &Jvm<'_>, file: &str) -> Result<(), AttachError> {
    let is_on = |text: &str| text.lines().any(|line| line.contains(&format!("file={file} ")));
    // If it is already off, the command would create the file again.
    if is_on(&jvm.command("VM.log list")?) {
        jvm.command(&format!("VM.log output=\"file={file}\" what=\"all=off\""))?;
    }
    Ok(())
}

/// ` #2: file=/tmp/gc.log all=off,gc*=info uptime,level,tags filecount=5,… (reconfigured)`
fn output(line: &str) -> Option<LogFile> {
    let (number, output) = line.trim_start().strip_prefix('#')?.split_once(": ")?;
    number.parse::<u32>().ok()?;
    let mut words = output.split_whitespace();
    let file = words.next()?.strip_prefix("file=")?;
    let (what, decorators) = (words.next()?, words.next()?);
    log_of_pauses(file, what, decorators)
}

/// The log file with these selections and decorators; `None` if it contains no pauses.
fn log_of_pauses(file: &str, what: &str, decorators: &str) -> Option<LogFile> {
    let holds = |tag: &str| what.split(',').any(|selection| selects(selection, tag));
    holds("gc").then(|| LogFile {
        file: PathBuf::from(file),
        monotonic: decorators.split(',').any(|decorator| matches!(decorator, "timenanos" | "tn")),
        safepoints: holds("safepoint"),
    })
}

/// Whether a selection such as `gc*=info` includes the lines with `tag`.
fn selects(selection: &str, tag: &str) -> bool {
    let (tags, level) = selection.split_once('=').unwrap_or((selection, "info"));
    let tags = tags.trim_end_matches('*');
    (tags == tag || tags == "all") && matches!(level, "info" | "debug" | "trace")
}

/// The last file into which a JVM with this command line logs its pauses; `own_pid` replaces `%p`.
/// `None` if no option names a file, or if its name contains `%t` (the start time), which is unknown.
pub fn of_command(command: &[String], own_pid: u32) -> Option<LogFile> {
    let named = command.iter().skip(1).rev().find_map(|word| match word.strip_prefix("-Xloggc:") {
        Some(file) => Some(LogFile { file: PathBuf::from(file), monotonic: false, safepoints: false }),
        None => of_option(word.strip_prefix("-Xlog:")?),
    })?;
    let name = named.file.to_str()?.replace("%p", &own_pid.to_string());
    (!name.contains("%t")).then(|| LogFile { file: PathBuf::from(name), ..named })
}

/// `gc*,safepoint:file="/tmp/gc.log":timenanos,level,tags:filecount=0`
fn of_option(option: &str) -> Option<LogFile> {
    let (what, rest) = option.split_once(':')?;
    let rest = rest.strip_prefix("file=").unwrap_or(rest);
    let (file, rest) = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"')?,
        None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
    };
    if matches!(file, "" | "stdout" | "stderr") {
        return None;
    }
    let decorators = rest.strip_prefix(':').and_then(|rest| rest.split(':').next()).unwrap_or_default();
    log_of_pauses(file, what, decorators)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn log(file: &str, monotonic: bool, safepoints: bool) -> Option<LogFile> {
        Some(LogFile { file: PathBuf::from(file), monotonic, safepoints })
    }

    #[test]
    fn what_a_jvm_lists_is_read() {
        let own = " #2: file=/tmp/own.log all=off,gc*=info,safepoint=info timenanos,pid,tid,level,tags \
                   filecount=0,filesize=20480K,async=false (reconfigured)";
        assert_eq!(output(own), log("/tmp/own.log", true, true));
        assert_eq!(
            output(" #3: file=gc.log all=off,gc=debug uptime,level,tags"),
            log("gc.log", false, false)
        );
        assert_eq!(output(" #3: file=c.log all=off,class*=info uptime"), None);
        assert_eq!(output(" #3: file=c.log gc=warning uptime"), None);
        assert_eq!(output(" #0: stdout all=warning uptime,level,tags"), None);
    }

    #[test]
    fn the_file_of_a_command_line_is_found() {
        let of =
            |words: &[&str]| of_command(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), 7);
        assert_eq!(of(&["java", "-Xloggc:/tmp/gc-%p.log", "A"]), log("/tmp/gc-7.log", false, false));
        assert_eq!(of(&["java", "-Xlog:gc*:file=/tmp/a.log:tn,tags"]), log("/tmp/a.log", true, false));
        let quoted = "-Xlog:gc*,safepoint*=debug:file=\"/tmp/a:b.log\":timenanos:filecount=0";
        assert_eq!(of(&["java", "-Xlog:gc:x.log", quoted]), log("/tmp/a:b.log", true, true));
        assert_eq!(of(&["java", "-Xlog:all=info:x.log"]), log("x.log", false, true));
        for none in ["-Xlog:gc", "-Xlog:gc:stdout", "-Xlog:class:file=a", "-Xlog:gc:file=a-%t.log"] {
            assert_eq!(of(&["java", none]), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "(.|\n)*") {
            let _ = listed(&text);
            let _ = output(&format!(" #2: file={text}"));
            let _ = of_option(&text);
            let _ = of_command(&["java".to_owned(), format!("-Xlog:{text}")], 1);
        }
    }
}
