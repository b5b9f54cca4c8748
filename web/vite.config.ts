import preact from "@preact/preset-vite";
import { defineConfig } from "vitest/config";

export default defineConfig({
  plugins: [preact({ devToolsEnabled: false, reactAliasesEnabled: false })],
  // Relative addresses: the server may stand behind a proxy, under any path. See <base> in index.html.
  base: "./",
  build: {
    outDir: "../src/chargehand/server/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    // The content security policy allows no data: fonts or scripts, so nothing is inlined.
    assetsInlineLimit: 0,
    reportCompressedSize: false,
  },
  worker: { format: "es" },
  server: { proxy: { "/api": "http://127.0.0.1:8765" } },
  test: { include: ["tests/**/*.test.ts"], environment: "node" },
});
