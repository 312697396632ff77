//! The structure of the workspace: arrows between crates point one way, and no files import each other in a
//! circle. A file may always import from the files of the folders that it stands in (`super`). Some things are done in
//! one place only.

mod one_place;

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use regex::Regex;

type TestResult = Result<(), Box<dyn Error>>;

/// The crates, the lowest level first: a crate depends on lower levels only.
const LEVELS: [&[&str]; 7] = [
    &["linux"],
    &["texts"],
    &["jvm", "memory", "databases"],
    &["launch"],
    &["changes", "evidence", "plan", "memory-c"],
    &["measure", "record"],
    &["cli"],
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn crates_depend_on_lower_levels_only() -> TestResult {
    let level = |name: &str| LEVELS.iter().position(|names| names.contains(&name));
    for name in LEVELS.concat() {
        let manifest = fs::read_to_string(crates().join(name).join("Cargo.toml"))?;
        let dependencies = manifest.split("[dependencies]").nth(1).ok_or("no dependencies")?;
        let dependencies = dependencies.split("\n[").next().unwrap_or_default();
        let own = dependencies.lines().filter_map(|line| line.strip_prefix("hugewise-")?.split('.').next());
        for dependency in own {
            assert!(level(dependency) < level(name), "{name} depends on {dependency}, which is not below it");
        }
    }
    let all: BTreeSet<String> = fs::read_dir(crates())?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_, std::io::Error>>()?;
    let known: BTreeSet<String> = LEVELS.concat().into_iter().map(str::to_owned).collect();
    assert_eq!(all, known, "every crate has a level");
    Ok(())
}

#[test]
fn no_files_import_each_other_in_a_circle() -> TestResult {
    for name in LEVELS.concat() {
        let imports = imports(&crates().join(name).join("src"))?;
        assert!(!imports.is_empty(), "{name} has no source files");
        if let Some(circle) = circle(&imports) {
            return Err(format!("{name}: {}", circle.join(" -> ")).into());
        }
    }
    Ok(())
}

/// The modules of a crate, by path (`hugepages::pools`), and the modules whose names each of them imports.
fn imports(folder: &Path) -> Result<BTreeMap<String, BTreeSet<String>>, Box<dyn Error>> {
    let mut sources = BTreeMap::new();
    read(folder, &[], &mut sources)?;
    let path = Regex::new(r"\b((?:crate|super|self)(?:::\w+|::\{)[\w:{},\s]*)")?;
    let modules: BTreeSet<&String> = sources.keys().collect();
    let mut all = BTreeMap::new();
    for (module, text) in &sources {
        // Tests at the end of a file may import any module.
        let text = one_place::code(text);
        let mut found = BTreeSet::new();
        for named in path.captures_iter(&text) {
            for leaf in leaves(&named[1]) {
                let target = resolve(module, &leaf, &modules);
                found.extend(target.filter(|target| !holds(target, module)));
            }
        }
        all.insert(module.clone(), found);
    }
    Ok(all)
}

/// The source files below a folder by module path; `tests.rs` and files of tests are left out.
fn read(folder: &Path, at: &[String], sources: &mut BTreeMap<String, String>) -> TestResult {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let below = || [at, std::slice::from_ref(&stem)].concat();
        if path.is_dir() {
            read(&path, &below(), sources)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") && !stem.ends_with("tests") {
            let module = if ["mod", "lib", "main"].contains(&stem.as_str()) { at.to_vec() } else { below() };
            sources.insert(module.join("::"), fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// The single paths of `a::{b, c::{d, e}}`.
fn leaves(tree: &str) -> Vec<Vec<String>> {
    let (mut prefixes, mut current, mut all) = (Vec::new(), Vec::new(), Vec::new());
    let mut word = String::new();
    for letter in tree.chars().chain([',']) {
        match letter {
            '{' => prefixes.push(std::mem::take(&mut current)),
            ',' | '}' => {
                current.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
                if !current.is_empty() {
                    all.push([prefixes.concat(), std::mem::take(&mut current)].concat());
                }
                if letter == '}' {
                    prefixes.pop();
                    if prefixes.is_empty() {
                        break;
                    }
                } else if prefixes.is_empty() {
                    break;
                }
            }
            ':' => current.extend((!word.is_empty()).then(|| std::mem::take(&mut word))),
            letter if letter.is_whitespace() => {}
            letter => word.push(letter),
        }
    }
    all
}

/// The module that a path leads to, from inside `module`.
fn resolve(module: &str, path: &[String], modules: &BTreeSet<&String>) -> Option<String> {
    let mut at: Vec<String> = module.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
    for name in path {
        match name.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => drop(at.pop()),
            name => at.push(name.to_owned()),
        }
    }
    (0..=at.len()).rev().map(|length| at[..length].join("::")).find(|path| modules.contains(path))
}

/// Whether `folder` is `module`, or a module around it.
fn holds(folder: &str, module: &str) -> bool {
    folder.is_empty() || module == folder || module.starts_with(&format!("{folder}::"))
}

fn circle(imports: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn visit(
        at: &str,
        imports: &BTreeMap<String, BTreeSet<String>>,
        done: &mut BTreeSet<String>,
        way: &mut Vec<String>,
    ) -> Option<Vec<String>> {
        if let Some(begin) = way.iter().position(|module| module == at) {
            return Some([&way[begin..], &[at.to_owned()]].concat());
        }
        if done.contains(at) {
            return None;
        }
        way.push(at.to_owned());
        let found = imports.get(at).into_iter().flatten().find_map(|next| visit(next, imports, done, way));
        way.pop();
        done.insert(at.to_owned());
        found
    }
    let mut done = BTreeSet::new();
    imports.keys().find_map(|module| visit(module, imports, &mut done, &mut Vec::new()))
}

#[test]
fn a_circle_is_found() {
    let modules = |pairs: &[(&str, &[&str])]| {
        let all = pairs.iter().map(|(module, imports)| {
            ((*module).to_owned(), imports.iter().map(|import| (*import).to_owned()).collect())
        });
        circle(&all.collect())
    };
    assert_eq!(modules(&[("a", &["b"]), ("b", &["c"]), ("c", &[])]), None);
    let found = modules(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])]);
    assert_eq!(found, Some(["b", "c", "b"].map(str::to_owned).to_vec()));
    let paths: Vec<String> =
        leaves("super::{jvm, memory::{self, Live}}; crate::x").iter().map(|path| path.join("::")).collect();
    assert_eq!(paths, ["super::jvm", "super::memory::self", "super::memory::Live"]);
}
