package io.hugewise.memory;

import java.util.Optional;

/// What the JVM runs on.
///
/// @param system as `os.name` says
/// @param machine as `os.arch` says
record Platform(String system, String machine) {
    static Platform current() {
        return new Platform(System.getProperty("os.name", "unknown"), System.getProperty("os.arch", "unknown"));
    }

    /// The folder of its library in the jar; none where Hugewise has no library for it.
    Optional<String> folder() {
        if (!system.equals("Linux")) {
            return Optional.empty();
        }
        return switch (machine) {
            case "amd64", "x86_64" -> Optional.of("linux-x86_64");
            case "aarch64" -> Optional.of("linux-aarch64");
            default -> Optional.empty();
        };
    }

    @Override
    public String toString() {
        return system + " on " + machine;
    }
}
