/**
 * What the user chose. Choices stay in this browser, the API key and the running session in this tab only, so that
 * both are gone with it.
 */

import { local, tab } from './store.js';

/**
 * @typedef {'semantic'|'silence'|'push'} Turns  How a turn ends: as it sounds, by silence, by letting go of a button.
 * @typedef {object} Choices
 * @property {string} microphone    Device id, '' for the system's.
 * @property {Turns} turns
 * @property {string} instructions
 * @property {boolean} echoCancellation
 * @property {boolean} noiseSuppression
 * @property {boolean} autoGainControl
 * @typedef {object} Resume         What joins the running session again.
 * @property {string} session
 * @property {string} token
 * @property {number} at            When it was last known to run, Unix ms.
 */

const CHOICES = 'talkover.choices';
const API_KEY = 'talkover.key';
const RESUME = 'talkover.resume';

/** @type {Readonly<Choices>} */
export const DEFAULTS = Object.freeze({
  microphone: '',
  turns: 'semantic',
  instructions: '',
  echoCancellation: true,
  noiseSuppression: true,
  autoGainControl: true,
});

/**
 * What is kept, where it has the type of its default.
 * @returns {Choices}
 */
export function choices() {
  /** @type {Record<string, unknown>} */
  let kept = {};
  try {
    kept = JSON.parse(local.get(CHOICES) ?? '{}') ?? {};
  } catch {
    // Somebody else's; ours are written anew with the next choice.
  }
  const valid = Object.entries(DEFAULTS).map(([name, value]) => [
    name,
    typeof kept[name] === typeof value ? kept[name] : value,
  ]);
  const result = /** @type {Choices} */ (Object.fromEntries(valid));
  if (!['semantic', 'silence', 'push'].includes(result.turns)) result.turns = DEFAULTS.turns;
  return result;
}

/** @param {Partial<Choices>} changes */
export function choose(changes) {
  local.set(CHOICES, JSON.stringify({ ...choices(), ...changes }));
}

/** The API key, '' for none. */
export const apiKey = () => tab.get(API_KEY) ?? '';

/** @param {string} key */
export function keepApiKey(key) {
  if (key) tab.set(API_KEY, key);
  else tab.remove(API_KEY);
}

/** @returns {Record<string, string>} */
export function authorization() {
  const key = apiKey();
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** @returns {Resume|null} */
export function keptResume() {
  try {
    const kept = JSON.parse(tab.get(RESUME) ?? 'null');
    const valid = typeof kept?.session === 'string' && typeof kept.token === 'string' && typeof kept.at === 'number';
    return valid ? kept : null;
  } catch {
    return null;
  }
}

/** @param {Resume|null} resume */
export function keepResume(resume) {
  if (resume) tab.set(RESUME, JSON.stringify(resume));
  else tab.remove(RESUME);
}
