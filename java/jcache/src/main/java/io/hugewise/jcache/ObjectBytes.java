package io.hugewise.jcache;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.ObjectStreamClass;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import javax.cache.CacheException;

/// Objects as bytes, after a byte for their kind: strings, integers, arrays of bytes, and by Java serialization others.
final class ObjectBytes {
    private static final byte SERIALIZED = 0;
    private static final byte STRING = 1;
    private static final byte INTEGER = 2;
    private static final byte LONG = 3;
    private static final byte BYTES = 4;

    private final ClassLoader classes;

    ObjectBytes(ClassLoader classes) {
        this.classes = classes;
    }

    /// Writes an object after some bytes that are left 0.
    byte[] write(Object object, int before) {
        return switch (object) {
            case String text when isEncodable(text) -> bytes(STRING, before, text.getBytes(StandardCharsets.UTF_8));
            case Integer number -> ByteBuffer.allocate(before + 1 + Integer.BYTES).position(before).put(INTEGER).putInt(number).array();
            case Long number -> ByteBuffer.allocate(before + 1 + Long.BYTES).position(before).put(LONG).putLong(number).array();
            case byte[] array -> bytes(BYTES, before, array);
            default -> serialized(object, before);
        };
    }

    private static boolean isEncodable(String text) {
        return text.chars().noneMatch(c -> Character.isSurrogate((char) c));
    }

    private static byte[] bytes(byte kind, int before, byte[] content) {
        return ByteBuffer.allocate(before + 1 + content.length).position(before).put(kind).put(content).array();
    }

    private static byte[] serialized(Object object, int before) {
        var bytes = new ByteArrayOutputStream();
        bytes.writeBytes(new byte[before]);
        bytes.write(SERIALIZED);
        try (var objects = new ObjectOutputStream(bytes)) {
            objects.writeObject(object);
        } catch (IOException error) {
            throw new CacheException("cannot serialize an object of " + object.getClass().getName(), error);
        }
        return bytes.toByteArray();
    }

    /// Whether equal objects have equal bytes: not if Java serializes them, except for arrays, which are compared by
    /// their contents here.
    static boolean isCanonical(Object object) {
        return switch (object) {
            case String text -> isEncodable(text);
            case Integer _, Long _ -> true;
            default -> object.getClass().isArray();
        };
    }

    /// Reads an object that was written after as many bytes.
    Object read(byte[] bytes, int before) {
        return read(bytes, before, bytes.length);
    }

    /// The same of one that ends before the end.
    Object read(byte[] bytes, int before, int end) {
        int from = before + 1;
        int length = end - from;
        return switch (bytes[before]) {
            case STRING -> new String(bytes, from, length, StandardCharsets.UTF_8);
            case INTEGER -> ByteBuffer.wrap(bytes).getInt(from);
            case LONG -> ByteBuffer.wrap(bytes).getLong(from);
            case BYTES -> java.util.Arrays.copyOfRange(bytes, from, end);
            default -> deserialized(new ByteArrayInputStream(bytes, from, length));
        };
    }

    private Object deserialized(InputStream bytes) {
        try (var objects = new ObjectInputStream(bytes) {
            @Override
            protected Class<?> resolveClass(ObjectStreamClass described) throws IOException, ClassNotFoundException {
                try {
                    return Class.forName(described.getName(), false, classes);
                } catch (ClassNotFoundException _) {
                    return super.resolveClass(described);
                }
            }
        }) {
            return objects.readObject();
        } catch (IOException | ClassNotFoundException error) {
            throw new CacheException("cannot deserialize an object", error);
        }
    }
}
