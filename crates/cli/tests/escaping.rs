//! Nothing that another user can name reaches a terminal as more than printable characters.

use std::{
    error::Error,
    ffi::{OsStr, OsString},
    fs,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use hugewise_linux::{printable::is_printable, testing::trials::skip_part};
use serde_json::Value;

type TestResult = Result<(), Box<dyn Error>>;

/// Names that a terminal obeys, hides or reorders.
const HOSTILE: [&str; 10] = [
    "\x1b]0;PWN\x07",
    "\x1b[31;5m\x1b[2J",
    "\u{9b}2J\u{9d}0;x\u{9c}",
    "a\rb\x08c\x7fd\x0be",
    "\u{202e}txt.exe\u{2066}",
    "a\u{200b}b\u{2060}c\u{feff}\u{ad}",
    "\u{2028}\u{2029}\u{85}",
    "\u{e0041}\u{e0042}",
    "\x1b[0m\x1b[1;31mproblem\x1b[0m",
    "\nhugewise: all settings are restored",
];

fn hugewise() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hugewise"));
    command.stdin(Stdio::null());
    command
}

/// Fails unless the output is printable; it came from a terminal if its lines end with a carriage return.
fn check(output: &[u8], what: &dyn std::fmt::Debug) -> TestResult {
    let text = std::str::from_utf8(output).map_err(|error| format!("{what:?}: {error}"))?;
    let text = text.replace("\r\n", "\n");
    match text.chars().find(|c| *c != '\n' && !is_printable(*c)) {
        Some(c) => Err(format!("{what:?}: {} in {text:?}", c.escape_unicode()).into()),
        None => Ok(()),
    }
}

fn check_both(output: &Output, what: &dyn std::fmt::Debug) -> TestResult {
    check(&output.stdout, what)?;
    check(&output.stderr, what)
}

/// The command's output on a terminal; `None` if no terminal can be made.
fn on_a_terminal(words: &[&OsStr]) -> Result<Option<Vec<u8>>, Box<dyn Error>> {
    let quote = |word: &&OsStr| {
        let bytes: String = word.as_bytes().iter().map(|byte| format!("\\{byte:03o}")).collect();
        format!("\"$(printf '{bytes}.')\"")
    };
    // The point keeps line feeds at the end of a word.
    let words: Vec<String> = words.iter().map(quote).collect();
    let script = format!(
        "set --; for word in {}; do set -- \"$@\" \"${{word%.}}\"; done; exec \"$@\"",
        words.join(" ")
    );
    let ran = Command::new("script")
        .args(["--quiet", "--return", "--command", &script, "/dev/null"])
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .output();
    match ran {
        Err(_) => {
            skip_part("escaping on a terminal", "script is not installed");
            Ok(None)
        }
        Ok(output) => Ok(Some(output.stdout)),
    }
}

#[test]
fn names_on_the_command_line_are_escaped() -> TestResult {
    let invalid = OsString::from_vec(b"a\xff\x9b31m\xc2".to_vec());
    let names = HOSTILE.iter().map(OsString::from).chain([invalid]);
    for name in names {
        for before in [
            &["gclog"][..],
            &["report"],
            &["explain"],
            &["check", "--root"],
            &["apply", "--dry-run", "--plan"],
            &["plan", "--"],
            &["plan", "--format", "docker", "--"],
            &["run", "--"],
            &["inspect"],
            &["inspect", "--cgroup"],
            &["collapse", "--dry-run"],
            &["record", "-o"],
            &["compare", "--live"],
            &["man", "--dir", "/proc/no"],
            &["--color"],
            &[],
        ] {
            let words: Vec<&OsStr> = before.iter().map(OsStr::new).chain([name.as_os_str()]).collect();
            check_both(&hugewise().args(&words).output()?, &words)?;
        }
    }
    Ok(())
}

