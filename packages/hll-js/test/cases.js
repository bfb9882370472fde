// What holds in every engine: run by node.test.js in Node.js and by browser.test.js in a browser.
// Nothing here is of one of them.

/**
 * The cases, as pairs of a name and a function that throws.
 *
 * `fixtures.native` are commands and what crates/sketch answered to them; `fixtures.vectors` the
 * vectors of postgresql-hll, which are not there everywhere.
 */
export function cases(api, fixtures) {
  const { Hll, HllError, HllFormatError, HllUncertainError, HllUsageError } = api;

  const all = [
    ["a new sketch is empty and has the parameters it was given", () => {
      using((hll) => {
        same(hll.toHex(), "\\x118b7f");
        same(hll.cardinality(), 0);
        same([hll.log2m, hll.regwidth, hll.explicit, hll.sparse, hll.dialect],
          [11, 5, "auto", true, "postgresql"]);
      });
      const options = { log2m: 14, regwidth: 6, explicit: 256, sparse: 512, dialect: "postgresql" };
      using((hll) => {
        const { log2m, regwidth, explicit, sparse, dialect } = hll;
        same({ log2m, regwidth, explicit, sparse, dialect }, options);
      }, options);
      using((hll) => same([hll.explicit, hll.sparse, hll.dialect], [0, false, "java"]),
        { explicit: 0, sparse: false, dialect: "java" });
    }],

    ["equal values are one value, whatever type they come in", () => {
      const check = (count, ...values) =>
        using((hll) => same(hll.addAll(values).cardinality(), count), {});
      check(1, 1, 1.0, 1n, true);
      check(1, 0, -0, 0n, false);
      check(1, -1, -1n, 2n ** 64n - 1n);
      check(1, NaN, -NaN, 0 / 0);
      check(1, "é", new TextEncoder().encode("é"), new TextEncoder().encode("é").buffer);
      check(1, "\ud800", "\ufffd");
      check(1, new Date(1_500), 1_500_000, 1_500_000n);
      check(2, 2 ** 62, 2n ** 62n, 2 ** 63);
      check(3, 1, "1", 1.5);
      check(4, 1e300, Infinity, -Infinity, 2 ** 64);
    }],

    ["a text is hashed by its UTF-8, however long it is", () => {
      const texts = ["", "a", "é", "x".repeat(24), "x".repeat(25), `${"x".repeat(23)}é`,
        `${"x".repeat(20)}😀`, "ä".repeat(5_000), "z".repeat(3_000_000)];
      for (const text of texts) {
        const [a, b] = [new Hll(), new Hll()];
        a.add(text);
        b.add(new TextEncoder().encode(text));
        ok(a.equals(b), `of ${text.length} units`);
        a.free();
        b.free();
      }
    }],

    ["typed arrays of integers add what their values add one by one", () => {
      const check = (values) => {
        const [a, b] = [new Hll({ explicit: 4 }), new Hll({ explicit: 4 })];
        a.addAll(values);
        for (const value of values) b.add(value);
        ok(a.equals(b), values.constructor.name);
        same(a.toHex(), b.toHex());
      };
      check(new Int8Array([-1, 0, 1, -128]));
      check(new Uint8Array([1, 2, 255]));
      check(new Int16Array([-1, 7, 32_767]));
      check(new Uint16Array([65_535, 3]));
      check(new Int32Array(20_000).map((_, i) => i * 7 - 50_000));
      check(new Uint32Array([2 ** 32 - 1, 5]));
      check(new BigInt64Array(20_000).map((_, i) => BigInt(i) ** 4n - 10n ** 10n));
      check(new BigUint64Array([2n ** 64n - 1n, 1n]));
      check(new Float64Array([1, 1.5, NaN]));
      check(new Set(["a", "b"]));
    }],

    ["hashes are added as they are", () => {
      const hll = new Hll();
      hll.addHash(1n).addHash(-1n).addHash(2n ** 64n - 1n);
      same(hll.cardinality(), 2);
      same(hll.toHex(), "\\x128b7fffffffffffffffff0000000000000001");
      const [signed, unsigned] = [new Hll(), new Hll()];
      const hashes = BigInt64Array.from({ length: 30_000 }, (_, i) => BigInt(i) * 0x9e3779b97f4a7c15n);
      signed.addHashes(hashes);
      unsigned.addHashes(new BigUint64Array(hashes.buffer));
      ok(signed.equals(unsigned));
      const one = new Hll();
      for (const hash of hashes) one.addHash(hash);
      ok(signed.equals(one));
    }],

    ["a union is the sketch of all values, in any order", () => {
      const of = (from, to) => new Hll({ log2m: 12 }).addAll(range(from, to));
      const [a, b, whole] = [of(0, 6_000), of(4_000, 10_000), of(0, 10_000)];
      ok(a.union(b).equals(whole));
      ok(b.union(a).equals(whole));
      ok(new Hll({ log2m: 12 }).union(a, b, a).equals(whole));
      ok(!a.equals(whole), "a union leaves its operands as they were");
      same(a.update(b).toHex(), whole.toHex());
      same(a.update(a).toHex(), whole.toHex());
    }],

    ["sketches of different precision unite to the coarser one", () => {
      const fine = new Hll({ log2m: 14, regwidth: 6 }).addAll(range(0, 9_000));
      const coarse = new Hll({ log2m: 10, regwidth: 5 }).addAll(range(5_000, 20_000));
      const whole = new Hll({ log2m: 10, regwidth: 5 }).addAll(range(0, 20_000));
      ok(fine.union(coarse).equals(whole));
      ok(coarse.union(fine).equals(whole));
      ok(fine.folded({ log2m: 10, regwidth: 5 }).union(coarse).equals(whole));
      ok(fine.folded().equals(fine));
    }],

    ["an estimate is within its error, and says it", () => {
      const hll = new Hll({ log2m: 14, regwidth: 6 }).addAll(range(0, 100));
      same(hll.estimate(), { value: 100, standardError: 0, interval: [100, 100] });
      ok(hll.isExact);
      same(hll.error(), 0);
      hll.addAll(range(0, 100_000));
      ok(!hll.isExact);
      for (const estimator of ["published", "ertl"]) {
        const { value, standardError, interval } = hll.estimate(estimator);
        same(value, hll.cardinality(estimator));
        same(standardError / value, hll.error(estimator));
        ok(Math.abs(value - 100_000) < 4 * standardError, `${value} ± ${standardError}`);
        ok(interval[0] < value && value < interval[1]);
      }
      near(hll.error(), 1.04 / Math.sqrt(2 ** 14), 1e-3);
    }],

    ["intersections are told with their error, and refused where they are nothing else", () => {
      const of = (from, to) => new Hll({ log2m: 14, regwidth: 6 }).addAll(range(from, to));
      const [a, b] = [of(0, 60_000), of(40_000, 100_000)];
      const both = a.intersection(b);
      ok(both.interval[0] < 20_000 && 20_000 < both.interval[1], JSON.stringify(both));
      near(a.difference(b).value, 40_000, 0.1);
      near(a.jaccard(b).value, 0.2, 0.2);
      const apart = of(59_990, 120_000);
      const error = fails(HllUncertainError, "cannot be told from nothing", () => a.intersection(apart));
      same(error.estimate, a.intersection(apart, { uncertain: true }));
      const [few, more] = [of(0, 10), of(5, 30)];
      same(few.intersection(more), { value: 5, standardError: 0, interval: [5, 5] });
      same(few.difference(more).value, 5);
      near(few.jaccard(more).value, 5 / 30, 1e-15);
    }],

    ["what is written is read again", () => {
      for (const options of [{}, { explicit: 0 }, { sparse: false }, { dialect: "java" },
        { log2m: 4, regwidth: 1 }, { log2m: 17, regwidth: 8, sparse: 100 }]) {
        const hll = new Hll(options);
        for (const to of [0, 1, 150, 161, 700, 5_000]) {
          hll.addAll(range(0, to));
          const again = Hll.fromBytes(hll.toBytes(), { dialect: options.dialect, sparse: options.sparse });
          ok(again.equals(hll), `${to} of ${JSON.stringify(options)}`);
          same(again.toHex(), hll.toHex());
          ok(Hll.fromHex(hll.toHex().slice(2).toUpperCase(), { sparse: options.sparse }).equals(hll));
          ok(Hll.fromBytes(hll.toBytes().buffer, { sparse: options.sparse }).equals(hll));
        }
      }
    }],

    ["sparse can be ruled out of what is read", () => {
      const hll = new Hll({ explicit: 0 }).addAll([1, 2, 3]);
      same(hll.toBytes()[0], 0x13);
      const full = Hll.fromBytes(hll.toBytes(), { sparse: false });
      same([full.sparse, full.toBytes()[0], full.toBytes().length], [false, 0x14, 3 + 1_280]);
      same(full.cardinality(), hll.cardinality());
    }],

    ["a state of unknown content absorbs all and has no count", () => {
      const unknown = Hll.fromHex("\\x108b7f");
      ok(unknown.isUndefined);
      ok(Number.isNaN(unknown.cardinality()));
      ok(new Hll().add(1).union(unknown).isUndefined);
      same(String(unknown), "Hll(log2m 11, regwidth 5: undefined)");
    }],

    ["mistakes are answered with what would be right", () => {
      const usage = (says, work) => fails(HllUsageError, says, work);
      usage("`log2m` is 3, but must be from 4 to 31", () => new Hll({ log2m: 3 }));
      usage("`log2m` must be a whole number, not `eleven`", () => new Hll({ log2m: "eleven" }));
      usage("`regwidth` is 9, but must be from 1 to 8", () => new Hll({ regwidth: 9 }));
      usage("`explicit` is 3, but must be from 0 to 1073741824\nhint: it must be 0 or a power of two",
        () => new Hll({ explicit: 3 }));
      usage("there is no dialect `mysql`\nhint: dialects are `postgresql` and `java`",
        () => new Hll({ dialect: "mysql" }));
      usage("java-hll has no number of sparse registers", () => new Hll({ sparse: 5, dialect: "java" }));
      usage("there is no option `log2M`\nhint: options are `log2m`, `regwidth`, `explicit`, `sparse` and `dialect`",
        () => new Hll({ log2M: 4 }));
      usage("options are an object, not null", () => new Hll(null));
      const hll = new Hll();
      usage("not undefined", () => hll.add());
      usage("not null", () => hll.add(null));
      usage("not an Object", () => hll.add({}));
      usage("not a symbol", () => hll.add(Symbol("s")));
      usage("the Date is invalid", () => hll.add(new Date(NaN)));
      usage("the value `18446744073709551616` does not fit 64 bits", () => hll.add(2n ** 64n));
      usage("the hash `-9223372036854775809` does not fit 64 bits", () => hll.addHash(-(2n ** 63n) - 1n));
      usage("a hash is a bigint of 64 bits, not a number", () => hll.addHash(1));
      usage("hashes are a BigUint64Array or a BigInt64Array, not an Array", () => hll.addHashes([1n]));
      usage("hint: `add` adds one value", () => hll.addAll("abc"));
      usage("not a number", () => hll.addAll(5));
      usage("the union is with an Hll, not with a string", () => hll.update("x"));
      usage("the intersection is with an Hll, not with undefined", () => hll.intersection());
      usage("there is no estimator `best`", () => hll.cardinality("best"));
      usage("`log2m` is 12, but must be from 4 to 11", () => hll.folded({ log2m: 12 }));
      usage("`Hll.fromHex` reads text in hexadecimal", () => Hll.fromBytes("\\x118b7f"));
      usage("hexadecimal is a string, not a Uint8Array", () => Hll.fromHex(new Uint8Array(3)));
      const format = (says, work) => fails(HllFormatError, says, work);
      format("two for each byte", () => Hll.fromHex("\\x118b7"));
      format("two for each byte", () => Hll.fromHex("\\x118b7g"));
      format("`hll` state ends at byte 2: 1 more expected there", () => Hll.fromHex("\\x118b"));
      format("expected from 0x10 to 0x14", () => Hll.fromHex("\\x218b7f"));
      format("explicit values do not ascend", () => Hll.fromHex(`\\x128b7f${"00".repeat(16)}`));
      format("`log2m` is 25, but must be from 4 to 24\nhint: allow a larger `maxLog2m`",
        () => Hll.fromHex("\\x11997f"));
      same(Hll.fromHex("\\x11997f", { maxLog2m: 25 }).log2m, 25);
      same(hll.cardinality(), 0);
      ok(new HllFormatError("x") instanceof HllError && new HllError("x") instanceof Error);
      same(String(new HllFormatError("x")), "HllFormatError: x");
    }],

    ["what would not fit the memory is refused before it is written", () => {
      const hll = new Hll({ log2m: 31, regwidth: 8, explicit: 0, sparse: false }).add(1);
      fails(HllUsageError, "2147483651 bytes long", () => hll.toBytes());
      ok(hll.folded({ log2m: 11 }).toBytes().length > 0);
      hll.free();
    }],

    ["a freed sketch says so, and its place is taken by others", () => {
      const hll = new Hll().add(1);
      const other = new Hll().add(2);
      hll.free();
      hll.free();
      for (const work of [() => hll.add("x"), () => hll.add(1), () => hll.cardinality(), () => hll.toHex(),
        () => hll.log2m, () => hll.update(other), () => other.update(hll), () => other.intersection(hll),
        () => hll.copy(), () => other.equals(hll), () => hll.addHashes(new BigInt64Array(1))]) {
        fails(HllUsageError, "the sketch was freed", work);
      }
      const next = new Hll();
      same(next.cardinality(), 0);
      same(other.cardinality(), 1);
      const dispose = Symbol.dispose ?? Symbol.for("Symbol.dispose");
      next[dispose]();
      fails(HllUsageError, "the sketch was freed", () => next.add(1));
    }],

    ["memory is given back: 4,000 sketches of a megabyte each", () => {
      for (let i = 0; i < 4_000; i++) {
        const hll = new Hll({ log2m: 20, regwidth: 8, explicit: 0 });
        if (i % 400 === 0) hll.addAll(new Int32Array(300_000).map((_, j) => j));
        hll.free();
      }
    }],

    ["a sketch shows what it is", () => {
      same(String(new Hll()), "Hll(log2m 11, regwidth 5: 0 values, exact)");
      same(String(new Hll().add(1)), "Hll(log2m 11, regwidth 5: 1 value, exact)");
      ok(/^Hll\(log2m 11, regwidth 5: 9[0-9],\d{3} values ± 2,\d{3}\)$|^Hll\(log2m 11, regwidth 5: 10\d,\d{3} values ± 2,\d{3}\)$/
        .test(String(new Hll().addAll(range(0, 100_000)))), String(new Hll().addAll(range(0, 100_000))));
    }],

    ["whatever the bytes are, they are read or refused", () => {
      const random = generator(7);
      const seeds = [new Hll(), new Hll().addAll(range(0, 9)), new Hll({ explicit: 0 }).addAll(range(0, 40)),
        new Hll({ log2m: 5, explicit: 0, sparse: false }).addAll(range(0, 40))].map((hll) => hll.toBytes());
      let [read, refused] = [0, 0];
      for (let i = 0; i < 20_000; i++) {
        const bytes = mutated(seeds[i % seeds.length], random);
        try {
          using((hll) => {
            hll.add(i).cardinality();
            hll.intersection(hll, { uncertain: true });
            read++;
          }, bytes);
        } catch (error) {
          if (!(error instanceof HllFormatError)) throw error;
          refused++;
        }
      }
      ok(read > 1_000 && refused > 1_000, `${read} read, ${refused} refused`);
    }],
  ];

  // "using" is a word of the language by now, but not everywhere.
  function using(work, options) {
    const hll = options instanceof Uint8Array ? Hll.fromBytes(options) : new Hll(options);
    try {
      return work(hll);
    } finally {
      hll.free();
    }
  }

  const { native, vectors } = fixtures;
  if (native) {
    all.push([`${native.commands.length} commands are answered as crates/sketch answers them`, () => {
      const sketches = new Map();
      native.commands.forEach((command, i) => {
        const expected = native.answers[i];
        let answer;
        try {
          answer = answered(command, sketches);
        } catch (error) {
          if (!(error instanceof HllError)) throw error;
          answer = `error: ${error.message.replaceAll("\n", " ")}`;
        }
        // Rust's logarithm in the WebAssembly is another one than the machine's.
        if (/^(cardinality|ertl|intersection) /.test(command) && !expected.startsWith("error: ")) {
          const [found, wanted] = [answer, expected].map((text) => text.split(" ").map(numberOf));
          found.forEach((number, at) => near(number, wanted[at], 1e-12, `command ${i}: ${command}`));
        } else if (expected.startsWith("error: ")) {
          ok(answer.startsWith("error: "), `command ${i}: ${command}: ${answer}, not ${expected}`);
        } else {
          same(answer, expected, `command ${i}: ${command.slice(0, 200)}`);
        }
      });
    }]);
  }

  /** What crates/sketch/examples/hll.rs answers. */
  function answered(line, sketches) {
    const [command, name, ...rest] = line.split(" ");
    const sparseOf = (text) => (text === "true" || text === "false" ? text === "true" : Number(text));
    const named = (other) => {
      if (!sketches.has(other)) throw new HllError(`there is no sketch \`${other}\``);
      return sketches.get(other);
    };
    const put = (hll) => {
      sketches.get(name)?.free();
      sketches.set(name, hll);
    };
    switch (command) {
      case "new": {
        const [log2m, regwidth] = rest.map(Number);
        const explicit = rest[2] === "auto" ? "auto" : Number(rest[2]);
        put(new Hll({ log2m, regwidth, explicit, sparse: sparseOf(rest[3]), dialect: rest[4] }));
        break;
      }
      case "read":
        put(Hll.fromHex(rest[0], { sparse: sparseOf(rest[1]), dialect: rest[2], maxLog2m: 31 }));
        break;
      case "ints":
        for (const text of rest) named(name).add(BigInt(text));
        break;
      case "floats":
        for (const text of rest) named(name).add(numberOf(text));
        break;
      case "texts":
        for (const hex of rest) {
          const bytes = Uint8Array.from(hex.match(/../g) ?? [], (byte) => parseInt(byte, 16));
          named(name).add(new TextDecoder().decode(bytes));
        }
        break;
      case "hashes":
        named(name).addHashes(BigInt64Array.from(rest, BigInt));
        break;
      case "range":
        named(name).addAll(range(Number(rest[0]), Number(rest[1])));
        break;
      case "update":
        named(name).update(named(rest[0]));
        break;
      case "fold":
        put(named(name).folded({ log2m: Number(rest[0]), regwidth: Number(rest[1]) }));
        break;
      case "bytes":
        return named(name).toHex();
      case "cardinality":
        return String(named(name).cardinality());
      case "ertl":
        return String(named(name).cardinality("ertl"));
      case "intersection": {
        const { value, standardError } = named(name).intersection(named(rest[0]), { uncertain: true });
        return `${value} ${standardError}`;
      }
      default:
        throw new HllError(`there is no such command: \`${line}\``);
    }
    return "ok";
  }

  if (vectors) {
    // As `hll_set_max_sparse(512)`, under which the vectors were written.
    const options = { sparse: 512 };
    const check = (hll, cardinality, hex) => {
      near(hll.cardinality(), Number(cardinality), 1e-14);
      same(hll.toHex(), hex.toLowerCase());
    };
    all.push(["integers hash as in postgresql-hll", () => {
      const rows = vectors.murmur_bigint.filter(([seed]) => seed === "0");
      ok(rows.length > 50);
      for (const [, key, hash] of rows) {
        const hll = new Hll().add(BigInt(key));
        ok(hll.equals(new Hll().addHash(BigInt(hash))), key);
        if (Number.isSafeInteger(Number(key))) ok(hll.equals(new Hll().add(Number(key))), key);
      }
    }]);
    all.push(["adding goes through postgresql-hll's states", () => {
      const [first, ...rows] = vectors.cumulative_add_sparse_edge;
      ok(rows.length > 500);
      const hll = Hll.fromHex(first[2], options);
      check(hll, first[0], first[2]);
      for (const [cardinality, hash, multiset] of rows) {
        check(hll.addHash(BigInt(hash)), cardinality, multiset);
      }
    }]);
    for (const name of ["explicit_promotion", "sparse_full_representation", "sparse_promotion"]) {
      all.push([`unions go through postgresql-hll's states: ${name}`, () => {
        const rows = vectors[`cumulative_union_${name}`];
        ok(rows.length > 3);
        const union = Hll.fromHex(rows[0][1], options);
        for (const [cardinality, multiset, unionCardinality, unionMultiset] of rows) {
          const hll = Hll.fromHex(multiset, options);
          near(hll.cardinality(), Number(cardinality), 1e-14);
          check(union.update(hll), unionCardinality, unionMultiset);
          ok(hll.update(union).equals(union));
          hll.free();
        }
      }]);
    }
  }
  return all;
}

