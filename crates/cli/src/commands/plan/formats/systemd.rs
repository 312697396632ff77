//! A drop-in for the systemd service that starts the JVM.

use hugewise_linux::{shell, systemd::Unit};
use hugewise_plan::plan::Plan;

use super::{FormatError, VARIABLE_NOTE, header, is_shm, quote, targets, thp_settings, variable};

/// `service`: the unit of the JVM, if it is known.
pub fn render(plan: &Plan, service: Option<&Unit>) -> Result<String, FormatError> {
    let needs_settings = !targets(plan).is_empty() || thp_settings(plan).next().is_some();
    if plan.options.is_empty() && !is_shm(plan) {
        let why = "the service needs no option and no capability";
        return match needs_settings {
            true => FormatError::instead(why, "use --format tmpfiles for the machine's settings"),
            false => FormatError::not_needed(why),
        };
    }
    let file = |unit: &str| format!("/etc/systemd/system/{unit}.d/80-hugewise.conf");
    let (place, unit) = match service {
        Some(unit) => (file(unit.name()), shell::word(unit.name())),
        None => (file("NAME.service") + ", for your service NAME", "NAME".to_owned()),
    };
    let mut paragraphs = vec![format!(
        "Put it into  {place}\n\
         Load it      systemctl daemon-reload; systemctl restart {unit}\n\
         Undo it      rm the file, then load again"
    )];
    if needs_settings {
        paragraphs.push(
            "Set the machine's settings with --format tmpfiles: at boot they are applied before services start."
                .to_owned(),
        );
    }
    let mut text = header(plan, &paragraphs) + "[Service]\n";
    if !plan.options.is_empty() {
        let (name, value) = variable(plan);
        text.push_str(&format!(
            "# {VARIABLE_NOTE}\n\
             # This replaces a {name} that the service already sets: join both values.\n\
             Environment={}\n",
            quote::systemd_assignment(name, &value)
        ));
    }
    if is_shm(plan) {
        text.push_str(
            "# Shared memory on huge pages needs this capability, or the group of vm.hugetlb_shm_group in \
             SupplementaryGroups=.\n\
             # LimitMEMLOCK= then has no effect. CapabilityBoundingSet= of the service must not exclude it.\n\
             AmbientCapabilities=CAP_IPC_LOCK\n",
        );
    }
    Ok(text)
}
