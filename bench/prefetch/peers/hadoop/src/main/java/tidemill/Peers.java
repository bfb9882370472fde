package tidemill;

import java.io.IOException;
import java.net.URI;
import java.util.Locale;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * An object of a bucket read by Hadoop's S3A.
 *
 * <pre>
 * Peers sequential STREAM ENDPOINT KEY RATE_MBS     all of it, in pieces of a megabyte; a rate of 0 is none
 * Peers random STREAM ENDPOINT KEY COUNT            so many reads of 64 KiB, at the places of the Rust peers
 * </pre>
 *
 * {@code STREAM} is {@code classic}, {@code prefetch} or {@code analytics}: {@code fs.s3a.input.stream.type}. Prints a line
 * of JSON: seconds, without Java's start and that of the file system, and bytes.
 */
public final class Peers {
  private static final int PIECE = 1 << 20;
  private static final int RANDOM = 64 << 10;
  private static final String BUCKET = "bench";
  /** What may be read ahead, as Tidemill's reader has by default: a window of 256 MiB in blocks of 8. */
  private static final long BLOCK_BYTES = 8L << 20;
  private static final int BLOCKS = 32;

  private Peers() {}

  private static FileSystem open(String stream, String endpoint) throws IOException {
    Configuration configuration = new Configuration();
    configuration.set("fs.s3a.endpoint", endpoint);
    configuration.set("fs.s3a.endpoint.region", "us-east-1");
    configuration.set("fs.s3a.access.key", "bench");
    configuration.set("fs.s3a.secret.key", "bench");
    configuration.setBoolean("fs.s3a.path.style.access", true);
    configuration.setBoolean("fs.s3a.connection.ssl.enabled", false);
    configuration.set("fs.s3a.input.stream.type", stream);
    configuration.setLong("fs.s3a.prefetch.block.size", BLOCK_BYTES);
    configuration.setInt("fs.s3a.prefetch.block.count", BLOCKS);
    // As many threads for one stream, which share a pool with all others.
    configuration.setInt("fs.s3a.threads.max", BLOCKS);
    configuration.setInt("fs.s3a.executor.capacity", BLOCKS);
    configuration.setInt("fs.s3a.connection.maximum", 4 * BLOCKS);
    // What was fetched is not written to the local disk: here nobody comes back to it.
    configuration.set("hadoop.tmp.dir", System.getProperty("java.io.tmpdir") + "/tidemill-bench-s3a");
    return FileSystem.newInstance(URI.create("s3a://" + BUCKET), configuration);
  }

  /** Opens an object that is going to be read in this way, as Hadoop's own readers say it. */
  private static FSDataInputStream open(FileSystem system, Path path, String policy) throws Exception {
    return system.openFile(path).opt("fs.option.openfile.read.policy", policy).build().get();
  }

  private static long sequential(FileSystem system, String key, double rate) throws Exception {
    long began = System.nanoTime();
    byte[] piece = new byte[PIECE];
    long bytes = 0;
    try (FSDataInputStream in = open(system, new Path("s3a://" + BUCKET + "/" + key), "sequential")) {
      int count;
      while ((count = in.read(piece, 0, piece.length)) >= 0) {
        bytes += count;
        if (rate > 0) {
          long left = (long) (bytes * 1e3 / rate) - (System.nanoTime() - began);
          if (left > 0) {
            Thread.sleep(left / 1_000_000, (int) (left % 1_000_000));
          }
        }
      }
    }
    return bytes;
  }

  private static long random(FileSystem system, String key, int count) throws Exception {
    Path path = new Path("s3a://" + BUCKET + "/" + key);
    long size = system.getFileStatus(path).getLen();
    byte[] piece = new byte[RANDOM];
    long state = 1;
    long bytes = 0;
    try (FSDataInputStream in = open(system, path, "random")) {
      for (int index = 0; index < count; index++) {
        state = state * 6_364_136_223_846_793_005L + 1_442_695_040_888_963_407L;
        in.readFully((state >>> 11) % (size - RANDOM), piece);
        bytes += piece.length;
      }
    }
    return bytes;
  }

  public static void main(String[] words) throws Exception {
    if (words.length != 5) {
      throw new IllegalArgumentException("see the head of Peers.java");
    }
    try (FileSystem system = open(words[1], words[2])) {
      long began = System.nanoTime();
      long bytes =
          switch (words[0]) {
            case "sequential" -> sequential(system, words[3], Double.parseDouble(words[4]));
            case "random" -> random(system, words[3], Integer.parseInt(words[4]));
            default -> throw new IllegalArgumentException("see the head of Peers.java");
          };
      double seconds = (System.nanoTime() - began) / 1e9;
      System.out.println(String.format(Locale.ROOT, "{\"work_s\": %.6f, \"bytes\": %d}", seconds, bytes));
    }
    // Threads of the SDK may still wait for work.
    System.exit(0);
  }
}