/** The commands of the differential test: the same ones each time. */
export function commands() {
  const random = generator(2_026);
  const below = (n) => Number(random() % BigInt(n));
  const pick = (...choices) => choices[below(choices.length)];
  const signed = () => BigInt.asIntN(64, random());
  const lines = [];
  const sketch = (name) => {
    const dialect = pick("postgresql", "java");
    const sparse = pick("true", "true", "false", dialect === "java" ? "true" : String(1 + below(600)));
    lines.push(`new ${name} ${4 + below(13)} ${1 + below(8)} ${pick("auto", "0", String(2 ** below(13)))} ${sparse} ${dialect}`);
  };
  const tell = (name) => lines.push(`bytes ${name}`, `cardinality ${name}`, `ertl ${name}`);
  const grow = (name) => {
    const count = pick(1, 2, 5, 40);
    const many = (make) => Array.from({ length: count }, make).join(" ");
    const from = below(50_000) - 25_000;
    lines.push(pick(
      `ints ${name} ${many(signed)}`,
      `hashes ${name} ${many(signed)}`,
      `hashes ${name} ${many(() => BigInt.asIntN(64, random() << BigInt(below(64))))}`,
      `floats ${name} ${many(() => pick(0.5, -0.25, 1e300, 1.5e-8) * (1 + below(1_000) / 1_024))}`,
      `floats ${name} NaN inf -inf`,
      `texts ${name} ${many(() => pick("61", "c3a9", "f09f9880").repeat(1 + below(20)))}`,
      `range ${name} ${from} ${from + pick(10, 200, 3_000, 30_000)}`,
    ));
  };
  for (let program = 0; program < 120; program++) {
    sketch("a");
    sketch("b");
    for (let step = 0; step < 5; step++) {
      grow("a");
      tell("a");
      grow("b");
    }
    tell("b");
    lines.push("intersection a b", "update a b");
    tell("a");
    lines.push(`fold a ${4 + below(10)} ${1 + below(6)}`);
    tell("a");
  }
  lines.push("new a 3 5 auto true java", "new a 11 0 auto true java", "new a 11 5 3 true java",
    "new a 11 5 auto true mysql", "bytes nobody", "update a nobody");
  const seeds = ["118b7f", "128b7fde0820a06c76c0a8004403b7fb05c44a", "138b400001", "1484430000000000000000000001"]
    .map((hex) => Uint8Array.from(hex.match(/../g), (byte) => parseInt(byte, 16)));
  for (let i = 0; i < 2_000; i++) {
    const hex = [...mutated(seeds[i % seeds.length], random)].map((byte) => byte.toString(16).padStart(2, "0"));
    lines.push("new m 11 5 auto true postgresql", `read m ${hex.join("") || "\\x"} true postgresql`, "bytes m");
  }
  return lines;
}

