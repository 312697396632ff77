package io.hugewise.benchmarks.cache;

/// Numbers of keys in the order in which a thread requests them.
final class Keys {
    private static final double EXPONENT = 0.99;
    private static final int DRAWS = 1 << 22;

    private final int entries;
    private final int[] zipf;
    private long random;
    private int next;

    /// @param entries number of keys
    /// @param seed makes the order of a thread its own
    Keys(int entries, long seed) {
        this.entries = entries;
        this.random = Key.mixed(seed + 1) | 1;
        this.zipf = new int[DRAWS];
        var ranks = new Zipf(entries, EXPONENT);
        long step = coprime(entries);
        for (int i = 0; i < DRAWS; i++) {
            double uniform = (random() >>> 11) * 0x1.0p-53;
            // Popular keys are not neighbours.
            zipf[i] = (int) (ranks.rank(uniform) * step % entries);
        }
    }

    private static long coprime(long entries) {
        long step = 2_654_435_761L % entries | 1;
        while (gcd(step, entries) != 1) {
            step += 2;
        }
        return step;
    }

    private static long gcd(long one, long other) {
        return other == 0 ? one : gcd(other, one % other);
    }

    /// 64 random bits (xorshift).
    long random() {
        random ^= random << 13;
        random ^= random >>> 7;
        random ^= random << 17;
        return random;
    }

    int uniform() {
        return (int) ((random() >>> 32) * entries >>> 32);
    }

    int zipf() {
        next = next + 1 & DRAWS - 1;
        return zipf[next];
    }

    /// Ranks with a zipf distribution, by the approximation of Gray et al., "Quickly generating billion-record synthetic
    /// databases" (1994), as in YCSB.
    private static final class Zipf {
        private final int count;
        private final double exponent;
        private final double zeta;
        private final double alpha;
        private final double eta;

        Zipf(int count, double exponent) {
            this.count = count;
            this.exponent = exponent;
            double sum = 0;
            for (int rank = 1; rank <= count; rank++) {
                sum += 1 / Math.pow(rank, exponent);
            }
            zeta = sum;
            alpha = 1 / (1 - exponent);
            eta = (1 - Math.pow(2.0 / count, 1 - exponent)) / (1 - (1 + Math.pow(0.5, exponent)) / zeta);
        }

        long rank(double uniform) {
            double scaled = uniform * zeta;
            if (scaled < 1) {
                return 0;
            }
            if (scaled < 1 + Math.pow(0.5, exponent)) {
                return 1;
            }
            return Math.min(count - 1, (long) (count * Math.pow(eta * uniform - eta + 1, alpha)));
        }
    }
}
