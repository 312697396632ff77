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

use crate::error::Failure;

/// Regions by handle.
pub(crate) struct Handles<T>(RwLock<Table<T>>);

struct Table<T> {
    regions: BTreeMap<usize, Arc<T>>,
    last: usize,
}

/// Distance of handles: handles are not valid addresses, nor small numbers that a program may make up.
const STEP: usize = 0x1000;

impl<T> Handles<T> {
    pub(crate) const fn new() -> Handles<T> {
        Handles(RwLock::new(Table { regions: BTreeMap::new(), last: 0 }))
    }

    /// Stores a region and returns its handle.
    pub(crate) fn keep<C>(&self, region: T) -> *mut C {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        table.last += STEP;
        let handle = table.last | 1;
        table.regions.insert(handle, Arc::new(region));
        ptr::without_provenance_mut(handle)
    }

    pub(crate) fn find<C>(&self, region: *const C) -> Result<Arc<T>, Failure> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.regions.get(&region.addr()).cloned().ok_or_else(|| unknown(region))
    }

    /// Removes a handle from the table and returns its region.
    pub(crate) fn take<C>(&self, region: *const C) -> Result<Arc<T>, Failure> {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        table.regions.remove(&region.addr()).ok_or_else(|| unknown(region))
    }
}

fn unknown<C>(region: *const C) -> Failure {
    if region.is_null() {
        return Failure::argument("region is NULL");
    }
    Failure::argument(format!("{region:p} is not a region: it was released, or never reserved"))
}
