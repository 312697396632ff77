//! Mount namespaces of other users: nothing in them refuses a command, delays it, or is advised to be executed.

use std::{error::Error, fs, path::Path};

use hugewise_linux::testing::trials::is_full;

use crate::{
    TestResult, Trial, attack,
    bounded::{AT_ONCE, COMPARED, within},
    hostile::{Hostile, Place},
    reading::each,
    start::{EndedProcess, INCONCLUSIVE, QUICK_RUN},
};

pub fn trials() -> Vec<Trial> {
    vec![
        attack("namespaces: a journal that a user has forged", &[], forged),
        attack("namespaces: no program of another namespace is advised", &[], advised),
        attack("namespaces: a /run that does not answer", &[], hanging).representing(false),
    ]
}

/// The text of a journal of this boot.
pub fn journal(purpose: &str) -> Result<String, Box<dyn Error>> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(serde_json::json!({ "boot_id": boot.trim(), "purpose": purpose, "owner": 1, "run_id": "x", "entries": [] })
        .to_string())
}

/// A namespace with a journal that belongs to root; `more` is a part of its script.
pub fn forgery(place: &Place, purpose: &str, more: &str) -> Result<[Hostile; 2], Box<dyn Error>> {
    let image = place.hostile("image", &["hidden", "environ", &journal(purpose)?])?;
    let script = format!(
        "set -e; mount -t tmpfs none /run; mkdir /run/hugewise; touch /run/hugewise/journal.json
         mount --bind /proc/{}/environ /run/hugewise/journal.json; {more}; echo ready; exec setpriv --pdeathsig KILL sleep 600",
        image.pid
    );
    Ok([place.namespace(&script)?, image])
}

/// Commands that change settings, and what undoes them.
const CHANGING: [&[&str]; 4] =
    [&["apply", "--khugepaged", "max_ptes_none=510"], &["restore"], &QUICK_RUN, &["restore"]];

/// Those of [`CHANGING`] that are tried: a comparison takes seconds.
fn changing() -> &'static [&'static [&'static str]] {
    if is_full() { &CHANGING } else { &CHANGING[..2] }
}

/// Runs a command that changes settings; fails if it is refused, or anything is left to restore.
fn not_refused(command: &[&str]) -> Result<EndedProcess, Box<dyn Error>> {
    let ended = within(if command == QUICK_RUN { COMPARED } else { AT_ONCE }, command)?;
    match ended.status.code() {
        Some(0) => Ok(ended),
        // A comparison of one round has no verdict.
        Some(INCONCLUSIVE) if command == QUICK_RUN => Ok(ended),
        _ => Err(format!("{command:?} was refused: {ended:?}").into()),
    }
}

fn forged() -> TestResult {
    let place = Place::new()?;
    let _hostile = forgery(&place, "\u{1b}]0;title\u{7}compare", "true")?;
    each(changing().iter().map(|command| {
        let ended = not_refused(command)?;
        let said = ended.stdout + &ended.stderr;
        if said.contains('\u{1b}') || said.contains("title") {
            return Err(format!("the text of another user is shown: {said:?}").into());
        }
        Ok(())
    }))
}

fn advised() -> TestResult {
    let place = Place::new()?;
    let folder = place.of_user()?;
    let proof = folder.join("proof").display().to_string();
    let program = place.script("hugewise", &format!("#!/bin/sh\nid > {proof}\n"))?;
    let own = place.text("own");
    let over = format!("mount --bind {program} {own}; mount --bind {program} /usr/bin/env");
    fs::write(&own, "")?;
    let _hostile = forgery(&place, "compare", &over)?;
    let restored = within(AT_ONCE, &["restore"])?;
    let said = restored.stdout + &restored.stderr;
    for word in ["nsenter", "--target", "that namespace"] {
        if said.contains(word) {
            return Err(format!("a program of another namespace is advised: {said}").into());
        }
    }
    assert!(!Path::new(&proof).exists());
    Ok(())
}

fn hanging() -> TestResult {
    let place = Place::new()?;
    let _hostile = place.overlay("/run", "hugewise")?;
    each(changing().iter().map(|command| not_refused(command).map(drop)))
}
