package io.hugewise.cache;

/// Is notified of each entry that is removed, while its memory still has it.
@FunctionalInterface
interface Removals {
    void removed(long entry, RemovalCause cause);
}
