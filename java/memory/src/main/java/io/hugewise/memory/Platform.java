package io.hugewise.memory;

import java.util.Optional;

/// Operating system and architecture of the JVM.
///
/// @param system `os.name`
/// @param machine `os.arch`
record Platform(String system, String machine) {
    static Platform current() {
        return new Platform(System.getProperty("os.name", "unknown"), System.getProperty("os.arch", "unknown"));
    }

    /// Directory of its library in the jar; empty if Hugewise does not support the platform.
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
