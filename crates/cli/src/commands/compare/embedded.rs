//! The embedded workload: random reads of one buffer, natively and as a Java program.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use hugewise_jvm::jdks::{self, Environment, Jdk};
use hugewise_linux::{hugepages::backing::Backing, reading::Reason, root::Root, units::Bytes};
use hugewise_measure::{
    experiment::{CaseToRun, Program},
    touch::Touch,
    workload::Workload,
};

/// Reads per iteration; with [`ITERATIONS`], a run takes one or two seconds.
const READS: u64 = 5_000_000;
const ITERATIONS: usize = 9;
/// Largest array with which a heap of 1 GiB has some free memory left.
const MAX_ARRAY_BYTES: Bytes = Bytes(1_010_000_000);

/// Memory of the Java half's process: its heap of 1 GiB, and an estimate of the rest.
pub const JVM_BYTES: Bytes = Bytes(1280 << 20);

/// The java executable of the Java half.
pub enum Java {
    /// No java: the Java half is skipped.
    LeftOut,
    /// The java in PATH, or else the newest one found.
    Usual,
    Named(PathBuf),
}

/// Both halves with a buffer of `bytes`, in turns or from start to end. If the Java half cannot run, the
/// reason is added to `notes`.
pub fn cases(
    root: &Root,
    bytes: Bytes,
    java: &Java,
    turns: bool,
    scratch: &Path,
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<CaseToRun>> {
    let touch = Touch { bytes, backing: Backing::Base, reads: READS, iterations: ITERATIONS, warm_up: 1 };
    let program = env::current_exe().context("cannot determine the path of this executable")?;
    let case = |workload, command| CaseToRun {
        programs: vec![Program::alone(workload, command)],
        driver: Vec::new(),
        embedded: true,
        parameters: BTreeMap::new(),
    };
    let mut cases = vec![case(Workload::native(program, touch, turns), Vec::new())];
    if matches!(java, Java::LeftOut) {
        return Ok(cases);
    }
    match choose(root, java).and_then(|jdk| java_half(&jdk, &touch, turns, scratch)) {
        Ok((workload, command)) => cases.push(case(workload, command)),
        Err(reason) => notes.push(format!("the Java half was skipped: {reason}")),
    }
    Ok(cases)
}

fn choose(root: &Root, java: &Java) -> Result<Jdk, Reason> {
    let environment = Environment::of_this_process();
    let jdks = jdks::find(root, &environment);
    let Java::Named(path) = java else {
        let mut refused = None;
        let mut usual = jdks.iter().filter(|jdk| jdk.default).chain(&jdks);
        let taken = usual.find(|jdk| match jdk.check_owners(&environment) {
            Ok(()) => true,
            Err(why) => {
                refused.get_or_insert(why);
                false
            }
        });
        let none =
            "no JDK was found; install one (Debian: default-jdk-headless), or give its java with --java";
        return taken.cloned().ok_or_else(|| refused.unwrap_or_else(|| Reason::new(none)));
    };
    let named = path.display();
    let java = fs::canonicalize(path).map_err(|error| Reason::new(format!("{named}: {error}")))?;
    let is_it = |jdk: &&Jdk| fs::canonicalize(&jdk.java).is_ok_and(|known| known == java);
    let none = || {
        format!(
            "{named} is not a java of the JDKs that 'hugewise check' lists; set JAVA_HOME to the folder of its JDK, which needs a file 'release'"
        )
    };
    jdks.iter().find(is_it).cloned().ok_or_else(|| Reason::new(none()))
}

fn java_half(
    jdk: &Jdk,
    touch: &Touch,
    turns: bool,
    scratch: &Path,
) -> Result<(Workload, Vec<String>), Reason> {
    if jdk.has_compiler.known() == Some(&false) {
        let home = jdk.home.display();
        return Reason::err(format!("{home} has no compiler (module jdk.compiler); install a full JDK"));
    }
    if touch.bytes > MAX_ARRAY_BYTES {
        return Reason::err(format!("an array of {} does not fit in a heap of 1 GiB", touch.bytes));
    }
    Workload::java_touch(jdk, touch, turns, scratch)
}
