package tidemill.bench;

import java.nio.charset.StandardCharsets;

/** What is put into the sketches and sets: the same as in `peers/src/data.rs`. */
final class Data {
    private Data() {}

    /** A bijection of 64 bits (SplitMix64's last step). */
    static long scrambled(long n) {
        n = (n ^ (n >>> 30)) * 0xbf58476d1ce4e5b9L;
        n = (n ^ (n >>> 27)) * 0x94d049bb133111ebL;
        return n ^ (n >>> 31);
    }

    static long[] integers(int count) {
        long[] values = new long[count];
        for (int n = 0; n < count; n++) {
            values[n] = scrambled(n);
        }
        return values;
    }

    /** Ten bytes each. */
    static byte[][] texts(int count) {
        byte[][] values = new byte[count][];
        for (int n = 0; n < count; n++) {
            values[n] = String.format("k%09d", n).getBytes(StandardCharsets.US_ASCII);
        }
        return values;
    }

    /** Whether a number is in the first set only (1), in the second only (0), or in both (2), as in Rust. */
    static int membership(long n) {
        return (int) Long.remainderUnsigned(scrambled(n + (1L << 40)), 3);
    }
}
