// The parts of the voice page that need no browser, by `node --test`.

import assert from 'node:assert/strict';
import { test } from 'node:test';

const at = (name) => new URL(`../../web_demo/${name}`, import.meta.url).href;
const { Gate, IMPATIENT, MARGIN, UNANSWERED, rtpDistance } = await import(at('gate.js'));
const { Activity } = await import(at('activity.js'));
const { Conversation } = await import(at('conversation.js'));
const { Figures, median } = await import(at('figures.js'));
const { contents } = await import(at('images.js'));
const { Marks } = await import(at('marks.js'));
const { Stage } = await import(at('stage.js'));
const { Steps } = await import(at('steps.js'));
const { bring, recordingsIn } = await import(at('replay/folder.js'));
const { answers, struck } = await import(at('replay/scene.js'));
const { inputLag, watermarks } = await import(at('replay/watermarks.js'));
const { View, clock, gridStep, readLink, writeLink } = await import(at('replay/view.js'));

// --- gate ------------------------------------------------------------------------------------------------------------

test('timestamps are compared over the wrap', () => {
  assert.equal(rtpDistance(5, 0xffff_fffb), 10);
  assert.equal(rtpDistance(0xffff_fffb, 5), -10);
});

test('the first word of an epoch mutes nothing', () => {
  const gate = new Gate();
  assert.equal(gate.begin(3, 1000, 0), false);
  assert.equal(gate.muted, false);
});

// Looks as often as sound comes, and says so when it opened.
function looks(gate, rtp, louds, now) {
  return louds.map((loud, index) => gate.look(rtp >>> 0, loud, now + index * 10.7));
}

test('a greater epoch mutes until its first packet has sounded for the margin', () => {
  const gate = new Gate();
  gate.begin(0, null, 0);
  assert.equal(gate.begin(1, 0xffff_ff00, 100), true);
  assert.deepEqual(looks(gate, 0xffff_0000, [false, false], 110), [false, false]);
  assert.deepEqual(looks(gate, 0xffff_ff00 + MARGIN - 1, [false, false], 130), [false, false]);
  assert.equal(gate.muted, true);
  assert.deepEqual(looks(gate, 0xffff_ff00 + MARGIN, [false], 150), [true]);
  assert.equal(gate.muted, false);
});

test('what the browser still holds of the old sound keeps it shut, whatever the timestamp says', () => {
  const gate = new Gate();
  gate.begin(0, null, 0);
  gate.begin(1, 9600, 100);
  assert.deepEqual(looks(gate, 9600 + 2 * MARGIN, [true, true, true, false, true], 110).includes(true), false);
  assert.deepEqual(looks(gate, 9600 + 3 * MARGIN, [false, false], 170), [false, true]);
});

test('an answer that follows the cut without a silence is let in all the same', () => {
  const gate = new Gate();
  gate.begin(0, null, 0);
  gate.begin(1, 9600, 100);
  assert.equal(gate.look(9600, true, 100), false);
  assert.equal(gate.look(9600 + 5 * MARGIN, true, 99 + IMPATIENT), false);
  assert.equal(gate.look(9600 + 5 * MARGIN, true, 100 + IMPATIENT), true);
});

test('an epoch whose sound has long begun does not mute it', () => {
  const gate = new Gate();
  gate.begin(0, null, 0);
  assert.equal(gate.begin(1, 9600, 100, 9600 + IMPATIENT * 48), false);
  assert.equal(gate.muted, false);
  assert.equal(gate.epoch, 1);
  assert.equal(gate.begin(2, 48_000, 200, 48_000 + IMPATIENT * 48 - 1), true);
});

test('an older epoch that arrives late changes nothing', () => {
  const gate = new Gate();
  gate.begin(1, 0, 0);
  gate.begin(3, 960, 10);
  assert.equal(gate.begin(2, 0, 20), false);
  assert.deepEqual(looks(gate, 960, [false, false], 30), [false, false], 'the start of epoch 3 holds, not that of 2');
  assert.equal(gate.epoch, 3);
});

test('where the first packet of the epoch is not known yet, a later statement tells it', () => {
  const gate = new Gate();
  gate.begin(0, null, 0);
  gate.begin(1, null, 10);
  assert.deepEqual(looks(gate, 50_000, [false, false], 20), [false, false]);
  gate.begin(1, 40_000, 42);
  assert.deepEqual(looks(gate, 50_000, [false], 45), [true]);
});

