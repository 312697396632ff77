//! Things that only one module does: starting programs, opening files.

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

#[test]
fn programs_are_started_in_one_place() -> TestResult {
    STARTS.check()
}

/// Each of these lines, added to a file elsewhere, is found.
#[test]
fn a_start_elsewhere_is_found() -> TestResult {
    let text = fs::read_to_string(crates().join("linux/src/systemd.rs"))?;
    let starts = STARTS.expression()?;
    assert!(found(&starts, &text).is_empty());
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
        let with = text.replacen("\nimpl ", &format!("\n{line}\nimpl "), 1);
        assert!(!found(&starts, &with).is_empty(), "{line}");
    }
    let harmless = "// Command::new(\nlet owner = found.uid();\n#[cfg(test)]\nmod tests {\nCommand::new(";
    assert_eq!(found(&starts, harmless), Vec::<String>::new());
    Ok(())
}

#[test]
fn files_are_opened_in_one_place() -> TestResult {
    OPENS.check()
}

#[test]
fn an_open_elsewhere_is_found() -> TestResult {
    let text = fs::read_to_string(crates().join("linux/src/systemd.rs"))?;
    let opens = OPENS.expression()?;
    assert!(found(&opens, &text).is_empty());
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
        let with = text.replacen("\nimpl ", &format!("\n{line}\nimpl "), 1);
        assert!(!found(&opens, &with).is_empty(), "{line}");
    }
    Ok(())
}
