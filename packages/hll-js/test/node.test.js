// In Node.js: the cases, and what only concerns Node.js.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import * as api from "../dist/hll.js";
import { cases } from "./cases.js";
import { fixtures } from "./fixtures.js";

const folder = fileURLToPath(new URL("..", import.meta.url));

const expected = fixtures();
for (const [name, work] of cases(api, expected)) test(name, work);

test("an answer that is not that of crates/sketch is noticed", () => {
  const { commands, answers } = expected.native;
  const at = commands.findIndex((command) => command.startsWith("bytes "));
  const native = { commands, answers: answers.with(at, answers[at].replace(/.$/, (digit) => (digit === "0" ? "1" : "0"))) };
  const [, work] = cases(api, { native }).at(-1);
  assert.throws(work, new RegExp(`command ${at}:`));
});

/** The package once more, with other functions in place of the WebAssembly's. */
async function packageWith(replaced, name) {
  const { Instance } = WebAssembly;
  WebAssembly.Instance = class {
    constructor(module) {
      const { exports } = new Instance(module);
      this.exports = { ...exports, ...replaced(exports) };
    }
  };
  const again = await import(`../dist/hll.js?${name}`);
  new again.Hll().free();
  WebAssembly.Instance = Instance;
  return again;
}

test("sketches in a memory that was full are lost, and new ones are not", async () => {
  const full = () => ({
    hll_folded: () => {
      throw new WebAssembly.RuntimeError("unreachable");
    },
  });
  const { Hll, HllMemoryError } = await packageWith(full, "full");
  const [hll, other] = [new Hll().add(1), new Hll()];
  assert.throws(() => hll.folded(), HllMemoryError);
  for (const work of [() => hll.add(1), () => other.cardinality(), () => other.update(hll), () => hll.toHex()]) {
    assert.throws(work, HllMemoryError);
  }
  hll.free();
  const next = new Hll().add(2);
  assert.equal(next.cardinality(), 1);
  assert.throws(() => next.update(other), HllMemoryError);
  assert.equal(next.folded().cardinality(), 1);
});

test("what no object refers to is freed", async () => {
  const freed = new Set();
  let first;
  const seen = new Promise((resolve) => {
    first = resolve;
  });
  const counting = (exports) => ({
    hll_free: (number) => {
      exports.hll_free(number);
      freed.add(number);
      if (freed.size > 50) first();
    },
  });
  const { Hll } = await packageWith(counting, "counting");
  for (let i = 0; i < 100; i++) new Hll().add(i);
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc");
  const again = setInterval(collect, 1);
  await seen;
  clearInterval(again);
});

test("`require` and `import` give the same package, by its name", () => {
  const project = mkdtempSync(join(tmpdir(), "hll-"));
  try {
    mkdirSync(join(project, "node_modules/@tidemill"), { recursive: true });
    symlinkSync(folder, join(project, "node_modules/@tidemill/hll"));
    const run = (name, source) => {
      writeFileSync(join(project, name), source);
      return execFileSync(process.execPath, [name], { cwd: project, encoding: "utf8", stdio: "pipe" });
    };
    const imports = 'import { Hll } from "@tidemill/hll"; console.log(new Hll().add(7).toHex());';
    assert.match(run("a.mjs", imports), /^\\x128b7f[0-9a-f]{16}\n$/);
    if (process.features.require_module) {
      const requires = 'const { Hll } = require("@tidemill/hll"); import("@tidemill/hll").then((m) => console.log(m.Hll === Hll));';
      assert.equal(run("c.cjs", requires), "true\n");
    }
  } finally {
    rmSync(project, { recursive: true });
  }
});

test("the README's example prints what it says", () => {
  const readme = readFileSync(join(folder, "README.md"), "utf8");
  const blocks = [...readme.matchAll(/```js\n([^]*?)```/g)].map(([, block]) => block);
  const project = mkdtempSync(join(tmpdir(), "hll-"));
  try {
    mkdirSync(join(project, "node_modules/@tidemill"), { recursive: true });
    symlinkSync(folder, join(project, "node_modules/@tidemill/hll"));
    let checked = 0;
    for (const block of blocks) {
      const expected = [...block.matchAll(/console\.log\(.*\); \/\/ (.*)/g)].map(([, says]) => says);
      writeFileSync(join(project, "example.mjs"), block);
      const printed = execFileSync(process.execPath, ["example.mjs"], { cwd: project, encoding: "utf8" });
      assert.deepEqual(printed.trimEnd().split("\n"), expected);
      checked += expected.length;
    }
    assert.ok(checked >= 5);
  } finally {
    rmSync(project, { recursive: true });
  }
});

test("the package holds what is needed, and nothing else", () => {
  const [{ files }] = JSON.parse(
    execFileSync("npm", ["pack", "--dry-run", "--json", "--offline"], { cwd: folder, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }),
  );
  assert.deepEqual(
    files.map(({ path }) => path).sort(),
    ["LICENSE", "README.md", "dist/hll.d.ts", "dist/hll.js", "package.json"],
  );
  const source = readFileSync(join(folder, "dist/hll.js"), "utf8");
  const wasm = Buffer.from(source.match(/^const WASM = "(.*)";$/m)[1], "base64");
  assert.ok(WebAssembly.validate(wasm));
  assert.deepEqual(WebAssembly.Module.imports(new WebAssembly.Module(wasm)), [], "it asks for nothing");
  assert.ok(!wasm.includes("/home/") && !wasm.includes("/root/"), "no path of the machine that built it");
});
