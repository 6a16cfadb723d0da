/** Light, dark, or as the system has it. */

import { local } from './store.js';

const KEY = 'talkover.theme';

/** @typedef {'auto'|'light'|'dark'} Theme */

/** @returns {Theme} */
export function theme() {
  const kept = local.get(KEY);
  return kept === 'light' || kept === 'dark' ? kept : 'auto';
}

/** Whether it is dark now. */
export function isDark() {
  const chosen = theme();
  return chosen === 'auto' ? matchMedia('(prefers-color-scheme: dark)').matches : chosen === 'dark';
}

/** Puts the kept choice into force; the style sheet does the rest. */
export function applyTheme() {
  document.documentElement.dataset.theme = theme();
}

/** The other one from now on; back to the system's where that is the same. */
export function switchTheme() {
  const wanted = isDark() ? 'light' : 'dark';
  const system = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  if (wanted === system) local.remove(KEY);
  else local.set(KEY, wanted);
  applyTheme();
}
