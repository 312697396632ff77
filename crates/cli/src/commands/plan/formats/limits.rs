//! limits.d: locked memory.

use hugewise_linux::{hugepages::backing::Backing, units::Bytes};
use hugewise_plan::plan::Plan;

use super::{FormatError, header, targets};

const FILE: &str = "/etc/security/limits.d/80-hugewise.conf";

pub fn render(plan: &Plan) -> Result<String, FormatError> {
    let unneeded = match plan.backing {
        Backing::Base => Some("base pages need no limit"),
        Backing::Thp => Some("transparent huge pages need no limit"),
        Backing::Hugetlb(_) => Some("no limit of limits.d applies to huge pages by mmap (backing hugetlb)"),
        Backing::Shm(_) => targets(plan).is_empty().then_some("the plan needs no pool"),
    };
    if let Some(why) = unneeded {
        return FormatError::not_needed(why);
    }
    let needed = plan.pools.iter().map(|pool| pool.pages_needed * pool.page_size_bytes);
    let kib = needed.sum::<Bytes>().0.div_ceil(1024);
    let text = header(
        plan,
        &[
            format!(
                "Put it into  {FILE}\n\
                 Load it      log in again; services of systemd do not read it (use --format systemd)\n\
                 Undo it      rm {FILE}"
            ),
            "Needed only before Linux 5.16. Later kernels ignore memlock here: they require CAP_IPC_LOCK\n\
             or the group of vm.hugetlb_shm_group (see --format sysctl), which suffice on earlier kernels too."
                .to_owned(),
            "In KiB, for all segments of one user. Replace hugepages by your group.".to_owned(),
        ],
    );
    Ok(text + &format!("@hugepages - memlock {kib}\n"))
}
