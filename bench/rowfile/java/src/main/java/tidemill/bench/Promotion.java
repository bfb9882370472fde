package tidemill.bench;

import java.io.BufferedWriter;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.complex.StructVector;

/**
 * The promotion case with Java's serialized objects.
 *
 * <ul>
 *   <li>{@code Promotion blobs ARROW LINES}: each input as a serialized object in base64, on a line;
 *   <li>{@code Promotion group ARROW CSV}: the group-by over events with such inputs; prints
 *       {@code {"work_s"}}, the time since {@code main} began.
 * </ul>
 */
public final class Promotion {
    private Promotion() {}

    private record Key(String country, Integer page) {}

    private static final class Counts {
        long events;
        long queries;
        long members;
    }

    public static void main(String[] args) throws Exception {
        long start = System.nanoTime();
        switch (args[0]) {
            case "blobs" -> blobs(Path.of(args[1]), Path.of(args[2]));
            case "group" -> {
                group(Path.of(args[1]), Path.of(args[2]));
                System.out.println("{\"work_s\": " + (System.nanoTime() - start) / 1e9 + "}");
            }
            default -> throw new IllegalArgumentException("blobs or group, not `" + args[0] + "`");
        }
    }

    private static void blobs(Path from, Path to) throws Exception {
        try (BufferedWriter out = Files.newBufferedWriter(to)) {
            Rows.eachBatch(from, batch -> {
                StructVector inputs = (StructVector) batch.getVector("input");
                for (int row = 0; row < batch.getRowCount(); row++) {
                    if (!inputs.isNull(row)) {
                        Event.Input input = Rows.object(Event.Input.class, inputs.getChildrenFromFields(), row);
                        ByteArrayOutputStream blob = new ByteArrayOutputStream();
                        new ObjectOutputStream(blob).writeObject(input);
                        out.write(Base64.getEncoder().encodeToString(blob.toByteArray()));
                    }
                    out.write('\n');
                }
            });
        }
    }

    private static void group(Path from, Path to) throws Exception {
        Map<Key, Counts> groups = new HashMap<>();
        Base64.Decoder decoder = Base64.getDecoder();
        Rows.eachBatch(from, batch -> {
            VarCharVector countries = (VarCharVector) batch.getVector("country");
            VarCharVector inputs = (VarCharVector) batch.getVector("input");
            for (int row = 0; row < batch.getRowCount(); row++) {
                Event.Input input = null;
                if (!inputs.isNull(row)) {
                    byte[] blob = decoder.decode(inputs.get(row));
                    input = (Event.Input) new ObjectInputStream(new ByteArrayInputStream(blob)).readObject();
                }
                String country = new String(countries.get(row), StandardCharsets.UTF_8);
                Key key = new Key(country, input == null ? null : input.page);
                Counts counts = groups.computeIfAbsent(key, missing -> new Counts());
                counts.events++;
                counts.queries += input != null && input.query != null ? 1 : 0;
                counts.members += input != null && input.loggedIn ? 1 : 0;
            }
        });
        try (BufferedWriter out = Files.newBufferedWriter(to)) {
            out.write("country,page,events,queries,members\n");
            for (Map.Entry<Key, Counts> group : groups.entrySet()) {
                Key key = group.getKey();
                Counts counts = group.getValue();
                String page = key.page() == null ? "" : key.page().toString();
                out.write(String.join(",", key.country(), page, "" + counts.events, "" + counts.queries, "" + counts.members));
                out.write('\n');
            }
        }
    }
}
