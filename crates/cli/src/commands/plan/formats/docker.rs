//! A `docker run` command line.

use hugewise_linux::shell;
use hugewise_plan::plan::Plan;

use super::{VARIABLE_NOTE, header, is_shm, launch, same_java, targets, thp_settings};

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
    // Replaces the ENTRYPOINT of the image, which would precede the command line.
    words.extend(command.next().map(|first| format!("--entrypoint={first}")));
    words.push("IMAGE".to_owned());
    words.extend(command);
    let mut paragraphs =
        vec!["Replace IMAGE by your image. No setting of the machine is changed.".to_owned()];
    if plan.instances > 1 {
        paragraphs.push(format!("This starts one instance; the plan is for {}.", plan.instances));
    }
    paragraphs.extend(notes(plan));
    paragraphs.extend(launch.variable.map(|_| VARIABLE_NOTE.to_owned()));
    header(plan, &paragraphs) + &shell::line(&words) + "\n"
}

/// Requirements of a container.
pub fn notes(plan: &Plan) -> Vec<String> {
    let mut notes: Vec<String> = same_java(plan).into_iter().collect();
    if thp_settings(plan).next().is_some() {
        notes.push(
            "Containers use the machine's THP settings: set them there (--format tmpfiles or tuned)."
                .to_owned(),
        );
    }
    if targets(plan).is_empty() {
        return notes;
    }
    notes
        .push("Containers use the machine's pools: set them there (--format tmpfiles or kernel).".to_owned());
    notes.push(if is_shm(plan) {
        "IPC_LOCK is effective in containers that run as root; otherwise add the group of the machine's\n\
         vm.hugetlb_shm_group to the container. --shm-size sets /dev/shm and has no effect here."
            .to_owned()
    } else {
        "The container needs no privilege, no /dev/hugepages and no memlock limit for huge pages.".to_owned()
    });
    notes.push(
        "Pool pages do not count against memory limits, but against limits of the hugetlb control group:\n\
         a page fault beyond them is a SIGBUS."
            .to_owned(),
    );
    notes
}
