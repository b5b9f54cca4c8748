import { describe, expect, it } from "vitest";
import { inline, parseMarkdown, plainWords, safeLink } from "../src/markdown";

const text = (words: string) => ({ is: "text", text: words });

describe("Markdown", () => {
  it("has headings, paragraphs, lists, code, quotes, rules and tables", () => {
    const blocks = parseMarkdown(
      "# Title\n\nOne\ntwo\n\n- a\n- b\n  1. c\n\n```py\nx = 1\n```\n> said\n\n---\n| a | b |\n|---|---|\n| 1 | 2 |",
    );
    expect(blocks.map((block) => block.is)).toEqual([
      "heading",
      "paragraph",
      "list",
      "code",
      "quote",
      "rule",
      "table",
    ]);
    expect(blocks[1]).toEqual({ is: "paragraph", parts: [text("One\ntwo")] });
    expect(blocks[2]).toMatchObject({
      ordered: false,
      items: [[{ is: "paragraph" }], [{ is: "paragraph" }, { is: "list", ordered: true }]],
    });
    expect(blocks[3]).toEqual({ is: "code", language: "py", text: "x = 1" });
    expect(blocks[6]).toMatchObject({ head: [[text("a")], [text("b")]], rows: [[[text("1")], [text("2")]]] });
  });

  it("keeps HTML as text", () => {
    const attack = '<script>alert(1)</script><img src=x onerror="alert(1)">';
    expect(parseMarkdown(attack)).toEqual([{ is: "paragraph", parts: [text(attack)] }]);
  });

  it("loads no image", () => {
    expect(inline("![chart](https://evil.example/t.png)")).toEqual([
      text("[image: chart] (https://evil.example/t.png)"),
    ]);
  });

  it("says where links lead, and follows only safe ones", () => {
    expect(inline("[docs](https://example.com/a)")).toEqual([
      { is: "link", href: "https://example.com/a", host: "example.com", parts: [text("docs")] },
    ]);
    expect(inline("[x](javascript:alert(1))")[0]).toMatchObject({ is: "text" });
    for (const bad of [
      "javascript:alert(1)",
      " JaVaScRiPt:1",
      "data:text/html,x",
      "vbscript:x",
      "https://user:pw@example.com/",
      "//x.example",
    ])
      expect(safeLink(bad)).toBeNull();
  });

  it("marks references to tasks that exist", () => {
    const tasks = new Set(["t1", "m[2]"]);
    expect(inline("rose [t1] and [m[2]], not [t9]", tasks)).toEqual([
      text("rose "),
      { is: "task", id: "t1" },
      text(" and "),
      { is: "task", id: "m[2]" },
      text(", not [t9]"),
    ]);
  });

  it("has emphasis and code inside paragraphs", () => {
    expect(inline("**a *b* c** `d` ~~e~~ snake_case_name")).toEqual([
      { is: "strong", parts: [text("a "), { is: "em", parts: [text("b")] }, text(" c")] },
      text(" "),
      { is: "code", text: "d" },
      text(" "),
      { is: "strike", parts: [text("e")] },
      text(" snake_case_name"),
    ]);
  });

  it("ends, however deep or long the text is", () => {
    const began = performance.now();
    parseMarkdown(`${"> ".repeat(5000)}deep`);
    parseMarkdown("- ".repeat(5000));
    parseMarkdown("*".repeat(20_000));
    parseMarkdown(`${"[".repeat(5000)}${"](".repeat(5000)}`);
    parseMarkdown("`".repeat(5001));
    parseMarkdown("|".repeat(5000));
    parseMarkdown("a **b ".repeat(3000));
    expect(performance.now() - began).toBeLessThan(2000);
  });

  it("is read as plain words where there is one line only", () => {
    expect(plainWords("# Is **this** `it`?\n- yes [docs](https://e.com)")).toBe("Is this it? yes docs");
  });
});
