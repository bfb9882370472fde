/** Whose rules decide between the forms of the bytes when writing. All read any of them. */
export type Dialect = "postgresql" | "java";

/**
 * How an estimate is made. The published one gives postgresql-hll's results, and rounded up
 * java-hll's; between 2.5 and 5 times as many values as registers it is up to 2.4 % too high on
 * average. Ertl's is not.
 */
export type Estimator = "published" | "ertl";

/**
 * A value that is counted, hashed as all of Tidemill hashes it:
 * - a string as its UTF-8 (half of a surrogate pair as U+FFFD);
 * - a number that is whole and fits 64 bits, a bigint and a boolean (0 or 1) as an integer of 64
 *   bits. So `1`, `1.0`, `1n` and `true` are one value, `"1"` is another, and −0 is 0;
 * - any other number as its 64-bit float, NaN as one value;
 * - a Date as its microseconds since 1970, as an integer;
 * - bytes as they are: those of a string's UTF-8 are the same value as the string.
 */
export type Value = string | number | bigint | boolean | Date | Uint8Array | ArrayBuffer;

export interface WriteOptions {
  /**
   * Whether few registers are written as a list: where that is shorter (`true`), up to so many
   * registers (a number: `hll_set_max_sparse` of postgresql-hll), or never (`false` or 0).
   * Default: `true`.
   */
  sparse?: boolean | number;
  /** Default: `"postgresql"`. */
  dialect?: Dialect;
}

export interface HllOptions extends WriteOptions {
  /**
   * The base-2 logarithm of the number of registers, 4 to 31: the standard error is
   * 1.04 / √(2 ** log2m). Default: 11, which is 2.3 %. postgresql-hll reads up to 17.
   */
  log2m?: number;
  /** Bits of a register, 1 to 8. Default: 5, enough for 10¹² values. */
  regwidth?: number;
  /**
   * Up to how many values the count is exact: 0 or a power of two up to 2 ** 30; `"auto"`: as many
   * as fit the space of the registers. Default: `"auto"`.
   */
  explicit?: "auto" | number;
}

export interface ReadOptions extends WriteOptions {
  /**
   * The most that `log2m` may be. Three bytes may claim 2 ** 31 registers, which take 2 GB once
   * values fill them: allow that of bytes that are trusted. Default: 24.
   */
  maxLog2m?: number;
}

/** A number that is estimated, with its error. */
export interface Estimate {
  /** The number; NaN of a sketch that `isUndefined`. */
  value: number;
  /** One standard error, in the unit of the value; 0 where the number is exact. */
  standardError: number;
  /** The least and the most that it is in 19 cases of 20. */
  interval: [low: number, high: number];
}

export interface CompareOptions {
  /** Give the number even if its error at 95 % is larger than it. Default: `false`. */
  uncertain?: boolean;
}

/**
 * A sketch of how many different values there are (HyperLogLog): exact while they are few, then an
 * estimate in constant memory. Sketches of parts unite to the sketch of all, and their bytes are
 * those of postgresql-hll and java-hll (the storage specification v1.0.0).
 *
 * Its memory is the WebAssembly's. It is given back some time after the last reference is gone; at
 * once by `free`, or at the end of a block by `using`.
 */
export class Hll {
  /** @throws {HllUsageError} If a parameter is out of its range. */
  constructor(options?: HllOptions);

  /**
   * Reads a sketch that this or another implementation of the specification has written.
   * @throws {HllFormatError} If the bytes are no sketch, are damaged or cut short, or `log2m` is
   * larger than `maxLog2m`.
   */
  static fromBytes(bytes: Uint8Array | ArrayBuffer, options?: ReadOptions): Hll;
  /** As `fromBytes`, of hexadecimal digits: behind `\x`, as PostgreSQL prints them, or without. */
  static fromHex(text: string, options?: ReadOptions): Hll;

  readonly log2m: number;
  readonly regwidth: number;
  readonly explicit: "auto" | number;
  readonly sparse: boolean | number;
  readonly dialect: Dialect;
  /** Whether the count is exact so far. */
  readonly isExact: boolean;
  /** Whether it is a union with something of unknown content, and has no count. */
  readonly isUndefined: boolean;
  /** The memory that it takes, in bytes, but for a constant. */
  readonly byteLength: number;

  /**
   * Adds a value.
   * @throws {HllUsageError} If it is of another type, or a bigint that does not fit 64 bits.
   */
  add(value: Value): this;
  /**
   * Adds each of many values. Typed arrays are the fastest. What comes before one that
   * has no hash is added.
   */
  addAll(values: Iterable<Value>): this;
  /** Adds a value by a hash of its own, of 64 bits, signed or not. */
  addHash(hash: bigint): this;
  addHashes(hashes: BigUint64Array | BigInt64Array): this;

  /**
   * Adds all that others have seen. Where `log2m`, `regwidth` and the others differ, the smaller of
   * each holds from then on: registers are folded to exactly what they would have been.
   */
  update(...others: Hll[]): this;
  /** As `update`, but as a new sketch. */
  union(...others: Hll[]): Hll;
  /** The sketch that smaller parameters would have led to. */
  folded(options?: { log2m?: number; regwidth?: number }): Hll;
  copy(): Hll;

  /** The number of different values. Default: by the `"published"` estimator. */
  cardinality(estimator?: Estimator): number;
  /** The standard error of the `cardinality`, as a share of it; 0 while it is exact. */
  error(estimator?: Estimator): number;
  /** The `cardinality` with its standard error and its interval. */
  estimate(estimator?: Estimator): Estimate;

  /**
   * How many values both have seen, by inclusion and exclusion: its error is that of the whole
   * sketches, so that a small overlap of large ones cannot be told. Exact while both are.
   * @throws {HllUncertainError} If the error at 95 % is larger than the number.
   */
  intersection(other: Hll, options?: CompareOptions): Estimate;
  /** How many values this one has seen and the other has not; as `intersection`. */
  difference(other: Hll, options?: CompareOptions): Estimate;
  /** Which share of all values both have seen; as `intersection`. */
  jaccard(other: Hll, options?: CompareOptions): Estimate;

  /** Whether both have the same parameters and have seen the same. */
  equals(other: unknown): boolean;

  /** The sketch by the storage specification, as `dialect` has it. */
  toBytes(): Uint8Array;
  /** As `\x…`, which PostgreSQL takes for an `hll`. */
  toHex(): string;
  toString(): string;

  /** Gives the memory back. The sketch is of no use afterwards; freeing it again does nothing. */
  free(): void;
  [Symbol.dispose](): void;
}

/** What all errors of this package are. */
export class HllError extends Error {}
/** A parameter, option or value that there is no such thing as. */
export class HllUsageError extends HllError {}
/** Bytes that are no sketch, or are damaged or cut short. */
export class HllFormatError extends HllError {}
/** A number whose error is larger than itself. */
export class HllUncertainError extends HllError {
  readonly estimate: Estimate;
}
/** The memory of the WebAssembly is full, at 4 GiB at most: the sketches made so far are lost. */
export class HllMemoryError extends HllError {}

/**
 * Compiles the WebAssembly beforehand, off the thread. Otherwise it is compiled when the first
 * sketch is made, at once, which a page's main thread may do in browsers of today; older ones want
 * this awaited first.
 */
export function ready(): Promise<void>;