test("the page's own mute ends by itself where the server cuts nothing", () => {
  const gate = new Gate();
  gate.begin(0, 0, 0);
  gate.muteForCut(100);
  assert.equal(gate.look(1_000_000, true, 100 + UNANSWERED), false);
  assert.equal(gate.look(1_000_000, true, 101 + UNANSWERED), true);
});

test("the page's own mute becomes that of the epoch which answers it", () => {
  const gate = new Gate();
  gate.begin(0, 0, 0);
  gate.muteForCut(100);
  assert.equal(gate.begin(1, 9600, 120), true);
  assert.equal(gate.look(9000, false, 101 + UNANSWERED), false, 'no time-out any more');
  assert.equal(gate.look(9600 + MARGIN, false, 900), true);
});

test('a timestamp that never comes does not mute for ever', () => {
  const gate = new Gate();
  gate.begin(0, 0, 0);
  gate.begin(1, 9600, 0);
  assert.equal(gate.look(null, false, 2900), false);
  assert.equal(gate.look(null, false, 3100), true);
});

// --- activity and figures --------------------------------------------------------------------------------------------

const STEP = 512 / 48;

function feed(activity, from, to, rms) {
  for (let time = from; time < to; time += STEP) activity.feed(time, rms);
}

test('short pauses do not end a run, long ones do', () => {
  const activity = new Activity(0.001, 0);
  feed(activity, 0, 500, 0.1);
  feed(activity, 500, 700, 0);
  feed(activity, 700, 1000, 0.1);
  feed(activity, 1000, 2000, 0);
  feed(activity, 2000, 2200, 0.1);
  assert.equal(activity.runs.length, 2);
  assert.ok(Math.abs(activity.runs[0].to - 1000) < 2 * STEP);
  assert.ok(Math.abs(activity.runs[1].from - 2000) < 2 * STEP);
});

test('a single click is no sound', () => {
  const activity = new Activity(0.001, 0);
  activity.feed(0, 0.5);
  activity.feed(STEP, 0);
  assert.equal(activity.last, null);
});

test('steady noise is not taken for speech', () => {
  const activity = new Activity(0.0005, 3.2);
  feed(activity, 0, 20_000, 0.002);
  const before = activity.runs.length;
  feed(activity, 20_000, 24_000, 0.002);
  assert.equal(activity.active, false);
  assert.equal(activity.runs.length, before);
  feed(activity, 24_000, 24_300, 0.05);
  assert.equal(activity.active, true);
});

function sides() {
  const user = new Activity(0.001, 0);
  const agent = new Activity(0.001, 0);
  return { user, agent, figures: new Figures(user, agent) };
}

test('the time to first audio counts from the end of speech to the first sound', () => {
  const { user, agent, figures } = sides();
  feed(user, 0, 1000, 0.1);
  figures.take({ type: 'input_audio_buffer.committed' }, 1490);
  figures.take({ type: 'x_talkover.turn_ended' }, 1500);
  feed(agent, 1800, 2000, 0.1);
  figures.look(2000);
  assert.ok(Math.abs(figures.firstAudio.last - 800) < 3 * STEP, String(figures.firstAudio.last));
  assert.equal(figures.firstAudio.count, 1);
  feed(agent, 2600, 2800, 0.1);
  figures.look(2800);
  assert.equal(figures.firstAudio.count, 1, 'the same answer goes on');
});

test('an answer that was owed to something typed is no figure of speech', () => {
  const { agent, figures } = sides();
  figures.take({ type: 'input_audio_buffer.committed' }, 1000);
  feed(agent, 1500, 1700, 0.1);
  figures.look(1700);
  assert.equal(figures.firstAudio.count, 0);
});

test('the stop counts from the onset over the agent to its last sound, what sounds on included', () => {
  const { user, agent, figures } = sides();
  feed(agent, 0, 2150, 0.1);
  feed(user, 2000, 2700, 0.1);
  figures.take({ type: 'x_talkover.epoch_began', cause: 'barge_in' }, 2300);
  figures.look(2700);
  assert.ok(Math.abs(figures.stop.last - 150) < 3 * STEP, String(figures.stop.last));
});

test('the levels of a stop may come after the word that it happened', () => {
  const { user, agent, figures } = sides();
  feed(agent, 0, 1900, 0.1);
  figures.take({ type: 'x_talkover.epoch_began', cause: 'barge_in' }, 2300);
  assert.ok(figures.settling);
  feed(agent, 1900, 2150, 0.1);
  feed(user, 2000, 2700, 0.1);
  figures.look(2700);
  assert.ok(!figures.settling);
  assert.ok(Math.abs(figures.stop.last - 150) < 3 * STEP, String(figures.stop.last));
});

