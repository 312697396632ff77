//! C programs use the libraries that cargo built for these tests.

use std::{
    env,
    error::Error,
    fs,
    io::{self, Write},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use hugewise::{
    error::ABI_VERSION,
    pretouch::{PretouchOptions, Pretouched},
    region::{PageBytes, ReserveOptions},
};
use hugewise_linux::testing::trials::{is_full, skip_part};
use tempfile::TempDir;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const C99: [&str; 6] = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"];

/// Libraries that the static library needs, from `rustc --print native-static-libs`.
const STATIC_NEEDS: [&str; 6] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

#[derive(Clone, Copy, PartialEq)]
enum Linked {
    Shared,
    Static,
}

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A library in the folder of this test program, where cargo puts the package's libraries for any profile and
/// target folder. Those one folder up may be of an older build.
fn built(library: &str) -> Result<PathBuf> {
    let path = env::current_exe()?.with_file_name(library);
    if !path.exists() {
        return Err(format!("cargo did not build {}", path.display()).into());
    }
    Ok(path)
}

fn done(what: &mut Command) -> Result<Output> {
    let output = what.output().map_err(|error| format!("{what:?}: {error}"))?;
    if !output.status.success() {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        return Err(format!("{what:?}: {}\n{out}{err}", output.status).into());
    }
    Ok(output)
}

/// Compiles `source` into a folder with the libraries named as installed.
fn compiled(source: &Path, linked: Linked) -> Result<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("program");
    let mut cc = Command::new("cc");
    cc.args(C99).arg("-I").arg(crate_folder().join("include")).arg("-o").arg(&program).arg(source);
    match linked {
        Linked::Static => {
            cc.arg(built("libhugewise.a")?).args(STATIC_NEEDS);
        }
        Linked::Shared => {
            let soname = folder.path().join(format!("libhugewise.so.{ABI_VERSION}"));
            symlink(built("libhugewise.so")?, &soname)?;
            symlink(&soname, folder.path().join("libhugewise.so"))?;
            cc.arg("-L").arg(folder.path()).arg("-lhugewise");
            cc.arg("-Wl,-rpath").arg(format!("-Wl,{}", folder.path().display()));
        }
    }
    done(&mut cc)?;
    Ok((folder, program))
}

fn runs(source: &Path, linked: Linked) -> Result<String> {
    let (_folder, program) = compiled(source, linked)?;
    let output = done(&mut Command::new(program))?;
    io::stderr().write_all(&output.stderr)?;
    Ok(String::from_utf8(output.stdout)?)
}

fn test_program(name: &str) -> PathBuf {
    crate_folder().join("tests/c").join(name)
}

fn runs_both_ways(name: &str) -> Result<()> {
    for linked in [Linked::Shared, Linked::Static] {
        runs(&test_program(name), linked)?;
    }
    Ok(())
}

#[test]
fn a_program_uses_memory() -> Result<()> {
    runs_both_ways("memory.c")
}

#[test]
fn wrong_arguments_are_errors() -> Result<()> {
    runs_both_ways("errors.c")
}

#[test]
fn threads_share_the_library() -> Result<()> {
    runs_both_ways("threads.c")
}

#[test]
fn cancelled_threads_finish_their_calls() -> Result<()> {
    runs_both_ways("cancel.c")
}

#[test]
fn a_process_in_any_state_reserves_memory() -> Result<()> {
    let (_folder, program) = compiled(&test_program("states.c"), Linked::Shared)?;
    let mut states = Command::new(program);
    if is_full() {
        states.arg("all");
    }
    for line in String::from_utf8(done(&mut states)?.stdout)?.lines() {
        let state = line.strip_prefix("skipped: ").ok_or(line)?;
        skip_part(&format!("memory in the state: {state}"), "this process cannot enter it");
    }
    Ok(())
}

/// The layout of a struct in Rust, in the format of layout.c.
macro_rules! layout {
    ($type:ty, $name:literal, $($field:ident),*) => {{
        let mut lines = vec![format!("{} {}", $name, size_of::<$type>())];
        $({
            let size = size_of_pointee(|value: &$type| &raw const value.$field);
            lines.push(format!("{}.{} {} {size}", $name, stringify!($field), std::mem::offset_of!($type, $field)));
        })*
        lines
    }};
}

fn size_of_pointee<T, F>(_: impl Fn(&T) -> *const F) -> usize {
    size_of::<F>()
}

#[test]
fn structs_are_laid_out_as_in_c() -> Result<()> {
    let mut expected = layout!(PageBytes, "hugewise_page_bytes", page_size, bytes);
    expected.extend(layout!(ReserveOptions, "hugewise_reserve_options", struct_size, name, bind, node));
    expected.extend(layout!(
        PretouchOptions,
        "hugewise_pretouch_options",
        struct_size,
        chunk,
        threads,
        way,
        progress,
        context
    ));
    expected.extend(layout!(
        Pretouched,
        "hugewise_pretouched",
        struct_size,
        wanted,
        done,
        chunk,
        page_size,
        elapsed_ns,
        minor_faults,
        major_faults,
        thp_fallbacks,
        threads,
        way
    ));
    let printed = runs(&test_program("layout.c"), Linked::Shared)?;
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
    Ok(())
}

#[test]
fn the_header_alone_is_c_and_cpp() -> Result<()> {
    let header = crate_folder().join("include/hugewise.h");
    let check = |compiler: &str, language: &str, standard: &str| {
        let mut command = Command::new(compiler);
        command.args(["-x", language, standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]);
        command.arg(&header);
        command
    };
    done(&mut check("cc", "c", "-std=c99"))?;
    if Command::new("c++").arg("--version").output().is_err() {
        skip_part("the header as C++", "c++ is not installed");
        return Ok(());
    }
    done(&mut check("c++", "c++", "-std=c++11"))?;
    Ok(())
}

#[test]
fn the_shared_library_has_its_soname_and_exports_its_functions_alone() -> Result<()> {
    let library = built("libhugewise.so")?;
    let header = fs::read_to_string(crate_folder().join("include/hugewise.h"))?;
    let dynamic = String::from_utf8(done(Command::new("readelf").args(["-W", "-d"]).arg(&library))?.stdout)?;
    assert!(dynamic.contains(&format!("soname: [libhugewise.so.{ABI_VERSION}]")), "{dynamic}");
    let symbols = done(Command::new("nm").args(["-D", "--defined-only"]).arg(&library))?.stdout;
    let symbols = String::from_utf8(symbols)?;
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in &names {
        assert!(header.contains(&format!("{name}(")), "{name} is exported, and not in the header");
    }
    Ok(())
}

#[test]
fn the_example_of_the_page_compiles_and_runs() -> Result<()> {
    let page = fs::read_to_string(crate_folder().join("../../docs/c.md"))?;
    let (_, example) = page.split_once("```c\n").ok_or("docs/c.md has no example")?;
    let (example, _) = example.split_once("```\n").ok_or("the example has no end")?;
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("example.c");
    fs::write(&source, example)?;
    for linked in [Linked::Shared, Linked::Static] {
        let printed = runs(&source, linked)?;
        // On the first backing, or on another with the reason.
        assert!(printed.starts_with("reserved 268435456 bytes on "), "{printed}");
        assert!(printed.contains("on hugetlb:1GiB"), "{printed}");
        assert!(printed.contains("\n268435456 bytes populated in "), "{printed}");
    }
    Ok(())
}
