package io.hugewise.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.hugewise.memory.Machine.Pool;
import io.hugewise.memory.Machine.Ran;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/// Tests on the kernel's real pools and limits; skipped, with the reason, without the privilege.
class MachineTest {
    private static final Backing POOLED = Backing.hugetlb(Machine.PAGE);

    @Test
    @Tag("pools")
    void poolPagesAreReservedCoveredAndReleased() throws Exception {
        assumeTrue(Machine.mayChangePools(), "needs root, and a pool of 2 MiB pages");
        try (Pool _ = new Pool(8)) {
            long before = Pool.free();
            try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(7 * Machine.PAGE).only(POOLED).pretouch())) {
                assertThat(Pool.free()).isEqualTo(before - 7);
                assertThat(arena.backing()).hasToString("hugetlb:2MiB");
                assertThat(arena.coverage()).isInstanceOfSatisfying(Coverage.Known.class, known -> {
                    assertThat(known.on(Machine.PAGE)).isEqualTo(7 * Machine.PAGE);
                    assertThat(known.hugeShare()).isEqualTo(1.0);
                });
                arena.allocate(Machine.PAGE).fill((byte) 1);
            }
            assertThat(Pool.free()).isEqualTo(before);
            // One page more than the pool has.
            var tooMuch = HugeOptions.reserve((before + 1) * Machine.PAGE);
            assertThatThrownBy(() -> HugeArena.ofShared(tooMuch.only(POOLED)))
                    .hasMessageContaining((before + 1) + " wanted, " + before + " available of ")
                    .hasMessageContaining("'sudo hugewise apply --pool 2MiB=+1' adds them");
            try (HugeArena arena = HugeArena.ofShared(tooMuch.prefer(POOLED, Backing.base()).pretouch())) {
                assertThat(((Coverage.Known) arena.coverage()).hugeShare()).isZero();
                assertThat(arena.backing()).asString().startsWith("base; not hugetlb:2MiB: ");
            }
        }
    }

    @Test
    void aLimitOfTheControlGroupIsAnExceptionBeforeTheFirstTouch() throws Exception {
        assumeTrue(Libhugewise.find().isPresent(), "only libhugewise reads the limits of control groups");
        Path groups = Path.of("/sys/fs/cgroup/memory");
        assumeTrue(Files.isWritable(groups.resolve("cgroup.procs")), "needs root, and control groups (v1) for memory");
        Path group = Files.createDirectory(groups.resolve("hugewise-java-" + ProcessHandle.current().pid()));
        try {
            Files.writeString(group.resolve("memory.limit_in_bytes"), Long.toString(400L << 20));
            String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
            Ran ran = Machine.run(List.of(
                    "sh", "-c", "echo $$ > " + group + "/cgroup.procs; exec \"$@\"", "sh",
                    java, "-Xmx64m", "-cp", Path.of("target", "classes") + ":" + Path.of("target", "test-classes"),
                    "--enable-native-access=ALL-UNNAMED", Limited.class.getName()));
            assertThat(ran.output())
                    .contains("the control group is limited to 400MiB of memory, of which ")
                    .contains("are left, and 512MiB are requested: raise /sys/fs/cgroup/memory/hugewise-java-")
                    .contains("and 64 MiB were written");
            assertThat(ran.status()).isZero();
        } finally {
            Files.delete(group);
        }
    }

    /// Runs with a memory limit of 400 MiB.
    static final class Limited {
        public static void main(String[] arguments) {
            try {
                HugeArena.ofShared(HugeOptions.reserve(512L << 20).prefer(Backing.thp(), Backing.base()));
            } catch (HugeMemoryException refused) {
                System.out.println(refused.getMessage());
            }
            try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(64L << 20).only(Backing.base()).pretouch())) {
                arena.allocate(64L << 20).set(ValueLayout.JAVA_BYTE, 5, (byte) 1);
                System.out.println("and 64 MiB were written");
            }
        }
    }
}
