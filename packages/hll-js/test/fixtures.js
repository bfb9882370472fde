// What the cases are held against: the vectors of postgresql-hll, where they are there, and what
// crates/sketch answers natively.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { commands } from "./cases.js";

const repository = new URL("../../../", import.meta.url);

export function fixtures() {
  return { vectors: vectors(), native: native() };
}

function vectors() {
  const folder = new URL("../shared/data/hll/", repository);
  if (!existsSync(folder)) {
    console.error("skipped: the vectors of postgresql-hll are not there");
    return undefined;
  }
  const names = ["murmur_bigint", "cumulative_add_sparse_edge", "cumulative_union_explicit_promotion",
    "cumulative_union_sparse_full_representation", "cumulative_union_sparse_promotion"];
  const rows = (name) =>
    readFileSync(new URL(`${name}.csv`, folder), "utf8").trim().split(/\r?\n/).slice(1).map((line) => line.split(","));
  return Object.fromEntries(names.map((name) => [name, rows(name)]));
}

function native() {
  const lines = commands();
  const cargo = ["run", "--quiet", "--release", "--locked", "--package", "tidemill-sketch", "--example", "hll"];
  const output = execFileSync("cargo", cargo, {
    cwd: fileURLToPath(repository),
    input: `${lines.join("\n")}\n`,
    encoding: "utf8",
    maxBuffer: 2 ** 30,
    stdio: ["pipe", "pipe", "inherit"],
  });
  const answers = output.trimEnd().split("\n");
  if (answers.length !== lines.length) throw new Error(`${answers.length} answers to ${lines.length} commands`);
  return { commands: lines, answers };
}
