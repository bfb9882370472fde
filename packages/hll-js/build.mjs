// Puts the compiled WebAssembly into js/hll.js: node build.mjs FILE.wasm
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const here = new URL(".", import.meta.url);
const wasm = readFileSync(process.argv[2]);
const source = readFileSync(new URL("js/hll.js", here), "utf8");
if (source.split("@WASM@").length !== 2) throw new Error("js/hll.js has not one place for the WebAssembly");
const whole = source.replace("@WASM@", () => wasm.toString("base64"));

mkdirSync(new URL("dist/", here), { recursive: true });
writeFileSync(new URL("dist/hll.js", here), whole);
copyFileSync(new URL("js/hll.d.ts", here), new URL("dist/hll.d.ts", here));

const size = (bytes) => `${(bytes.length / 1000).toFixed(1)} kB, ${(gzipSync(bytes).length / 1000).toFixed(1)} kB by gzip`;
console.error(`WebAssembly: ${size(wasm)}; with the JavaScript: ${size(Buffer.from(whole))}`);
