// Keys of the whole page. A page adds its own while it is shown; none work inside fields.

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

export function isField(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
}

/** Whether a key means something to what is focused already. */
function isTaken(event: KeyboardEvent): boolean {
  const target = event.target;
  if (!(target instanceof HTMLElement)) return false;
  const presses = event.key === "Enter" || event.key === " ";
  return presses && ["BUTTON", "A", "SUMMARY"].includes(target.tagName);
}

export function listenToKeys(): void {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.altKey || event.isComposing) return;
    const name = keyName(event);
    const isCommand = name.startsWith("Ctrl+");
    if (!isCommand && name !== "Escape" && (isField(event.target) || !keysOn.value || isTaken(event))) return;
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