test('who speaks in a pause of the agent has silenced nothing', () => {
  const { user, agent, figures } = sides();
  feed(agent, 0, 1500, 0.1);
  feed(user, 2000, 2700, 0.1);
  figures.take({ type: 'x_talkover.epoch_began', cause: 'barge_in' }, 2300);
  figures.look(2700);
  assert.equal(figures.stop.count, 0);
  assert.ok(!figures.settling);
});

test('the median of an even number lies between', () => {
  assert.equal(median([]), null);
  assert.equal(median([3, 1, 2]), 2);
  assert.equal(median([4, 1, 2, 3]), 2.5);
});

// --- captions ----------------------------------------------------------------------------------------------------

function told(...events) {
  const conversation = new Conversation();
  for (const event of events) conversation.take(event);
  return conversation;
}

const answer = (...words) => [
  { type: 'response.output_item.added', response_id: 'r', item: { id: 'a', type: 'message', role: 'assistant' } },
  ...words.map((delta) => ({ type: 'response.output_audio_transcript.delta', response_id: 'r', item_id: 'a', delta })),
];

const cut = (text) => [
  { type: 'x_talkover.playback_cleared', response: 'r', heard: 96_000, text, heard_by: 'report' },
  { type: 'response.output_audio_transcript.done', response_id: 'r', item_id: 'a', transcript: text },
  { type: 'response.done', response: { id: 'r', status: 'cancelled' } },
];

test('an interrupted answer is divided at the word', () => {
  const [entry] = told(...answer('One', ' two', ' three', ' four.'), ...cut('One two')).entries;
  assert.deepEqual([entry.text, entry.unheard, entry.state], ['One two', ' three four.', 'interrupted']);
  assert.deepEqual([entry.heardMs, entry.heardBy], [2000, 'report']);
});

test('words that are spelled a little differently are divided at the same word', () => {
  const [entry] = told(...answer('One —', ' two', ' three'), ...cut('One - two')).entries;
  assert.equal(entry.unheard, ' three');
});

test('an answer that is cut after it was generated to its end is still divided', () => {
  const done = { type: 'response.done', response: { id: 'r', status: 'completed' } };
  const [entry] = told(...answer('One', ' two'), done, cut('One')[0]).entries;
  assert.deepEqual([entry.text, entry.unheard, entry.state], ['One', ' two', 'interrupted']);
});

test('an answer that was heard to its end before the cut stays whole', () => {
  const done = { type: 'response.done', response: { id: 'r', status: 'completed' } };
  const [entry] = told(...answer('One', ' two'), done, cut('One two')[0]).entries;
  assert.deepEqual([entry.text, entry.unheard, entry.state], ['One two', '', 'done']);
});

test('an answer of which nothing was heard leaves only what is struck through', () => {
  const [entry] = told(...answer('One'), ...cut('')).entries;
  assert.deepEqual([entry.text, entry.unheard, entry.state], ['', 'One', 'interrupted']);
});

test('without our notices the transcript tells what was heard', () => {
  const [entry] = told(...answer('One', ' two'), ...cut('One').slice(1)).entries;
  assert.deepEqual([entry.text, entry.unheard, entry.state], ['One', ' two', 'interrupted']);
});

test('a sound over the agent is shown until it is decided, and left aside when it was heeded only', () => {
  const hears = { type: 'x_talkover.input_transcript_hypothesis', item: '', text: 'Mm-hmm.' };
  const conversation = told(...answer('One'), hears);
  assert.equal(conversation.entries.length, 2);
  conversation.take({ type: 'x_talkover.resumed', words: 'Mm-hmm.' });
  assert.equal(conversation.entries.length, 1);
  assert.deepEqual(conversation.entries[0].heeded, ['Mm-hmm.']);
});

test('what was heard before a turn was decided becomes the turn', () => {
  const conversation = told(
    { type: 'x_talkover.input_transcript_hypothesis', item: '', text: 'Wait' },
    { type: 'input_audio_buffer.speech_started', item_id: 'u' },
    { type: 'conversation.item.input_audio_transcription.completed', item_id: 'u', transcript: 'Wait a moment.' },
    { type: 'x_talkover.input_transcript_hypothesis', item: 'u', text: 'Weight' },
  );
  assert.deepEqual(conversation.entries.map(({ id, text, tentative }) => [id, text, tentative]), [['u', 'Wait a moment.', false]]);
});

