/** The browser's storage, or memory where the browser keeps it from the page. */

/**
 * @typedef {object} Store
 * @property {(key: string) => string|null} get
 * @property {(key: string, value: string) => void} set
 * @property {(key: string) => void} remove
 */

/**
 * @param {() => Storage} open  Reading the property alone may be refused.
 * @returns {Store}
 */
function store(open) {
  /** @type {Map<string, string>} */
  const memory = new Map();
  /** @type {Storage|null} */
  let kept = null;
  try {
    kept = open();
  } catch {
    // Blocked by a setting of the user: what is chosen holds until the page is left.
  }
  return {
    get: (key) => memory.get(key) ?? kept?.getItem(key) ?? null,
    set(key, value) {
      memory.delete(key);
      try {
        if (!kept) throw new DOMException('there is none', 'SecurityError');
        kept.setItem(key, value);
      } catch {
        memory.set(key, value);
      }
    },
    remove(key) {
      memory.delete(key);
      kept?.removeItem(key);
    },
  };
}

/** Kept in this browser. */
export const local = store(() => window.localStorage);
/** Kept in this tab, over a reload. */
export const tab = store(() => window.sessionStorage);
