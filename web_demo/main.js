/** The voice page: joins its parts. `app` is for the console and for tests. */

import { Activity } from './activity.js';
import { Captions } from './captions.js';
import { Controls } from './controls.js';
import { Conversation } from './conversation.js';
import { byId } from './dom.js';
import { Explained, soundProblem } from './explain.js';
import { Figures } from './figures.js';
import { Health } from './health.js';
import { Images, contents } from './images.js';
import { Levels, loadTap } from './levels.js';
import { Marks } from './marks.js';
import { Meter } from './meters.js';
import { Microphone } from './microphone.js';
import { Panel } from './panel.js';
import { Playback } from './playback.js';
import { Preferences } from './preferences.js';
import { Session } from './session.js';
import { choices, keepResume, keptResume } from './settings.js';
import { Stage } from './stage.js';
import { Status } from './status.js';
import { Steps } from './steps.js';
import { tab } from './store.js';
import { applyTheme } from './theme.js';
import { Timeline } from './timeline.js';

/** @typedef {import('./call.js').ServerEvent} ServerEvent */

const CONVERSATION = 'talkover.conversation';
/** A reload within this tries to join; the server knows whether it still can. */
const JOINABLE_MS = 120_000;
/** Stretches of sound (10.7 ms) between two reports. */
const REPORT_EVERY = 4;
/** Sound of the last syllable is still on its way when the button is let go of, ms. */
const TAIL = 200;
/** A press shorter than this was none, ms. */
const TAP = 250;

const TURNS = { semantic: { type: 'semantic_vad' }, silence: { type: 'server_vad' }, push: null };
/** Refusals that need no word: what was to be stopped had just ended. */
const HARMLESS = new Set(['response_cancel_not_active', 'input_audio_buffer_commit_empty']);

class App {
  microphone = new Microphone();
  user = new Levels(new Activity(0.004, 3.2));
  agent = new Levels(new Activity(0.0012, 0));
  conversation = new Conversation();
  marks = new Marks();
  stage = new Stage();
  session = new Session();
  figures = new Figures(this.user.activity, this.agent.activity);
  steps = new Steps();
  images = new Images();
  health = new Health();
  /** @type {AudioContext|null} */
  context = null;
  /** @type {Playback|null} */
  playback = null;
  /** From the wish to talk until events flow, ms. @type {number|null} */
  connectedIn = null;

  #controls = new Controls();
  #preferences = new Preferences();
  #status = new Status();
  #panel = new Panel(this.figures, this.steps);
  #timeline = new Timeline({ user: this.user, agent: this.agent }, this.marks);
  #meters = [new Meter('user', this.user), new Meter('agent', this.agent)];
  #levelsSeen = 0;
  #pressedAt = 0;
  #network = 0;
  #wishedAt = 0;
  #withoutMicrophone = false;
  /** Counts the wishes to begin: whoever waited for the microphone sees whether he is still meant. */
  #wish = 0;
  #asking = false;

