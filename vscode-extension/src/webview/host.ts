// What the webview says to the extension, and the colors of the editor's theme.

import type { Place } from '../data';

interface VsCode {
  postMessage(message: unknown): void;
  setState(state: unknown): void;
}

declare function acquireVsCodeApi(): VsCode;

const vscode = acquireVsCodeApi();

export function ready(): void {
  vscode.postMessage({ type: 'ready' });
}

/** Goes to a place in the code. */
export function openPlace(place: Place | null): void {
  if (place) {
    vscode.postMessage({ type: 'open', place });
  }
}

/** Shows another view in this panel. */
export function showView(uri: string): void {
  vscode.postMessage({ type: 'show', uri });
}

export function saveSvg(svg: string, name: string): void {
  vscode.postMessage({ type: 'save', svg, name });
}

/** Runs one of the extension's commands on the panel's target. */
export function run(command: string): void {
  vscode.postMessage({ type: 'run', command });
}

/** Opens what the panel shows as text. */
export function showText(): void {
  vscode.postMessage({ type: 'text' });
}

/** What the panel is restored from after a reload. */
export function remember(uri: string, uris: string[] = []): void {
  vscode.setState({ uri, uris });
}

/** The extension's messages: a panel is loading, or has data, or what it is about is further. */
export function onMessages<T, U = never>(loading: () => void, data: (data: T) => void, running?: (running: U) => void): void {
  window.addEventListener('message', (event: MessageEvent<{ type: string; uri: string; uris?: string[]; data: T & U }>) => {
    remember(event.data.uri, event.data.uris);
    if (event.data.type === 'loading') {
      loading();
    } else if (event.data.type === 'data') {
      data(event.data.data);
    } else if (event.data.type === 'running') {
      running?.(event.data.data);
    }
  });
}

/** A color of the theme by the name of its CSS variable, without `--vscode-`. */
export function color(name: string, fallback: string): string {
  return getComputedStyle(document.body).getPropertyValue(`--vscode-${name}`).trim() || fallback;
}

/** Calls back when the theme is another. */
export function onTheme(changed: () => void): void {
  new MutationObserver(changed).observe(document.body, { attributeFilter: ['class', 'data-vscode-theme-id'] });
  new MutationObserver(changed).observe(document.documentElement, { attributeFilter: ['style'] });
}

/** An element with attributes and children. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
  made.append(...children);
  return made;
}
