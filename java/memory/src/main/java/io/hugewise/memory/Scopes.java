package io.hugewise.memory;

import java.lang.foreign.Arena;

/// Closes the arenas of the JVM more than once.
final class Scopes {
    private Scopes() {}

    /// Closes an arena that may be closed already, also by another thread at this moment.
    ///
    /// @return whether this call has closed it
    /// @throws IllegalStateException if a thread is accessing its memory
    /// @throws WrongThreadException if it is open and belongs to another thread
    static boolean close(Arena arena) {
        if (!arena.scope().isAlive()) {
            return false;
        }
        try {
            arena.close();
            return true;
        } catch (IllegalStateException error) {
            if (arena.scope().isAlive()) {
                throw error;
            }
            return false;
        }
    }
}
