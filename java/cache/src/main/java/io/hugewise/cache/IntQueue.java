package io.hugewise.cache;

/// A queue of numbers, as many as it was made for: adding one takes no memory of the heap, and cannot fail.
final class IntQueue {
    private final int[] numbers;
    private int first;
    private int size;

    IntQueue(int capacity) {
        numbers = new int[Integer.highestOneBit(Math.max(1, 2 * capacity - 1))];
    }

    int size() {
        return size;
    }

    boolean isEmpty() {
        return size == 0;
    }

    /// The number at a place, counted from the front.
    int get(int place) {
        return numbers[first + place & numbers.length - 1];
    }

    void add(int number) {
        numbers[first + size++ & numbers.length - 1] = number;
    }

    void addFirst(int number) {
        first = first - 1 & numbers.length - 1;
        numbers[first] = number;
        size++;
    }

    /// Removes the number at the front.
    int take() {
        int number = numbers[first];
        first = first + 1 & numbers.length - 1;
        size--;
        return number;
    }

    /// Removes the number at a place.
    void remove(int place) {
        for (int i = place; i < size - 1; i++) {
            numbers[first + i & numbers.length - 1] = get(i + 1);
        }
        size--;
    }
}
