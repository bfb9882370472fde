package tidemill.bench;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * Java's serialization of rows: {@code Peers FILE wide|flights|access}, with the requests of
 * {@code peers/src/main.rs}.
 *
 * <ul>
 *   <li>{@code java-each}: each row in a stream of its own, as in a message or a field;
 *   <li>{@code java-stream}: all rows in one stream, which is reset every 1,000 rows so that it
 *       does not keep them all.
 * </ul>
 *
 * <p>Processor times are the thread's: the garbage collector's are not in them.
 */
public final class Peers {
    private static final int BUFFER_BYTES = 1 << 20;
    private static final int RESET_ROWS = 1000;
    /** How often a format runs before it is measured, for the compiler's sake. */
    private static final int WARM_UPS = 3;
    private static final Map<String, Class<?>> TYPES =
            Map.of("wide", Event.class, "flights", Flight.class, "access", Entry.class);
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    /** A way to write and read rows. */
    private interface Format {
        void encode(List<?> rows, OutputStream out) throws IOException;

        void decode(int rows, InputStream in, Sink sink) throws IOException, ClassNotFoundException;
    }

    /** Where decoded rows go. */
    private interface Sink {
        void accept(Object row);
    }

    private static final class Each implements Format {
        @Override
        public void encode(List<?> rows, OutputStream out) throws IOException {
            DataOutputStream lengths = new DataOutputStream(out);
            ByteArrayOutputStream row = new ByteArrayOutputStream(1 << 14);
            for (Object object : rows) {
                row.reset();
                try (ObjectOutputStream objects = new ObjectOutputStream(row)) {
                    objects.writeObject(object);
                }
                lengths.writeInt(row.size());
                row.writeTo(out);
            }
        }

        @Override
        public void decode(int rows, InputStream in, Sink sink) throws IOException, ClassNotFoundException {
            DataInputStream lengths = new DataInputStream(in);
            byte[] bytes = new byte[1 << 14];
            for (int row = 0; row < rows; row++) {
                int length = lengths.readInt();
                if (length > bytes.length) {
                    bytes = new byte[2 * length];
                }
                lengths.readFully(bytes, 0, length);
                sink.accept(new ObjectInputStream(new ByteArrayInputStream(bytes, 0, length)).readObject());
            }
        }
    }

    private static final class Stream implements Format {
        @Override
        public void encode(List<?> rows, OutputStream out) throws IOException {
            ObjectOutputStream objects = new ObjectOutputStream(out);
            int written = 0;
            for (Object object : rows) {
                objects.writeObject(object);
                if (++written % RESET_ROWS == 0) {
                    objects.reset();
                }
            }
            objects.flush();
        }

        @Override
        public void decode(int rows, InputStream in, Sink sink) throws IOException, ClassNotFoundException {
            ObjectInputStream objects = new ObjectInputStream(in);
            for (int row = 0; row < rows; row++) {
                sink.accept(objects.readObject());
            }
        }
    }

    /** Bytes in memory that can be read without being copied, and written over. */
    private static final class Memory extends ByteArrayOutputStream {
        Memory() {
            super(1 << 24);
        }

        InputStream read() {
            return new ByteArrayInputStream(buf, 0, count);
        }
    }

    private final List<?> rows;
    private final Map<String, Format> formats = Map.of("java-each", new Each(), "java-stream", new Stream());
    private final Map<String, Memory> encoded = new HashMap<>();
    /** The last row, so that no decoding is for nothing. */
    private volatile Object last;

    private Peers(List<?> rows) {
        this.rows = rows;
    }

    public static void main(String[] args) throws Exception {
        Peers peers = new Peers(Rows.read(Path.of(args[0]), TYPES.get(args[1])));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String answer;
            try {
                String[] words = line.split(" ", 4);
                answer = peers.answer(words[0], words[1], words[3].equals("-") ? null : Path.of(words[3]));
            } catch (Exception error) {
                answer = "{\"failed\": \"" + error.toString().replaceAll("[\"\\\\\n]", " ") + "\"}";
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    private String answer(String step, String name, Path path) throws Exception {
        Format format = formats.get(name);
        switch (step) {
            case "check":
                for (int turn = 0; turn < WARM_UPS; turn++) {
                    encode(format, name, path);
                    check(format, name, path);
                }
                return "{}";
            case "encode":
                return encode(format, name, path);
            case "decode":
            case "few":
                return decode(format, name, path);
            default:
                throw new IllegalArgumentException("no step `" + step + "`");
        }
    }

    private String encode(Format format, String name, Path path) throws IOException {
        Memory memory = encoded.computeIfAbsent(name, key -> new Memory());
        memory.reset();
        Clock clock = new Clock();
        if (path == null) {
            format.encode(rows, memory);
            return clock.answer(rows.size(), memory.size());
        }
        try (FileOutputStream file = new FileOutputStream(path.toFile())) {
            OutputStream buffered = new BufferedOutputStream(file, BUFFER_BYTES);
            format.encode(rows, buffered);
            buffered.flush();
            file.getFD().sync();
        }
        return clock.answer(rows.size(), Files.size(path));
    }

    private InputStream open(String name, Path path) throws IOException {
        return path == null
                ? encoded.get(name).read()
                : new BufferedInputStream(new FileInputStream(path.toFile()), BUFFER_BYTES);
    }

    private String decode(Format format, String name, Path path) throws Exception {
        long bytes = path == null ? encoded.get(name).size() : Files.size(path);
        Clock clock = new Clock();
        try (InputStream in = open(name, path)) {
            format.decode(rows.size(), in, row -> last = row);
        }
        return clock.answer(rows.size(), bytes);
    }

    private void check(Format format, String name, Path path) throws Exception {
        List<Object> found = new ArrayList<>(rows.size());
        try (InputStream in = open(name, path)) {
            format.decode(rows.size(), in, found::add);
        }
        for (int row = 0; row < rows.size(); row++) {
            if (!Rows.same(rows.get(row), found.get(row))) {
                throw new IllegalStateException("row " + row + " came back with other values");
            }
        }
    }

    private static final class Clock {
        private final long wall = System.nanoTime();
        private final long cpu = THREADS.getCurrentThreadCpuTime();

        String answer(int rows, long bytes) {
            double cpu = (THREADS.getCurrentThreadCpuTime() - this.cpu) / 1e9;
            double wall = (System.nanoTime() - this.wall) / 1e9;
            return String.format(
                    Locale.ROOT,
                    "{\"rows\": %d, \"bytes\": %d, \"work_s\": %.9f, \"cpu_s\": %.9f}",
                    rows, bytes, wall, cpu);
        }
    }
}
