//! The table of regions by handle.
//!
//! A handle is a number that C sees as a pointer. Handles are never reused, so a released or invalid one is
//! an error, not a crash. A region that is released during a call of another thread lives until that call
//! ends.

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

/// Distance of handles: handles are not valid addresses, nor small numbers that a program may make up.
const STEP: usize = 0x1000;

/// Stores a region and returns its handle.
pub(crate) fn keep(held: Held) -> *mut Region {
    let mut handles = HANDLES.write().unwrap_or_else(PoisonError::into_inner);
    handles.last += STEP;
    let handle = handles.last | 1;
    handles.regions.insert(handle, Arc::new(held));
    ptr::without_provenance_mut(handle)
}

pub(crate) fn find(region: *const Region) -> Result<Arc<Held>, Failure> {
    let handles = HANDLES.read().unwrap_or_else(PoisonError::into_inner);
    handles.regions.get(&region.addr()).cloned().ok_or_else(|| unknown(region))
}

/// Removes a handle from the table and returns its region.
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
