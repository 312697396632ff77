//! Compiles programs in C and in Java.

use std::{
    collections::BTreeMap,
    error::Error,
    ffi::OsString,
    fs,
    path::Path,
    process::Command,
    sync::{Mutex, PoisonError},
};

use tempfile::TempDir;

use crate::needs::jdks;

/// Compiles a C program of this name.
pub fn compile(folder: &Path, name: &str, text: &str) -> Result<String, Box<dyn Error>> {
    let (source, program) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&source, text)?;
    let output = Command::new("cc").arg("-o").arg(&program).arg(&source).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(program.to_string_lossy().into_owned())
}

/// A folder with this class, compiled for every JDK from 8 on.
pub fn compiled(class: &str, text: &str) -> Result<TempDir, Box<dyn Error>> {
    static COMPILED: Mutex<BTreeMap<String, ClassFiles>> = Mutex::new(BTreeMap::new());
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if !compiled.contains_key(text) {
        compiled.insert(text.to_owned(), class_files(class, text)?);
    }
    let folder = tempfile::tempdir()?;
    for (name, content) in &compiled[text] {
        fs::write(folder.path().join(name), content)?;
    }
    Ok(folder)
}

/// Names and contents.
type ClassFiles = Vec<(OsString, Vec<u8>)>;

fn class_files(class: &str, text: &str) -> Result<ClassFiles, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let source = folder.path().join(format!("{class}.java"));
    let classes = folder.path().join("classes");
    fs::write(&source, text)?;
    let compilers = jdks().into_iter().filter(|jdk| jdk.has_compiler.known() == Some(&true));
    let jdk = compilers.min_by_key(|jdk| jdk.major).ok_or("no JDK with a compiler")?;
    let javac = jdk.home.join("bin/javac");
    let output = Command::new(&javac).args(["--release", "8", "-d"]).args([&classes, &source]).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {said}", javac.display()).into());
    }
    let files = fs::read_dir(&classes)?.map(|file| {
        let file = file?;
        Ok((file.file_name(), fs::read(file.path())?))
    });
    Ok(files.collect::<std::io::Result<_>>()?)
}
