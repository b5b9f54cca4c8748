// Lays out large plans beside the page.
import { type LayoutInput, layoutGraph } from "./layout";

self.addEventListener("message", (message: MessageEvent<{ job: number; input: LayoutInput }>) => {
  postMessage({ job: message.data.job, layout: layoutGraph(message.data.input) });
});
