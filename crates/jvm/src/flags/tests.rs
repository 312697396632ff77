use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use hugewise_linux::root::Root;
use proptest::prelude::*;

use super::*;
use crate::jdks;

const FLAGS: &str = "[Global flags]
    uintx MaxHeapSize                              = 1073741824                                {product} {command line}
     bool UseLargePages                            = false                                  {pd product} {default}
ccstrlist OnError                                  =                                           {product} {default}
    uintx ReservedCodeCacheSize                   := 251658240                              {pd product} {ergonomic}
";

#[test]
fn flags_of_old_and_new_jvms_are_read() {
    let flags = parse(FLAGS, "openjdk version \"17.0.15\" 2025-04-15\n");
    assert_eq!((flags.version.as_str(), flags.major()), ("17.0.15", Some(17)));
    assert_eq!(flags.bytes("MaxHeapSize"), Some(Bytes(1 << 30)));
    assert_eq!(flags.bytes("ReservedCodeCacheSize"), Some(Bytes(240 << 20)));
    assert_eq!((flags.is_on("UseLargePages"), flags.is_on("UseSHM")), (Some(false), None));
    assert_eq!(parse("", "java version \"1.8.0_402\"").major(), Some(8));
}

#[test]
fn the_bound_holds_for_measured_consumption() {
    // Measured: pages of 2 MiB that JVMs took with a heap of 1 GiB.
    for (jdk, measured) in
        [("17 G1", 651), ("17 Parallel", 648), ("17 Shenandoah", 665), ("25 Shenandoah", 666)]
    {
        let demand = parse(FLAGS, "").explicit_demand().expect("a heap size");
        let bound = (demand.heap + demand.others).0 >> 21;
        assert!((measured..measured + 60).contains(&bound), "{jdk}: {bound} for {measured}");
    }
}

fn program(dir: &Path, text: &str) -> io::Result<LaunchLine> {
    let java = dir.join("java");
    fs::write(&java, text)?;
    fs::set_permissions(&java, fs::Permissions::from_mode(0o755))?;
    Ok(LaunchLine { java: java.display().to_string(), ..LaunchLine::default() })
}

#[test]
fn a_java_that_is_none_or_hangs_or_is_lost_is_reported() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let other =
        "#!/bin/sh\necho 'openjdk version \"21.0.8\"' >&2\necho '  java.vm.name = Eclipse OpenJ9 VM' >&2\n";
    let error = final_flags(&program(dir.path(), other)?).map_err(|error| error.to_string());
    assert!(error.as_ref().is_err_and(|e| e.contains("not a HotSpot JVM: Eclipse OpenJ9 VM")), "{error:?}");
    let refuses = "#!/bin/sh\necho 'JVMJ9VM007E Command-line option unrecognised' >&2\n\
                   echo 'Error: Could not create the Java Virtual Machine.' >&2\nexit 1\n";
    let error = final_flags(&program(dir.path(), refuses)?).map_err(|error| error.to_string());
    assert!(error.as_ref().is_err_and(|e| e.contains("not a HotSpot JVM: JVMJ9VM007E")), "{error:?}");
    // The child leaves the process group and keeps the output open.
    let hangs = program(dir.path(), "#!/bin/sh\nsetsid sleep 5 &\nexec sleep 1000\n")?;
    let error = final_flags_within(&hangs, Duration::from_millis(300)).map_err(|error| error.to_string());
    assert!(error.as_ref().is_err_and(|e| e.contains("did not end within")), "{error:?}");
    let chatty = program(dir.path(), "#!/bin/sh\nexec yes\n")?;
    assert!(final_flags_within(&chatty, Duration::from_millis(300)).is_err());
    let lost = LaunchLine { java: "/nowhere/java".to_owned(), ..LaunchLine::default() };
    assert!(final_flags(&lost).is_err_and(|error| error.to_string().contains("could not be started")));
    Ok(())
}

