package io.hugewise.memory;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/// The process that has a [HugeFile] open, as it wrote it in the file: for the message that refuses another one. Only
/// [FileLock] decides who may open it.
///
/// ```text
/// boot ID of the machine, PID, start of the process in clock ticks: in ASCII, with spaces between, and zeros at the end
/// ```
final class FileOwner {
    private static final int BYTES = 128;
    private static final int BEGIN_OF_STATE = 2;
    private static final int START_AFTER_STATE = 19;

    private FileOwner() {}

    /// Notes this process.
    ///
    /// @param header the header of the mapped file
    static void write(MemorySegment header) {
        MemorySegment to = header.asSlice(FileHeader.AT_OWNER, BYTES);
        long pid = ProcessHandle.current().pid();
        byte[] text = (bootId() + " " + pid + " " + start(pid)).getBytes(StandardCharsets.US_ASCII);
        to.fill((byte) 0);
        MemorySegment.copy(text, 0, to, JAVA_BYTE, 0, Math.min(text.length, BYTES));
    }

    /// Says which process has a file open, to be appended to a message; empty if the file does not say.
    static String of(Path path) {
        try (FileChannel file = FileChannel.open(path, StandardOpenOption.READ)) {
            ByteBuffer bytes = ByteBuffer.allocate(BYTES);
            file.read(bytes, file.size() - FileHeader.BYTES + FileHeader.AT_OWNER);
            String[] owner = new String(bytes.array(), StandardCharsets.US_ASCII).trim().split(" ", -1);
            if (owner.length != 3 || !owner[0].equals(bootId()) || !owner[1].matches("[0-9]{1,10}")) {
                return "";
            }
            boolean isHere = owner[2].equals(start(Long.parseLong(owner[1])));
            return ", by process " + owner[1] + (isHere ? "" : ", which ended just now or is of another PID namespace");
        } catch (IOException | IllegalArgumentException _) {
            return "";
        }
    }

    private static String bootId() {
        return text(Path.of("/proc/sys/kernel/random/boot_id"));
    }

    /// When a process started, in clock ticks since the boot; `?` if it is unknown.
    private static String start(long pid) {
        String stat = text(Path.of("/proc/" + pid + "/stat"));
        // The name of the program may contain anything.
        String[] fields = stat.substring(Math.min(stat.length(), stat.lastIndexOf(')') + BEGIN_OF_STATE)).split(" ", -1);
        return fields.length > START_AFTER_STATE ? fields[START_AFTER_STATE] : "?";
    }

    private static String text(Path file) {
        try {
            return Files.readString(file, StandardCharsets.ISO_8859_1).trim();
        } catch (IOException _) {
            return "?";
        }
    }
}
