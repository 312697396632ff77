//! sysctl.d: the pool of the default page size.

use hugewise_plan::plan::Plan;

use super::{FormatError, Target, header, is_shm, read_back, targets};

const FILE: &str = "/etc/sysctl.d/80-hugewise.conf";
/// The kernel's default of `shmmax` (bytes) and `shmall` (pages): no limit.
const NO_LIMIT: u64 = u64::MAX - (1 << 24);

pub fn render(plan: &Plan) -> Result<String, FormatError> {
    let targets = targets(plan);
    if targets.is_empty() && plan.settings.is_empty() {
        return FormatError::not_needed("the plan needs no pool");
    }
    if targets.is_empty() {
        let instead = "use --format tmpfiles, tuned or kernel";
        return FormatError::instead("transparent huge pages have no sysctl", instead);
    }
    let default = plan.default_page_size_bytes;
    let (ours, others): (Vec<Target>, Vec<Target>) =
        targets.iter().partition(|target| Some(target.size) == default && target.node.is_none());
    let Some(pool) = ours.first() else {
        return FormatError::instead(
            "vm.nr_hugepages sets only the pool of the default page size on all nodes, and the plan needs \
             another size or single nodes",
            "use --format tmpfiles or kernel, which set each pool by size and node",
        );
    };
    let mut paragraphs = vec![
        format!(
            "Put it into  {FILE}; each boot loads it.\n\
             Load it now  sysctl -p {FILE}\n\
             Undo it      rm {FILE}; sysctl -w vm.nr_hugepages={}",
            pool.before
        ),
        read_back(&ours),
    ];
    if !others.is_empty() {
        let each: Vec<String> = others.iter().map(|target| target.path()).collect();
        paragraphs.push(format!(
            "Not in this file, because no sysctl sets them; use --format tmpfiles or kernel:\n  {}",
            each.join("\n  ")
        ));
    }
    let mut text = header(plan, &paragraphs);
    text.push_str(&format!("vm.nr_hugepages = {}\n", pool.pages));
    if is_shm(plan) {
        text.push_str(&format!(
            "# A process without CAP_IPC_LOCK must be in this group to use shared memory on huge pages.\n\
             # Replace GID by its number (getent group NAME), and uncomment the line:\n\
             # vm.hugetlb_shm_group = GID\n\
             # Largest segment in bytes, and total of all segments in base pages; the kernel's defaults:\n\
             kernel.shmmax = {NO_LIMIT}\n\
             kernel.shmall = {NO_LIMIT}\n"
        ));
    }
    Ok(text)
}
