//! Things that only one module does: starting programs, opening files, printing.

use std::{fs, path::Path};

use regex::Regex;

use crate::{TestResult, crates};

/// Something that only one place does.
struct OnePlace {
    /// Folders and files of the place, below `crates`.
    places: &'static [&'static str],
    /// Expressions that find it elsewhere.
    expressions: &'static [&'static str],
}

/// Starts of programs, and changes of the user.
const STARTS: OnePlace = OnePlace {
    // A copy of this process, which starts no program, works aside.
    places: &["linux/src/sys/process/", "linux/src/sys/aside/"],
    expressions: &[
        // However it is imported, for a start with arguments, streams or variables.
        r"\bprocess::(\{[^}]*)?\bCommand\b",
        r"\bCommandExt\b",
        r"\bCommand::new\b",
        r"\.spawn\(\)",
        r"\.pre_exec\(",
        // Those of metadata have no argument.
        r"\.(uid|gid|groups)\(\s*[^)\s]",
        r"\b(fork|vfork|clone3|execve?|execvp?e?|execlp?e?|execveat|fexecve|posix_spawnp?|popen)\s*\(",
        r"\b(set(re|res|e|fs)?[ug]id|setgroups|initgroups)\s*\(",
        r"\bSYS_(fork|vfork|clone3?|execve|execveat|set(re|res|fs)?[ug]id|setgroups)\b",
    ],
};

/// All ways to open a file, a folder or a link, for reading or writing.
const OPENS: OnePlace = OnePlace {
    places: &["linux/src/sys/file/"],
    expressions: &[
        r"\bFile::(open|create|create_new|options)\b",
        r"\bOpenOptions\b",
        r"\bfs::(\{[^}]*\b)?(read|write|copy|read_to_string|read_dir|read_link)\b",
        r"\.read_(dir|link)\(\)",
        r"\blibc::(f?open|creat|readlink)\w*\(",
        r"\bSYS_(open|creat|readlink)\w*",
    ],
};

/// All ways to standard output, standard error or the terminal.
const PRINTS: OnePlace = OnePlace {
    places: &[
        "cli/src/output/standard_error.rs",
        "cli/src/output/standard_output.rs",
        "cli/src/output/progress.rs",
        // Asks whether standard output is a terminal.
        "cli/src/output/terminal.rs",
        // The help.
        "cli/src/main.rs",
        // Protocols between processes of this program, and the observer's report, a file.
        "cli/src/commands/bench/touch/",
        "cli/src/commands/run/observer.rs",
        "measure/src/fragmentation/worker.rs",
        // Its message advises to write to /dev/stdout.
        "linux/src/sys/file/output.rs",
        "linux/src/sys/stream.rs",
        // The standard descriptors of other processes.
        "linux/src/sys/process/",
        "linux/src/sys/aside/",
    ],
    expressions: &[
        r"\be?print(ln)?!",
        r"\bdbg!",
        r"\bstd(out|err)\(\)",
        r"\bStd(out|err)(Lock)?\b",
        r"\bSTD(OUT|ERR)_FILENO\b",
        r"/dev/(std(out|err)|tty|console|fd)\b",
        r"/fd/[12]\b",
        r"\b(from_raw_fd|borrow_raw)\([12]\)",
        r"\blibc::(write|dprintf|perror|psignal)\(",
        r"\bindicatif::",
        r"\bset_hook\(",
        r"\berror\.(exit|print)\(\)",
    ],
};

impl OnePlace {
    fn expression(&self) -> Result<Regex, regex::Error> {
        Regex::new(&self.expressions.join("|"))
    }

    fn check(&self) -> TestResult {
        let mut files = Vec::new();
        sources(&crates(), &mut files)?;
        let mut elsewhere = Vec::new();
        let mut here = 0;
        let expression = self.expression()?;
        for file in &files {
            let name = file.strip_prefix(crates())?.display().to_string();
            let found = found(&expression, &fs::read_to_string(file)?);
            match self.places.iter().any(|place| name.starts_with(place)) {
                true => here += found.len(),
                false => elsewhere.extend(found.into_iter().map(|part| format!("{name}: {part}"))),
            }
        }
        assert!(here > 0, "{:?} do it", self.places);
        assert!(elsewhere.is_empty(), "only {:?} may do this: {elsewhere:#?}", self.places);
        Ok(())
    }
}

/// The parts of the code of a source file that match.
fn found(expression: &Regex, text: &str) -> Vec<String> {
    expression.find_iter(&code(text)).map(|part| part.as_str().to_owned()).collect()
}

