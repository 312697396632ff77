//! Runs the commands of the documentation, and compares their output with the pages.
//!
//! docs/README.md describes how authors write blocks, and how they are compared. The functions are in the
//! order of processing: [`pages`] → [`blocks`] → [`run`] or [`check_options`] → [`first_difference`].

use std::{
    env,
    error::Error,
    fs,
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use hugewise_linux::{
    hugepages::{headroom, page_sizes::PageSizes},
    root::Root,
    testing::trials::skip_part,
};
use regex::Regex;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A `console` block of a page.
struct Block {
    /// Page and line number, for messages.
    place: String,
    needs: Vec<String>,
    not_run: Option<String>,
    exit: Vec<i32>,
    commands: Vec<Shown>,
}

/// A command of a page.
struct Shown {
    line: String,
    /// Lines of output on the page.
    output: Vec<String>,
}

#[test]
fn pages_show_what_the_commands_print() -> Result<()> {
    let mut wrong = String::new();
    let mut ran = 0;
    for page in pages()? {
        let name = page.strip_prefix(repository()).unwrap_or(&page).display().to_string();
        for block in blocks(&name, &fs::read_to_string(&page)?)? {
            let reason = block.not_run.clone().or_else(|| {
                let missing = block.needs.iter().find(|need| !is_there(need))?;
                Some(format!("needs {missing}"))
            });
            let folder = tempfile::tempdir()?;
            for shown in &block.commands {
                let problem = match &reason {
                    Some(reason) => {
                        match block.not_run {
                            // Not println!, whose output the test harness hides if the test passes.
                            Some(_) => {
                                writeln!(io::stderr(), "not run: {}: {} ({reason})", block.place, shown.line)?
                            }
                            None => skip_part(&block.place, reason),
                        }
                        check_options(&shown.line, folder.path())?
                    }
                    None => {
                        ran += 1;
                        run(shown, &block.exit, folder.path())?
                    }
                };
                if let Some(problem) = problem {
                    wrong += &format!("\n{}: $ {}\n{problem}\n", block.place, shown.line);
                }
            }
        }
    }
    writeln!(io::stderr(), "documentation: {ran} commands run")?;
    assert!(ran > 0, "no page holds a command");
    assert!(wrong.is_empty(), "pages and commands differ:\n{wrong}");
    Ok(())
}

#[test]
fn every_page_is_in_the_index() -> Result<()> {
    let index = fs::read_to_string(repository().join("docs/README.md"))?;
    for page in pages()? {
        let name = page.strip_prefix(repository().join("docs")).unwrap_or(&page).display().to_string();
        let name = if page.ends_with("README.md") { "README.md".to_owned() } else { name };
        assert!(name == "README.md" || index.contains(&format!("({name})")), "docs/README.md lacks {name}");
    }
    Ok(())
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README.md and all pages of docs/ and docs/programs/.
fn pages() -> io::Result<Vec<PathBuf>> {
    let mut pages = vec![repository().join("README.md")];
    for folder in ["docs", "docs/programs"] {
        for entry in fs::read_dir(repository().join(folder))? {
            pages.push(entry?.path());
        }
    }
    pages.retain(|page| page.extension().is_some_and(|e| e == "md") && page.exists());
    pages.sort();
    Ok(pages)
}

/// The `console` blocks of a page.
fn blocks(page: &str, text: &str) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    // Marks of comments, until a block or another paragraph follows.
    let mut marks = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if let Some(comment) = line.strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->")) {
            marks.extend(comment.split(';').map(|mark| mark.trim().to_owned()));
        } else if line.starts_with("```") {
            let place = format!("{page}:{}", number + 1);
            let inside: Vec<&str> = lines.by_ref().map(|(_, l)| l).take_while(|l| *l != "```").collect();
            if line == "```console" {
                blocks.push(block(place, &inside, &marks)?);
            }
            marks.clear();
        } else if !line.trim().is_empty() {
            marks.clear();
        }
    }
    Ok(blocks)
}

fn block(place: String, inside: &[&str], marks: &[String]) -> Result<Block> {
    let mut block = Block { place, needs: vec![], not_run: None, exit: vec![0], commands: vec![] };
    for mark in marks {
        let list = |text: &str| text.split(',').map(|item| item.trim().to_owned()).collect::<Vec<_>>();
        match mark.split_once(':') {
            Some(("needs", needs)) => block.needs = list(needs),
            Some(("not run", reason)) => block.not_run = Some(reason.trim().to_owned()),
            Some(("exit", codes)) => {
                block.exit = list(codes).iter().map(|c| c.parse()).collect::<std::result::Result<_, _>>()?
            }
            // Other comments have no marks.
            _ => {}
        }
    }
    let mut goes_on = false;
    for line in inside {
        match (line.strip_prefix("$ "), block.commands.last_mut()) {
            (None, Some(shown)) if goes_on => {
                shown.line = format!("{} {}", shown.line.trim_end_matches('\\').trim_end(), line.trim())
            }
            (Some(command), _) => block.commands.push(Shown { line: command.to_owned(), output: vec![] }),
            (None, Some(shown)) => {
                shown.output.push((*line).to_owned());
                continue;
            }
            (None, None) => return Err(format!("{}: a console block begins with '$ '", block.place).into()),
        }
        goes_on = line.ends_with('\\');
    }
    Ok(block)
}

