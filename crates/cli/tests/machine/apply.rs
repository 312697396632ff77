//! Settings that stay until they are undone.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    TestResult, Trial,
    needs::Need::{Namespaces, Pool, Root, Thp},
    settings::APPLIED,
    start::{INCONCLUSIVE, QUICK_RUN, Running, hugewise, run, run_command, says},
    trial,
};

const NR: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const DEFRAG: &str = "/sys/kernel/mm/transparent_hugepage/defrag";
const SCAN: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs";

type Named = (&'static str, fn() -> TestResult);

pub fn trials() -> Vec<Trial> {
    let tests: [Named; 8] = [
        ("applied settings stay until restore", applied_and_restored),
        ("a dry run changes nothing", dry_run),
        ("a comparison runs while settings are applied", compared_above),
        ("a plan is applied to pools that others have changed", plan_of_yesterday),
        ("apply refuses a setting that changed since the plan", setting_of_others),
        ("restore skips settings that other programs changed after apply", changed_since),
        ("all changes are undone if the kernel refuses one", refused_half_way),
        ("files that apply settings at boot are written, merged and removed", persisted),
    ];
    let mut trials: Vec<Trial> =
        tests.into_iter().map(|(name, test)| trial(name, &[Root, Pool, Thp], test)).collect();
    let short = "a pool that stays too small is kept, or undone with --all-or-nothing";
    trials.push(trial(short, &[Root, Pool, Namespaces], too_small));
    let interrupted = "SIGINT during apply undoes all changes";
    trials.push(trial(interrupted, &[Root, Pool], ends_in_order));
    trials
}

/// Undoes what the test applied, also if the test fails.
pub struct Undo;

impl Drop for Undo {
    fn drop(&mut self) {
        let _ = run(&["restore", "--force"]);
    }
}

fn read(file: &str) -> Result<String, Box<dyn Error>> {
    Ok(fs::read_to_string(file)?.trim().to_owned())
}

fn pages() -> Result<u64, Box<dyn Error>> {
    Ok(read(NR)?.parse()?)
}

/// A value of `defrag` that is not in force.
fn other_defrag() -> Result<&'static str, Box<dyn Error>> {
    Ok(if read(DEFRAG)?.contains("[defer+madvise]") { "madvise" } else { "defer+madvise" })
}

fn applied_and_restored() -> TestResult {
    let _undo = Undo;
    let (before, defrag) = (pages()?, other_defrag()?);
    let more = ["apply", "--pool", "2MiB=+300", "--thp-defrag", defrag];
    let ran = run(&more)?.ended_with(0)?;
    says(
        &ran.stdout,
        &["setting", "before", "requested", "current", "pool of 2MiB pages", "until 'hugewise restore'"],
    )?;
    assert_eq!(pages()?, before + 300);
    says(&read(DEFRAG)?, &[&format!("[{defrag}]")])?;
    // Again, as JSON: `defrag` already has the value.
    let again = run(&["apply", "--pool", "2MiB=+5", "--thp-defrag", defrag, "--json"])?.ended_with(0)?;
    let report: Value = serde_json::from_str(&again.stdout)?;
    assert_eq!((&report["schema"], &report["state"]), (&json!("hugewise.apply/2"), &json!("applied")));
    assert_eq!(report["changes"][0]["from"], report["changes"][0]["to"]);
    assert_eq!(report["changes"][1]["reached"], json!((before + 305).to_string()));
    // Applied settings are not reported as left behind by a killed command.
    assert_eq!(run(&["check"])?.stderr, "");
    let same = run(&["apply", "--thp-defrag", defrag])?.ended_with(0)?;
    says(&same.stdout, &["unchanged", "all settings have the requested values"])?;

    let restored = run(&["restore"])?.ended_with(0)?;
    says(
        &restored.stdout,
        &[&format!("Restored: pool of 2MiB pages = {before}"), "transparent_hugepage/defrag"],
    )?;
    says(&run(&["restore"])?.ended_with(0)?.stdout, &["Nothing to restore"])
}

fn dry_run() -> TestResult {
    let before = pages()?;
    let wish = format!("2MiB={}", before + 7);
    let ran = run(&["apply", "--dry-run", "--pool", &wish])?.ended_with(0)?;
    says(&ran.stdout, &[&(before + 7).to_string(), "Nothing was changed"])?;
    let ran = run(&["apply", "--dry-run", "--pool", "2MiB=+100000000"])?.ended_with(1)?;
    says(&ran.stdout, &["warning: the pools would take", "must stay available"])?;
    let ran = run(&["apply", "--pool", "2MiB=+100000000"])?.ended_with(1)?;
    says(&ran.stdout, &["warning: ", "Nothing was changed. --force applies"])?;
    assert_eq!((pages()?, Path::new(APPLIED).exists()), (before, false));
    Ok(())
}

