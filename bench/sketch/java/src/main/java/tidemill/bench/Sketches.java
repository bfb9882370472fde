package tidemill.bench;

import com.google.common.hash.HashFunction;
import com.google.common.hash.Hashing;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.function.IntFunction;
import java.util.function.ToDoubleFunction;
import net.agkn.hll.HLL;
import org.apache.datasketches.hll.HllSketch;
import org.apache.datasketches.hll.TgtHllType;
import org.apache.datasketches.hll.Union;
import org.apache.datasketches.memory.Memory;

/**
 * One sketch, nanoseconds for each thing it does, as {@code peers hll} in Rust.
 *
 * <ul>
 *   <li>{@code Sketches hll PEER LOG2M VALUES}: after a warm-up of the same steps;
 *   <li>{@code Sketches sizes RUNS COUNT}: error beside bytes.
 * </ul>
 */
public final class Sketches {
    private static final int SKETCHES = 200;
    private static final int INSERTS = 8_000_000;
    private static final int WARM_UPS = 5;

    private Sketches() {}

    /** A sketch under measurement. The hash is part of an insert. */
    private interface Sketch {
        void add(long[] values, int from, int to);

        void add(byte[][] values);

        void merge(Sketch other);

        double estimate();

        byte[] serialize();

        Sketch deserialize(byte[] bytes);
    }

    private static final class DataSketch implements Sketch {
        private HllSketch sketch;
        private final TgtHllType type;
        private Union union;

        DataSketch(int log2m, TgtHllType type) {
            this(new HllSketch(log2m, type), type);
        }

        private DataSketch(HllSketch sketch, TgtHllType type) {
            this.sketch = sketch;
            this.type = type;
        }

        @Override
        public void add(long[] values, int from, int to) {
            for (int i = from; i < to; i++) {
                sketch.update(values[i]);
            }
        }

        @Override
        public void add(byte[][] values) {
            for (byte[] value : values) {
                sketch.update(value);
            }
        }

        /** The first time a union is made of this; unions are what they merge into. */
        @Override
        public void merge(Sketch other) {
            if (union == null) {
                union = new Union(sketch.getLgConfigK());
                union.update(sketch);
            }
            if (other != null) {
                union.update(((DataSketch) other).sketch);
            }
        }

        @Override
        public double estimate() {
            return union != null ? union.getEstimate() : sketch.getEstimate();
        }

        @Override
        public byte[] serialize() {
            return sketch.toCompactByteArray();
        }

        @Override
        public Sketch deserialize(byte[] bytes) {
            return new DataSketch(HllSketch.heapify(Memory.wrap(bytes)), type);
        }
    }

    private static final class JavaHll implements Sketch {
        private static final HashFunction MURMUR = Hashing.murmur3_128();
        private final HLL hll;

        JavaHll(int log2m) {
            this(new HLL(log2m, log2m < 14 ? 5 : 6));
        }

        private JavaHll(HLL hll) {
            this.hll = hll;
        }

        @Override
        public void add(long[] values, int from, int to) {
            for (int i = from; i < to; i++) {
                hll.addRaw(MURMUR.hashLong(values[i]).asLong());
            }
        }

        @Override
        public void add(byte[][] values) {
            for (byte[] value : values) {
                hll.addRaw(MURMUR.hashBytes(value).asLong());
            }
        }

        @Override
        public void merge(Sketch other) {
            if (other != null) {
                hll.union(((JavaHll) other).hll);
            }
        }

        @Override
        public double estimate() {
            return hll.cardinality();
        }

        @Override
        public byte[] serialize() {
            return hll.toBytes();
        }

        @Override
        public Sketch deserialize(byte[] bytes) {
            return new JavaHll(HLL.fromBytes(bytes));
        }
    }

    private static IntFunction<Sketch> named(String peer) {
        return switch (peer) {
            case "datasketches-java-4" -> log2m -> new DataSketch(log2m, TgtHllType.HLL_4);
            case "datasketches-java-6" -> log2m -> new DataSketch(log2m, TgtHllType.HLL_6);
            case "datasketches-java-8" -> log2m -> new DataSketch(log2m, TgtHllType.HLL_8);
            case "java-hll" -> JavaHll::new;
            default -> throw new IllegalArgumentException("no sketch `" + peer + "`");
        };
    }

