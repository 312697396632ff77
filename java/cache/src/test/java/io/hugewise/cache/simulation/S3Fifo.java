package io.hugewise.cache.simulation;

/// S3-FIFO (Yang et al., SOSP '23): a small queue for new keys, a main one for those that were used in it, and a queue
/// of keys that the small one evicted, which go to the main one when they are requested again.
final class S3Fifo implements Policy {
    private static final double SMALL = 0.1;
    private static final byte ABSENT = 0;
    private static final byte IN_SMALL = 1;
    private static final byte IN_MAIN = 2;
    private static final byte IN_GHOST = 3;
    private static final int MOST_USES = 3;

    private final int[] sizes;
    private final byte[] place;
    private final byte[] uses;
    private final Chain small;
    private final Chain main;
    private final Chain ghost;
    private final long smallCapacity;
    private final long mainCapacity;
    private long smallBytes;
    private long mainBytes;
    private long ghostBytes;

    S3Fifo(long capacity, int[] sizes) {
        this.sizes = sizes;
        this.place = new byte[sizes.length];
        this.uses = new byte[sizes.length];
        this.small = new Chain(sizes.length);
        this.main = new Chain(sizes.length);
        this.ghost = new Chain(sizes.length);
        this.smallCapacity = Math.max(1, Math.round(capacity * SMALL));
        this.mainCapacity = capacity - smallCapacity;
    }

    @Override
    public boolean request(int key) {
        if (place[key] == IN_SMALL || place[key] == IN_MAIN) {
            uses[key] = (byte) Math.min(MOST_USES, uses[key] + 1);
            return true;
        }
        int size = sizes[key];
        if (size > mainCapacity) {
            return false;
        }
        boolean wasGhost = place[key] == IN_GHOST;
        if (wasGhost) {
            ghost.remove(key);
            ghostBytes -= size;
            place[key] = ABSENT;
        }
        while (smallBytes + mainBytes + size > smallCapacity + mainCapacity) {
            evict();
        }
        uses[key] = 0;
        if (wasGhost) {
            addToMain(key);
        } else {
            small.add(key);
            smallBytes += size;
            place[key] = IN_SMALL;
        }
        return false;
    }

    private void addToMain(int key) {
        main.add(key);
        mainBytes += sizes[key];
        place[key] = IN_MAIN;
    }

    private void evict() {
        if (smallBytes > 0 && smallBytes >= smallCapacity || mainBytes == 0) {
            evictSmall();
        } else {
            evictMain();
        }
    }

    private void evictSmall() {
        int key = small.oldest();
        small.remove(key);
        smallBytes -= sizes[key];
        if (uses[key] > 1) {
            uses[key] = 0;
            addToMain(key);
            while (mainBytes > mainCapacity) {
                evictMain();
            }
            return;
        }
        place[key] = IN_GHOST;
        ghost.add(key);
        ghostBytes += sizes[key];
        while (ghostBytes > mainCapacity) {
            int forgotten = ghost.oldest();
            ghost.remove(forgotten);
            ghostBytes -= sizes[forgotten];
            place[forgotten] = ABSENT;
        }
    }

    private void evictMain() {
        while (true) {
            int key = main.oldest();
            main.remove(key);
            if (uses[key] == 0) {
                mainBytes -= sizes[key];
                place[key] = ABSENT;
                return;
            }
            uses[key]--;
            main.add(key);
        }
    }
}