  constructor() {
    new Captions(this.conversation, (digest) => this.images.picture(digest));
    this.#controls.addEventListener('talk', () => (this.#running ? void this.end() : void this.start()));
    this.#controls.addEventListener('mute', () => this.mute());
    this.#controls.addEventListener('stop', () => this.stopAnswer());
    this.#controls.addEventListener('press', () => this.#press());
    this.#controls.addEventListener('release', () => void this.#release());
    this.#controls.addEventListener('say', (event) => this.say(/** @type {CustomEvent} */ (event).detail));
    this.images.addEventListener('problem', (event) => this.#problem(/** @type {CustomEvent} */ (event).detail));
    this.images.addEventListener('changed', () => this.#show());
    this.#preferences.addEventListener('theme', () => this.#timeline.recolour());
    this.#preferences.addEventListener('microphone', () => void this.#changeMicrophone());
    this.#preferences.addEventListener('turns', () => this.#changeTurns());
    this.#preferences.addEventListener('instructions', () =>
      this.session.send({ type: 'session.update', session: { type: 'realtime', instructions: choices().instructions } }),
    );
    this.#status.onRetry(() => void this.#retry());
    byId('without-microphone').addEventListener('click', () => void this.start(true));
    this.microphone.addEventListener('unplugged', () => void this.#changeMicrophone());
    this.session.addEventListener('state', () => this.#sessionState());
    this.session.addEventListener('server', (event) => this.#server(/** @type {CustomEvent} */ (event).detail));
    this.session.addEventListener('playback', (event) => this.#heardOf(/** @type {CustomEvent} */ (event).detail));
    this.session.addEventListener('problem', (event) => this.#problem(/** @type {CustomEvent} */ (event).detail));
    this.agent.addEventListener('level', () => this.#tick());
    this.health.addEventListener('ready', () => this.#show());
    window.addEventListener('online', () => this.session.networkChanged());
    this.#preferences.addEventListener('key', () => void this.#keyGiven());
    window.addEventListener('pagehide', () => this.#keep());
    document.addEventListener('visibilitychange', () => document.hidden && this.#keep());
    for (const gesture of ['pointerdown', 'keydown']) document.addEventListener(gesture, () => void this.#unblock());
    this.#show();
    void this.health.watch();
  }

  // --- wishes of the user ----------------------------------------------------------------------------------------

  /**
   * Begins a conversation.
   * @param {boolean} [withoutMicrophone]
   */
  async start(withoutMicrophone = false) {
    if (this.#running) return;
    this.#withoutMicrophone = withoutMicrophone;
    this.#wishedAt = performance.now();
    this.connectedIn = null;
    this.#status.clear();
    this.conversation.clear();
    tab.remove(CONVERSATION);
    const track = await this.#open(withoutMicrophone);
    if (track !== undefined) await this.session.open(track, this.#wanted());
  }

  /** Whether a conversation goes on or is about to. */
  get #running() {
    return this.#asking || this.session.state !== 'idle';
  }

  /** Goes on with the conversation that this tab was in before it was loaded anew. */
  async goOn() {
    const resume = keptResume();
    if (!resume || Date.now() - resume.at > JOINABLE_MS) {
      keepResume(null);
      return;
    }
    this.#status.clear();
    try {
      const kept = JSON.parse(tab.get(CONVERSATION) ?? '{}');
      if (kept.session === resume.session) this.conversation.restore(kept.entries);
    } catch {
      // What is kept is a convenience; the session itself is with the server.
    }
    const track = await this.#open(false);
    if (track !== undefined) await this.session.rejoin(track);
  }

  async end() {
    this.#wish += 1;
    this.#asking = false;
    tab.remove(CONVERSATION);
    await this.session.end();
  }

  mute() {
    this.microphone.muted = !this.microphone.muted;
    this.#show();
  }

  /** Silence now: the user has heard enough. */
  stopAnswer() {
    if (this.session.state !== 'live' || !this.stage.cuttable) return;
    this.playback?.muteForCut();
    this.session.send({ type: 'response.cancel' });
    this.session.send({ type: 'output_audio_buffer.clear' });
  }

  /** @param {string} text */
  say(text) {
    this.stopAnswer();
    this.#give(text);
    this.session.send({ type: 'response.create' });
  }

  /**
   * Puts into the conversation what waits above the line of text, and words.
   * @param {string} text
   */
  #give(text) {
    const urls = this.images.take().map(({ url }) => url);
    for (const content of contents(urls, text, this.session.call?.longest ?? 0)) {
      this.session.send({ type: 'conversation.item.create', item: { type: 'message', role: 'user', content } });
    }
  }

  #press() {
    this.stopAnswer();
    this.#give('');
    this.#pressedAt = performance.now();
    this.session.send({ type: 'input_audio_buffer.clear' });
    this.microphone.open = true;
  }

  async #release() {
    const held = performance.now() - this.#pressedAt;
    await new Promise((resolve) => setTimeout(resolve, TAIL));
    this.microphone.open = choices().turns !== 'push';
    if (held < TAP) return;
    this.session.send({ type: 'input_audio_buffer.commit' });
    this.session.send({ type: 'response.create' });
  }

  // --- sound -----------------------------------------------------------------------------------------------------

  /**
   * Makes ready to hear and to be heard.
   * @param {boolean} withoutMicrophone
   * @returns {Promise<MediaStreamTrack|null|undefined>}  Null where there is to be no microphone, undefined where it
   *     cannot be, which the page then says.
   */
  async #open(withoutMicrophone) {
    const wish = (this.#wish += 1);
    this.#asking = true;
    this.#show();
    try {
      const [track] = await Promise.all([withoutMicrophone ? null : this.microphone.start(), this.#openContext()]);
      if (wish !== this.#wish) {
        if (!this.#running) this.microphone.stop();
        return undefined;
      }
      const context = /** @type {AudioContext} */ (this.context);
      const stream = this.microphone.stream;
      this.microphone.open = choices().turns !== 'push';
      if (track && stream) this.user.listen(context.createMediaStreamSource(stream));
      else this.user.stop();
      void this.#preferences.listMicrophones();
      return track;
    } catch (error) {
      if (wish !== this.#wish) return undefined;
      this.#asking = false;
      this.#problem(error instanceof Explained ? error.problem : soundProblem(error));
      return undefined;
    }
  }

  async #openContext() {
    if (!this.context) {
      // Without the worklet there is no page to speak of; why it is missing is told where the microphone is opened.
      if (!window.isSecureContext) return;
      this.context = new AudioContext({ latencyHint: 'interactive' });
      this.context.addEventListener('statechange', () => this.#blocked());
      await loadTap(this.context);
      this.playback = new Playback(this.context);
      this.agent.listen(this.playback.output);
    }
    // It stays pending where a gesture is needed first.
    void this.context.resume();
    this.#blocked();
  }

  #blocked() {
    const asleep = this.context !== null && this.context.state !== 'running';
    this.#status.showBlocked(this.session.state === 'live' && asleep);
  }

  async #unblock() {
    if (this.context && this.context.state !== 'running' && this.#running) await this.context.resume();
  }

  async #changeMicrophone() {
    if (this.session.state === 'idle' || this.#withoutMicrophone) return;
    try {
      const track = await this.microphone.start();
      const { stream } = this.microphone;
      if (this.context && stream) this.user.listen(this.context.createMediaStreamSource(stream));
      await this.session.replaceTrack(track);
    } catch (error) {
      if (error instanceof Explained) this.#problem(error.problem);
    }
  }

  #changeTurns() {
    const { turns } = choices();
    this.microphone.open = turns !== 'push';
    this.session.send({
      type: 'session.update',
      session: { type: 'realtime', audio: { input: { turn_detection: TURNS[turns] } } },
    });
    this.#show();
  }

  #wanted() {
    const { turns, instructions } = choices();
    return {
      type: 'realtime',
      ...(instructions ? { instructions } : {}),
      audio: { input: { turn_detection: TURNS[turns], transcription: { model: 'default' } } },
      x_talkover: { notices: true, resume: true },
    };
  }

  /** Every stretch of sound: the audio thread is a clock that no browser slows down for pages in the background. */
  #tick() {
    const { playback, session } = this;
    if (!playback || session.state !== 'live') return;
    this.#levelsSeen += 1;
    if (this.#levelsSeen % REPORT_EVERY === 0) session.call?.report({ rtp: playback.rtp, at_ms: performance.now() });
    if (this.#levelsSeen % 24 === 0) {
      this.figures.look(performance.now());
      this.#panel.show();
    }
  }

  // --- what the server says --------------------------------------------------------------------------------------

  /** @param {{at_ms?: number, epoch?: number, mute_until_rtp?: number|null}} message */
  #heardOf({ at_ms, epoch, mute_until_rtp }) {
    if (typeof at_ms === 'number') this.#panel.roundTrip(performance.now() - at_ms);
    if (typeof epoch === 'number') {
      this.playback?.begin(epoch, mute_until_rtp ?? null);
      this.#panel.showEpoch(epoch);
    }
  }

  /** @param {ServerEvent} event */
  #server(event) {
    const at = performance.now();
    if (event.type === 'x_talkover.mute') {
      this.#heardOf(event);
      return;
    }
    if (event.type === 'error' && !HARMLESS.has(event.error.code)) {
      this.#problem({ code: event.error.code ?? 'error', title: 'The server refused something.', remedy: event.error.message });
    }
    // Images belong to what is being said: they are there before its end is decided.
    if (event.type === 'input_audio_buffer.speech_started') this.#give('');
    if (event.type === 'x_talkover.playback_cleared') this.#panel.showHeardBy(event.heard_by);
    this.conversation.take(event);
    this.marks.take(event, at);
    this.stage.take(event);
    this.figures.take(event, at);
    this.steps.take(event, at);
    this.#panel.showSteps();
    this.#show();
  }

  #sessionState() {
    const { state, call } = this.session;
    this.#asking = false;
    clearInterval(this.#network);
    if (state === 'live' && call) {
      this.connectedIn ??= Math.round(performance.now() - this.#wishedAt);
      this.playback?.attach(call.receiver);
      this.#status.clear();
      this.#timeline.start();
      this.#network = setInterval(() => void call.network().then((figures) => this.#panel.showNetwork(figures)), 1000);
    } else {
      this.playback?.detach();
      this.marks.end(performance.now());
      this.#panel.forgetNetwork();
    }
    if (state === 'idle') {
      this.microphone.stop();
      this.microphone.muted = false;
      this.user.stop();
      this.#timeline.stop();
      this.#meters.forEach((meter) => meter.rest());
    }
    this.#blocked();
    this.#show();
  }

  /** @param {import('./explain.js').Problem} problem */
  #problem(problem) {
    this.#status.explain(problem);
    byId('without-microphone').hidden = !problem.code.startsWith('microphone') && problem.code !== 'no_microphone';
    if (problem.code === 'api_key') this.#preferences.askForKey();
    if (problem.code === 'not_ready') void this.health.watch();
    this.#show();
  }

  async #keyGiven() {
    this.#status.clear();
    void this.health.watch();
    await this.#goOnOrStart();
  }

  async #goOnOrStart() {
    if (keptResume() && !this.#running) await this.goOn();
    else await this.start(this.#withoutMicrophone);
  }

  async #retry() {
    if (this.#status.code === 'api_key') {
      this.#preferences.askForKey();
      return;
    }
    await this.#goOnOrStart();
  }

  #show() {
    const state = this.#asking ? 'opening' : this.session.state;
    const { muted } = this.microphone;
    const { value } = this.stage;
    if (state === 'live') this.#status.show(muted && value === 'listening' ? 'muted' : value);
    else if (state === 'idle') this.#status.show(this.health.ready ? 'idle' : 'loading');
    else this.#status.show(state);
    document.body.dataset.session = state;
    const recording = byId('recording', HTMLAnchorElement);
    recording.hidden = !this.session.recorded || !this.session.id;
    if (!recording.hidden) recording.href = `/replay/${encodeURIComponent(this.session.id)}`;
    byId('welcome').hidden = state !== 'idle' || this.conversation.entries.length > 0;
    this.images.show(state === 'live' && this.session.sees, this.session.call?.longest ?? 0);
    this.#controls.attached = this.images.any;
    this.#controls.show({
      state,
      ready: this.health.ready,
      microphone: this.microphone.track !== null,
      muted,
      pushes: choices().turns === 'push',
      cuttable: this.stage.cuttable,
    });
  }

  #keep() {
    if (this.session.state === 'idle') return;
    const kept = { session: this.session.id, entries: this.conversation.save() };
    tab.set(CONVERSATION, JSON.stringify(kept));
  }
}

applyTheme();
export const app = new App();
void app.goOn();
