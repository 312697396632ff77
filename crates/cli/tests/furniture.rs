//! Completions and manual pages are complete and valid.

use std::{
    error::Error,
    fs,
    io::{self, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Command, Output, Stdio},
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn hugewise(arguments: &[&str]) -> io::Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_hugewise")).args(arguments).output()
}

/// The output of a program; `None`, with a message, if the program is not installed.
fn if_installed(program: &str, command: &mut Command) -> io::Result<Option<Output>> {
    match command.output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            writeln!(io::stderr(), "skipped: {program} is not installed")?;
            Ok(None)
        }
        output => output.map(Some),
    }
}

#[test]
fn every_shell_has_completions_that_know_the_commands() -> Result<()> {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = hugewise(&["completions", shell])?;
        assert!(output.status.success());
        let script = String::from_utf8(output.stdout)?;
        for word in ["check", "completions", "--color"] {
            let word = if shell == "fish" { word.trim_start_matches("--") } else { word };
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    Ok(())
}

#[test]
fn completions_are_valid_scripts() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for shell in ["bash", "zsh", "fish"] {
        let script = folder.path().join(shell);
        fs::write(&script, hugewise(&["completions", shell])?.stdout)?;
        if let Some(output) = if_installed(shell, Command::new(shell).arg("-n").arg(&script))? {
            assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
    Ok(())
}

#[test]
fn there_is_a_manual_page_for_every_command() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let dir = folder.path().join("new/man1");
    assert!(hugewise(&["man", "--dir", &dir.to_string_lossy()])?.status.success());
    let help = String::from_utf8(hugewise(&["--help"])?.stdout)?;
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let mut pages = vec!["hugewise.1".to_owned()];
    // Names are indented by two blanks; wrapped descriptions are indented further.
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    pages.extend(
        names
            .filter_map(|line| line.split_whitespace().next())
            .filter(|name| *name != "help")
            .map(|name| format!("hugewise-{name}.1")),
    );
    assert!(pages.len() > 3, "{pages:?}");
    for page in pages {
        let path = dir.join(&page);
        assert!(fs::metadata(&path)?.len() > 0, "{page}");
        let mut groff = Command::new("groff");
        if let Some(output) =
            if_installed("groff", groff.args(["-man", "-Kutf8", "-Tutf8", "-ww"]).arg(&path))?
        {
            assert!(
                output.status.success() && output.stderr.is_empty(),
                "{page}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
    Ok(())
}

#[test]
fn a_folder_that_cannot_be_made_is_named() -> Result<()> {
    let output = hugewise(&["man", "--dir", "/proc/nowhere"])?;
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr)?.contains("/proc/nowhere"));
    Ok(())
}

#[test]
fn a_reader_that_has_gone_is_no_failure() -> Result<()> {
    let worker = "bench touch-worker --bytes 1000 --backing base --reads 10 --iterations 1";
    for line in ["check --json", "completions bash", "man", worker] {
        let (reader, writer) = UnixStream::pair()?;
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_hugewise"));
        let output =
            command.args(line.split(' ')).stdout(OwnedFd::from(writer)).stderr(Stdio::piped()).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("panicked"), "{line}: {} {said}", output.status);
    }
    Ok(())
}