#[test]
fn a_message_of_another_program_does_not_look_like_one_of_ours() -> TestResult {
    let output = hugewise().args(["gclog", "no\nhugewise: all settings are restored"]).output()?;
    let said = String::from_utf8(output.stderr)?;
    assert_eq!(said.lines().filter(|line| line.starts_with("hugewise: ")).count(), 1, "{said}");
    Ok(())
}

/// A log with hostile text in the names of pauses, their causes, and lines that are not understood.
fn log(folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let file = folder.join("gc\x1b]0;x\x07\u{202e}.log");
    let mut text = String::from("[0.002s][info][gc] Using G1\n");
    for (n, hostile) in HOSTILE.iter().map(|hostile| hostile.replace('\n', " ")).enumerate() {
        text += &format!(
            "[{n}.204s][info][gc] GC({n}) Pause Young ({hostile}) ({hostile} Pause) 9M->4M(96M) 1.500ms\n\
             [{n}.204s][info][gc,cpu] GC({n}) User=0.01s Sys=0.92s Real=0.99s\n\
             [{n}.304s][info][gc] GC({n}) Pause {hostile} 9M->4M(96M) unreadable\n\
             [{n}.404s][info][safepoint] Safepoint \"{hostile}\", Time since last: 1 ns, Reaching safepoint: 20000000 ns, \
             Cleanup: 3 ns, At safepoint: 4 ns, Total: 21500000 ns\n\
             OpenJDK 64-Bit Server VM warning: Failed to reserve large pages memory {hostile}\n"
        );
    }
    fs::write(&file, text)?;
    Ok(file)
}

#[test]
fn words_of_logs_are_escaped() -> TestResult {
    let folder = tempfile::tempdir()?;
    let file = log(folder.path())?;
    let page = folder.path().join("page.html");
    let commands: [&[&OsStr]; 4] = [
        &["gclog".as_ref()],
        &["gclog".as_ref(), "--openmetrics".as_ref()],
        &["explain".as_ref()],
        &["gclog".as_ref(), "--html".as_ref(), page.as_ref()],
    ];
    for words in commands {
        check_both(&hugewise().args(words).arg(&file).output()?, &words)?;
    }
    check(&fs::read(&page)?, &"the page")
}

#[test]
fn json_is_escaped_on_a_terminal_only() -> TestResult {
    let folder = tempfile::tempdir()?;
    let file = log(folder.path())?;
    let text = String::from_utf8(hugewise().args(["gclog", "--json"]).arg(&file).output()?.stdout)?;
    assert!(text.contains('\u{202e}') && text.contains('\u{9b}'), "a pipe gets the text as it is: {text}");
    for command in ["gclog", "explain"] {
        let piped = hugewise().args([command, "--json"]).arg(&file).output()?.stdout;
        let program = env!("CARGO_BIN_EXE_hugewise");
        // Without the progress bar, which goes to the terminal, too.
        let quiet =
            ["sh", "-c", "exec \"$@\" 2> /dev/null", "sh", program, command, "--json"].map(OsStr::new);
        let words = [&quiet[..], &[file.as_os_str()]].concat();
        let Some(shown) = on_a_terminal(&words)? else { return Ok(()) };
        check(&shown, &command)?;
        assert_eq!(
            serde_json::from_slice::<Value>(&shown)?,
            serde_json::from_slice::<Value>(&piped)?,
            "{command}"
        );
    }
    Ok(())
}

#[test]
fn a_terminal_gets_only_our_own_styles() -> TestResult {
    let folder = tempfile::tempdir()?;
    let file = log(folder.path())?;
    let program = env!("CARGO_BIN_EXE_hugewise");
    for words in [&["gclog"][..], &["explain"], &["report"], &["check", "--root"], &["inspect"]] {
        let words: Vec<&OsStr> = [program]
            .into_iter()
            .chain(words.iter().copied())
            .map(OsStr::new)
            .chain([file.as_os_str()])
            .collect();
        let Some(shown) = on_a_terminal(&words)? else { return Ok(()) };
        let mut shown = String::from_utf8(shown)?;
        // The progress bar redraws its line.
        for style in ["\r", "\x1b[2K", "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[1;31m"]
        {
            shown = shown.replace(style, "");
        }
        check(shown.as_bytes(), &words)?;
    }
    Ok(())
}

