package io.hugewise.memory.internal;

import java.lang.ref.Cleaner;
import org.jspecify.annotations.Nullable;

/// What is done for objects of the library when they are closed or collected.
public final class Collected {
    private static @Nullable Cleaner cleaner;

    private Collected() {}

    /// Registers an object. If the system refuses the thread that this needs, the action runs only when the object is closed;
    /// the thread is tried again for the next object.
    ///
    /// @param object the object
    /// @param action does not refer to it
    /// @return runs the action, which was not run before
    public static Cleaner.Cleanable register(Object object, Runnable action) {
        Cleaner present = cleaner();
        return present == null ? action::run : present.register(object, action);
    }

    private static synchronized @Nullable Cleaner cleaner() {
        Cleaner present = cleaner;
        if (present == null) {
            try {
                present = Cleaner.create();
                cleaner = present;
            } catch (OutOfMemoryError _) {
                // No thread can be started.
            }
        }
        return present;
    }
}