#[test]
fn a_wrapper_that_fails_is_named_with_its_own_message() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let java = program(
        dir.path(),
        "#!/bin/sh\necho 'Unrecognized VM option' >&2\n\
                                        echo 'Error: Could not create the Java Virtual Machine.' >&2\nexit 1\n",
    )?;
    let said = |wrapper: &str| {
        let wrapper = wrapper.split_whitespace().map(str::to_owned).collect();
        let error = final_flags(&LaunchLine { wrapper, ..java.clone() }).err();
        error.map(|error| error.to_string()).unwrap_or_default()
    };
    // No machine has this CPU. The wrappers print their names.
    for (wrapper, begin) in [
        ("taskset -c 99999", "taskset fails before a JVM starts (exit status: 1): "),
        ("env A=b taskset -c 99999", "taskset fails before a JVM starts (exit status: 1): "),
        ("env /nowhere/numactl --membind=0", "env fails before a JVM starts (exit status: 127): "),
    ] {
        let said = said(wrapper);
        assert!(said.starts_with(begin) && said.len() > begin.len(), "{said}");
    }
    let missing = said("/nowhere/numactl --membind=0");
    assert!(missing.starts_with("/nowhere/numactl could not be started: No such file"), "{missing}");
    let refused = said("env A=b");
    assert!(refused.contains("refuses these options: Unrecognized VM option"), "{refused}");
    let broken = program(dir.path(), "#!/bin/sh\nexec /nowhere/real-java\n")?;
    let broken = final_flags(&broken).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(broken.starts_with(&format!("{} fails before a JVM starts", java.java)), "{broken}");
    Ok(())
}

/// With every JDK of this machine; passes if there is none.
#[test]
fn real_jvms_answer_behind_their_wrappers() {
    for jdk in jdks::find(&Root::live(), &jdks::Environment::of_this_process()) {
        let java = jdk.java.display().to_string();
        let words = |text: &str| -> Vec<String> {
            text.split(' ').map(|word| if word == "java" { java.clone() } else { word.to_owned() }).collect()
        };
        let asked = |text: &str| {
            let files = |name: &str| match name {
                "opts" => Ok("-Xmx96m -XX:+UseSerialGC".to_owned()),
                _ => Err(io::ErrorKind::NotFound.into()),
            };
            LaunchLine::of_java(&words(text), &files)
                .map_err(FlagsError::from)
                .and_then(|line| final_flags(&line))
        };
        let plain = asked("env -u JAVA_TOOL_OPTIONS java @opts -javaagent:none.jar Main").expect(&java);
        assert_eq!((&plain.version, plain.major()), (&jdk.version, Some(jdk.major)));
        assert_eq!(plain.java_home.as_ref(), Some(&jdk.home));
        assert!(plain.vendor.is_some() && plain.vm.as_ref().is_some_and(|vm| vm.contains("Server VM")));
        assert_eq!(plain.bytes("MaxHeapSize"), Some(Bytes(96 << 20)));

        let text = "env JAVA_TOOL_OPTIONS=-Xmx64m nohup taskset -c 0 java -Xmx96m Main";
        let alone = asked(text).expect(text);
        assert_eq!(alone.bytes("MaxHeapSize"), Some(Bytes(96 << 20)));
        // With one processor the JVM selects the serial collector.
        assert_eq!(alone.is_on("UseSerialGC"), Some(true));
        let last = asked("env _JAVA_OPTIONS=-Xmx64m JDK_JAVA_OPTIONS=-Xmx32m java -Xmx96m Main").expect(text);
        assert_eq!(last.bytes("MaxHeapSize"), Some(Bytes(64 << 20)));

        let refused = asked("java -XX:+UseSerialGC -XX:+UseParallelGC Main").map_err(|e| e.to_string());
        let detail = ["Multiple garbage collectors selected", "Conflicting collector combinations"];
        assert!(
            refused.as_ref().is_err_and(|e| detail.iter().any(|detail| e.contains(detail))),
            "{refused:?}"
        );
    }
}

proptest! {
    #[test]
    fn any_output_is_read_without_panic(out in "(.|\n)*", err in "(.|\n)*") {
        let _ = parse(&out, &err).explicit_demand();
    }
}
