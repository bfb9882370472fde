import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import net.agkn.hll.HLL;
import net.agkn.hll.HLLType;

/**
 * java-hll behind the commands of crates/sketch/examples/hll.rs, as far as it has them: a command a line
 * on standard input, its answer as a line on standard output.
 */
public final class Peer {
    private final Map<String, HLL> byName = new HashMap<>();

    private String answer(String line) {
        String[] words = line.split(" ");
        String name = words[1];
        switch (words[0]) {
            case "new" -> byName.put(name, new HLL(
                    Integer.parseInt(words[2]),
                    Integer.parseInt(words[3]),
                    threshold(words[4]),
                    Boolean.parseBoolean(words[5]),
                    HLLType.EMPTY));
            case "read" -> byName.put(name, HLL.fromBytes(HexFormat.of().parseHex(words[2].substring(2))));
            case "hashes" -> {
                for (int i = 2; i < words.length; i++) {
                    byName.get(name).addRaw(Long.parseLong(words[i]));
                }
            }
            case "update" -> byName.get(name).union(byName.get(words[2]));
            case "bytes" -> {
                return "\\x" + HexFormat.of().formatHex(byName.get(name).toBytes());
            }
            case "cardinality" -> {
                return Long.toString(byName.get(name).cardinality());
            }
            default -> throw new IllegalArgumentException("there is no such command: " + line);
        }
        return "ok";
    }

    /** Its constructor takes one more than the exponent of the power of two. */
    private static int threshold(String explicit) {
        if (explicit.equals("auto")) {
            return -1;
        }
        int count = Integer.parseInt(explicit);
        return count == 0 ? 0 : Integer.numberOfTrailingZeros(count) + 1;
    }

    public static void main(String[] arguments) throws IOException {
        Peer peer = new Peer();
        PrintStream output = new PrintStream(System.out, false);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String answer;
            try {
                answer = peer.answer(line);
            } catch (RuntimeException exception) {
                answer = "error: " + exception;
            }
            output.println(answer);
            output.flush();
        }
    }
}
