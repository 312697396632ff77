use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use proptest::prelude::*;

use super::*;

pub fn own(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

pub fn files(name: &str) -> io::Result<String> {
    match name {
        "opts" => Ok("-Xmx1g # the heap\n-cp \"/a dir/x.jar\" Main".to_owned()),
        "heap" => Ok("-Xms1g\n".to_owned()),
        "vm" => Ok("-Xmx2g '-Da=b c'\n-XX:+UseZGC".to_owned()),
        "settings" => Ok("+UseLargePages\nMaxHeapSize=4g # most\n".to_owned()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Splits `text` at white space, but keeps the parts between `|` and `|` whole.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in text.split('|').enumerate() {
        if at % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

fn parsed(text: &str) -> Result<LaunchLine, LaunchError> {
    LaunchLine::of_java(&words(text), &files)
}

pub fn line(text: &str) -> LaunchLine {
    parsed(text).expect(text)
}

#[test]
fn options_end_where_the_program_begins() {
    for (text, options, program) in [
        ("java -Xmx1g Main -Xmx2g", vec!["-Xmx1g"], vec!["Main", "-Xmx2g"]),
        ("/opt/jdk/bin/java -cp a.jar:b.jar Main", vec!["-cp", "a.jar:b.jar"], vec!["Main"]),
        ("java -Dx=y -jar app.jar --port 80", vec!["-Dx=y"], vec!["-jar", "app.jar", "--port", "80"]),
        ("java -p mods -m app/app.Main", vec!["-p", "mods"], vec!["-m", "app/app.Main"]),
        ("java @opts arg", vec!["-Xmx1g", "-cp", "/a dir/x.jar"], vec!["Main", "arg"]),
        ("java Main @opts", vec![], vec!["Main", "@opts"]),
        ("java -cp", vec!["-cp"], vec![]),
        ("/usr/bin/java21 -Xmx1g Main", vec!["-Xmx1g"], vec!["Main"]),
    ] {
        let line = line(text);
        assert_eq!((line.options, line.program), (own(&options), own(&program)), "{text}");
    }
}

#[test]
fn words_before_java_are_understood() {
    for (text, wrapper) in [
        ("java Main", ""),
        ("env A=1 taskset -c 0,1 java Main", "env A=1 taskset -c 0,1"),
        ("A=1 B= java Main", "env A=1 B="),
        ("env -i -u X -C /tmp PATH=/bin java Main", "env -i -u X -C /tmp PATH=/bin"),
        ("env - A=1 java Main", "env - A=1"),
        ("/usr/bin/env -S |A=1 nice -n5 java| Main", "/usr/bin/env A=1 nice -n5"),
        ("env -iS |A=1 java -Xmx1g| Main", "env -i A=1"),
        ("nice -n 5 ionice -c 2 -n 7 chrt --idle 0 java Main", "nice -n 5 ionice -c 2 -n 7 chrt --idle 0"),
        ("nice -10 java Main", "nice -10"),
        ("taskset 0x3 numactl -N 0 --membind 0 java Main", "taskset 0x3 numactl -N 0 --membind 0"),
        ("numactl --cpunodebind=0 --localalloc java Main", "numactl --cpunodebind=0 --localalloc"),
        ("nohup setsid -w timeout -s KILL -k 5 60 java Main", "nohup setsid -w timeout -s KILL -k 5 60"),
        ("stdbuf -oL /usr/bin/time -v -o log java Main", "stdbuf -oL /usr/bin/time -v -o log"),
        ("sudo -u app -E A=1 -- java Main", "sudo -u app -E A=1 --"),
        ("sudo -Eu app A=1 java Main", "sudo -Eu app A=1"),
        ("runuser -u app -- java Main", "runuser -u app --"),
        ("tini -g -- gosu app java Main", "tini -g -- gosu app"),
        ("sh -c |exec java Main|", ""),
        ("bash -ec |A=1 exec -a name taskset -c 0 java Main # go|", "env A=1 taskset -c 0"),
        ("nohup bash -euo pipefail -c |java Main| name", "nohup"),
        ("sh -c |sh -c 'A=\"b c\" java Main'|", "env |A=b c|"),
        ("prlimit --memlock=unlimited java Main", "prlimit --memlock=unlimited"),
    ] {
        let line = line(text);
        assert_eq!(line.wrapper, words(wrapper), "{text}");
        assert_eq!((line.java.as_str(), line.program.as_slice()), ("java", &own(&["Main"])[..]), "{text}");
        let again = LaunchLine::of_java(&line.command(), &files).expect(text);
        assert_eq!(again, line, "{text}");
    }
}

#[test]
fn unknown_command_lines_are_errors_with_a_next_step() {
    for (text, said) in [
        ("sh -c |cd /app && java -jar a.jar|", "more than one command"),
        ("sh -c |exec java $JAVA_OPTS -jar a.jar|", "hugewise plan --pid PID"),
        ("bash -lc |java -jar a.jar|", "set variables"),
        ("$JAVA_HOME/bin/java Main", "path of java itself"),
        ("sh -c |'$JAVA_HOME/bin/java' Main|", "path of java itself"),
        ("env -S |java ${OPTS}| Main", "shell expansion"),
        ("javac X.java", "'javac' is neither java"),
        ("docker run image java Main", "hugewise plan --pid PID"),
        ("taskset -p 03 700", "'taskset' is neither java"),
        ("java @gone", "the argument file gone"),
        ("", "'' is neither java"),
    ] {
        let error = parsed(text).expect_err(text).to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
    // Other programs, and scripts without `java`, are neither launch lines nor errors.
    for text in ["javac X.java", "sh -c |echo a; exit 3|", "env", "nice -n", "sh script.sh", "chroot /x java"]
    {
        assert!(LaunchLine::parse(&words(text), &files).is_none(), "{text}");
    }
}

#[test]
fn the_jvm_sees_the_environment_that_the_wrapper_leaves() {
    let outer = |name: &str| (name == "JAVA_TOOL_OPTIONS").then(|| "-Xmx1g".to_owned());
    for (text, expected) in [
        ("java Main", vec![("JAVA_TOOL_OPTIONS", "-Xmx1g")]),
        ("env JAVA_TOOL_OPTIONS=-Xmx2g java Main", vec![("JAVA_TOOL_OPTIONS", "-Xmx2g")]),
        ("env -u JAVA_TOOL_OPTIONS java Main", vec![]),
        ("env --unset=JAVA_TOOL_OPTIONS java Main", vec![]),
        ("env -iuX _JAVA_OPTIONS=-Xint java Main", vec![("_JAVA_OPTIONS", "-Xint")]),
        ("_JAVA_OPTIONS=-Xint env - java Main", vec![]),
        ("sudo JAVA_TOOL_OPTIONS= java Main", vec![("JAVA_TOOL_OPTIONS", "")]),
    ] {
        let seen = line(text).environment(&outer);
        let seen: Vec<_> = seen.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(seen, expected, "{text}");
    }
    let sudo = line("taskset -c 0 sudo -u app nice java Main");
    let asked = sudo.flags_line(own(&["-Xint"]));
    assert_eq!(asked.command(), own(&["taskset", "-c", "0", "sudo", "-n", "-u", "app", "java", "-Xint"]));
    assert!(sudo.cautions()[0].contains("sudo may change the environment"));
    let set = sudo.with_environment(&[("_JAVA_OPTIONS", "-Xint".to_owned())]);
    assert_eq!(set.environment(&outer)[1], ("_JAVA_OPTIONS", "-Xint".to_owned()));
}

/// The words with a shell and the parsed line must start `java` with the same arguments and variables.
#[test]
fn the_words_without_a_shell_start_the_same() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let java = dir.path().join("java");
    let script = "#!/bin/sh\nprintf '%s|' \"$JAVA_TOOL_OPTIONS\" \"$_JAVA_OPTIONS\" \"$A\" \"$@\"\n";
    fs::write(&java, script)?;
    fs::set_permissions(&java, fs::Permissions::from_mode(0o755))?;
    let path = format!("{}:/usr/bin:/bin", dir.path().display());
    let outer = [("JAVA_TOOL_OPTIONS", "-Xmx1g"), ("A", "outer")];
    let printed = |words: &[String]| -> io::Result<String> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env_clear().env("PATH", &path).envs(outer).stdin(Stdio::null());
        let output = command.output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
    };
    let here = format!("PATH={path}");
    for text in [
        "java -Dx='a b' \"-Dy=\\\"c\\\"\" e\\ f Main '' # end",
        "A=1 _JAVA_OPTIONS='-Xint -Dz=1' exec java Main",
        "exec -a name java Main",
        "env -u JAVA_TOOL_OPTIONS A=2 java Main",
        "A=1 env -uA -- java Main",
        "env -S 'A=\"3 4\" java -Xmx1g' Main",
        "nice -n 1 env -C / A=5 timeout -k 1 9 java Main",
        "nohup setsid -w stdbuf -oL taskset 1 java Main -A=1",
        "sh -c \"A=6 exec java 'Main one'\" two three",
        "ionice -c3 -t taskset -ac 0 chrt -o 0 prlimit --nofile java Main",
    ] {
        // bash, because not every sh supports `exec -a`.
        let by_shell = printed(&own(&["bash", "-c", text]))?;
        let line = LaunchLine::of_java(&own(&["bash", "-c", text]), &files).expect(text);
        assert_eq!(printed(&line.command())?, by_shell, "{text}");
        let seen =
            line.environment(&|name| outer.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()));
        let value =
            |name: &str| seen.iter().find(|(n, _)| *n == name).map_or("", |(_, value)| value.as_str());
        let ours = format!("{}|{}|", value("JAVA_TOOL_OPTIONS"), value("_JAVA_OPTIONS"));
        assert!(by_shell.starts_with(&ours), "{text}: {by_shell}, not {ours}");
    }
    let cleared = format!("env -i '{here}' _JAVA_OPTIONS=-Xint java Main");
    let line = LaunchLine::of_java(&own(&["sh", "-c", &cleared]), &files).expect("cleared");
    assert_eq!(printed(&line.command())?, "|-Xint||Main|");
    assert_eq!(line.environment(&|_| Some("x".to_owned())), [("_JAVA_OPTIONS", "-Xint".to_owned())]);
    Ok(())
}

pub fn effective(text: &str, major: u32, variables: &[(&str, &str)]) -> EffectiveOptions {
    let outer = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
    line(text).effective(Some(major), &outer, &files).expect(text)
}

#[test]
fn options_count_in_the_order_of_the_jvm() {
    let variables =
        [("JDK_JAVA_OPTIONS", "-Xmx2g @heap"), ("JAVA_TOOL_OPTIONS", "-Xmx1g"), ("_JAVA_OPTIONS", "-Xmx5g")];
    let found = effective("java -Xmx3g -XX:VMOptionsFile=vm -XX:Flags=settings Main", 17, &variables);
    let texts: Vec<&str> = found.options.iter().map(|option| option.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "-XX:+UseLargePages",
            "-XX:MaxHeapSize=4g",
            "-Xmx1g",
            "-Xmx2g",
            "-Xms1g",
            "-Xmx3g",
            "-XX:VMOptionsFile=vm",
            "-Xmx2g",
            "-Da=b c",
            "-XX:+UseZGC",
            "-XX:Flags=settings",
            "-Xmx5g"
        ]
    );
    assert_eq!(found.max_heap().map(|(bytes, _)| bytes), Some(Bytes(5 << 30)));
    assert_eq!(
        found.switch("UseZGC").map(|(on, option)| (on, option.from.to_string())),
        Some((true, "vm".into()))
    );

    let eight = effective("java Main", 8, &variables[..1]);
    assert!(eight.options.is_empty() && eight.notes[0].contains("JDK_JAVA_OPTIONS"), "{eight:?}");
    let open = line("java Main").effective(None, &|_| Some("'-Xmx1g".to_owned()), &files);
    assert!(open.is_err_and(|error| error.to_string().contains("JAVA_TOOL_OPTIONS: a quote")));
}

#[test]
fn contradictions_are_found() {
    for (text, refused, said) in [
        ("java -XX:+UseG1GC -XX:+UseZGC Main", Some(true), "one collector"),
        ("java -XX:+UseG1GC -XX:-UseG1GC -XX:+UseZGC Main", Some(false), "-XX:-UseG1GC"),
        ("java -XX:+UseConcMarkSweepGC -XX:+UseParNewGC Main", None, ""),
        ("java -Xms2g -Xmx1g Main", Some(true), "initial heap size 2GiB exceeds"),
        ("java -Xmx1g -Xmx4g -Xms2g Main", Some(false), "the last one takes effect: -Xmx4g"),
        ("java -Xmx1G -Xmx1g Main", None, ""),
        ("java -XX:-UseLargePages -XX:+UseTransparentHugePages Main", Some(false), "base pages"),
        ("java -XX:+UseTransparentHugePages -XX:LargePageSizeInBytes=1g Main", Some(false), "transparent"),
        ("java -XX:+UseLargePages -XX:+UseTransparentHugePages Main", None, ""),
        ("java -XX:+UseLargePages -XX:-UseLargePages Main", Some(false), "the last one takes effect"),
    ] {
        let found = contradictions(&effective(text, 17, &[]));
        assert_eq!(found.first().map(|first| first.refused), refused, "{text}: {found:?}");
        assert!(found.first().is_none_or(|first| first.outcome.contains(said)), "{text}: {found:?}");
    }
    let from_outside =
        contradictions(&effective("java -XX:+UseZGC Main", 17, &[("_JAVA_OPTIONS", "-XX:+UseG1GC")]));
    assert!(from_outside[0].options.contains(&"-XX:+UseG1GC (_JAVA_OPTIONS)".to_owned()));
}

#[test]
fn page_flags_are_set_aside_and_replaced() {
    let line = line("java -XX:+UseLargePages -Xmx1g -XX:LargePageSizeInBytes=1g Main -XX:+UseLargePages");
    let (ours, aside) = line.with_page_flags(&own(&["-XX:+UseTransparentHugePages"]));
    assert_eq!(aside, ["-XX:+UseLargePages", "-XX:LargePageSizeInBytes=1g"]);
    let expected = ["java", "-XX:+UseTransparentHugePages", "-Xmx1g", "Main", "-XX:+UseLargePages"];
    assert_eq!(ours.command(), expected);
    assert_eq!(
        without_page_flags("-Da='b c' -XX:-UseLargePages  -Xms1g"),
        Some(("\"-Da=b c\" -Xms1g".to_owned(), vec!["-XX:-UseLargePages".to_owned()]))
    );
    assert_eq!(without_page_flags("-XX:+UseLargePagesInMetaspace -Dx='a  b'"), None);
}

#[test]
fn a_changed_folder_counts_for_files_and_programs() {
    let read = |name: &str| match name {
        "/srv/app/opts" => Ok("-Xmx1g".to_owned()),
        other => Err(io::Error::other(other.to_owned())),
    };
    let line = LaunchLine::of_java(&words("env -C /srv env --chdir=app jdk/bin/java @opts Main"), &read);
    let line = line.expect("a readable file");
    assert_eq!(line.options, ["-Xmx1g"]);
    let asked = line.flags_line(Vec::new()).command().join(" ");
    assert_eq!(asked, "/srv/app/jdk/bin/java");
    let set = LaunchLine::of_java(&words("env -u X -C /srv A=1 jdk/bin/java Main"), &read).expect("a java");
    assert_eq!(set.flags_line(Vec::new()).command().join(" "), "env -u X A=1 /srv/jdk/bin/java");
    let here = std::path::absolute("jdk/bin/java").expect("a folder");
    let asked = parsed("jdk/bin/java Main").expect("a java").flags_line(Vec::new());
    assert_eq!(Path::new(&asked.java), here);
}

proptest! {
    #[test]
    fn any_command_survives_parse_and_print(words in prop::collection::vec("[^@].*", 0..8)) {
        let mut command = own(&["java"]);
        command.extend(words);
        if let Some(Ok(line)) = LaunchLine::parse(&command, &files) {
            prop_assert_eq!(line.command(), command);
        }
    }

    #[test]
    fn any_wrapper_is_read_without_panic_and_reads_back(words in prop::collection::vec(
        prop_oneof![
            Just("env".to_owned()), Just("sudo".to_owned()), Just("java".to_owned()), Just("sh".to_owned()),
            Just("-c".to_owned()), Just("-S".to_owned()), Just("timeout".to_owned()), Just("exec".to_owned()),
            "-[a-zA-Z]{1,3}", "[A-Z]=.*", ".*", "-u.*", "exec -a x java .*", "--[a-z]+=?",
        ], 0..10))
    {
        if let Some(Ok(line)) = LaunchLine::parse(&words, &files) {
            let again = LaunchLine::parse(&line.command(), &files);
            prop_assert_eq!(again.and_then(Result::ok), Some(line.clone()));
            let _ = line.effective(None, &|name| words.first().map(|word| format!("{name} {word}")), &files)
                .map(|effective| contradictions(&effective));
        }
    }
}
