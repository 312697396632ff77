package io.hugewise.cache;

/// Is notified of each entry that is removed, while its memory still has it.
@FunctionalInterface
interface Removals {
    void removed(long entry, RemovalCause cause);

    /// Is notified of an entry before it is removed because memory is needed, or of [Store#clear], under the lock of its
    /// stripe.
    default void leaving(long entry, long hash) {}

    /// Is called after the work of the background thread, without a lock.
    default void endedInBackground() {}
}
