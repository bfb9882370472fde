package tidemill.bench;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.BitSet;

/**
 * {@code Bits COUNT FOLDER}: two sets of numbers as {@link BitSet}s, as {@code peers sets PEER dense} in Rust;
 * small ones first, for the compiler's sake.
 */
public final class Bits {
    private Bits() {}

    public static void main(String[] args) throws Exception {
        Path file = Path.of(args[1], "set");
        for (int turn = 0; turn < 200; turn++) {
            measure(20_000, file);
        }
        System.out.println(measure(Integer.parseInt(args[0]), file));
    }

    private static String measure(int count, Path file) throws Exception {
        int numbers = count + count / 2;
        int[][] sets = new int[2][numbers];
        int[] sizes = new int[2];
        long both = 0;
        long parity = 0;
        for (int n = 0; n < numbers; n++) {
            int of = Data.membership(n);
            if (of != 1) {
                sets[0][sizes[0]++] = n;
            }
            if (of != 0) {
                sets[1][sizes[1]++] = n;
            }
            if (of == 2) {
                both++;
                parity ^= n;
            }
        }

        long start = System.nanoTime();
        BitSet left = build(sets[0], sizes[0]);
        BitSet right = build(sets[1], sizes[1]);
        double build = since(start);
        long memory = (left.size() + right.size()) / 8;

        start = System.nanoTime();
        BitSet union = (BitSet) left.clone();
        union.or(right);
        double unionTook = since(start);
        check("union", union.cardinality(), numbers);
        start = System.nanoTime();
        BitSet intersection = (BitSet) left.clone();
        intersection.and(right);
        double intersectionTook = since(start);
        long found = 0;
        for (int n = intersection.nextSetBit(0); n >= 0; n = intersection.nextSetBit(n + 1)) {
            found ^= n;
        }
        check("intersection", found, parity);
        start = System.nanoTime();
        BitSet common = (BitSet) left.clone();
        common.and(right);
        long cardinality = common.cardinality();
        double commonTook = since(start);
        check("number of both", cardinality, both);

        start = System.nanoTime();
        long[] words = left.toLongArray();
        ByteBuffer bytes = ByteBuffer.allocate(words.length * 8).order(ByteOrder.LITTLE_ENDIAN);
        bytes.asLongBuffer().put(words);
        Files.write(file, bytes.array());
        double write = since(start);
        start = System.nanoTime();
        BitSet read = BitSet.valueOf(ByteBuffer.wrap(Files.readAllBytes(file)).order(ByteOrder.LITTLE_ENDIAN));
        boolean known = read.get(sets[0][sizes[0] - 1]);
        double open = since(start);
        check("id", known ? 1 : 0, 1);
        return String.format(
                "{\"s\": {\"build\": %.6f, \"union\": %.6f, \"intersection\": %.6f, \"in both\": %.6f, \"write\": %.6f, "
                        + "\"open\": %.7f}, \"memory\": %d, \"disk\": %d, \"both\": %d, \"either\": %d, \"parity\": \"%x\"}",
                build, unionTook, intersectionTook, commonTook, write, open, memory, Files.size(file), both, (long) numbers,
                parity);
    }

    private static BitSet build(int[] numbers, int size) {
        BitSet set = new BitSet();
        for (int i = 0; i < size; i++) {
            set.set(numbers[i]);
        }
        return set;
    }

    private static double since(long start) {
        return (System.nanoTime() - start) / 1e9;
    }

    private static void check(String what, long found, long expected) {
        if (found != expected) {
            throw new IllegalStateException("the " + what + ": " + found + ", not " + expected);
        }
    }
}
