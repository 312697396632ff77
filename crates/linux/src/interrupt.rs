//! SIGINT, SIGTERM and SIGHUP set a flag, so that work can end in order.

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

pub use signal_hook::consts::SIGINT;
use signal_hook::consts::{SIGHUP, SIGTERM};

/// The flag of the handlers that were installed.
static INSTALLED: OnceLock<Interrupt> = OnceLock::new();

/// The flag set by signals that request termination.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// Installs the signal handlers, permanently.
    pub fn install() -> io::Result<Interrupt> {
        if let Some(installed) = INSTALLED.get() {
            return Ok(installed.clone());
        }
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register_usize(signal, Arc::clone(&interrupt.0), signal as usize)?;
        }
        Ok(INSTALLED.get_or_init(|| interrupt.clone()).clone())
    }

    /// The flag of the installed handlers; one that is never set if there are none.
    pub fn installed() -> Interrupt {
        INSTALLED.get().cloned().unwrap_or_default()
    }

    /// The flag of the installed handlers; `None` if there are none, so that a signal ends this process at once.
    pub fn of_handlers() -> Option<&'static Interrupt> {
        INSTALLED.get()
    }

    /// One that has received a signal.
    #[cfg(any(test, feature = "testing"))]
    pub fn received(signal: i32) -> Interrupt {
        Interrupt(Arc::new(AtomicUsize::new(signal.unsigned_abs() as usize)))
    }

    /// The signal received; `None` if there was none.
    pub fn signal(&self) -> Option<i32> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }
}
