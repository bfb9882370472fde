package tidemill.bench;

import java.io.IOException;
import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BaseIntVector;
import org.apache.arrow.vector.BitVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.TimeStampVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.complex.ListVector;
import org.apache.arrow.vector.complex.StructVector;
import org.apache.arrow.vector.ipc.ArrowFileReader;

/** Arrow's columns as Java's objects, by name, before any clock runs. */
final class Rows {
    private Rows() {}

    /** What is done with each batch of a file. */
    interface Batches {
        void accept(VectorSchemaRoot batch) throws Exception;
    }

    static void eachBatch(Path file, Batches batches) throws Exception {
        try (BufferAllocator memory = new RootAllocator();
                FileChannel channel = FileChannel.open(file);
                ArrowFileReader reader = new ArrowFileReader(channel, memory)) {
            while (reader.loadNextBatch()) {
                batches.accept(reader.getVectorSchemaRoot());
            }
        }
    }

    static <T> List<T> read(Path file, Class<T> type) throws Exception {
        List<T> rows = new ArrayList<>();
        eachBatch(file, batch -> {
            for (int row = 0; row < batch.getRowCount(); row++) {
                rows.add(object(type, batch.getFieldVectors(), row));
            }
        });
        return rows;
    }

    static <T> T object(Class<T> type, List<FieldVector> columns, int row) throws ReflectiveOperationException {
        T object = type.getDeclaredConstructor().newInstance();
        for (FieldVector column : columns) {
            Field field = type.getField(fieldName(column.getName()));
            Object value = value(column, row, field.getType());
            if (value != null) {
                field.set(object, value);
            } else if (field.getType().isPrimitive()) {
                throw new IllegalArgumentException("column `" + column.getName() + "` has a null");
            }
        }
        return object;
    }

    private static Object value(FieldVector column, int row, Class<?> type) throws ReflectiveOperationException {
        if (column.isNull(row)) {
            return null;
        }
        if (column instanceof VarCharVector strings) {
            return new String(strings.get(row), StandardCharsets.UTF_8);
        }
        if (column instanceof TimeStampVector times) {
            return times.get(row);
        }
        if (column instanceof BaseIntVector numbers) {
            long number = numbers.getValueAsLong(row);
            boolean wide = type == long.class || type == Long.class;
            return wide ? (Object) number : (Object) Math.toIntExact(number);
        }
        if (column instanceof Float8Vector floats) {
            return floats.get(row);
        }
        if (column instanceof BitVector bits) {
            return bits.get(row) != 0;
        }
        if (column instanceof ListVector lists) {
            FieldVector items = lists.getDataVector();
            int start = lists.getElementStartIndex(row);
            int count = lists.getElementEndIndex(row) - start;
            Object array = Array.newInstance(type.getComponentType(), count);
            for (int item = 0; item < count; item++) {
                Array.set(array, item, value(items, start + item, type.getComponentType()));
            }
            return array;
        }
        if (column instanceof StructVector structs) {
            return object(type, structs.getChildrenFromFields(), row);
        }
        throw new IllegalArgumentException("column `" + column.getName() + "` is " + column.getField().getType());
    }

    /** `user_agent` is `userAgent`. */
    private static String fieldName(String column) {
        StringBuilder name = new StringBuilder();
        for (int at = 0; at < column.length(); at++) {
            boolean up = at > 0 && column.charAt(at - 1) == '_';
            if (column.charAt(at) != '_') {
                name.append(up ? Character.toUpperCase(column.charAt(at)) : column.charAt(at));
            }
        }
        return name.toString();
    }

    /** Whether two objects have the same values in all fields, and in those of their fields. */
    static boolean same(Object one, Object other) throws ReflectiveOperationException {
        if (one == null || other == null || !one.getClass().getPackageName().equals(Rows.class.getPackageName())) {
            return Objects.deepEquals(one, other);
        }
        if (one.getClass() != other.getClass()) {
            return false;
        }
        for (Field field : one.getClass().getFields()) {
            if (!same(field.get(one), field.get(other))) {
                return false;
            }
        }
        return true;
    }
}