test('noise that had no words leaves no caption', () => {
  const conversation = told(
    { type: 'input_audio_buffer.speech_started', item_id: 'u' },
    { type: 'conversation.item.input_audio_transcription.completed', item_id: 'u', transcript: ' ' },
  );
  assert.equal(conversation.entries.length, 0);
});

test('captions outlive a reload, and an answer that was being said then is a cut one', () => {
  const saved = JSON.parse(JSON.stringify(told(...answer('One', ' two')).save()));
  const conversation = new Conversation();
  conversation.restore(saved);
  assert.deepEqual(conversation.entries.map(({ text, state }) => [text, state]), [['One two', 'interrupted']]);
  conversation.take(cut('One two three')[0]);
  const [entry] = conversation.entries;
  assert.deepEqual([entry.text, entry.unheard, entry.state], ['One two three', '', 'interrupted']);
  assert.notEqual(entry.heardMs, null);
  conversation.restore('junk');
  conversation.restore([null, { id: 3 }]);
  assert.equal(conversation.entries.length, 1);
});

test('an image of the user is an entry of its own or lies with its words', () => {
  const conversation = new Conversation();
  const added = (id, ...content) => conversation.take({ type: 'conversation.item.added', item: { id, role: 'user', content } });
  added('a', { type: 'input_image', x_sha256: 'd1' });
  added('b', { type: 'input_image', x_sha256: 'd2' }, { type: 'input_text', text: 'What is this?' });
  added('c', { type: 'input_image', x_sha256: 'd3' }, { type: 'input_audio', transcript: null });
  const told = conversation.entries.map(({ text, images, typed, tentative, state }) => [text, images, typed, tentative, state]);
  assert.deepEqual(told, [
    ['', ['d1'], false, false, 'done'],
    ['What is this?', ['d2'], true, false, 'done'],
    ['', ['d3'], false, true, 'open'],
  ]);
  const next = new Conversation();
  next.restore(JSON.parse(JSON.stringify(conversation.save())));
  assert.deepEqual(next.find('b').images, ['d2']);
});

test('words go with the last image where both fit into a message', () => {
  const image = (url) => ({ type: 'input_image', image_url: url });
  const words = { type: 'input_text', text: 'What is this?' };
  assert.deepEqual(contents([], 'What is this?', 65_536), [[words]]);
  assert.deepEqual(contents(['data:a', 'data:b'], 'What is this?', 65_536), [[image('data:a')], [image('data:b'), words]]);
  assert.deepEqual(contents(['data:a'], '', 65_536), [[image('data:a')]]);
  assert.deepEqual(contents([], '', 65_536), []);
  const large = `data:${'a'.repeat(65_000)}`;
  assert.deepEqual(contents([large], 'What is this?', 65_536), [[image(large)], [words]]);
  const long = 'ü'.repeat(20_000);
  assert.deepEqual(contents([large.slice(0, 30_000)], long, 65_536).length, 2, 'bytes are counted, not characters');
});

test('each stage of the newest answer is told by itself', () => {
  const steps = new Steps();
  const reach = (response, stage, at, more = {}) => steps.take({ type: 'x_talkover.stage_reached', response, stage, ...more }, at);
  reach('', 'ends_soon', 0);
  reach('r1', 'words', 1000, { elapsed_ms: 500 });
  reach('r1', 'first_token', 1100, { elapsed_ms: 612 });
  reach('r1', 'first_token', 1400, { elapsed_ms: 900 });
  reach('r1', 'first_code', 1200, { elapsed_ms: 700 });
  reach('r1', 'anything_new', 1250);
  assert.deepEqual([...steps.reached], [['first_token', 612], ['first_code', 700]]);
  // A server that tells no times: since the engine began.
  reach('r2', 'words', 5000);
  assert.deepEqual([...steps.reached], []);
  reach('r2', 'first_audio', 5230);
  assert.deepEqual([...steps.reached], [['first_audio', 230]]);
});

// --- timeline and stage ------------------------------------------------------------------------------------------

test('the words of the timeline are struck from the end, also where the first ones are forgotten', () => {
  const marks = new Marks();
  const say = (delta, time) => marks.take({ type: 'response.output_audio_transcript.delta', response_id: 'r', delta }, time);
  for (let word = 0; word < 200; word += 1) say(` w${word}`, word * 400);
  assert.ok(marks.words.length < 200);
  const heard = Array.from({ length: 198 }, (_, word) => `w${word}`).join(' ');
  marks.take({ type: 'x_talkover.playback_cleared', response: 'r', heard: 0, text: heard }, 80_000);
  assert.deepEqual(marks.words.filter(({ unheard }) => unheard).map(({ text }) => text), ['w198', 'w199']);
});

