//! Causes of messages about THP modes.

use hugewise_linux::action::Action;

use super::{Answer, Candidate, Candidates};
use crate::messages::explainer::Explainer;

/// Whether a mode gives huge pages to programs that request them.
fn permits(mode: &str) -> bool {
    !matches!(mode, "never" | "deny")
}

impl Explainer<'_> {
    /// Causes of THP that a JVM requested and did not get.
    pub(super) fn thp_off(&self) -> Answer {
        let mode = self.known.thp.as_deref();
        let on = mode.is_some_and(permits);
        let of_text = self.captured.thp.is_some();
        let fact = format!("THP is set to {}", mode.unwrap_or_default());
        let never = Candidate::new(
            "the setting of the machine is never: the JVM runs on base pages. JDK 11 prints no message in this case",
            self.allow("enabled", "madvise", None),
        )
        .unless(on, &fact)
        .unless(self.is_in_sandbox(), "the kernel of the text is that of a sandbox, which has no THP");
        let mut causes = vec![never];
        if on && !of_text {
            causes.push(Candidate::new(
                format!(
                    "the setting was never when the JVM started, and is {} now",
                    mode.unwrap_or_default()
                ),
                Action::new("Restart the program: the setting permits huge pages now"),
            ));
        }
        if self.is_in_sandbox() || on && of_text {
            causes.push(Candidate::new(
                "the JVM could not read the setting, or its kernel has no THP: /sys is not visible in its container, or it runs in a \
                 sandbox",
                Action::new("Run the JVM where /sys/kernel/mm/transparent_hugepage is visible (runc, no mask on /sys)")
                    .by("cat /sys/kernel/mm/transparent_hugepage/enabled"),
            ));
        }
        Candidates {
            happened: "The JVM requested THP and switched it off.".to_owned(),
            causes,
            question: Action::new("What is the THP setting where the JVM runs?")
                .by("cat /sys/kernel/mm/transparent_hugepage/enabled"),
        }
        .answer()
    }

    /// A request for another THP mode that the machine has by now; `None` if it is not known to have it.
    pub(super) fn program_thp(&self) -> Option<Answer> {
        let mode = self.known.thp.as_deref().filter(|_| self.captured.thp.is_none())?;
        let text = self.found.text.to_lowercase();
        let of_enabled = !text.contains("/defrag") && !text.contains("khugepaged/");
        let complains_of_always =
            text.contains("always") && !text.contains("desiredvalue") && !text.contains("must be")
                || text.contains("is enabled")
                || text.contains("are enabled")
                || text.contains("support enabled");
        (of_enabled && complains_of_always && mode != "always").then(|| {
            let meaning = self.found.message.advice().map(|advice| self.filled(advice.meaning)).unwrap_or_default();
            Answer::certain(
                format!("{meaning} The mode was always when the program started, and is {mode} now."),
                Action::new("Restart the program, which reads the mode at its start; make the setting persistent if it was made by hand"),
            )
        })
    }
}
