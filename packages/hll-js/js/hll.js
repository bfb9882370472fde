// HyperLogLog for browsers and Node.js: the Rust of crates/sketch, compiled to WebAssembly.
//
// This side checks what it is given, keeps the number by which the other side knows a sketch, and
// copies texts and bytes into the memory that both share (see src/lib.rs). The WebAssembly is in this
// file as base64, put there by build.mjs: no second file has to be found, served with the right type
// or told to a bundler. It is compiled when the first sketch is made, and at once, so that nothing
// has to be awaited.

const WASM = "@WASM@";

/** What a function of the WebAssembly returns that failed. */
const FAILED = 0xffff_ffff;
/** How many hashes or integers cross at once. */
const WORDS = 8_192;
/** How many bytes cross at once, at most. */
const BYTES_MAX = 2 ** 31 - 1;
/** How many bytes of a text cross without asking for room. */
const TEXT = 12_288;
/** Texts up to this many UTF-16 units are copied without TextEncoder, whose call costs more. */
const SHORT = 24;

const DIALECTS = ["postgresql", "java"];
const ESTIMATORS = ["published", "ertl"];

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** What all errors of this package are. */
class HllError extends Error {
  get name() {
    return this.constructor.name;
  }
}

/** A parameter, option or value that there is no such thing as. */
class HllUsageError extends HllError {}

/** Bytes that are no sketch, or are damaged or cut short. */
class HllFormatError extends HllError {}

/** A number whose error is larger than itself. It is there all the same, as `estimate`. */
class HllUncertainError extends HllError {
  constructor(message, estimate) {
    super(message);
    this.estimate = estimate;
  }
}

/** The memory of the WebAssembly is full, at 4 GiB at most: the sketches made so far are lost. */
class HllMemoryError extends HllError {}

/** The WebAssembly with its memory; another one once its memory was full. */
class Instance {
  constructor(module) {
    this.exports = new WebAssembly.Instance(module).exports;
    this.failed = false;
    this.memory = this.exports.memory;
    this.wordsAt = this.exports.words() >>> 0;
    this.textAt = this.exports.text() >>> 0;
    this.numbersAt = this.exports.numbers() >>> 0;
    this.views();
  }

  /** Calls a function of the WebAssembly. */
  call(name, ...args) {
    if (this.failed) throw memoryError();
    try {
      return this.exports[name](...args);
    } catch (cause) {
      throw this.fail(cause);
    }
  }

  fail(cause) {
    this.failed = true;
    if (current === this) current = undefined;
    return memoryError(cause);
  }

  /** As a number of a sketch or a length, or the error that was said instead. */
  result(returned, ErrorClass) {
    const number = returned >>> 0;
    if (number !== FAILED) return number;
    const message = decoder.decode(this.read(this.call("message_length") >>> 0));
    throw new ErrorClass(message);
  }

  /** The buffers: new views of them each time that the memory has grown, which detaches the old. */
  views() {
    const { buffer } = this.memory;
    this.view = new Uint8Array(buffer);
    this.textView = new Uint8Array(buffer, this.textAt, TEXT);
  }

  get memoryView() {
    if (this.view.byteLength === 0) this.views();
    return this.view;
  }

  /** Where a short text is put. */
  get text() {
    if (this.textView.byteLength === 0) this.views();
    return this.textView;
  }

  /** A copy of the buffer's first bytes, which the last call has written. */
  read(length) {
    const at = this.call("bytes") >>> 0;
    return this.memoryView.slice(at, at + length);
  }

  /** The buffer, with room for so many bytes that the next call reads. */
  room(length) {
    if (length > BYTES_MAX) {
      throw new HllUsageError(`\`${length}\` bytes at once are too many: ${BYTES_MAX} is the most`);
    }
    const at = this.call("bytes_of_length", length) >>> 0;
    return this.memoryView.subarray(at, at + length);
  }

  /** So many of the numbers that the last call told. */
  numbers(count) {
    return new Float64Array(this.memory.buffer, this.numbersAt, count);
  }
}

function memoryError(cause) {
  return new HllMemoryError(
    "the memory of the WebAssembly is full: the sketches made so far are lost\n" +
      "hint: a smaller `log2m` takes less, and `free` gives back what is not needed any more",
    cause && { cause },
  );
}

