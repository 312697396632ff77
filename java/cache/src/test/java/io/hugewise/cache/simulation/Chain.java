package io.hugewise.cache.simulation;

import java.util.Arrays;

/// A doubly linked list of keys, newest first.
final class Chain {
    private static final int NONE = -1;

    private final int[] newer;
    private final int[] older;
    private int newest = NONE;
    private int oldest = NONE;

    Chain(int keys) {
        newer = new int[keys];
        older = new int[keys];
        Arrays.fill(newer, NONE);
        Arrays.fill(older, NONE);
    }

    /// {@return the oldest key, or -1}
    int oldest() {
        return oldest;
    }

    /// {@return the key that was added after this one, or -1}
    int newerThan(int key) {
        return newer[key];
    }

    void add(int key) {
        newer[key] = NONE;
        older[key] = newest;
        if (newest == NONE) {
            oldest = key;
        } else {
            newer[newest] = key;
        }
        newest = key;
    }

    void remove(int key) {
        if (newer[key] == NONE) {
            newest = older[key];
        } else {
            older[newer[key]] = older[key];
        }
        if (older[key] == NONE) {
            oldest = newer[key];
        } else {
            newer[older[key]] = newer[key];
        }
    }
}
