package io.hugewise.cache;

/// Is notified of each entry that is removed, while its memory still has it.
@FunctionalInterface
interface Removals {
    void removed(long entry, RemovalCause cause);

    /// Is notified of an entry before it is removed because memory is needed, or of [Store#clear], under the lock of its
    /// stripe.
    default void leaving(long entry, long hash) {}

    /// Is called after a part of the background work, without a lock.
    ///
    /// @return whether it is to be called again soon
    default boolean partEnded() {
        return false;
    }
}
