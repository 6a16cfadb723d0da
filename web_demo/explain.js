/** What went wrong, in words, and what to do about it. */

/**
 * @typedef {object} Problem
 * @property {string} code     For tests and reports.
 * @property {string} title
 * @property {string} remedy
 * @property {boolean} [retry] Whether trying again may help by itself.
 */

/** An error that the page shows as it is. */
export class Explained extends Error {
  /** @param {Problem} problem */
  constructor(problem) {
    super(`${problem.title} ${problem.remedy}`);
    this.problem = problem;
  }
}

/** @returns {Problem|null} Why there can be no microphone here at all. */
export function unsupported() {
  if (!window.isSecureContext) {
    return {
      code: 'insecure_origin',
      title: 'This page may not use a microphone.',
      remedy: `Browsers allow it on https and on localhost only, and this is ${location.origin}. Open the page by https (the server's --tls-self-signed or --tls-cert), or on the machine itself as http://localhost.`,
    };
  }
  if (!navigator.mediaDevices?.getUserMedia || !window.RTCPeerConnection || !window.AudioWorkletNode) {
    return {
      code: 'unsupported_browser',
      title: 'This browser cannot hold a voice call.',
      remedy: 'It lacks WebRTC or AudioWorklet. A current Chrome, Edge, Firefox or Safari has both.',
    };
  }
  return null;
}

/**
 * Why the microphone was not given: https://w3c.github.io/mediacapture-main/#dom-mediadevices-getusermedia
 * @param {unknown} error
 * @returns {Problem}
 */
export function microphoneProblem(error) {
  const name = error instanceof Error ? error.name : '';
  switch (name) {
    case 'NotAllowedError':
    case 'SecurityError':
      return {
        code: 'microphone_denied',
        title: 'The microphone is blocked for this page.',
        remedy: "Allow it with the icon at the left end of the address bar (in Safari: Settings › Websites › Microphone), check that the system's privacy settings let this browser use the microphone, then try again.",
        retry: true,
      };
    case 'NotFoundError':
      return {
        code: 'no_microphone',
        title: 'No microphone was found.',
        remedy: 'Connect one, or switch on the one that is there in the system settings, then try again. Typing works without.',
        retry: true,
      };
    case 'NotReadableError':
    case 'AbortError':
      return {
        code: 'microphone_busy',
        title: 'The microphone cannot be opened.',
        remedy: 'Another program may be holding it. Close that program or choose another microphone, then try again.',
        retry: true,
      };
    case 'OverconstrainedError':
      return {
        code: 'microphone_gone',
        title: 'The chosen microphone is not there any more.',
        remedy: 'Choose another one in the settings.',
        retry: true,
      };
    default:
      return {
        code: 'microphone_failed',
        title: 'The microphone cannot be opened.',
        remedy: error instanceof Error ? error.message : String(error),
        retry: true,
      };
  }
}

/**
 * Why there is no sound, where it is not the microphone.
 * @param {unknown} error
 * @returns {Problem}
 */
export const soundProblem = (error) => ({
  code: 'no_sound',
  title: 'The sound could not be set up.',
  remedy: error instanceof Error ? error.message : String(error),
  retry: true,
});

/**
 * Why the server did not take the call.
 * @param {number} status
 * @param {{code?: string, message?: string}} error  The `error` of the answer's body.
 * @returns {Problem}
 */
export function callProblem(status, error) {
  const code = error.code ?? `http_${status}`;
  const said = error.message ?? '';
  if (status === 401) {
    return { code: 'api_key', title: 'This server asks for an API key.', remedy: said, retry: true };
  }
  if (code === 'origin_not_allowed') {
    return { code, title: 'The server does not let this page in.', remedy: said };
  }
  if (code === 'server_busy') {
    return { code, title: 'All sessions of the server are in use.', remedy: 'Try again in a moment.', retry: true };
  }
  if (code === 'not_ready') {
    return { code, title: 'The models are still being loaded.', remedy: 'It begins as soon as they are there.', retry: true };
  }
  return { code, title: 'The server did not take the call.', remedy: said || `It answered ${status}.`, retry: true };
}

/** @type {Problem} */
export const UNREACHABLE = {
  code: 'unreachable',
  title: 'The server does not answer.',
  remedy: 'Check that it runs and that this machine can reach it.',
  retry: true,
};

/** @type {Problem} */
export const NO_MEDIA = {
  code: 'no_media',
  title: 'The server answered, but no audio connection came about.',
  remedy: 'A firewall may block UDP between here and the server; a TURN server helps there.',
  retry: true,
};

/** @type {Problem} */
export const LOST = {
  code: 'session_lost',
  title: 'The conversation could not be taken up again.',
  remedy: 'The connection was away for longer than the server waits. Start a new one.',
  retry: true,
};
