// In a real browser without a window: the same cases, on a page of a server on loopback. The page sends
// what came out of them, and the browser is ended then.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { fixtures } from "./fixtures.js";

const chromium = process.env.CHROMIUM;

const PAGE = `<!doctype html>
<meta charset="utf-8">
<title>hll</title>
<script type="module">
  const report = (results) => fetch("/results", { method: "POST", body: JSON.stringify(results) });
  addEventListener("error", (event) => report({ error: event.message }));
  addEventListener("unhandledrejection", (event) => report({ error: String(event.reason) }));
  const api = await import("/hll.js");
  const { cases } = await import("/cases.js");
  const fixtures = await (await fetch("/fixtures.json")).json();
  // What the README says: the first sketch may be made at once on the main thread.
  new api.Hll().free();
  const results = cases(api, fixtures).map(([name, work]) => {
    try {
      work();
      return { name };
    } catch (error) {
      return { name, error: String(error.stack) };
    }
  });
  await api.ready();
  await report({ results, agent: navigator.userAgent });
</script>`;

function served() {
  const file = (path) => readFileSync(new URL(path, import.meta.url));
  const script = "text/javascript";
  return {
    "/": ["text/html", PAGE],
    "/hll.js": [script, file("../dist/hll.js")],
    "/cases.js": [script, file("cases.js")],
    "/fixtures.json": ["application/json", JSON.stringify(fixtures())],
  };
}

async function inBrowser() {
  const pages = served();
  const profile = mkdtempSync(join(tmpdir(), "hll-browser-"));
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", `--user-data-dir=${profile}`];
  // A group of its own, so that all its processes end together.
  const browser = spawn(chromium, [...flags, `http://127.0.0.1:${server.address().port}/`], {
    stdio: ["ignore", "ignore", "pipe"],
    detached: true,
  });
  let said = "";
  browser.stderr.on("data", (data) => {
    said += data;
  });
  const ended = new Promise((resolve) => browser.on("close", resolve));
  try {
    return await new Promise((resolve, reject) => {
      browser.on("error", reject);
      ended.then((status) => reject(new Error(`the browser ended with ${status}: ${said}`)));
      server.on("request", (request, response) => {
        if (request.method === "POST") {
          let body = "";
          request.on("data", (data) => {
            body += data;
          });
          request.on("end", () => {
            response.end();
            resolve(JSON.parse(body));
          });
          return;
        }
        const [type, content] = pages[request.url] ?? [];
        response.writeHead(type ? 200 : 404, { "content-type": type ?? "text/plain" });
        response.end(content);
      });
    });
  } finally {
    if (browser.exitCode === null && browser.pid) process.kill(-browser.pid, "SIGKILL");
    await ended;
    server.closeAllConnections();
    server.close();
    // What the browser's last processes still write may come in between.
    rmSync(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}

test("in a browser", { skip: chromium ? false : "Chromium is not installed" }, async (t) => {
  const { results, agent, error } = await inBrowser();
  assert.equal(error, undefined);
  t.diagnostic(agent);
  assert.ok(results.length > 15);
  for (const { name, error } of results) {
    await t.test(name, () => assert.equal(error, undefined));
  }
});
