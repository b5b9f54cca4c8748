import "./styles.css";
import { render } from "preact";
import { hearAnswers, sendOnLeave } from "./answers";
import { Frame, startTitle } from "./frame";
import { listenToKeys } from "./keys";
import { startLive } from "./live";
import { QuestionsPage } from "./pages/questions";
import { RunShell } from "./pages/run_shell";
import { RunsPage } from "./pages/runs";
import { href, listen, route } from "./router";
import { showLostTroubles, signInFromAddress, startPreferences, startSession } from "./session";
import type { RunModel } from "./store";
import { lazyPage } from "./ui";

const BoardPage = lazyPage(async () => (await import("./pages/board")).BoardPage);
const ComparePage = lazyPage(async () => (await import("./pages/compare")).ComparePage);
const CostPage = lazyPage(async () => (await import("./pages/cost")).CostPage);
const NewRunPage = lazyPage(async () => (await import("./pages/new_run")).NewRunPage);
const NotesPage = lazyPage(async () => (await import("./pages/notes")).NotesPage);
const OutputPage = lazyPage(async () => (await import("./pages/output")).OutputPage);
const PlanPage = lazyPage(async () => (await import("./pages/plan")).PlanPage);
const RunPage = lazyPage(async () => (await import("./pages/run")).RunPage);
const TracePage = lazyPage(async () => (await import("./pages/trace")).TracePage);
const WorkersPage = lazyPage(async () => (await import("./pages/workers")).WorkersPage);

function pageOfRun(model: RunModel) {
  switch (route.value.page) {
    case "plan":
      return <PlanPage key={model.run.id} model={model} />;
    case "trace":
      return <TracePage model={model} />;
    case "workers":
      return <WorkersPage model={model} />;
    case "board":
      return <BoardPage model={model} />;
    case "notes":
      return <NotesPage key={model.run.id} model={model} />;
    case "questions":
      return <QuestionsPage />;
    case "cost":
      return <CostPage model={model} />;
    case "output":
      return <OutputPage model={model} />;
    default:
      return <RunPage key={model.run.id} model={model} />;
  }
}

function CurrentPage() {
  const { page, run } = route.value;
  if (run) return <RunShell>{pageOfRun}</RunShell>;
  switch (page) {
    case "runs":
      return <RunsPage />;
    case "new":
      return <NewRunPage />;
    case "workers":
      return <WorkersPage model={null} />;
    case "questions":
      return <QuestionsPage />;
    case "compare":
      return <ComparePage />;
    default:
      return (
        <div class="empty">
          <h2>There is no such page</h2>
          <a class="button plain" href={href("runs")}>
            All runs
          </a>
        </div>
      );
  }
}

function App() {
  return (
    <Frame>
      <CurrentPage />
    </Frame>
  );
}

async function start(root: HTMLElement): Promise<void> {
  startPreferences();
  startTitle();
  listen();
  listenToKeys();
  sendOnLeave();
  hearAnswers();
  showLostTroubles();
  // The token first: nothing else is answered without it.
  await signInFromAddress();
  startSession();
  startLive();
  render(<App />, root);
}

const root = document.getElementById("app");
if (root) void start(root);
