//! tmpfiles.d: all pools and THP settings, written by systemd early at boot.

use hugewise_plan::plan::Plan;

use super::{FormatError, file, header, read_back, targets, thp_settings};

const FILE: &str = "/etc/tmpfiles.d/80-hugewise.conf";

pub fn render(plan: &Plan) -> Result<String, FormatError> {
    let targets = targets(plan);
    let mut lines: Vec<String> =
        targets.iter().map(|target| format!("w {} - - - - {}\n", target.path(), target.pages)).collect();
    lines.extend(thp_settings(plan).map(|(setting, to)| format!("w {} - - - - {to}\n", file(setting))));
    if lines.is_empty() {
        return FormatError::not_needed("the plan needs no pool and no other setting");
    }
    let pools = targets.iter().map(|target| format!("\n  echo {} > {}", target.before, target.path()));
    let settings = plan.settings.iter().filter(|change| thp_settings(plan).any(|(s, _)| s == change.setting));
    let settings = settings.map(|change| format!("\n  echo {} > {}", change.from, file(change.setting)));
    let mut paragraphs = vec![format!(
        "Put it into  {FILE}; each boot loads it before services start.\n\
         Load it now  systemd-tmpfiles --create {FILE}\n\
         Undo it      rm {FILE}, and as root:{}",
        pools.chain(settings).collect::<String>()
    )];
    if !targets.is_empty() {
        paragraphs.push(read_back(&targets));
    }
    Ok(header(plan, &paragraphs) + &lines.concat())
}
