//! A drop-in for the service that starts the JVM.

use hugewise_plan::plan::Plan;

use super::{CannotSay, VARIABLE_NOTE, header, is_shm, quote, targets, thp_settings, variable};

pub fn render(plan: &Plan) -> Result<String, CannotSay> {
    if plan.options.is_empty() && !is_shm(plan) {
        let why = "the service needs no option and no right";
        let machine = !targets(plan).is_empty() || thp_settings(plan).next().is_some();
        return Err(if machine {
            CannotSay::instead(why, "use --format tmpfiles for the machine's settings")
        } else {
            CannotSay::not_needed(why)
        });
    }
    let mut paragraphs = vec![
        "Put it into  /etc/systemd/system/NAME.service.d/80-hugewise.conf, NAME being your service\n\
         Load it      systemctl daemon-reload; systemctl restart NAME\n\
         Undo it      rm the file, and load again"
            .to_owned(),
    ];
    if !targets(plan).is_empty() || thp_settings(plan).next().is_some() {
        paragraphs.push(
            "The machine's part is --format tmpfiles: at boot it is done before any service starts."
                .to_owned(),
        );
    }
    let mut text = header(plan, &paragraphs) + "[Service]\n";
    if !plan.options.is_empty() {
        let (name, value) = variable(plan);
        text.push_str(&format!(
            "# {VARIABLE_NOTE}\n\
             # It replaces a {name} that the service sets already: join them then.\n\
             Environment={}\n",
            quote::systemd_assignment(name, &value)
        ));
    }
    if is_shm(plan) {
        text.push_str(
            "# Shared memory on huge pages takes this capability, or the group of vm.hugetlb_shm_group as one \
             of SupplementaryGroups=.\n\
             # With it LimitMEMLOCK= does not count. CapabilityBoundingSet= of the service must not exclude it.\n\
             AmbientCapabilities=CAP_IPC_LOCK\n",
        );
    }
    Ok(text)
}
