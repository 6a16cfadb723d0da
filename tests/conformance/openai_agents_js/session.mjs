// What the scenarios share: a RealtimeSession of the SDK, a microphone, and the SDK's own verdict on every event.

import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { OpenAIRealtimeWebSocket, RealtimeSession } from '@openai/agents-realtime';

// The schemas that the SDK parses with are not among its exports; an event that they refuse it passes over in silence.
const { parseRealtimeEvent } = await import(
  new URL('./openaiRealtimeEvents.mjs', import.meta.resolve('@openai/agents-realtime')).href
);

const FRAME_MS = 20;
const FRAME_BYTES = 960; // 20 ms of 24 kHz int16
const SILENCE = Buffer.alloc(FRAME_BYTES);

export const given = JSON.parse(process.argv[2]);

export class Talk {
  // A running session: everything it reported, what it played, and whether each raw event was valid.

  raw = [];
  invalid = [];
  errors = [];
  audio = [];
  interruptions = 0;
  tools = [];
  #news = () => {};
  #said = [];
  #quiet = () => {};
  #capturing = false;

  constructor(agent, config) {
    this.transport = new OpenAIRealtimeWebSocket({ url: given.url });
    this.session = new RealtimeSession(agent, { transport: this.transport, model: 'talkover', config });
    this.transport.on('*', (raw) => this.#judge(raw));
    this.session.on('error', (error) => this.errors.push(JSON.stringify(error).slice(0, 2000)));
    this.session.on('audio', (event) => this.audio.push(Buffer.from(event.data)));
    this.session.on('audio_interrupted', () => (this.interruptions += 1));
    this.session.on('agent_tool_start', () => this.tools.push('start'));
    this.session.on('agent_tool_end', () => this.tools.push('end'));
  }

  #judge(raw) {
    this.raw.push(raw);
    if (parseRealtimeEvent({ data: JSON.stringify(raw) }).isGeneric) {
      this.invalid.push(JSON.stringify(raw).slice(0, 500));
    }
    this.#news();
  }

  async connect() {
    await this.session.connect({ apiKey: 'sk-none' });
    // The second one answers the tracing that the SDK turns on by itself.
    const first = await this.wait('session.updated');
    await this.wait('session.updated', this.raw.indexOf(first) + 1);
  }

  // The first raw event from index `after` on that is of this type or satisfies this.
  async wait(what, after = 0, within = 45) {
    const fits = typeof what === 'string' ? (raw) => raw.type === what : what;
    const deadline = Date.now() + within * 1000;
    for (let seen = after; ; ) {
      for (; seen < this.raw.length; seen += 1) {
        if (fits(this.raw[seen])) return this.raw[seen];
      }
      const left = deadline - Date.now();
      if (left <= 0) {
        const tail = this.raw.slice(after).map((raw) => raw.type).slice(-8);
        throw new Error(`no ${what} within ${within} s; last came ${tail}; errors ${this.errors}`);
      }
      const patience = new AbortController();
      const news = new Promise((resolve) => (this.#news = resolve));
      await Promise.race([news, sleep(left, undefined, { signal: patience.signal }).catch(() => {})]);
      patience.abort();
    }
  }

  // Milliseconds of sound that have arrived.
  sounded() {
    return this.audio.reduce((bytes, part) => bytes + part.length, 0) / 48;
  }

  // One frame per 20 ms by absolute deadlines, silence between what is said.
  openMicrophone() {
    this.#capturing = true;
    void this.#capture();
  }

  async #capture() {
    let due = performance.now();
    while (this.#capturing) {
      const frame = this.#said.shift() ?? SILENCE;
      this.session.sendAudio(frame.buffer.slice(frame.byteOffset, frame.byteOffset + frame.byteLength));
      if (this.#said.length === 0) this.#quiet();
      due += FRAME_MS;
      await sleep(Math.max(0, due - performance.now()));
    }
  }

  // Speak a file of raw PCM; resolves when its last sample has gone out.
  async say(path) {
    const pcm = await readFile(path);
    for (let at = 0; at < pcm.length; at += FRAME_BYTES) {
      const frame = Buffer.alloc(FRAME_BYTES);
      pcm.copy(frame, 0, at, at + FRAME_BYTES);
      this.#said.push(frame);
    }
    await new Promise((resolve) => (this.#quiet = resolve));
  }

  closeMicrophone() {
    this.#capturing = false;
  }

  verdict() {
    return {
      errors: this.errors,
      invalid: this.invalid,
      types: this.raw.map((raw) => raw.type),
      interruptions: this.interruptions,
    };
  }

  // What the SDK itself holds of the conversation, a line per message.
  history() {
    return this.session.history
      .filter((item) => item.type === 'message')
      .map((item) => `${item.role}: ${item.content.map((part) => part.transcript ?? part.text ?? '').join(' ')}`);
  }
}

// Run `scenario` with a connected session as an application does; what it returns is reported.
export async function talkWith(agent, config, scenario) {
  const talk = new Talk(agent, config);
  await talk.connect();
  try {
    const result = await scenario(talk);
    console.log(JSON.stringify({ ...talk.verdict(), ...result }));
  } finally {
    talk.closeMicrophone();
    talk.session.close();
  }
}

export const isDone = (id) => (raw) => raw.type === 'response.done' && raw.response.id === id;
export const isAnotherDone = (id) => (raw) => raw.type === 'response.done' && raw.response.id !== id;

export const deltas = (raws, id) =>
  raws
    .filter((raw) => raw.type === 'response.output_audio_transcript.delta' && raw.response_id === id)
    .map((raw) => raw.delta)
    .join('');
