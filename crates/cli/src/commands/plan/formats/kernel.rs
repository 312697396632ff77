//! Parameters for the kernel's command line.

use std::collections::BTreeSet;

use hugewise_linux::{settings::Setting, units::PageSize};
use hugewise_plan::plan::Plan;

use super::{FormatError, Target, header, is_shm, short, sizes, targets, thp_settings};

pub fn render(plan: &Plan) -> Result<String, FormatError> {
    let targets = targets(plan);
    let mut words = pools(&targets);
    if let Some(size) = plan.backing.named_size().filter(|_| is_shm(plan)) {
        words.insert(0, format!("default_hugepagesz={}", short(size, "iB")));
    }
    let thp = thp(plan);
    words.extend(thp.iter().cloned());
    if words.is_empty() {
        return FormatError::not_needed("the plan needs no pool and no other setting");
    }
    let line = words.join(" ");
    let mut paragraphs = vec![format!(
        "Add the last line to the kernel's command line; it takes effect at the next boot:\n\
         Fedora, RHEL    grubby --update-kernel=ALL --args='{line}'\n\
         Debian, Ubuntu  in /etc/default/grub.d/80-hugewise.cfg, then update-grub:\n  \
           GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {line}\"\n\
         Undo it         grubby --update-kernel=ALL --remove-args=…, or rm the file and update-grub; reboot"
    )];
    if !targets.is_empty() {
        paragraphs.push(
            "The order matters: hugepages= applies to the size before it. At boot memory is not fragmented:\n\
             this is the most reliable way to allocate pools, and for 1GiB pages often the only one."
                .to_owned(),
        );
    }
    if targets.iter().any(|target| target.node.is_some()) {
        paragraphs.push("Pages per node (0:2) need Linux 5.16 or later.".to_owned());
    }
    if words.iter().any(|word| word.starts_with("default_hugepagesz")) {
        paragraphs.push(
            "default_hugepagesz: the JVM allocates shared memory only in pages of the default size."
                .to_owned(),
        );
    }
    if thp.iter().any(|word| word.contains("shmem")) {
        paragraphs.push("The parameters for shared memory need Linux 6.13 or later.".to_owned());
    }
    if thp.iter().any(|word| word.starts_with("thp_")) {
        paragraphs.push(
            "thp_anon (Linux 6.12) and thp_shmem (6.13) disable every size that they do not name: add the\n\
             sizes that you use."
                .to_owned(),
        );
    }
    Ok(header(plan, &paragraphs) + &line + "\n")
}

/// `hugepagesz=2M hugepages=651 hugepagesz=1G hugepages=0:2,1:2`.
pub fn pools(targets: &[Target]) -> Vec<String> {
    let of_size = |size| {
        let each: Vec<String> = targets
            .iter()
            .filter(|target| target.size == size)
            .map(|target| match target.node {
                Some(node) => format!("{node}:{}", target.pages),
                None => target.pages.to_string(),
            })
            .collect();
        [format!("hugepagesz={}", short(size, "iB")), format!("hugepages={}", each.join(","))]
    };
    sizes(targets).into_iter().flat_map(of_size).collect()
}

fn thp(plan: &Plan) -> Vec<String> {
    let mut words = Vec::new();
    let (mut anon, mut shmem) = (Vec::new(), Vec::new());
    for (setting, to) in thp_settings(plan) {
        match setting {
            Setting::ThpEnabled { page_size: None } => words.push(format!("transparent_hugepage={to}")),
            Setting::ShmemEnabled { page_size: None } => {
                words.push(format!("transparent_hugepage_shmem={to}"))
            }
            Setting::ThpEnabled { page_size: Some(size) } => anon.push((size, to)),
            Setting::ShmemEnabled { page_size: Some(size) } => shmem.push((size, to)),
            // No kernel parameter sets the others; `thp_settings` returns none of them.
            _ => {}
        }
    }
    for (name, mut sizes) in [("thp_anon", anon), ("thp_shmem", shmem)] {
        if sizes.is_empty() {
            continue;
        }
        sizes.extend(also_used(plan, &sizes).into_iter().map(|size| (size, "inherit")));
        let each: Vec<String> =
            sizes.iter().map(|(size, to)| format!("{}:{to}", short(*size, "iB"))).collect();
        words.push(format!("{name}={}", each.join(";")));
    }
    words
}

/// Huge page sizes of regions that the parameter would disable because it does not name them.
fn also_used(plan: &Plan, named: &[(PageSize, &str)]) -> BTreeSet<PageSize> {
    let regions = || plan.regions.iter().map(|region| region.page_size_bytes);
    let base = regions().min();
    regions().filter(|size| Some(*size) != base && named.iter().all(|(of, _)| of != size)).collect()
}