/// A source file without comments and without the tests at its end.
pub fn code(text: &str) -> String {
    // A declaration of tests in a file of their own may be followed by code.
    let end = text.match_indices("#[cfg(test)]\nmod ").map(|(at, _)| at);
    let end = end.into_iter().find(|at| text[*at..].lines().nth(1).is_some_and(|line| line.ends_with('{')));
    let text = &text[..end.unwrap_or(text.len())];
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    code.flat_map(|line| [line, "\n"]).collect()
}

/// The source files of products below a folder.
fn sources(folder: &Path, files: &mut Vec<std::path::PathBuf>) -> TestResult {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["tests", "testing", "benches", "target"].contains(&name.as_str()) {
                sources(&path, files)?;
            }
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") && name != "build.rs" {
            files.push(path);
        }
    }
    Ok(())
}

/// A source file that does none of it, to which lines are added before the first `impl`.
const HARMLESS: &str = "\
//! Printing, Command::new( and File::open in a comment.
pub struct Unit;

impl Unit {
    pub fn owner(&self) -> u32 {
        self.found.uid()
    }
}

#[cfg(test)]
mod tests {
    fn f() {
        println!(\"{:?}\", Command::new(fs::read_to_string(path)).spawn());
    }
}
";

#[test]
fn programs_are_started_in_one_place() -> TestResult {
    STARTS.check()
}

/// Each of these lines, added to a file elsewhere, is found.
#[test]
fn a_start_elsewhere_is_found() -> TestResult {
    let starts = STARTS.expression()?;
    assert!(found(&starts, HARMLESS).is_empty());
    for line in [
        "use std::process::Command;",
        "use std::{fs, process::{Child, Command as Other}};",
        "    let ran = std::process::Command::new(\"id\").status();",
        "    let child = program.spawn()?;",
        "    command.uid(65534).gid(65534);",
        "    command.groups(&[]);",
        "    unsafe { libc::setresuid(1, 1, 1) };",
        "    unsafe { libc::setuid(1) };",
        "    unsafe { libc::syscall(libc::SYS_setgroups, 0, 0) };",
        "    if unsafe { libc::fork() } == 0 {",
        "    libc::posix_spawn(a, b, c, d, e, f);",
        "    libc::execvp(a, b);",
    ] {
        // Before the tests at the end of the file.
        let with = HARMLESS.replacen("\nimpl ", &format!("\n{line}\nimpl "), 1);
        assert!(!found(&starts, &with).is_empty(), "{line}");
    }
    Ok(())
}

#[test]
fn files_are_opened_in_one_place() -> TestResult {
    OPENS.check()
}

#[test]
fn an_open_elsewhere_is_found() -> TestResult {
    let opens = OPENS.expression()?;
    assert!(found(&opens, HARMLESS).is_empty());
    for line in [
        "    let file = File::open(path)?;",
        "    let text = std::fs::read(path)?;",
        "use std::fs::{self, read_to_string};",
        "    let target = fs::read_link(path)?;",
        "    for entry in folder.read_dir()? {",
        "    let mut how = OpenOptions::new();",
        "    let new = File::create_new(path)?;",
        "    fs::write(path, text)?;",
        "    let fd = unsafe { libc::openat(at, name, flags) };",
        "    let fd = unsafe { libc::open(c\"/etc/shadow\".as_ptr(), flags) };",
        "    unsafe { libc::syscall(libc::SYS_openat2, at) };",
        "    unsafe { libc::fopen(name.as_ptr(), mode) };",
    ] {
        let with = HARMLESS.replacen("\nimpl ", &format!("\n{line}\nimpl "), 1);
        assert!(!found(&opens, &with).is_empty(), "{line}");
    }
    Ok(())
}

#[test]
fn text_is_printed_in_one_place() -> TestResult {
    PRINTS.check()
}

#[test]
fn a_print_elsewhere_is_found() -> TestResult {
    let prints = PRINTS.expression()?;
    assert!(found(&prints, HARMLESS).is_empty());
    for line in [
        "    eprintln!(\"{name}\");",
        "    eprint!(\"{name}\");",
        "    println!();",
        "    dbg!(name);",
        "    io::stderr().write_all(name)?;",
        "    let out: StderrLock = lock();",
        "    let terminal = file::open_stream(Path::new(\"/dev/tty\"))?;",
        "    let terminal = file::open_stream(Path::new(\"/proc/self/fd/2\"))?;",
        "    let error = unsafe { File::from_raw_fd(2) };",
        "    unsafe { libc::write(2, text, length) };",
        "use indicatif::ProgressBar;",
        "    panic::set_hook(Box::new(|_| {}));",
        "    let Err(error) = parsed else { error.exit() };",
    ] {
        let with = HARMLESS.replacen("\nimpl ", &format!("\n{line}\nimpl "), 1);
        assert!(!found(&prints, &with).is_empty(), "{line}");
    }
    Ok(())
}
