// The graph and the timeline without the rest of the dashboard: `benchmarks/dashboard.py` measures here. Not shipped.
import "./src/styles.css";
import { Graph } from "./src/graph";
import { Timeline } from "./src/timeline";
import type { Snapshot } from "./src/types";

const canvas = (id: string) => document.getElementById(id) as HTMLCanvasElement;
const graph = new Graph(canvas("graph"));
const timeline = new Timeline(canvas("timeline"));

const bench = {
  graph,
  timeline,
  show(snapshot: Snapshot, now?: number) {
    graph.setData({
      tasks: snapshot.tasks,
      criticalPath: snapshot.critical_path,
      estimates: snapshot.estimates,
      items: snapshot.items,
    });
    timeline.setData({
      tasks: snapshot.tasks,
      attempts: snapshot.attempts,
      estimates: snapshot.estimates,
      criticalPath: snapshot.critical_path,
      cap: 8,
      beganAt: snapshot.run.began_at,
      endedAt: snapshot.run.ended_at,
      ...(now === undefined ? {} : { now }),
    });
    return graph.ready;
  },
  theme(name: string) {
    document.documentElement.dataset.theme = name;
    graph.setTheme();
    timeline.setTheme();
  },
};

declare global {
  interface Window {
    bench: typeof bench;
  }
}
window.bench = bench;