test('speech over the agent begins with the hold, not with the decision', () => {
  const marks = new Marks();
  marks.take({ type: 'x_talkover.held', at: 0 }, 1000);
  marks.take({ type: 'input_audio_buffer.speech_started', item_id: 'u' }, 1600);
  marks.take({ type: 'x_talkover.epoch_began', epoch: 1, cause: 'barge_in' }, 1600);
  assert.deepEqual(marks.speech, [{ from: 1000, to: null }]);
  assert.deepEqual(marks.holds, [{ from: 1000, to: 1600 }]);
});

test('the stage tells who has the floor', () => {
  const stage = new Stage();
  const seen = [
    { type: 'input_audio_buffer.speech_started' },
    { type: 'input_audio_buffer.speech_stopped' },
    { type: 'x_talkover.turn_ended' },
    { type: 'response.created', response: { id: 'r', conversation_id: 'c' } },
    { type: 'output_audio_buffer.started', response_id: 'r' },
    { type: 'response.done', response: { id: 'r' } },
    { type: 'x_talkover.held' },
    { type: 'x_talkover.resumed' },
    { type: 'output_audio_buffer.stopped', response_id: 'r' },
  ].map((event) => (stage.take(event), stage.value));
  assert.deepEqual(seen, [
    'hearing', 'listening', 'thinking', 'thinking', 'speaking', 'speaking', 'held', 'speaking', 'listening',
  ]);
  assert.equal(stage.cuttable, false);
});

// --- the replay page ---------------------------------------------------------------------------------------------

test('a view stays inside the session, and what is pointed at stays where it is', () => {
  const view = new View();
  view.open(7200);
  view.zoom(0.001, 12);
  assert.ok(Math.abs((12 - view.from) / view.span - 12 / 30) < 1e-9);
  view.pan(-100);
  assert.equal(view.from, 0);
  view.pan(1e9);
  assert.ok(Math.abs(view.to - 7200) < 1e-9);
  view.zoom(1e9, 0);
  assert.deepEqual([view.from, view.span], [0, 7200]);
  view.zoom(0, 3);
  assert.equal(view.span, 0.01);
});

test('a link says where one looks, and nonsense says nothing', () => {
  const link = writeLink(12.5, 30, [3, 4.25]);
  assert.deepEqual(readLink(link), { at: 12.5, span: 30, loop: [3, 4.25] });
  for (const hash of ['', '#', '#t=x&span=-1&loop=5-4', '#loop=1', '#t=1e9&loop=a-b']) {
    assert.deepEqual(readLink(hash), { at: null, span: null, loop: null });
  }
  assert.deepEqual([clock(3723.4567), clock(59.9999), clock(61, 0), clock(-1)], ['1:02:03.457', '1:00.000', '1:01', '0:00.000']);
  assert.equal(gridStep(30, 10), 5);
});

test('of an answer that was cut, the words that were not over are struck', () => {
  const word = (text, content) => ({ side: 'agent', response: 'r', text, content });
  const words = [word('It', 0), word(' was', 4800), word(' built', 9600)];
  const marks = (heard, text) => [{ words, cleared: [{ response: 'r', heard, text }] }];
  assert.deepEqual([...struck(marks(12_000, 'It was'))], [words[2]]);
  assert.deepEqual([...struck(marks(12_000, 'It was built'))], []);
  assert.deepEqual([...struck(marks(7000, 'It'))], [words[1], words[2]]);
});

test('the stages of an answer follow the end of the turn that it answers', () => {
  const stages = [
    { now: 50_000, response: 'r', stage: 'words' },
    { now: 60_000, response: 'r', stage: 'first_token' },
    { now: 70_000, response: 'r', stage: 'sent' },
    { now: 1, response: 'never sent', stage: 'words' },
  ];
  const [only, ...more] = answers([{ turns: [{ end: 40_000, now: 48_000 }], stages }]);
  assert.deepEqual(more, []);
  assert.equal(only.turn, 40_000);
  assert.deepEqual(only.steps.map(([stage]) => stage), ['turn', 'words', 'first_token', 'sent']);
});

const chapter = (more) => ({ offset: 0, arrived: [], reports: [], sent: [], ...more });

