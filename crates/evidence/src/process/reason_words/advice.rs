//! Actions by which memory gets huge pages; never what the process already has.

use hugewise_linux::{action::Action, proc::smaps::Memory, root::Root, shell};

use super::{Circumstances, Kind, PartCounts};

/// Actions that request huge pages for memory that has no `MADV_HUGEPAGE`. `file` holds the THP mode.
pub fn requests(kind: Kind, counts: &PartCounts, around: &Circumstances<'_>, file: &str) -> Vec<Action> {
    let mut actions = Vec::new();
    let jvm_has_thp =
        around.known.environment.jvm_switch(&around.known.process.command, "UseTransparentHugePages")
            == Some(true);
    if counts.memory == Memory::Shared {
        let zgc = around.is_jvm && kind == Kind::JvmLargePages && !jvm_has_thp;
        actions.push(Action::new(if zgc {
            "Start the JVM with -XX:+UseTransparentHugePages"
        } else {
            "Change the program to call madvise(MADV_HUGEPAGE)"
        }));
        return actions;
    }
    match kind {
        Kind::JvmLargePages if !jvm_has_thp => {
            actions.push(Action::new("Start the JVM with -XX:+UseTransparentHugePages"));
        }
        Kind::Malloc | Kind::Anonymous => actions.extend(malloc(around)),
        _ => {}
    }
    actions.push(Action::new(format!(
        "Or write 'always' to {file}: then memory that programs touch afterwards gets huge pages without a request"
    )));
    actions
}

/// The action by which the malloc of the process requests huge pages; `None` if it has none, or has it already.
fn malloc(around: &Circumstances<'_>) -> Option<Action> {
    match around.known.runtime {
        Some(runtime) => runtime.request_huge(around.known.environment),
        None if around
            .known
            .environment
            .tunable("glibc.malloc.hugetlb")
            .is_some_and(|value| value != "0") =>
        {
            None
        }
        None => Some(Action::new(format!(
            "For malloc of glibc 2.35 or later, start it with GLIBC_TUNABLES=glibc.malloc.hugetlb=1{}",
            around.known.environment.doubt()
        ))),
    }
}

/// The action that permits huge pages to memory of this kind.
pub fn permit(memory: Memory, file: &str) -> Action {
    let word = if memory == Memory::Shared { "advise" } else { "madvise" };
    Action::new("Permit huge pages; this applies to memory touched afterwards")
        .by(format!("echo {word} | sudo tee {file}"))
}

/// The action that permits huge pages on the tmpfs at `point`, in the mount namespace of the process.
pub fn remount(point: &str, pid: u32, root: &Root) -> Action {
    let namespace = |of: &str| root.link(format!("proc/{of}/ns/mnt")).ok();
    let is_ours = namespace(&pid.to_string()).is_some_and(|theirs| namespace("self") == Some(theirs));
    let place = if is_ours { String::new() } else { format!(", in the mount namespace of process {pid}") };
    let action = Action::new(format!(
        "Remount the tmpfs{place} with huge=advise (for memory with MADV_HUGEPAGE) or huge=always; this applies to \
         pages touched afterwards"
    ));
    match is_ours {
        true => action.by(format!("sudo mount -o remount,huge=advise {}", shell::word(&format!("/{point}")))),
        false => action,
    }
}
