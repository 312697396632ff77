//! The built `hugewise explain`: on logs of real JVMs, on pipes, and on other input.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

type TestResult = Result<(), Box<dyn std::error::Error>>;

fn explain(args: &[&str]) -> std::io::Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_hugewise")).arg("explain").args(args).stdin(Stdio::null()).output()
}

fn log(name: &str) -> String {
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../texts/tests/messages");
    logs.join(name).display().to_string()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_log_of_fallbacks_is_a_negative_verdict_with_evidence_of_the_machine_named() -> TestResult {
    let machine = tempfile::tempdir()?;
    fs::create_dir_all(machine.path().join("proc"))?;
    let meminfo = "MemTotal: 16777216 kB\nMemFree: 8388608 kB\nHugePages_Total: 4\nHugePages_Free: 4\n\
                   HugePages_Rsvd: 1\nHugePages_Surp: 0\nHugepagesize: 2048 kB\n";
    fs::write(machine.path().join("proc/meminfo"), meminfo)?;
    let root = machine.path().display().to_string();
    for jdk in ["jdk11.txt", "jdk17.txt", "jdk21.txt", "jdk25.txt"] {
        let ran = explain(&[&log(jdk), "--root", &root])?;
        let said = text(&ran.stdout);
        assert_eq!(ran.status.code(), Some(1), "{jdk}: {said}");
        for part in ["no huge pages", "has 4 now, 3 of them available", "$ sudo hugewise apply -- COMMAND"] {
            assert!(said.contains(part), "{jdk} lacks {part}: {said}");
        }
    }
    let ran = explain(&[&log("jdk21.txt"), "--root", &root, "--json"])?;
    let json: Value = serde_json::from_slice(&ran.stdout)?;
    assert_eq!(json["schema"], "hugewise.explain/2");
    let first = &json["messages"][0];
    assert_eq!((&first["cause"], &first["line"]), (&"pool_short".into(), &2.into()), "{first}");
    assert!(first["count"].as_u64() > Some(1) && first["bytes"] == 251_658_240, "{first}");
    Ok(())
}

#[test]
fn what_says_nothing_of_huge_pages_is_reported_as_that() -> TestResult {
    let ran = explain(&["--text", "[gc,start] GC(1) Pause Young"])?;
    assert_eq!(ran.status.code(), Some(0));
    assert!(
        text(&ran.stdout)
            .contains("No message about huge pages was recognised. 1 line read, 0 of them about")
    );
    let ran = explain(&["--text", "[gc,init] Large Page Support: Enabled (Explicit)"])?;
    assert_eq!(ran.status.code(), Some(0), "a note is not a negative verdict");
    Ok(())
}

#[test]
fn a_long_damaged_pipe_is_read_to_its_end() -> TestResult {
    let mut child = Command::new(env!("CARGO_BIN_EXE_hugewise"))
        .args(["explain", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut pipe = child.stdin.take().ok_or("a pipe")?;
    let noise =
        [b"\xff\0[info][gc] GC(7) Pause Young 12M->3M(64M) 1.2ms\n".repeat(2_000), vec![b'y'; 1 << 17]]
            .concat();
    pipe.write_all(&noise)?;
    pipe.write_all(b"\n\x1b[31mFailed to reserve shared memory (errno = 1).\x1b[0m\r\n")?;
    drop(pipe);
    let ran = child.wait_with_output()?;
    let json: Value = serde_json::from_slice(&ran.stdout)?;
    assert_eq!(ran.status.code(), Some(1));
    assert_eq!((&json["lines"], &json["messages"][0]["line"]), (&2_002.into(), &2_002.into()));
    assert_eq!(json["messages"][0]["errno"], 1);
    Ok(())
}

/// Output may reach a terminal: it must not contain escape sequences from a log.
#[test]
fn escape_sequences_of_a_log_are_replaced() -> TestResult {
    let ran = explain(&["--text", "\x1b]0;mine\x07Failed to commit memory (Not enough space)\x1b[2J"])?;
    assert!(!text(&ran.stdout).contains('\x1b'), "{}", text(&ran.stdout));
    Ok(())
}

#[test]
fn what_cannot_be_read_is_refused_with_a_next_step() -> TestResult {
    let dir = tempfile::tempdir()?;
    let packed = dir.path().join("gc.log.gz");
    fs::write(&packed, b"\x28\xb5\x2f\xfd\0\0")?;
    let packed = packed.display().to_string();
    for (args, said) in [
        (vec![packed.as_str()], "zstdcat"),
        (vec!["/nowhere/gc.log"], "No such file"),
        (vec!["/"], "directory"),
        (vec![], "FILE"),
        (vec!["--text", "x", "-"], "cannot be used with"),
        (vec!["--root", "/nowhere", "-"], "no such folder"),
    ] {
        let ran = explain(&args)?;
        assert_eq!(ran.status.code(), Some(2), "{args:?}");
        assert!(text(&ran.stderr).contains(said), "{args:?}: {}", text(&ran.stderr));
    }
    Ok(())
}

fn field(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/field").join(name).display().to_string()
}

/// Exit status, and the output as one line.
fn explained(name: &str) -> Result<(Option<i32>, String), Box<dyn std::error::Error>> {
    let ran = explain(&[&field(name)])?;
    Ok((ran.status.code(), text(&ran.stdout).split_whitespace().collect::<Vec<_>>().join(" ")))
}

#[test]
fn messages_of_a_mixed_fleet_are_explained() -> TestResult {
    for (name, parts) in [
        ("azul.txt", ["Azul Zing", "free but fragmented"]),
        ("dpdk.txt", ["on node 1", "Grow the pool"]),
        ("mariadb.txt", ["MariaDB", "67 pages of 2MiB"]),
        ("mysql.txt", ["MySQL", "hugetlb_shm_group"]),
        ("openj9.txt", ["OpenJ9", "objectheap"]),
        ("oracle.txt", ["Oracle Database", "use_large_pages=only"]),
        ("php.txt", ["PHP", "without harm"]),
        ("qemu.txt", ["QEMU", "the guest did not start"]),
        ("redis.txt", ["Redis", "disable-thp yes"]),
    ] {
        let (status, said) = explained(name)?;
        assert_eq!(status, Some(1), "{name}: {said}");
        for part in parts {
            assert!(said.contains(part), "{name} lacks {part}: {said}");
        }
    }
    Ok(())
}

#[test]
fn a_bus_error_of_postgresql_is_one_cause_with_its_own_settings() -> TestResult {
    let (status, said) = explained("postgres-k8s.log")?;
    assert_eq!(status, Some(1));
    for part in ["huge_pages = off", "8826888192", "4209 pages of 2MiB", "the same as for line"] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    assert!(!said.contains("-XX:"), "{said}");
    Ok(())
}

#[test]
fn a_pool_in_use_is_not_idle() -> TestResult {
    let (status, said) = explained("dmesg-oom-pool-in-use.txt")?;
    assert_eq!(status, Some(1));
    for part in [
        "ll 6144 pages of 2MiB (12GiB) of the pool were in use",
        "hugewise inspect --all",
        "do not shrink the pool",
    ] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    assert!(!said.contains("Reduce the pool to the pages"), "{said}");
    Ok(())
}

#[test]
fn a_line_that_is_not_known_is_shown_with_what_was_read() -> TestResult {
    let ran = explain(&["--text", "gateway: no huge pages left for the ring"])?;
    assert_eq!(ran.status.code(), Some(1));
    let said = text(&ran.stdout);
    assert!(said.contains("about huge pages, but unknown here") && said.contains("for the ring"), "{said}");
    let ran = explain(&["--text", "HugeTLB: registered 2.00 MiB page size, pre-allocated 0 pages"])?;
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stdout));
    assert!(text(&ran.stdout).contains("1 line read, 1 of them about huge pages"), "{}", text(&ran.stdout));
    Ok(())
}

/// If a part of a log was not read, the answer says so, and the exit status is 2.
#[test]
fn what_was_not_read_is_counted() -> TestResult {
    let dir = tempfile::tempdir()?;
    let log = dir.path().join("log");
    fs::write(&log, [b"started\n".as_slice(), &[b'x'; 1 << 20], b"\n"].concat())?;
    let ran = explain(&[&log.display().to_string()])?;
    assert_eq!(ran.status.code(), Some(2), "{}", text(&ran.stdout));
    let said = text(&ran.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("1 line could not be read in whole: too long"), "{said}");
    Ok(())
}

#[test]
fn a_text_in_utf_16_is_read() -> TestResult {
    let (status, said) = explained("zgc-powershell-utf16.log")?;
    assert_eq!(status, Some(1), "{said}");
    for part in [
        "Failed to commit memory (Not enough space)",
        "Forced to lower max Java heap size",
        "taken off: UTF-16",
    ] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    Ok(())
}

#[test]
fn a_message_behind_a_hole_and_in_gzip_is_read() -> TestResult {
    let message = b"Failed to commit memory (Not enough space)\n";
    let dir = tempfile::tempdir()?;
    let log = dir.path().join("log");
    fs::write(&log, [&[0; 300_000], &message[..]].concat())?;
    assert_eq!(explain(&[&log.display().to_string()])?.status.code(), Some(1));
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(message)?;
    fs::write(&log, gzip.finish()?)?;
    assert_eq!(explain(&[&log.display().to_string()])?.status.code(), Some(1));
    Ok(())
}

#[test]
fn a_crash_file_is_explained_by_its_own_facts() -> TestResult {
    let (status, said) = explained("hs_err-solr-sigbus.log")?;
    assert_eq!(status, Some(1), "{said}");
    for part in [
        "in the file, the JVM was started with -XX:+UseLargePages",
        "1024 pages of 2MiB, 1024 free, 978 reserved",
        "limit of the control group",
        "SOLR_OPTS=-XX:-UseLargePages",
        "hugepages-SIZE",
        "in the file",
    ] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    assert!(!said.contains("this shell"), "{said}");
    let (status, said) = explained("hs_err-commit-pool-took-memory.log")?;
    assert_eq!(status, Some(1), "{said}");
    for part in ["2663 idle pages withhold 5.2GiB of 7.8GiB", "apply --pool 2MiB=0", "but a surplus"] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    Ok(())
}

/// The heap of ZGC was lowered to nothing: one cause for the three messages, and both ways out.
#[test]
fn a_heap_without_a_pool_is_one_cause_with_the_pages_and_the_thp_alternative() -> TestResult {
    let (status, said) = explained("zgc-no-pool.log")?;
    assert_eq!(status, Some(1), "{said}");
    for part in [
        "the pool is too small",
        "8192 pages of 2MiB",
        "-XX:+UseTransparentHugePages",
        "shmem_enabled at advise",
        "transparent_hugepage/enabled at madvise",
        "EXCLUDED memory on base pages",
    ] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    assert_eq!(said.matches("EVIDENCE foreign").count(), 1, "one evidence for all: {said}");
    // Out of memory on base pages: the pool is not the cause.
    let ran = explain(&["--text", "[0.031s][error][gc] Failed to commit memory (Cannot allocate memory)"])?;
    assert_eq!(ran.status.code(), Some(1));
    assert!(!text(&ran.stdout).contains("hugewise apply -- COMMAND"), "{}", text(&ran.stdout));
    Ok(())
}

/// Flags and files that cannot work: each is explained, with a way out and no promise.
#[test]
fn native_images_checkpoints_and_virtual_machines_are_explained_within_their_limits() -> TestResult {
    for (message, parts) in [
        (
            "error: Could not find option 'UseLargePages'. Use -XX:PrintFlags= to list all available options.",
            ["never take pages from a pool", "hugewise collapse PID"],
        ),
        (
            "Error (criu/proc_parse.c:611): Can't handle non-regular mapping on 4711's map 40000000 (/anon_hugepage)",
            ["CRIU 3.17 or later", "loses its transparent huge pages"],
        ),
        (
            "unable to open /proc/sys/vm/nr_hugepages: Read-only file system",
            ["Change it on the host", "kernelCommandLine=hugepages=N"],
        ),
    ] {
        let ran = explain(&["--text", message])?;
        let said = text(&ran.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(ran.status.code(), Some(1), "{said}");
        for part in parts {
            assert!(said.contains(part), "no {part}: {said}");
        }
    }
    Ok(())
}

/// A region that did not fit: nothing fails later, as other collectors than ZGC map their regions at the start.
#[test]
fn a_region_that_did_not_fit_is_no_crash_to_come() -> TestResult {
    let message = "OpenJDK 64-Bit Server VM warning: Failed to reserve large pages memory req_addr: 0x0000000000000000 bytes: \
                   251658240 (errno = 12).";
    let ran = explain(&["--text", message])?;
    let said = text(&ran.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(ran.status.code(), Some(1));
    for part in ["maps each region whole", "Direct buffers and malloc never take pages of the pool"] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    Ok(())
}

/// A packed log without its end is explained as far as it goes, and binary lines are counted: both say so.
#[test]
fn a_truncated_and_a_binary_log_are_read_as_far_as_they_go() -> TestResult {
    let dir = tempfile::tempdir()?;
    let log = dir.path().join("log.gz");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    gzip.write_all(b"started\nHugeTLB: registered 2.00 MiB page size, pre-allocated 0 pages\n")?;
    gzip.write_all(&[b"[1.0s] a line of a log\n".repeat(20_000)].concat())?;
    let packed = gzip.finish()?;
    fs::write(&log, &packed[..packed.len() / 2])?;
    let ran = explain(&[&log.display().to_string()])?;
    let said = text(&ran.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(ran.status.code(), Some(2), "{said}");
    assert!(
        said.contains("the compressed file is truncated") && said.contains("1 of them about huge pages"),
        "{said}"
    );

    let noise: Vec<u8> = (0..40_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8 | 0x80).collect();
    fs::write(&log, [b"started\n".as_slice(), &noise, b"\nended\n"].concat())?;
    let ran = explain(&[&log.display().to_string()])?;
    let said = text(&ran.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(ran.status.code(), Some(2), "{said}");
    assert!(said.contains("neither UTF-8 nor UTF-16"), "{said}");
    Ok(())
}