/// Whether the machine has what a block needs.
fn is_there(need: &str) -> bool {
    let is_root = || fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let may_write_pool = || {
        fs::read_dir("/sys/kernel/mm/hugepages")
            .into_iter()
            .flatten()
            .flatten()
            .any(|pool| fs::OpenOptions::new().write(true).open(pool.path().join("nr_hugepages")).is_ok())
    };
    let has_user = |name: &str| {
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        users.lines().any(|line| line.split(':').next() == Some(name))
    };
    if let Some(name) = need.strip_prefix("user ") {
        return has_user(name);
    }
    match need {
        "root" => is_root(),
        "pool" => may_write_pool(),
        "thp" => huge_pages_at_once().is_some_and(|pages| pages >= 1000),
        path if path.starts_with('/') => Path::new(path).exists(),
        program => {
            env::split_paths(&env::var_os("PATH").unwrap_or_default()).any(|dir| dir.join(program).is_file())
        }
    }
}

/// Transparent huge pages available without compaction: with fewer of them, output may differ from the page.
fn huge_pages_at_once() -> Option<u64> {
    let root = Root::live();
    let sizes = PageSizes::read(&root).ok()?;
    Some(headroom::read(&root, sizes.base, sizes.thp?).ok()?.at_once.0)
}

/// Runs a command line in a shell.
fn shell(line: &str, folder: &Path) -> io::Result<Output> {
    let binary = Path::new(env!("CARGO_BIN_EXE_hugewise"));
    let mut path = binary.parent().unwrap_or(Path::new("/")).as_os_str().to_owned();
    path.push(":");
    path.push(env::var_os("PATH").unwrap_or_default());
    let mut command = Command::new("sh");
    // `sudo` does nothing: a block that needs root runs as root.
    command.arg("-c").arg(format!("exec 2>&1\nsudo() {{ \"$@\"; }}\n{line}")).current_dir(folder);
    command.env_clear().env("PATH", path).env("HOME", folder).env("LANG", "C.UTF-8").env("COLUMNS", "100");
    command.env("NO_COLOR", "1").env("MANWIDTH", "80").env("XDG_CACHE_HOME", folder);
    if let Some(java) = env::var_os("JAVA_HOME") {
        command.env("JAVA_HOME", java);
    }
    command.stdin(std::process::Stdio::null()).output()
}

/// Runs a command of a page; returns the difference, `None` if there is none.
fn run(shown: &Shown, exit: &[i32], folder: &Path) -> io::Result<Option<String>> {
    let output = shell(&shown.line, folder)?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.code().is_some_and(|code| exit.contains(&code)) {
        return Ok(Some(format!("{}, the page says {exit:?}; it printed:\n{printed}", output.status)));
    }
    Ok(first_difference(&shown.output, &printed).map(|line| match line {
        Some(line) => format!("the page shows this, and it is not printed there:\n{line}\nbut:\n{printed}"),
        None => format!("more is printed than the page shows:\n{printed}"),
    }))
}

