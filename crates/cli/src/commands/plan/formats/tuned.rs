//! A TuneD profile.

use hugewise_linux::settings::Setting;
use hugewise_plan::plan::Plan;

use super::{FormatError, Target, file, header, kernel, read_back, targets, thp_settings};

const FOLDER: &str = "/etc/tuned/hugewise";

pub fn render(plan: &Plan) -> Result<String, FormatError> {
    let targets = targets(plan);
    let mut vm = Vec::new();
    let mut sysfs: Vec<String> =
        targets.iter().map(|target| format!("{}={}\n", target.path(), target.pages)).collect();
    for (setting, to) in thp_settings(plan) {
        match setting {
            Setting::ThpEnabled { page_size: None } => vm.push(format!("transparent_hugepages={to}\n")),
            other => sysfs.push(format!("{}={to}\n", file(other))),
        }
    }
    if vm.is_empty() && sysfs.is_empty() {
        return FormatError::not_needed("the plan needs no pool and no other setting");
    }
    // Pages that are not available now are allocated at boot.
    let at_boot: Vec<Target> = targets.iter().copied().filter(|target| !target.obtainable).collect();
    let mut paragraphs = vec![format!(
        "Put it into  {FOLDER}/tuned.conf (newer TuneD: /etc/tuned/profiles/hugewise/tuned.conf)\n\
         Load it      tuned-adm profile $(cat /etc/tuned/active_profile) hugewise\n\
         Undo it      tuned-adm profile PROFILE, the previous one: TuneD restores the values"
    )];
    if !targets.is_empty() {
        paragraphs.push(read_back(&targets));
    }
    if !at_boot.is_empty() {
        paragraphs.push(
            "[bootloader] is included because the pages are not available now: reboot after loading. TuneD\n\
             must manage the boot loader (GRUB 2, or BLS entries)."
                .to_owned(),
        );
    }
    let mut text = header(plan, &paragraphs);
    text.push_str("[main]\nsummary=Huge pages as planned by hugewise\n");
    for (name, lines) in [("vm", vm), ("sysfs", sysfs)] {
        if !lines.is_empty() {
            text.push_str(&format!("\n[{name}]\n{}", lines.concat()));
        }
    }
    if !at_boot.is_empty() {
        text.push_str(&format!("\n[bootloader]\ncmdline_hugewise=+{}\n", kernel::pools(&at_boot).join(" ")));
    }
    Ok(text)
}