fn compared_above() -> TestResult {
    let _undo = Undo;
    let before = pages()?;
    run(&["apply", "--pool", "2MiB=+20"])?.ended_with(0)?;
    run(&[&QUICK_RUN[..], &["-b", "base,hugetlb"]].concat())?.ended_with(INCONCLUSIVE)?;
    assert_eq!(pages()?, before + 20, "the comparison restored the applied value");
    run(&["restore"])?.ended_with(0)?;
    Ok(())
}

/// Writes a plan into a temporary folder; returns the folder and the path.
fn plan(text: &Value) -> Result<(tempfile::TempDir, String), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("plan.json");
    fs::write(&file, text.to_string())?;
    Ok((dir, file.to_string_lossy().into_owned()))
}

fn plan_of_yesterday() -> TestResult {
    let _undo = Undo;
    let before = pages()?;
    // The plan is made with the pool as it is; then another program adds 10 pages.
    let (_dir, file) = plan(&json!({
        "schema": "hugewise.plan/1",
        "pools": [{"page_size_bytes": 2 << 20, "node": null, "pages_needed": before + 50,
                   "pages_available": before, "pages_in_pool": before, "pages_to_add": 50}],
    }))?;
    fs::write(NR, (before + 10).to_string())?;
    let ran = run(&["apply", "--plan", &file])?.ended_with(0)?;
    says(&ran.stdout, &["note:", "when the plan was made", "counted again"])?;
    assert_eq!(pages()?, before + 50);
    let restored = run(&["restore"])?.ended_with(0)?;
    says(&restored.stdout, &[&format!("Restored: pool of 2MiB pages = {}", before + 10)])?;
    assert_eq!(pages()?, before + 10, "the ten pages that another program added remain");
    fs::write(NR, before.to_string())?;
    let other = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let nonsense = run(&["apply", "--plan", other])?.ended_with(2)?;
    says(&nonsense.stderr, &[other, "is not a plan", "hugewise plan --json"])?;
    let kernel = run(&["apply", "--plan", NR])?.ended_with(2)?;
    says(&kernel.stderr, &[NR, "a file of the kernel"])
}

fn setting_of_others() -> TestResult {
    let _undo = Undo;
    let now = read(SCAN)?;
    let (_dir, file) = plan(&json!({
        "schema": "hugewise.plan/2", "pools": [],
        "settings": [{"setting": {"khugepaged": {"knob": "scan_sleep_millisecs"}}, "from": "77", "to": "78"}],
    }))?;
    let ran = run(&["apply", "--plan", &file])?.ended_with(1)?;
    says(
        &ran.stdout,
        &["warning: ", "was 77 when the plan was made", &format!("is {now} now"), "make a new plan"],
    )?;
    assert_eq!(read(SCAN)?, now);
    run(&["apply", "--plan", &file, "--force"])?.ended_with(0)?;
    assert_eq!(read(SCAN)?, "78");
    run(&["restore"])?.ended_with(0)?;
    Ok(())
}

fn changed_since() -> TestResult {
    let _undo = Undo;
    let (before, defrag) = (pages()?, other_defrag()?);
    run(&["apply", "--pool", "2MiB=+10", "--thp-defrag", defrag])?.ended_with(0)?;
    fs::write(NR, (before + 4).to_string())?;
    for _ in 0..2 {
        let ran = run(&["restore"])?.ended_with(1)?;
        says(
            &ran.stdout,
            &[
                &format!("Skipped: the pool of 2MiB pages is {}: another program changed it", before + 4),
                &format!("had set it to {}", before + 10),
                "restore --force",
            ],
        )?;
        assert_eq!(pages()?, before + 4);
    }
    assert!(!read(DEFRAG)?.contains(&format!("[{defrag}]")), "the other settings are restored");
    run(&["restore", "--force"])?.ended_with(0)?;
    assert_eq!(pages()?, before);
    Ok(())
}

