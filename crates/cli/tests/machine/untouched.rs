//! A JVM that is only queried changes none of the user's files, although its options would write to them, and
//! runs no agent.

use std::{
    collections::BTreeMap,
    error::Error,
    ffi::OsString,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::{
    TestResult, Trial,
    needs::{
        Need::{Compiler, Java},
        jdks,
    },
    plan::javas,
    start::{EndedProcess, hugewise, run_command},
    trial,
};

/// Flags with text values that are not paths; the JVM would refuse another value.
const WORDS: [&str; 6] = [
    "ShenandoahGCMode",
    "ShenandoahGCHeuristics",
    "CompilationMode",
    "NativeMemoryTracking",
    "MallocLimit",
    "MetaspaceReclaimPolicy",
];
/// Flags that make the JVM write, rotate or load files.
const SWITCHES: [&str; 10] = [
    "-XX:+LogVMOutput",
    "-XX:+LogCompilation",
    "-XX:+UseGCLogFileRotation",
    "-XX:+PerfDataSaveToFile",
    "-XX:+RecordDynamicDumpInfo",
    "-XX:+AutoCreateSharedArchive",
    "-XX:+HeapDumpOnOutOfMemoryError",
    "-XX:+FlightRecorder",
    "-XX:+DumpPerfMapAtExit",
    "-Xshare:dump",
];
/// A native agent that writes to the file given as its option.
const NATIVE_AGENT: &str = "
#include <stdio.h>
int Agent_OnLoad(void *jvm, char *options, void *reserved) {
    FILE *file = fopen(options, \"w\");
    if (file) { fputs(\"the agent ran\", file); fclose(file); }
    return 0;
}
";
const JAVA_AGENT: &str = "
public class Agent {
    public static void premain(String file) throws Exception {
        java.nio.file.Files.write(java.nio.file.Paths.get(file), new byte[] {1});
    }
}
";

pub fn trials() -> Vec<Trial> {
    let trials = javas().into_iter().enumerate().map(|(j, java)| {
        let name = format!("querying {} writes nothing and runs no agent", java.display());
        trial(&name, &[Java, Compiler], move || leaves_all_as_it_was(&java)).representing(j == 0)
    });
    trials.collect()
}

fn leaves_all_as_it_was(java: &Path) -> TestResult {
    let place = Place::new(java)?;
    place.agents_run()?;
    let before = content(place.folder.path())?;
    assert!(before.len() > 30, "a file for each option: {before:?}");
    let line = place.line();
    for (arguments, status) in [
        (&["plan"][..], 0),
        (&["plan", "--backing", "thp"], 0),
        (&["run", "--strict", "--no-cache", "--backing", "hugetlb"], 2),
        // The program cannot be started, so compare fails.
        (&["compare", "--rounds", "1", "--backing", "base"], 2),
    ] {
        let ran = place.called(arguments, &line)?;
        assert_eq!(content(place.folder.path())?, before, "{arguments:?}: {ran:#?}");
        let started = fs::read_to_string(place.started())?;
        assert!(started.contains("-version"), "{arguments:?} did not query the JVM: {ran:#?}");
        fs::write(place.started(), "")?;
        let ran = ran.ended_with(status)?;
        if arguments == ["plan"] {
            for option in ["-Xlog", "-javaagent", "-agentpath", "-XX:+LogVMOutput"] {
                assert!(ran.stdout.contains(option), "{option} is not reported as skipped: {ran:#?}");
            }
        }
    }
    Ok(())
}

/// A folder with a file for each option that could write to it, and a second folder for the test's own files.
struct Place {
    folder: TempDir,
    tools: TempDir,
    jvm: PathBuf,
    options: Vec<String>,
}

impl Place {
    fn new(java: &Path) -> Result<Place, Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        let place = Place { options: Vec::new(), folder, tools: tempfile::tempdir()?, jvm: java.to_owned() };
        place.build_agents()?;
        // Stands in for java: starts the JVM only with -version.
        let script = format!(
            "#!/bin/sh\necho \"$*\" >> '{}'\ncase \" $* \" in *' -version '*) exec '{}' \"$@\";; esac\nexit 9\n",
            place.started().display(),
            java.display()
        );
        fs::write(place.started(), "")?;
        fs::write(place.java(), script)?;
        fs::set_permissions(place.java(), fs::Permissions::from_mode(0o755))?;
        let listed = listed(java)?;
        // A JVM refuses to start with a flag that it does not list.
        let is_known = |switch: &&str| {
            switch.strip_prefix("-XX:+").is_none_or(|name| listed.iter().any(|(_, listed)| listed == name))
        };
        let mut options: Vec<String> = SWITCHES.into_iter().filter(is_known).map(str::to_owned).collect();
        let texts =
            listed.iter().filter(|(kind, name)| kind.starts_with("ccstr") && !WORDS.contains(&name.as_str()));
        let texts: Vec<&String> = texts.map(|(_, name)| name).collect();
        assert!(texts.len() > 15, "{texts:?}");
        for flag in texts {
            options.push(format!("-XX:{flag}={}", place.file(flag)?));
        }
        options.push(format!("-Xlog:gc*,safepoint*:file={}", place.file("unified.log")?));
        options.push(format!("-Xloggc:{}", place.file("legacy.log")?));
        options.push(format!("-javaagent:{}={}", place.jar().display(), place.file("java.agent")?));
        options.push(format!("-agentpath:{}={}", place.library().display(), place.file("native.agent")?));
        let argfile = format!("-Xlog:gc:file={}\n", place.file("argfile.log")?);
        let vm_options = format!("-Xlog:gc:file={} -XX:+LogVMOutput", place.file("options.log")?);
        let settings = format!("+LogVMOutput LogFile={}\n", place.file("settings.log")?);
        for (name, text) in [("args", &argfile), ("vm.options", &vm_options), ("vm.settings", &settings)] {
            fs::write(place.folder.path().join(name), text)?;
        }
        options.extend(["@args", "-XX:VMOptionsFile=vm.options", "-XX:Flags=vm.settings"].map(str::to_owned));
        Ok(Place { options, ..place })
    }

    /// Creates a file with content in the folder; returns its path.
    fn file(&self, name: &str) -> Result<String, Box<dyn Error>> {
        let path = self.folder.path().join(name);
        fs::write(&path, format!("{name}: to be kept\n"))?;
        Ok(path.to_str().ok_or("a path that is not UTF-8")?.to_owned())
    }

    fn java(&self) -> PathBuf {
        self.tools.path().join("java")
    }

    /// File with the arguments of every start of the JVM.
    fn started(&self) -> PathBuf {
        self.tools.path().join("started")
    }

    fn jar(&self) -> PathBuf {
        self.tools.path().join("agent.jar")
    }

    fn library(&self) -> PathBuf {
        self.tools.path().join("libagent.so")
    }

    fn build_agents(&self) -> TestResult {
        let tools = self.tools.path();
        let source = tools.join("agent.c");
        fs::write(&source, NATIVE_AGENT)?;
        done(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(self.library()).arg(source))?;
        let compilers = jdks().into_iter().filter(|jdk| jdk.has_compiler.known() == Some(&true));
        let jdk = compilers.min_by_key(|jdk| jdk.major).ok_or("no JDK with a compiler")?;
        fs::write(tools.join("Agent.java"), JAVA_AGENT)?;
        fs::write(tools.join("manifest"), "Premain-Class: Agent\n")?;
        let compiler = jdk.home.join("bin/javac");
        done(Command::new(compiler).args(["--release", "8", "Agent.java"]).current_dir(tools))?;
        let packer = jdk.home.join("bin/jar");
        done(Command::new(packer).args(["cfm", "agent.jar", "manifest", "Agent.class"]).current_dir(tools))
    }

    /// Checks that the agents work, without which the test would prove nothing.
    fn agents_run(&self) -> TestResult {
        let proof = self.tools.path().join("proof");
        let native = format!("-agentpath:{}={}", self.library().display(), proof.display());
        let java = format!("-javaagent:{}={}", self.jar().display(), proof.display());
        for agent in [native, java] {
            let ran = Command::new(&self.jvm).args([&agent, "-version"]).output()?;
            assert!(proof.exists(), "{agent} does not run at all: {ran:?}");
            fs::remove_file(&proof)?;
        }
        Ok(())
    }

    fn line(&self) -> Vec<OsString> {
        let mut line = vec![self.java().into_os_string()];
        line.extend(self.options.iter().map(OsString::from));
        line.extend(["-Xmx96m", "-XX:+UseLargePages", "Main"].map(OsString::from));
        line
    }

    fn called(&self, arguments: &[&str], line: &[OsString]) -> Result<EndedProcess, Box<dyn Error>> {
        let variable = |name: &str| format!("-Xlog:gc:file={}", self.folder.path().join(name).display());
        let make = || {
            let mut command = hugewise(arguments);
            command.arg("--").args(line).current_dir(self.folder.path());
            for name in ["JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"] {
                command.env(name, variable(name));
            }
            command
        };
        run_command(&make)
    }
}

fn done(command: &mut Command) -> TestResult {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into())
}

/// The flags of a JVM, as kind and name.
fn listed(java: &Path) -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let unlocked = ["-XX:+UnlockDiagnosticVMOptions", "-XX:+UnlockExperimentalVMOptions"];
    let output = Command::new(java).args(unlocked).args(["-XX:+PrintFlagsFinal", "-version"]).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let flags = text.lines().filter(|line| line.contains('=')).filter_map(|line| {
        let mut words = line.split_whitespace().map(str::to_owned);
        words.next().zip(words.next())
    });
    Ok(flags.collect())
}

/// The files of a folder, each with its content, mtime and ctime.
type Content = BTreeMap<PathBuf, (Vec<u8>, [i64; 4])>;

fn content(folder: &Path) -> Result<Content, Box<dyn Error>> {
    let times = |path: &Path| -> std::io::Result<[i64; 4]> {
        let found = fs::symlink_metadata(path)?;
        Ok([found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()])
    };
    let mut all = Content::from([(folder.to_owned(), (Vec::new(), times(folder)?))]);
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        all.insert(path.clone(), (fs::read(&path)?, times(&path)?));
    }
    Ok(all)
}
