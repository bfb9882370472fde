package tidemill.bench;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.SplittableRandom;
import java.util.concurrent.TimeUnit;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.types.StringValue;
import org.openjdk.jmh.annotations.AuxCounters;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Level;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.infra.Blackhole;

/**
 * Strings to bytes and back, many different ones in an operation.
 * Flink's go through the views in memory that its own serializers use.
 */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class Strings {
    private static final int BATCH_BYTES = 256 << 10;
    private static final int STRINGS_MIN = 16;
    private static final int STRINGS_MAX = 4096;

    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    /** What an iteration cost: on a busy machine the clock says little. */
    @State(Scope.Thread)
    @AuxCounters(AuxCounters.Type.EVENTS)
    public static class Cost {
        public long cpuNs;
        public long operations;
        private long started;
        private long done;

        @Setup(Level.Iteration)
        public void start() {
            done = 0;
            started = THREADS.getCurrentThreadCpuTime();
        }

        @TearDown(Level.Iteration)
        public void stop() {
            cpuNs = THREADS.getCurrentThreadCpuTime() - started;
            operations = done;
        }
    }

    @Param({"ascii", "cyrillic", "chinese"})
    public String alphabet;

    @Param({"1", "4", "16", "128", "16384"})
    public int length;

    private String[] strings;
    private DataOutputSerializer flinkOut;
    private byte[] flinkBytes;
    private ByteArrayOutputStream utfOut;
    private byte[] utfBytes;

    @Setup
    public void setUp() throws IOException {
        char first = switch (alphabet) {
            case "ascii" -> ' ';
            case "cyrillic" -> 'А';
            default -> '一';
        };
        char last = switch (alphabet) {
            case "ascii" -> '~';
            case "cyrillic" -> 'я';
            default -> '龥';
        };
        int size = length * (first < 0x80 ? 1 : first < 0x800 ? 2 : 3);
        strings = new String[count(size)];
        SplittableRandom random = new SplittableRandom(1);
        for (int at = 0; at < strings.length; at++) {
            StringBuilder string = new StringBuilder();
            for (int character = 0; character < length; character++) {
                string.append((char) random.nextInt(first, last + 1));
            }
            strings[at] = string.toString();
        }
        flinkOut = new DataOutputSerializer(4 * BATCH_BYTES);
        flinkBytes = flinkWrite().getCopyOfBuffer();
        utfOut = new ByteArrayOutputStream(4 * BATCH_BYTES);
        utfBytes = utfWrite().toByteArray();
        DataInputDeserializer flinkIn = new DataInputDeserializer(flinkBytes);
        DataInputStream utfIn = new DataInputStream(new ByteArrayInputStream(utfBytes));
        for (String string : strings) {
            if (!string.equals(StringValue.readString(flinkIn)) || !string.equals(utfIn.readUTF())) {
                throw new IllegalStateException("a string came back as another");
            }
        }
    }

    /** How many strings of so many bytes of UTF-8 an operation has. */
    static int count(int bytes) {
        return Math.max(STRINGS_MIN, Math.min(STRINGS_MAX, BATCH_BYTES / bytes));
    }

    @Benchmark
    public DataOutputSerializer flinkWrite(Cost cost) throws IOException {
        cost.done++;
        return flinkWrite();
    }

    private DataOutputSerializer flinkWrite() throws IOException {
        flinkOut.clear();
        for (String string : strings) {
            StringValue.writeString(string, flinkOut);
        }
        return flinkOut;
    }

    @Benchmark
    public void flinkRead(Blackhole sink, Cost cost) throws IOException {
        cost.done++;
        DataInputDeserializer in = new DataInputDeserializer(flinkBytes);
        for (int at = 0; at < strings.length; at++) {
            sink.consume(StringValue.readString(in));
        }
    }

    @Benchmark
    public ByteArrayOutputStream utfWrite(Cost cost) throws IOException {
        cost.done++;
        return utfWrite();
    }

    private ByteArrayOutputStream utfWrite() throws IOException {
        utfOut.reset();
        DataOutputStream out = new DataOutputStream(utfOut);
        for (String string : strings) {
            out.writeUTF(string);
        }
        return utfOut;
    }

    @Benchmark
    public void utfRead(Blackhole sink, Cost cost) throws IOException {
        cost.done++;
        DataInputStream in = new DataInputStream(new ByteArrayInputStream(utfBytes));
        for (int at = 0; at < strings.length; at++) {
            sink.consume(in.readUTF());
        }
    }
}