fn refused_half_way() -> TestResult {
    let defrag = other_defrag()?;
    let more = ["apply", "--thp-defrag", defrag, "--khugepaged", "max_ptes_none=999999", "--pool", "2MiB=+3"];
    let ran = run(&more)?.ended_with(2)?;
    says(&ran.stderr, &["all changes were undone", "max_ptes_none", "Invalid argument"])?;
    for (arguments, said) in [
        (&["--thp-enabled", "sometimes"][..], "always, madvise, never"),
        (&["--pool", "64KiB=1"], "there are pools of 2MiB"),
        (&["--pool", "2MiB@99=1"], "2MiB@0"),
        (&["--pool", "2MiB=1", "--pool", "2MiB=2"], "requested twice"),
        (&[], "nothing to apply"),
        (&["--plan", "/nowhere/plan.json"], "/nowhere/plan.json"),
    ] {
        let ran = run(&[&["apply"], arguments].concat())?.ended_with(2)?;
        says(&ran.stderr, &[said])?;
    }
    Ok(())
}

fn persisted() -> TestResult {
    let _undo = Undo;
    let dir = tempfile::tempdir()?;
    let etc = dir.path().to_string_lossy().into_owned();
    let sysctl: PathBuf = dir.path().join("sysctl.d/60-hugewise.conf");
    let tmpfiles: PathBuf = dir.path().join("tmpfiles.d/hugewise.conf");
    let apply = |more: &[&str]| run(&[&["apply", "--persist", "--etc", &etc], more].concat());
    apply(&["--khugepaged", "scan_sleep_millisecs=9999"])?.ended_with(0)?;
    let ran = apply(&["--khugepaged", "alloc_sleep_millisecs=59999", "--shmall", "18446744073692774398"])?;
    says(&ran.ended_with(0)?.stdout, &["Persisted, applied again at boot", "restore --persisted"])?;
    says(&fs::read_to_string(&sysctl)?, &["kernel.shmall = 18446744073692774398"])?;
    let lines = ["scan_sleep_millisecs - - - - 9999\n", "alloc_sleep_millisecs - - - - 59999\n"];
    says(&fs::read_to_string(&tmpfiles)?, &lines)?;
    says(&run(&["restore", "--etc", &etc])?.ended_with(0)?.stdout, &["Persisted, applied again at boot"])?;

    // After an edit of one file, neither apply nor restore changes it.
    let edited = fs::read_to_string(&tmpfiles)? + "# mine\n";
    fs::write(&tmpfiles, &edited)?;
    let before = read(SCAN)?;
    let ran = apply(&["--khugepaged", "scan_sleep_millisecs=9998"])?.ended_with(2)?;
    says(&ran.stderr, &["nothing was changed", "was edited", "--overwrite"])?;
    assert_eq!(read(SCAN)?, before);
    let ran = run(&["restore", "--persisted", "--etc", &etc])?.ended_with(1)?;
    says(&ran.stdout, &["Removed: ", "60-hugewise.conf", "Not removed: ", "--force"])?;
    assert_eq!((sysctl.exists(), fs::read_to_string(&tmpfiles)?), (false, edited));
    run(&["restore", "--persisted", "--force", "--etc", &etc])?.ended_with(0)?;
    assert!(!tmpfiles.exists());
    Ok(())
}

/// A pool that accepts every value and keeps its own: a kernel file with this behaviour is mounted over it.
fn too_small() -> TestResult {
    let constant = "/proc/sys/kernel/random/write_wakeup_threshold";
    let has = read(constant)?.parse::<u64>()?;
    let short = |more: &'static [&str]| {
        let wish = format!("2MiB={}", has + 40);
        run_command(&|| {
            let apply = hugewise(&[]);
            let mut command = Command::new("unshare");
            command.args(["-m", "sh", "-c", "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"", "sh"]);
            command.args([constant, NR]).arg(apply.get_program()).args(["apply", "--pool", &wish]).args(more);
            command
        })
    };
    let ran = short(&[])?.ended_with(1)?;
    says(&ran.stdout, &["too small: pool of 2MiB pages: got 0 of 40 more pages of 2MiB", "contiguous"])?;
    let ran = short(&["--all-or-nothing", "--json"])?.ended_with(1)?;
    let report: Value = serde_json::from_str(&ran.stdout)?;
    assert_eq!(
        (&report["state"], &report["changes"][0]["reached"]),
        (&json!("undone"), &json!(has.to_string()))
    );
    Ok(())
}

fn ends_in_order() -> TestResult {
    let _undo = Undo;
    let running = Running::holding_the_journal(&|| hugewise(&["apply", "--pool", "2MiB=+1000"]))?;
    running.signal("INT")?;
    let ran = running.wait()?;
    // On a fast machine the signal may come after the end.
    if ran.status.code() != Some(0) {
        says(&ran.ended_with(130)?.stderr, &["interrupted", "all settings are restored"])?;
        assert!(!Path::new(APPLIED).exists());
    }
    Ok(())
}