/** Bytes with a few of them changed, left out or added. */
function mutated(bytes, random) {
  const result = [...bytes];
  const below = (n) => Number(random() % BigInt(n));
  for (let times = below(4); times > 0; times--) {
    const at = below(result.length + 1);
    const byte = below(256);
    [
      () => result.splice(at, 1, byte),
      () => result.splice(at, 1, (result[at] ?? 0) ^ (1 << below(8))),
      () => result.splice(at, 1),
      () => result.splice(at, 0, byte),
      () => result.splice(at),
    ][below(5)]();
  }
  return Uint8Array.from(result);
}

/** Random numbers of 64 bits, the same for the same seed (SplitMix64). */
function generator(seed) {
  let state = BigInt(seed);
  const mask = 2n ** 64n - 1n;
  return () => {
    state = (state + 0x9e3779b97f4a7c15n) & mask;
    let z = state;
    z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & mask;
    z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & mask;
    return z ^ (z >> 31n);
  };
}

function range(from, to) {
  return Int32Array.from({ length: Math.max(to - from, 0) }, (_, i) => from + i);
}

/** A number as Rust writes it. */
function numberOf(text) {
  if (text === "inf") return Infinity;
  return text === "-inf" ? -Infinity : Number(text);
}

function ok(condition, message = "does not hold") {
  if (!condition) throw new Error(message);
}

function same(found, expected, message = "") {
  const [a, b] = [found, expected].map((value) => (typeof value === "object" ? JSON.stringify(value) : value));
  if (!Object.is(a, b)) throw new Error(`${message} ${a} is not ${b}`);
}

function near(found, expected, share, message = "") {
  if (Object.is(found, expected)) return;
  if (!(Math.abs(found - expected) <= share * Math.abs(expected))) {
    throw new Error(`${message} ${found} is not ${expected}`);
  }
}

function fails(ErrorClass, says, work) {
  try {
    work();
  } catch (error) {
    if (!(error instanceof ErrorClass)) throw error;
    ok(error.message.includes(says), `the message is: ${error.message}`);
    return error;
  }
  throw new Error(`no error that says: ${says}`);
}
