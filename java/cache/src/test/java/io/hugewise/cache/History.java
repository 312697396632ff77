package io.hugewise.cache;

import java.util.HashSet;
import java.util.List;
import java.util.Set;

/// The calls of several threads that concern one key, and a check that they have an order (Wing and Gong, 1993): each call takes
/// effect at one moment between its begin and its end, as in a map of one thread.
///
/// Values are numbers; 0 is none. A value that has vanished is negative: a function of `compute` that has begun before may have
/// seen it, and no other call.
final class History {
    private final List<Call> calls;
    /// Whether the value may vanish at any moment, by eviction or expiry.
    private final boolean mayVanish;
    private final Set<Long> failed = new HashSet<>();

    enum Kind { GET, PUT, PUT_IF_ABSENT, REPLACE, REPLACE_VALUE, REMOVE, REMOVE_VALUE, INVALIDATE, COMPUTE, LOAD }

    /// A call.
    ///
    /// @param value what it would write, or compare with
    /// @param other what it would write in place of `value`
    /// @param result what it returned or found; 0 or 1 if that is false or true
    record Call(Kind kind, int value, int other, int result, long begin, long end) {}

    History(List<Call> calls, boolean mayVanish) {
        if (calls.size() > 32) {
            throw new IllegalArgumentException("at most 32 calls, not " + calls.size());
        }
        this.calls = calls;
        this.mayVanish = mayVanish;
    }

    /// Whether the calls have an order, from an absent value on.
    boolean hasOrder() {
        return hasOrder(0, 0);
    }

    private boolean hasOrder(int done, int state) {
        if (Integer.bitCount(done) == calls.size()) {
            return true;
        }
        if (!failed.add((long) done << 32 | state & 0xFFFF_FFFFL)) {
            return false;
        }
        if (mayVanish && state > 0 && hasOrder(done, -state)) {
            return true;
        }
        long firstEnd = Long.MAX_VALUE;
        for (int i = 0; i < calls.size(); i++) {
            firstEnd = (done >>> i & 1) == 0 ? Math.min(firstEnd, calls.get(i).end) : firstEnd;
        }
        for (int i = 0; i < calls.size(); i++) {
            if ((done >>> i & 1) == 0 && calls.get(i).begin <= firstEnd && canBeNext(i, done | 1 << i, state)) {
                return true;
            }
        }
        return false;
    }

    private boolean canBeNext(int number, int done, int present) {
        Call call = calls.get(number);
        int state = Math.max(0, present);
        boolean isSame = call.value == state;
        return switch (call.kind) {
            case GET -> call.result == state && hasOrder(done, present);
            case PUT -> hasOrder(done, call.value);
            case PUT_IF_ABSENT -> call.result == state && hasOrder(done, state == 0 ? call.value : state);
            case REPLACE -> call.result == state && hasOrder(done, state == 0 ? present : call.value);
            case REPLACE_VALUE -> call.result == (isSame ? 1 : 0) && hasOrder(done, isSame ? call.other : present);
            case REMOVE -> call.result == state && hasOrder(done, 0);
            case REMOVE_VALUE -> call.result == (isSame ? 1 : 0) && hasOrder(done, isSame ? 0 : present);
            case INVALIDATE -> hasOrder(done, 0);
            case COMPUTE -> (call.result == state || call.result == -present) && hasOrder(done, call.value);
            case LOAD -> state != 0 && call.result == state ? hasOrder(done, state) : isLoaded(call, number, done, present);
        };
    }

    /// A load returns what it has loaded, which it does not add if the key was changed during that time; or what another one
    /// has loaded during that time.
    private boolean isLoaded(Call call, int number, int done, int present) {
        if (call.result == call.value && present <= 0) {
            return hasOrder(done, call.value) || hasOrder(done, present);
        }
        for (int i = 0; i < calls.size(); i++) {
            Call by = calls.get(i);
            if (i != number && by.kind == Kind.LOAD && by.value == call.result && by.begin <= call.end && call.begin <= by.end) {
                return hasOrder(done, present);
            }
        }
        return false;
    }
}
