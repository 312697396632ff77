package io.hugewise.memory;

import java.util.Locale;

/// Sizes as text, in IEC units.
final class Bytes {
    private static final String UNITS = "KMGTPE";

    private Bytes() {}

    /// `2MiB`, `1.5GiB`, `17 bytes`.
    static String text(long bytes) {
        int unit = bytes < 1024 ? 0 : (63 - Long.numberOfLeadingZeros(bytes)) / 10;
        if (unit == 0) {
            return bytes + " bytes";
        }
        String name = UNITS.charAt(unit - 1) + "iB";
        long whole = bytes >> (10 * unit);
        return bytes == whole << (10 * unit)
                ? whole + name
                : String.format(Locale.ROOT, "%.1f%s", Math.scalb((double) bytes, -10 * unit), name);
    }

    /// `2MiB`, `2m`, `2M`, `2097152`.
    static long parse(String text) {
        String number = text.strip().toUpperCase(Locale.ROOT).replaceFirst("(IB|B)$", "");
        int unit = number.isEmpty() ? -1 : UNITS.indexOf(number.charAt(number.length() - 1));
        try {
            long value = Long.parseLong(unit < 0 ? number : number.substring(0, number.length() - 1).strip());
            return Math.multiplyExact(value, 1L << (10 * (unit + 1)));
        } catch (NumberFormatException | ArithmeticException _) {
            throw new IllegalArgumentException("'" + text + "' is not a size like 2MiB");
        }
    }
}
