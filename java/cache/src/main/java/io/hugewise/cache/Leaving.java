package io.hugewise.cache;

/// Is notified of each entry before it is replaced or removed, with its stripe locked.
@FunctionalInterface
interface Leaving {
    void leaving(long entry, long hash);
}
