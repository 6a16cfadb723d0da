/** The little that the page needs of the DOM. */

/**
 * The element with this id, which must be of this class.
 * @template {HTMLElement} [E=HTMLElement]
 * @param {string} id
 * @param {{new (): E}} [kind]
 * @returns {E}
 */
export function byId(id, kind) {
  const found = document.getElementById(id);
  const wanted = /** @type {{new (): E}} */ (kind ?? HTMLElement);
  if (!(found instanceof wanted)) throw new Error(`the page has no ${wanted.name} #${id}`);
  return found;
}

/**
 * A new element with a class and what it holds.
 * @param {string} tag
 * @param {string} [name]
 * @param {...(Node|string)} content
 * @returns {HTMLElement}
 */
export function make(tag, name = '', ...content) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(...content);
  return element;
}

/**
 * Writes text only where it changes: a live region must not speak again, and layout is not disturbed.
 * @param {Element} element
 * @param {string} text
 */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
