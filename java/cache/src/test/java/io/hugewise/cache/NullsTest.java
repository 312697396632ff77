package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.hugewise.memory.Backing;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Parameter;
import java.lang.reflect.Proxy;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;

/// Null is refused by each parameter of each public method, before anything happens.
class NullsTest {
    /// Methods that return an answer for null, as those of maps.
    private static final Set<String> ANSWERED = Set.of("ConcurrentMap.remove(Object,null)", "ConcurrentMap.equals(null)", "HugeCache.equals(null)",
            "HugeCacheBuilder.equals(null)", "WriteBack.equals(null)", "Policy.equals(null)", "VarExpiration.equals(null)", "FixedExpiration.equals(null)",
            "ConcurrentMap.getOrDefault(Object,null)");

    private final Map<String, String> store = new HashMap<>(Map.of("key", "value"));

    private HugeCacheBuilder<String, String> builder() {
        return HugeCache.builder(Serializers.strings(), Serializers.strings()).maximumBytes(4 << 20).memory(options -> options.only(Backing.base()))
                .loader(key -> key).expireAfterWrite(Duration.ofHours(1));
    }

    /// An argument that is not null.
    private static Object argument(Class<?> type) {
        if (type == Object.class || type == String.class) {
            return "key";
        }
        if (type.isInterface()) {
            return type == Map.class ? Map.of() : type == Iterable.class ? List.of()
                    : Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (_, _, _) -> null);
        }
        return switch (type.getName()) {
            case "long" -> 8L << 20;
            case "int" -> 1;
            case "boolean" -> true;
            case "java.time.Duration" -> Duration.ofHours(1);
            case "io.hugewise.cache.WriteBack" -> WriteBack.to(_ -> {});
            default -> throw new IllegalArgumentException(type.getName());
        };
    }

    private static void isRefused(Class<?> type, Object target, List<String> accepted) throws IllegalAccessException {
        for (Method method : type.getMethods()) {
            if (method.getDeclaringClass() == Object.class && !method.getName().equals("equals") || Modifier.isStatic(method.getModifiers())) {
                continue;
            }
            Parameter[] parameters = method.getParameters();
            for (int i = 0; i < parameters.length; i++) {
                if (parameters[i].getType().isPrimitive()) {
                    continue;
                }
                Object[] arguments = Arrays.stream(parameters).map(Parameter::getType).map(NullsTest::argumentOf).toArray();
                arguments[i] = null;
                String[] names = Arrays.stream(parameters).map(parameter -> parameter.getType().getSimpleName()).toArray(String[]::new);
                names[i] = "null";
                String name = type.getSimpleName() + "." + method.getName() + "(" + String.join(",", names) + ")";
                try {
                    method.invoke(target, arguments);
                    if (!ANSWERED.contains(name)) {
                        accepted.add(name);
                    }
                } catch (InvocationTargetException error) {
                    if (!(error.getCause() instanceof NullPointerException)) {
                        accepted.add(name + " throws " + error.getCause());
                    }
                }
            }
        }
    }

    private static Object argumentOf(Class<?> type) {
        return type == Path.class ? Path.of("/dev/shm/never-created") : argument(type);
    }

    @Test
    void noMethodAcceptsNull() throws Exception {
        List<String> accepted = new ArrayList<>();
        isRefused(HugeCacheBuilder.class, builder(), accepted);
        isRefused(WriteBack.class, WriteBack.to(_ -> {}), accepted);
        assertThatThrownBy(() -> HugeCache.builder(null, Serializers.strings())).isInstanceOf(NullPointerException.class);
        assertThatThrownBy(() -> HugeCache.builder(Serializers.strings(), null)).isInstanceOf(NullPointerException.class);
        assertThatThrownBy(() -> WriteBack.to(null)).isInstanceOf(NullPointerException.class);
        List<HugeCacheBuilder<String, String>> kinds = List.of(
                builder(),
                builder().heapEntries(10),
                builder().writeThrough(changes -> changes.forEach(change -> store.put(change.key(), change.value()))),
                builder().writeBack(WriteBack.to(changes -> changes.forEach(change -> store.put(change.key(), change.value())))));
        for (var kind : kinds) {
            try (var cache = kind.build()) {
                cache.put("key", "value");
                isRefused(HugeCache.class, cache, accepted);
                cache.put("key", "value");
                isRefused(java.util.concurrent.ConcurrentMap.class, cache.asMap(), accepted);
                isRefused(Policy.class, cache.policy(), accepted);
                isRefused(Policy.VarExpiration.class, cache.policy().expireVariably().orElseThrow(), accepted);
                isRefused(Policy.FixedExpiration.class, cache.policy().expireAfterWrite().orElseThrow(), accepted);
            }
        }
        assertThat(new TreeSet<>(accepted)).isEmpty();
    }

    @Test
    void nullDeletesNoRow() {
        try (var cache = builder().writeThrough(changes -> changes.forEach(change -> {
            if (change.value() == null) {
                store.remove(change.key());
            } else {
                store.put(change.key(), change.value());
            }
        })).build()) {
            assertThatThrownBy(() -> cache.put("key", null)).isInstanceOf(NullPointerException.class);
            assertThatThrownBy(() -> cache.put("key", null, Duration.ofHours(1))).isInstanceOf(NullPointerException.class);
            assertThatThrownBy(() -> cache.putIfAbsent("key", null)).isInstanceOf(NullPointerException.class);
            assertThatThrownBy(() -> cache.asMap().put("key", null)).isInstanceOf(NullPointerException.class);
            assertThatThrownBy(() -> cache.asMap().replace("key", null)).isInstanceOf(NullPointerException.class);
            Map<String, String> map = new HashMap<>();
            map.put("key", null);
            assertThatThrownBy(() -> cache.putAll(map)).isInstanceOf(NullPointerException.class);
            assertThatThrownBy(() -> cache.asMap().putAll(map)).isInstanceOf(NullPointerException.class);
            assertThat(cache.asMap().remove("key", null)).isFalse();
        }
        assertThat(store).containsEntry("key", "value");
    }

    @Test
    void aNegativeWeightIsAnException() {
        assertThatThrownBy(() -> builder().heapWeight(-1, _ -> 1)).isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() -> new HeapTable<String>(10, _ -> -1).weight("value")).isInstanceOf(IllegalArgumentException.class);
    }
}