test('the watermarks at a moment are those of the last note before it, as places on the timeline', () => {
  const chapters = [
    chapter({
      offset: 480,
      arrived: [[48_000, 47_000], [96_000, 95_520]],
      // An answer of two stretches: a hold lies between them.
      sent: [[50_000, 9_600, 'r1', 0], [80_000, 48_000, 'r1', 9_600]],
      reports: [[60_000, 'r1', 4_800], [90_000, 'r1', 14_400]],
    }),
    chapter({ arrived: [[144_000, 143_000]], reports: [[140_000, 'r2', 10]] }),
  ];
  assert.deepEqual(watermarks(chapters, 0.5), { input: null, heard: null });
  assert.deepEqual(watermarks(chapters, 1.5), { input: 47_480 / 48_000, heard: 54_800 / 48_000 });
  assert.deepEqual(watermarks(chapters, 2), { input: 2, heard: 84_800 / 48_000 });
  assert.equal(watermarks(chapters, 3).heard, null, 'of this answer nothing is known');
});

test('the input lags behind by what it came late, and is broken where nothing came', () => {
  const lag = inputLag(chapter({ offset: 480, arrived: [[48_000, 47_520], [57_600, 47_520], [96_000, 95_520]] }));
  assert.deepEqual(lag.map(({ now, hole }) => [now, hole]), [[1, false], [1.2, false], [2, true]]);
  assert.deepEqual(lag.map(({ behind }) => Math.round(behind * 1000)), [0, 200, 0]);
});

function file(path, text) {
  const made = new File([text], path.split('/').at(-1));
  return Object.defineProperty(made, 'webkitRelativePath', { value: path });
}

test('the recordings of a folder are found with their own files, the newest first', async () => {
  const found = await recordingsIn([
    file('all/notes.txt', 'mine'),
    file('all/sess_a/manifest.json', '{"session":"sess_a","began":"2026-01-01T00:00:00"}'),
    file('all/sess_a/events.jsonl.zst', 'x'),
    file('all/sess_a/user_in.flac', 'y'),
    file('all/sess_a/.hidden', 'z'),
    file('all/sess_a/agent_codes.bin', 'z'),
    file('all/sess_b/manifest.json', '{"session":"sess_b","began":"2026-02-01T00:00:00"}'),
    file('all/sess_c/events.jsonl.zst', 'no manifest'),
    file('all/sess_d/manifest.json', 'damaged'),
  ]);
  assert.deepEqual(
    found.map(({ name, files }) => [name, files.map((one) => one.name).sort()]),
    [
      ['sess_b', ['manifest.json']],
      ['sess_a', ['events.jsonl.zst', 'manifest.json', 'user_in.flac']],
      ['all/sess_d', ['manifest.json']],
    ],
  );
});

// Plays the server: what was asked for, and an answer to each.
function serve(answer) {
  const asked = [];
  globalThis.fetch = async (url, { method, body }) => {
    asked.push([method, url.replace('/v1/talkover/recordings', ''), body instanceof Blob ? await body.text() : body]);
    return answer(method, url);
  };
  return asked;
}

test('a recording is brought in pieces, each where the one before ended', async () => {
  const asked = serve((method) => Response.json(method === 'POST' ? { id: 'brought_1', piece: 4 } : {}));
  const shares = [];
  const files = [file('s/manifest.json', '{}'), file('s/user_in.flac', 'abcdefghij'), file('s/agent_sent.flac', '')];
  assert.equal(await bring(files, (share) => shares.push(share)), 'brought_1');
  assert.deepEqual(asked, [
    ['POST', '', '{}'],
    ['PUT', '/brought_1/manifest.json?at=0', '{}'],
    ['PUT', '/brought_1/user_in.flac?at=0', 'abcd'],
    ['PUT', '/brought_1/user_in.flac?at=4', 'efgh'],
    ['PUT', '/brought_1/user_in.flac?at=8', 'ij'],
    ['PUT', '/brought_1/agent_sent.flac?at=0', ''],
  ]);
  assert.deepEqual(shares, [2 / 12, 6 / 12, 10 / 12, 1, 1]);
});

test('half of a recording is not left with the server', async () => {
  const full = { error: { code: 'server_busy', message: 'the disk of this server is nearly full' } };
  const asked = serve((method) =>
    method === 'PUT' ? Response.json(full, { status: 503 }) : Response.json({ id: 'brought_1', piece: 4 }),
  );
  await assert.rejects(bring([file('s/manifest.json', '{}')], () => {}), /nearly full/);
  assert.deepEqual(asked.at(-1).slice(0, 2), ['DELETE', '/brought_1']);
});
