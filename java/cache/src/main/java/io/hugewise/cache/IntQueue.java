package io.hugewise.cache;

/// A queue of numbers.
final class IntQueue {
    private int[] numbers = new int[16];
    private int first;
    private int size;

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
        grow();
        numbers[first + size++ & numbers.length - 1] = number;
    }

    void addFirst(int number) {
        grow();
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

    private void grow() {
        if (size == numbers.length) {
            int[] longer = new int[2 * size];
            for (int i = 0; i < size; i++) {
                longer[i] = get(i);
            }
            numbers = longer;
            first = 0;
        }
    }
}