/// Checks the arguments of a command that is not run; returns the error message of `hugewise`, `None` if it
/// accepts them.
///
/// With `--help` at the end, all arguments before it are parsed, and nothing is executed.
fn check_options(line: &str, folder: &Path) -> io::Result<Option<String>> {
    let words: Vec<&str> = line.trim_start_matches("sudo ").split_whitespace().collect();
    if words.first() != Some(&"hugewise") {
        return Ok(None);
    }
    let end = |word: &&str| {
        matches!(*word, "--" | "|" | "||" | "&&" | "&" | ";")
            || word.starts_with(['>', '<'])
            || word.starts_with("2>")
    };
    let own: Vec<&str> = words.into_iter().take_while(|word| !end(word)).collect();
    let output = shell(&format!("{} --help", own.join(" ")), folder)?;
    Ok((!output.status.success()).then(|| String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// The first difference between a page and the output: `Some(Some(line))` for a line of the page that is not
/// in the output, `Some(None)` if the output has more lines than the page, `None` if they agree.
fn first_difference<'a>(page: &'a [String], printed: &str) -> Option<Option<&'a str>> {
    let printed: String = printed.lines().map(|line| shape(line) + "\n").collect();
    let matches = |lines: usize, end: &str| {
        let pattern: String = page[..lines].iter().map(|line| pattern(line)).collect();
        Regex::new(&format!("^{pattern}{end}")).is_ok_and(|pattern| pattern.is_match(&printed))
    };
    if matches(page.len(), "$") {
        return None;
    }
    Some((1..=page.len()).find(|&lines| !matches(lines, "")).map(|lines| page[lines - 1].as_str()))
}

/// The regular expression for a line of a page.
fn pattern(line: &str) -> String {
    if line.trim() == "…" {
        return "(?:.*\n)*".to_owned();
    }
    let parts: Vec<String> = line.split('…').map(|part| regex::escape(&shape(part))).collect();
    // Blanks next to … belong to it.
    parts.join(".*") + "\n"
}

/// A line without numbers, paths and rulers, which vary between machines.
fn shape(line: &str) -> String {
    [
        // Paths, except those of kernel files, which do not vary.
        (r#"(^|[\s"'=:(\[])/(?:[^/\s"',:;)\]]+/?)+"#, "$1/PATH"),
        (r"[-+±]?[0-9]+(?:[.,:_][0-9]+)*(?:e-?[0-9]+)?(?:\s?(?:[KMGTPE]i?B|kB|B|ns|µs|us|ms|s|min|h|%|×|x)\b|\s?[%×])?", "#"),
        (r"[-─━═=_]{3,}", "---"),
        (r"[▏▎▍▌▋▊▉█░▒▓]+", ""),
        (r"\s+", " "),
    ]
    .iter()
    .fold(line.to_owned(), |line, (pattern, with)| match Regex::new(pattern) {
        Ok(pattern) => pattern
            .replace_all(&line, |found: &regex::Captures<'_>| {
                let kernels = ["/proc/", "/sys/", "/dev/"].iter().any(|root| found[0].contains(root));
                if *with == "$1/PATH" && kernels { found[0].to_owned() } else { with.replace("$1", found.get(1).map_or("", |g| g.as_str())) }
            })
            .into_owned(),
        Err(_) => line,
    })
    .trim()
    .to_owned()
}

#[test]
fn only_the_shape_counts() {
    let page = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let same = |shown: &str, printed: &str| first_difference(&page(shown), printed).is_none();
    assert!(same("free: 1.5GiB of 24 GiB (6 %)", "free:   900MiB of 8 GiB (11.2 %)\n"));
    assert!(same("java: /usr/bin/java", "java: /opt/jdk-25/bin/java\n"));
    assert!(same("a 1\n…\nz", "a 2\nb\nc\nz\n"));
    assert!(same("a\n…\nz", "a\nz\n"));
    assert!(same("cpu: …, 2 cores", "cpu: Xeon (R) 1, 16 cores\n"));
    assert!(same("", ""));
    assert!(!same("pool: 5 pages", "pools: 5 pages\n"));
    assert!(!same("/sys/kernel/mm/a: 1", "/sys/kernel/mm/b: 1\n"));
    assert!(!same("a", "a\nb\n"));
    assert!(!same("", "a\n"));
    assert_eq!(first_difference(&page("a\nb\nc"), "a\nx\nc\n"), Some(Some("b")));
}

#[test]
fn a_block_is_read_with_its_comment() -> Result<()> {
    let text = "<!-- needs: root, java; exit: 0, 1 -->\n\n```console\n$ hugewise check \\\n    --json\n{\n$ true\n```\n\
                text\n```console\n$ true\n```\n";
    let blocks = blocks("page", text)?;
    assert_eq!(blocks.len(), 2);
    assert_eq!(blocks[0].needs, ["root", "java"]);
    assert_eq!(blocks[0].exit, [0, 1]);
    assert_eq!(blocks[0].commands[0].line, "hugewise check --json");
    assert_eq!(blocks[0].commands[0].output, ["{"]);
    assert_eq!(blocks[0].commands[1].line, "true");
    assert_eq!((blocks[1].place.as_str(), blocks[1].needs.len()), ("page:10", 0));
    Ok(())
}

#[test]
fn an_option_that_is_gone_is_seen_even_where_nothing_runs() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let check = |line| check_options(line, folder.path());
    assert_eq!(check("sudo hugewise man --dir x > y")?, None);
    assert!(
        check("hugewise man --no-such-option")?.is_some_and(|problem| problem.contains("--no-such-option"))
    );
    assert!(check("hugewise no-such-command")?.is_some());
    Ok(())
}
