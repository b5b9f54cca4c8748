// Keys of the whole page. A page adds its own while it is shown; none work where text is typed.

import { useLayoutEffect, useRef } from "preact/hooks";
import { keysOn } from "./session";

export type KeyMap = Record<string, (event: KeyboardEvent) => void>;

const maps: { current: KeyMap }[] = [];
let prefix = "";
let prefixTimer: ReturnType<typeof setTimeout> | undefined;

/** The name of a pressed key: "j", "?", "Escape", "g p", "Ctrl+Enter". */
export function keyName(event: Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "altKey">): string {
  const key = event.key === " " ? "space" : event.key;
  return event.ctrlKey || event.metaKey ? `Ctrl+${key.length === 1 ? key.toLowerCase() : key}` : key;
}

/** What an element does with keys: its tag, and of an input its type. */
export type Focused = Pick<HTMLElement, "tagName" | "isContentEditable"> & { type?: string };

/** Inputs that take no text. They keep the focus after a click, and must not keep the keys. */
const NOT_TYPED = ["checkbox", "radio", "range", "button", "submit", "reset", "file", "color"];
/** Of those, the ones that Space or Enter acts on. */
const PRESSED = ["checkbox", "radio", "button", "submit", "reset", "file", "color"];

/** Whether letters go into what is focused. A list to choose from is searched by typing. */
export function isField({ tagName, isContentEditable, type }: Focused): boolean {
  if (tagName === "INPUT") return !NOT_TYPED.includes(type ?? "text");
  return isContentEditable || tagName === "TEXTAREA" || tagName === "SELECT";
}

/** Whether a key means something to what is focused already. */
export function isTaken(key: string, { tagName, type }: Focused): boolean {
  if (key !== "Enter" && key !== " ") return false;
  return (
    ["BUTTON", "A", "SUMMARY"].includes(tagName) || (tagName === "INPUT" && PRESSED.includes(type ?? ""))
  );
}

/** Whether a key stays with what is focused, instead of acting on the page. */
function staysInside({ target, key }: KeyboardEvent): boolean {
  return target instanceof HTMLElement && (isField(target) || isTaken(key, target));
}

export function listenToKeys(): void {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.altKey || event.isComposing) return;
    const name = keyName(event);
    const isCommand = name.startsWith("Ctrl+");
    if (!isCommand && name !== "Escape" && (!keysOn.value || staysInside(event))) return;
    if (!isCommand && document.querySelector("dialog[open]")) return;
    const whole = prefix ? `${prefix} ${name}` : name;
    prefix = "";
    clearTimeout(prefixTimer);
    for (const { current } of maps.toReversed()) {
      const act = current[whole];
      if (act) {
        event.preventDefault();
        act(event);
        return;
      }
    }
    if (name === "g" && !isCommand) {
      prefix = "g";
      prefixTimer = setTimeout(() => {
        prefix = "";
      }, 1200);
    }
  });
}

/** These keys work while the component is shown. Later components go before earlier ones. */
export function useKeys(map: KeyMap): void {
  const holder = useRef(map);
  holder.current = map;
  useLayoutEffect(() => {
    maps.push(holder);
    return () => {
      maps.splice(maps.indexOf(holder), 1);
    };
  }, []);
}
