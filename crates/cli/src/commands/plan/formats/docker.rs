//! A `docker run` command line.

use hugewise_plan::plan::Plan;

use super::{VARIABLE_NOTE, header, is_shm, launch, quote, same_java, targets, thp_settings};

const IMAGE: &str = "IMAGE";

pub fn render(plan: &Plan) -> String {
    let launch = launch(plan);
    let mut words = ["docker", "run", "--rm"].map(str::to_owned).to_vec();
    if is_shm(plan) {
        words.push("--cap-add=IPC_LOCK".to_owned());
    }
    if let Some((name, value)) = &launch.variable {
        words.extend(["--env".to_owned(), format!("{name}={value}")]);
    }
    let mut command = launch.command.into_iter();
    // In the place of the image's own: its ENTRYPOINT would stand before the line.
    words.extend(command.next().map(|first| format!("--entrypoint={first}")));
    words.push(IMAGE.to_owned());
    words.extend(command);
    let mut paragraphs =
        vec!["Put your image in the place of IMAGE. Nothing of the machine is changed by it.".to_owned()];
    if plan.instances > 1 {
        paragraphs.push(format!("It starts one instance; the plan is for {}.", plan.instances));
    }
    paragraphs.extend(notes(plan));
    if launch.variable.is_some() {
        paragraphs.push(VARIABLE_NOTE.to_owned());
    }
    header(plan, &paragraphs) + &quote::shell_line(&words) + "\n"
}

/// What a container needs, and what it does not.
pub fn notes(plan: &Plan) -> Vec<String> {
    let mut notes = vec![same_java(plan)];
    if thp_settings(plan).next().is_some() {
        notes.push(
            "A container has the machine's transparent huge pages: set them there (--format tmpfiles or tuned)."
                .to_owned(),
        );
    }
    if targets(plan).is_empty() {
        return notes;
    }
    notes.push("The pool is the machine's: set it there (--format tmpfiles or kernel).".to_owned());
    notes.push(if is_shm(plan) {
        "IPC_LOCK is for a container that runs as root; otherwise give it the number of the machine's\n\
         vm.hugetlb_shm_group as a further group. --shm-size is about /dev/shm and has no say here."
            .to_owned()
    } else {
        "The container needs no privilege for it, no /dev/hugepages and no memlock limit.".to_owned()
    });
    notes.push(
        "Pages of a pool do not count against a limit of memory, but against one of the hugetlb control\n\
         group, if one is set: a touch beyond it is a SIGBUS."
            .to_owned(),
    );
    notes
}