    public static void main(String[] args) {
        if (args[0].equals("sizes")) {
            sizes(Integer.parseInt(args[1]), Integer.parseInt(args[2]));
            return;
        }
        IntFunction<Sketch> of = named(args[1]);
        int log2m = Integer.parseInt(args[2]);
        int values = Integer.parseInt(args[3]);
        long[] integers = Data.integers(values);
        byte[][] texts = Data.texts(values);
        String line = "";
        // The last time is what counts.
        for (int turn = 0; turn <= WARM_UPS; turn++) {
            line = measure(of, log2m, integers, texts);
        }
        System.out.println(line);
    }

    private static double sink;

    private static String measure(IntFunction<Sketch> of, int log2m, long[] integers, byte[][] texts) {
        int values = integers.length;
        int times = Math.max(1, Math.min(SKETCHES, INSERTS / values));
        Map<String, Double> found = new LinkedHashMap<>();
        List<Double> estimates = new ArrayList<>();
        List<Sketch> all = new ArrayList<>();

        Sketch whole = of.apply(log2m);
        long start = System.nanoTime();
        for (int i = 0; i < times; i++) {
            whole = of.apply(log2m);
            whole.add(integers, 0, values);
        }
        note(found, "integers", start, times * (double) values);
        estimates.add(whole.estimate());

        Sketch ofTexts = whole;
        start = System.nanoTime();
        for (int i = 0; i < times; i++) {
            ofTexts = of.apply(log2m);
            ofTexts.add(texts);
        }
        note(found, "strings", start, times * (double) values);
        estimates.add(ofTexts.estimate());

        int third = values / 3;
        Sketch left = of.apply(log2m);
        Sketch right = of.apply(log2m);
        left.add(integers, 0, 2 * third);
        right.add(integers, third, values);
        byte[] bytes = left.serialize();
        for (int i = 0; i < SKETCHES; i++) {
            Sketch sketch = left.deserialize(bytes);
            sketch.merge(null);
            all.add(sketch);
        }
        start = System.nanoTime();
        for (Sketch sketch : all) {
            sketch.merge(right);
        }
        note(found, "merge", start, SKETCHES);
        estimates.add(estimateAll(found, "estimate after a merge", all));

        all.clear();
        bytes = whole.serialize();
        for (int i = 0; i < SKETCHES; i++) {
            Sketch sketch = whole.deserialize(bytes);
            sketch.add(integers, 0, 1);
            all.add(sketch);
        }
        estimates.add(estimateAll(found, "estimate", all));

        start = System.nanoTime();
        for (Sketch sketch : all) {
            bytes = sketch.serialize();
            sink += bytes[bytes.length - 1];
        }
        note(found, "serialize", start, SKETCHES);
        start = System.nanoTime();
        for (int i = 0; i < SKETCHES; i++) {
            all.set(i, whole.deserialize(bytes));
        }
        note(found, "deserialize", start, SKETCHES);
        estimates.add(all.get(SKETCHES / 2).estimate());

        StringJoiner ns = new StringJoiner(", ", "{", "}");
        found.forEach((step, took) -> ns.add("\"" + step + "\": " + took));
        return "{\"ns\": " + ns + ", \"bytes\": " + bytes.length + ", \"estimates\": " + estimates + ", \"error\": "
                + 1.04 / Math.sqrt(1 << log2m) + "}";
    }

    private static void note(Map<String, Double> found, String step, long start, double items) {
        found.put(step, (System.nanoTime() - start) / items);
    }

    private static double estimateAll(Map<String, Double> found, String step, List<Sketch> all) {
        ToDoubleFunction<Sketch> estimate = Sketch::estimate;
        double sum = 0;
        long start = System.nanoTime();
        for (Sketch sketch : all) {
            sum += estimate.applyAsDouble(sketch);
        }
        note(found, step, start, all.size());
        return sum / all.size();
    }

    private static void sizes(int runs, int count) {
        for (int log2m = 10; log2m <= 14; log2m++) {
            for (int bits : new int[] {4, 8}) {
                String name = "datasketches-java-" + bits;
                double squares = 0;
                double bytes = 0;
                for (long run = 0; run < runs; run++) {
                    HllSketch sketch = new HllSketch(log2m, bits == 4 ? TgtHllType.HLL_4 : TgtHllType.HLL_8);
                    for (long n = 0; n < count; n++) {
                        sketch.update(Data.scrambled(run << 32 | n));
                    }
                    double error = sketch.getEstimate() / count - 1;
                    squares += error * error;
                    bytes += sketch.toCompactByteArray().length;
                }
                System.out.printf(
                        "{\"sketch\": \"%s\", \"log2m\": %d, \"cardinality\": %d, \"bytes\": %.0f, \"rms\": %.4e}%n",
                        name, log2m, count, bytes / runs, Math.sqrt(squares / runs));
            }
        }
    }
}