/// A process that ends with its owner.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process whose name and command line are hostile. `program`: the one that it is a copy of.
fn process(folder: &Path, program: &str, argument: &str) -> Result<Process, Box<dyn Error>> {
    // The first 15 bytes of the file's name become the name of the process.
    let copy = folder.join("\x1b]0;PWN\x07\u{9b}2J");
    fs::copy(format!("/bin/{program}"), &copy)?;
    let mut command = Command::new(&copy);
    command.arg0("\x1b[31m\u{202e}java\n").arg(argument).stdin(Stdio::null());
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        match command.spawn() {
            // Another test has forked while the copy was open for writing.
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy && Instant::now() < end => {
                thread::sleep(Duration::from_millis(5));
            }
            child => return Ok(Process(child?)),
        }
    }
}

#[test]
fn names_and_command_lines_of_processes_are_escaped() -> TestResult {
    let (folder, other) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let (running, ended) = (process(folder.path(), "sleep", "1000")?, process(other.path(), "true", "")?);
    thread::sleep(Duration::from_millis(100));
    for pid in [running.0.id(), ended.0.id()].map(|pid| pid.to_string()) {
        for words in [
            &["inspect", &*pid][..],
            &["inspect", "--full", &pid],
            &["inspect", "--json", &pid],
            &["plan", "--pid", &pid],
            &["collapse", "--dry-run", &pid],
            &["split", "--dry-run", &pid],
            &["compare", "--live", &pid, "--dry-run"],
            &["inspect", "--all"],
        ] {
            let output = hugewise().args(words).output()?;
            // JSON in a pipe has only the control characters escaped that JSON forbids.
            if words.contains(&"--json") {
                assert!(!output.stdout.contains(&b'\x1b'), "{words:?}");
                check(&output.stderr, &words)?;
            } else {
                check_both(&output, &words)?;
            }
        }
    }
    Ok(())
}

#[test]
fn values_of_a_captured_tree_and_of_a_plan_are_escaped() -> TestResult {
    let folder = tempfile::tempdir()?;
    let tree = folder.path().join("tree");
    let hostile = HOSTILE.concat();
    for (file, text) in [
        ("proc/meminfo", format!("MemTotal: 8000000 kB\nHugepagesize: 2048 kB\n{hostile}: 1 kB\n")),
        ("proc/sys/kernel/osrelease", format!("6.1{hostile}\n")),
        ("proc/cmdline", format!("hugepages=1{hostile}\n")),
        ("sys/kernel/mm/transparent_hugepage/enabled", format!("always [{hostile}] never\n")),
        ("sys/kernel/mm/transparent_hugepage/defrag", hostile.clone()),
    ] {
        let path = tree.join(file);
        fs::create_dir_all(path.parent().ok_or("no parent")?)?;
        fs::write(path, text)?;
    }
    check_both(&hugewise().args(["check", "--root"]).arg(&tree).output()?, &"check")?;
    let plan = folder.path().join("plan");
    for text in [
        serde_json::json!({"schema": hostile, "pools": []}),
        serde_json::json!({"schema": "hugewise.plan/2", "pools": [], "settings": [
            {"setting": {"shmem_enabled": {"page_size": null}}, "from": hostile, "to": hostile}]}),
        serde_json::json!({"schema": "hugewise.plan/2", "pools": hostile, hostile.clone(): 1}),
    ] {
        fs::write(&plan, text.to_string())?;
        check_both(&hugewise().args(["apply", "--dry-run", "--plan"]).arg(&plan).output()?, &text)?;
    }
    Ok(())
}
