// The output channel of the extension, which remembers its last lines for reports.

import type * as vscode from 'vscode';

const REMEMBERED = 20_000;

export class Log implements vscode.OutputChannel {
  private text = '';

  /** What is written to `channel` itself is not remembered. */
  constructor(readonly channel: vscode.OutputChannel) {}

  get name(): string {
    return this.channel.name;
  }

  /** The last lines, at most so many. */
  last(count: number): string[] {
    return this.text.split('\n').filter((line) => line.trim()).slice(-count);
  }

  append(value: string): void {
    this.text = (this.text + value).slice(-REMEMBERED);
    this.channel.append(value);
  }

  appendLine(value: string): void {
    this.append(`${value}\n`);
  }

  replace(value: string): void {
    this.text = value;
    this.channel.replace(value);
  }

  clear(): void {
    this.text = '';
    this.channel.clear();
  }

  show(): void {
    this.channel.show();
  }

  hide(): void {
    this.channel.hide();
  }

  dispose(): void {
    this.channel.dispose();
  }
}
