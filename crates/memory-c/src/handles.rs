//! Regions by handle.
//!
//! A handle is a number that looks like a pointer to C. It is never used twice: one that was
//! released, or was never given, is an error and not a crash. A region that is released while another
//! thread is at work on it stays until that work is done.

use std::{
    collections::BTreeMap,
    ptr,
    sync::{Arc, PoisonError, RwLock},
};

use crate::{
    error::Failure,
    region::{Held, Region},
};

struct Handles {
    regions: BTreeMap<usize, Arc<Held>>,
    last: usize,
}

static HANDLES: RwLock<Handles> = RwLock::new(Handles { regions: BTreeMap::new(), last: 0 });

/// Looks like an address, yet never is one, nor a small number that a program may make up.
const STEP: usize = 0x1000;

/// Keeps a region, and gives it a handle.
pub(crate) fn keep(held: Held) -> *mut Region {
    let mut handles = HANDLES.write().unwrap_or_else(PoisonError::into_inner);
    handles.last += STEP;
    let handle = handles.last | 1;
    handles.regions.insert(handle, Arc::new(held));
    ptr::without_provenance_mut(handle)
}

/// The region of a handle.
pub(crate) fn find(region: *const Region) -> Result<Arc<Held>, Failure> {
    let handles = HANDLES.read().unwrap_or_else(PoisonError::into_inner);
    handles.regions.get(&region.addr()).cloned().ok_or_else(|| unknown(region))
}

/// The region of a handle, which is one no more.
pub(crate) fn take(region: *const Region) -> Result<Arc<Held>, Failure> {
    let mut handles = HANDLES.write().unwrap_or_else(PoisonError::into_inner);
    handles.regions.remove(&region.addr()).ok_or_else(|| unknown(region))
}

fn unknown(region: *const Region) -> Failure {
    if region.is_null() {
        return Failure::argument("region is NULL");
    }
    Failure::argument(format!("{region:p} is not a region: it was released, or never reserved"))
}
