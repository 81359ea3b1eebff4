// What dashboards/live uses of vendor/lit-html.js.
export type Template = {readonly strings: TemplateStringsArray};
export const html: (strings: TemplateStringsArray, ...values: unknown[]) => Template;
export const svg: typeof html;
export const nothing: unique symbol;
export function render(what: unknown, into: HTMLElement): unknown;
