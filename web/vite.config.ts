import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import preact from "@preact/preset-vite";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

/** The folder of the package that a bundled module belongs to; null: it is ours. */
function packageOf(module: string): string | null {
  return /^(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(module)?.[1] ?? null;
}

/** Ships the licences of everything that is in the bundle. */
function thirdPartyLicenses(): Plugin {
  return {
    name: "third-party-licenses",
    apply: "build",
    generateBundle(_, bundle) {
      const modules = Object.values(bundle).flatMap((each) => (each.type === "chunk" ? each.moduleIds : []));
      const folders = [...new Set(modules.map(packageOf).filter((each) => each !== null))].sort();
      const parts = folders.map((folder) => {
        const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
        const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
        if (!file) throw new Error(`${name} has no licence file; it cannot be shipped`);
        return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
      });
      const source = `The dashboard contains these packages.\n\n${parts.join(`\n${"-".repeat(72)}\n\n`)}`;
      this.emitFile({ type: "asset", fileName: "THIRD_PARTY_LICENSES.txt", source });
    },
  };
}

export default defineConfig({
  plugins: [preact({ devToolsEnabled: false, reactAliasesEnabled: false }), thirdPartyLicenses()],
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
  // The server checks the host that a request is for, so the proxy leaves it alone.
  server: { proxy: { "/api": { target: "http://127.0.0.1:8642", changeOrigin: false } } },
  test: { include: ["tests/**/*.test.ts"], environment: "node" },
});