let compiled;
let current;

function instance() {
  compiled ??= new WebAssembly.Module(decoded());
  current ??= new Instance(compiled);
  return current;
}

function decoded() {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(WASM);
  const text = atob(WASM);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/**
 * Compiles the WebAssembly beforehand, off the thread: for a page that must not stand still for some
 * milliseconds when the first sketch is made, or a browser that compiles on other threads only.
 */
async function ready() {
  compiled ??= await WebAssembly.compile(decoded());
}

/** Frees what no object refers to any more. */
const registry = new FinalizationRegistry(({ wasm, number }) => {
  if (!wasm.failed) wasm.exports.hll_free(number);
});

/** So that the constructor can be told of a sketch that is there already. */
const MADE = Symbol("made");

class Hll {
  #wasm;
  #number;
  #dialect;
  #sparseMax;

  constructor(options = {}) {
    if (options?.[MADE]) {
      ({ wasm: this.#wasm, number: this.#number } = options[MADE]);
      ({ dialect: this.#dialect, sparseMax: this.#sparseMax } = options[MADE]);
    } else {
      known("option", options, ["log2m", "regwidth", "explicit", "sparse", "dialect"]);
      const { log2m = 11, regwidth = 5, explicit = "auto", sparse = true, dialect } = options;
      const writing = writes(sparse, dialect);
      whole("log2m", log2m, 4, 31);
      whole("regwidth", regwidth, 1, 8);
      if (explicit !== "auto") {
        whole("explicit", explicit, 0, 2 ** 30, "\nhint: it is `auto`, 0 or a power of two");
      }
      this.#dialect = writing.dialect;
      this.#sparseMax = writing.sparseMax;
      this.#wasm = instance();
      const threshold = BigInt(explicit === "auto" ? -1 : explicit);
      this.#number = this.#wasm.result(
        this.#wasm.call("hll_new", log2m, regwidth, threshold, Number(writing.isSparse)),
        HllUsageError,
      );
    }
    registry.register(this, { wasm: this.#wasm, number: this.#number }, this);
  }

  static fromBytes(bytes, options = {}) {
    known("option", options, ["sparse", "dialect", "maxLog2m"]);
    const { sparse = true, dialect, maxLog2m = 24 } = options;
    const writing = writes(sparse, dialect);
    whole("maxLog2m", maxLog2m, 4, 31);
    const data = asBytes(bytes);
    if (!data) {
      throw new HllUsageError(
        `a sketch is a Uint8Array or an ArrayBuffer, not ${named(bytes)}\n` +
          "hint: `Hll.fromHex` reads text in hexadecimal",
      );
    }
    const wasm = instance();
    wasm.room(data.length).set(data);
    const returned = wasm.call("hll_read", data.length, maxLog2m, Number(writing.isSparse));
    return made(wasm, wasm.result(returned, HllFormatError), writing.dialect, writing.sparseMax);
  }

  static fromHex(text, options) {
    if (typeof text !== "string") {
      throw new HllUsageError(`hexadecimal is a string, not ${named(text)}`);
    }
    const digits = text.trim().replace(/^\\x/i, "");
    if (digits.length % 2 !== 0 || /[^0-9a-f]/i.test(digits)) {
      throw new HllFormatError(
        "the text is no sketch in hexadecimal: digits and letters up to `f`, two for each byte",
      );
    }
    const bytes = new Uint8Array(digits.length / 2);
    for (let i = 0; i < bytes.length; i++) bytes[i] = parseInt(digits.slice(2 * i, 2 * i + 2), 16);
    return Hll.fromBytes(bytes, options);
  }

  get log2m() {
    return this.#call("hll_log2m");
  }

  get regwidth() {
    return this.#call("hll_regwidth");
  }

  get explicit() {
    const explicit = this.#call("hll_explicit");
    return explicit < 0 ? "auto" : explicit;
  }

  get sparse() {
    if (!this.#call("hll_sparse")) return false;
    return this.#sparseMax < 0 ? true : this.#sparseMax;
  }

  get dialect() {
    return this.#dialect;
  }

  get isExact() {
    return this.#call("hll_is_exact") !== 0;
  }

  get isUndefined() {
    return this.#call("hll_is_undefined") !== 0;
  }

  /** The memory that it takes, but for a constant. */
  get byteLength() {
    return this.#call("hll_heap_bytes") >>> 0;
  }

  add(value) {
    switch (typeof value) {
      case "string":
        this.#addText(value);
        break;
      case "number":
        this.#call("hll_add_number", value);
        break;
      case "bigint":
        this.#call("hll_add_i64", word("value", value));
        break;
      case "boolean":
        this.#call("hll_add_i64", value ? 1n : 0n);
        break;
      default:
        this.#addObject(value);
    }
    return this;
  }

  #addText(text) {
    const wasm = this.#live();
    if (text.length <= SHORT) {
      const buffer = wasm.text;
      let i = 0;
      for (; i < text.length; i++) {
        const unit = text.charCodeAt(i);
        if (unit > 0x7f) break;
        buffer[i] = unit;
      }
      if (i === text.length) {
        this.#call("hll_add_text", i);
        return;
      }
    }
    // A UTF-16 unit is three bytes of UTF-8 at most.
    if (3 * text.length <= TEXT) {
      this.#call("hll_add_text", encoder.encodeInto(text, wasm.text).written);
    } else {
      const { written } = encoder.encodeInto(text, wasm.room(3 * text.length));
      this.#call("hll_add_bytes", written);
    }
  }

  #addObject(value) {
    if (value instanceof Date) {
      const milliseconds = value.getTime();
      if (Number.isNaN(milliseconds)) throw new HllUsageError("the Date is invalid");
      this.#call("hll_add_i64", BigInt(milliseconds) * 1_000n);
      return;
    }
    const bytes = asBytes(value);
    if (!bytes) {
      throw new HllUsageError(
        `a value is a string, number, bigint, boolean, Date or Uint8Array, not ${named(value)}`,
      );
    }
    this.#live().room(bytes.length).set(bytes);
    this.#call("hll_add_bytes", bytes.length);
  }

  addAll(values) {
    if (values instanceof BigInt64Array || values instanceof BigUint64Array) {
      return this.#addWords("hll_add_i64s", values);
    }
    if (ArrayBuffer.isView(values) && !(values instanceof DataView)) {
      return this.#addWords("hll_add_numbers", values, Float64Array);
    }
    if (typeof values === "string" || typeof values?.[Symbol.iterator] !== "function") {
      throw new HllUsageError(
        `values are an array or another iterable, not ${named(values)}\nhint: \`add\` adds one value`,
      );
    }
    for (const value of values) this.add(value);
    return this;
  }

  addHash(hash) {
    if (typeof hash !== "bigint") {
      throw new HllUsageError(`a hash is a bigint of 64 bits, not ${named(hash)}`);
    }
    this.#call("hll_add_hash", word("hash", hash));
    return this;
  }

  addHashes(hashes) {
    if (!(hashes instanceof BigUint64Array || hashes instanceof BigInt64Array)) {
      throw new HllUsageError(
        `hashes are a BigUint64Array or a BigInt64Array, not ${named(hashes)}`,
      );
    }
    return this.#addWords("hll_add_hashes", hashes);
  }

  #addWords(name, words, ArrayClass = words.constructor) {
    const wasm = this.#live();
    for (let start = 0; start < words.length; start += WORDS) {
      const some = words.subarray(start, start + WORDS);
      // Of the source's own type it is a copy of memory.
      new ArrayClass(wasm.memory.buffer, wasm.wordsAt, WORDS).set(some);
      this.#call(name, some.length);
    }
    return this;
  }

  update(...others) {
    for (const other of others) {
      this.#live();
      wasmOf(other, "union");
    }
    for (const other of others) this.#call("hll_update", other.#numberBeside(this.#wasm));
    return this;
  }

  union(...others) {
    for (const other of others) wasmOf(other, "union");
    return this.copy().update(...others);
  }

  folded(options = {}) {
    known("option", options, ["log2m", "regwidth"]);
    const { log2m = this.log2m, regwidth = this.regwidth } = options;
    whole("log2m", log2m, 4, this.log2m, "\nhint: folding makes a sketch coarser, never finer");
    whole("regwidth", regwidth, 1, this.regwidth, "\nhint: folding makes a sketch coarser");
    const returned = this.#call("hll_folded", log2m, regwidth);
    const number = this.#wasm.result(returned, HllUsageError);
    return made(this.#wasm, number, this.#dialect, this.#sparseMax);
  }

  copy() {
    const number = this.#call("hll_copy") >>> 0;
    return made(this.#wasm, number, this.#dialect, this.#sparseMax);
  }

  cardinality(estimator = "published") {
    return this.#call("hll_cardinality", isErtl(estimator));
  }

  error(estimator = "published") {
    const { value, standardError } = this.estimate(estimator);
    return standardError === 0 ? 0 : standardError / value;
  }

  estimate(estimator = "published") {
    this.#call("hll_estimate", isErtl(estimator));
    const [value, standardError] = this.#wasm.numbers(2);
    return estimateOf(value, standardError);
  }

  intersection(other, options) {
    return this.#compared(other, 0, "intersection", options);
  }

  difference(other, options) {
    return this.#compared(other, 1, "difference", options);
  }

  jaccard(other, options) {
    const estimate = this.#compared(other, 2, "Jaccard index", options);
    estimate.interval[1] = Math.min(estimate.interval[1], 1);
    return estimate;
  }

  #compared(other, at, what, options = {}) {
    known("option", options, ["uncertain"]);
    this.#live();
    wasmOf(other, what);
    this.#call("hll_compare", other.#numberBeside(this.#wasm));
    const [value, standardError] = this.#wasm.numbers(6).subarray(2 * at);
    const estimate = estimateOf(value, standardError);
    const margin = marginOf(standardError);
    // Written so that NaN is refused.
    if (!(margin <= value) && !options.uncertain) {
      throw new HllUncertainError(
        `the ${what} cannot be told from nothing: ${rounded(value)} ± ${rounded(margin)} (95 %)\n` +
          "hint: a larger `log2m` narrows it; `uncertain: true` gives it all the same",
        estimate,
      );
    }
    return estimate;
  }

  equals(other) {
    if (!(other instanceof Hll)) return false;
    this.#live();
    return this.#call("hll_equals", other.#numberBeside(this.#wasm)) !== 0;
  }

  toBytes() {
    const java = Number(this.#dialect === "java");
    const written = this.#call("hll_write", java, BigInt(this.#sparseMax));
    return this.#wasm.read(this.#wasm.result(written, HllUsageError));
  }

  toHex() {
    let text = "\\x";
    for (const byte of this.toBytes()) text += byte.toString(16).padStart(2, "0");
    return text;
  }

  free() {
    if (this.#number === undefined) return;
    registry.unregister(this);
    if (!this.#wasm.failed) this.#wasm.call("hll_free", this.#number);
    this.#number = undefined;
  }

  toString() {
    const { value, standardError } = this.estimate();
    let says = `${rounded(value)} values ± ${rounded(standardError)}`;
    if (this.isUndefined) says = "undefined";
    else if (this.isExact) says = `${rounded(value)} ${value === 1 ? "value" : "values"}, exact`;
    return `Hll(log2m ${this.log2m}, regwidth ${this.regwidth}: ${says})`;
  }

  #live() {
    if (this.#number === undefined) throw new HllUsageError("the sketch was freed");
    if (this.#wasm.failed) throw memoryError();
    return this.#wasm;
  }

  /** Calls a function of the WebAssembly that takes the sketch first. */
  #call(name, ...args) {
    const wasm = this.#live();
    try {
      return wasm.exports[name](this.#number, ...args);
    } catch (cause) {
      throw wasm.fail(cause);
    }
  }

  /** The sketch's number, where it lives in the same memory. */
  #numberBeside(wasm) {
    // Another memory is one that was full: it is the only way to a second one.
    if (this.#live() !== wasm) throw memoryError();
    return this.#number;
  }
}

// Where the engine does not know it yet, `using` is compiled to a look-up of this.
Object.defineProperty(Hll.prototype, Symbol.dispose ?? Symbol.for("Symbol.dispose"), {
  value: Hll.prototype.free,
  configurable: true,
  writable: true,
});

// What Node.js shows in its console.
Object.defineProperty(Hll.prototype, Symbol.for("nodejs.util.inspect.custom"), {
  value: Hll.prototype.toString,
  configurable: true,
  writable: true,
});

function made(wasm, number, dialect, sparseMax) {
  return new Hll({ [MADE]: { wasm, number, dialect, sparseMax } });
}

function wasmOf(other, what) {
  if (!(other instanceof Hll)) {
    throw new HllUsageError(`the ${what} is with an Hll, not with ${named(other)}`);
  }
}

function estimateOf(value, standardError) {
  const margin = marginOf(standardError);
  return { value, standardError, interval: [Math.max(value - margin, 0), value + margin] };
}

/** How far the number is off in 19 cases of 20, at most. */
function marginOf(standardError) {
  return 1.96 * standardError;
}

function isErtl(estimator) {
  if (!ESTIMATORS.includes(estimator)) {
    throw new HllUsageError(
      `there is no estimator \`${shown(estimator)}\`\nhint: estimators are ${listed(ESTIMATORS)}`,
    );
  }
  return Number(estimator === "ertl");
}

function writes(sparse, dialect = "postgresql") {
  if (!DIALECTS.includes(dialect)) {
    throw new HllUsageError(
      `there is no dialect \`${shown(dialect)}\`\nhint: dialects are ${listed(DIALECTS)}`,
    );
  }
  if (typeof sparse === "boolean") return { dialect, isSparse: sparse, sparseMax: -1 };
  whole("sparse", sparse, 0, 2 ** 31, "\nhint: it is true, false or a number of registers");
  if (dialect === "java" && sparse > 0) {
    throw new HllUsageError(
      `\`sparse\` is ${sparse}, but java-hll has no number of sparse registers\n` +
        "hint: true or false, or the dialect `postgresql`",
    );
  }
  return { dialect, isSparse: sparse > 0, sparseMax: sparse > 0 ? sparse : -1 };
}

function whole(name, value, least, most, hint = "") {
  if (!Number.isInteger(value)) {
    throw new HllUsageError(`\`${name}\` must be a whole number, not \`${shown(value)}\`${hint}`);
  }
  if (value < least || value > most) {
    throw new HllUsageError(
      `\`${name}\` is ${value}, but must be from ${least} to ${most}${hint}`,
    );
  }
}

/** A mistyped option would be left out in silence. */
function known(what, options, names) {
  if (typeof options !== "object" || options === null) {
    throw new HllUsageError(`options are an object, not ${named(options)}`);
  }
  for (const name of Object.keys(options)) {
    if (!names.includes(name)) {
      throw new HllUsageError(
        `there is no ${what} \`${name}\`\nhint: ${what}s are ${listed(names)}`,
      );
    }
  }
}

/** A bigint as one of 64 bits, signed, whichever of both it was. */
function word(name, value) {
  if (value < -(2n ** 63n) || value >= 2n ** 64n) {
    throw new HllUsageError(`the ${name} \`${value}\` does not fit 64 bits`);
  }
  return BigInt.asIntN(64, value);
}

function asBytes(value) {
  if (value instanceof Uint8Array) return value;
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  return undefined;
}

function listed(names) {
  const quoted = names.map((name) => `\`${name}\``);
  return `${quoted.slice(0, -1).join(", ")} and ${quoted.at(-1)}`;
}

function named(value) {
  if (value === null || value === undefined) return String(value);
  const kind = typeof value === "object" ? (value.constructor?.name ?? "object") : typeof value;
  return `${/^[aeio]/i.test(kind) ? "an" : "a"} ${kind}`;
}

function shown(value) {
  return typeof value === "object" ? named(value) : String(value);
}

function rounded(value) {
  if (!Number.isFinite(value)) return String(value);
  if (Math.abs(value) < 100) return String(Number(value.toPrecision(3)));
  return Math.round(value).toLocaleString("en-US");
}

export { Hll, HllError, HllFormatError, HllMemoryError, HllUncertainError, HllUsageError, ready };
