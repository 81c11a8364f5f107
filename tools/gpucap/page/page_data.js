/* page_data: reads what page_track.c wrote. A track is one process on one device: arrays by step and by block, and
 * for each step what was named (live blocks, contexts, the driver's own) and what was used (the same and what idled).
 * An index over every CHUNK steps finds the highest one of any range without looking at each. */
const CHUNK = 256;
const OP_ALLOC = 0, OP_HELD = 1, OP_CONTEXT = 2, OP_UNNAMED = 3, OP_LIMIT = 4, OP_DRIVER = 5, FIRST_FREE = 6, OP_FREE = 6, OP_OVER = 7;
const KIND_MALLOC = 1, KIND_IMPORT = 7;
const KINDS = ['other', 'cudaMalloc', 'cudaMallocAsync', 'cuMemCreate', 'array', 'graph', 'managed', 'imported'];
const HAS_ADDRESS = kind => kind !== 3 && kind !== 4 && kind !== 5; // these have handles
const STITCH = 5, LEND = 7, BORROW = 8, WAIT = 9, REFUSAL = 10;
const LIMITS = ['limit', 'limit of the process', 'limit of the job', "administrator's limit", 'size of the card', 'min of other jobs'];
const LIMIT_CARD = 4, LIMIT_KEPT = 5; // no limits of the process or its job

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

/* Numbers of variable length: seven bits a byte, lowest first. */
function numbers(bytes, from, length, room) {
  const out = new Float64Array(room);
  let count = 0;
  for (let at = from, end = from + length; at < end && count < room; count++) {
    let byte = bytes[at++], value = byte & 127, scale = 128;
    while (byte > 127 && at < end) {
      byte = bytes[at++];
      value += (byte & 127) * scale;
      scale *= 128;
    }
    out[count] = value;
  }
  return out;
}

/* The first index whose time is not before t. */
function lowerBound(times, t) {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (times[middle] < t) low = middle + 1; else high = middle;
  }
  return low;
}

/* Beside others a track has one more step, OP_OVER, at its end: a process that has ended holds nothing. */
function readTrack(json, bytes, index, several) {
  const part = [];
  json.columns.reduce((at, length) => (part.push([at, length]), at + length), 0);
  const column = (i, room) => numbers(bytes, part[i][0], part[i][1], room);
  const recorded = json.steps, steps = recorded + (several ? 1 : 0), blocks = json.blocks;
  const times = column(0, steps), codes = column(1, steps), figures = column(2, steps);
  const track = {
    json, index, steps, blocks, times, size: column(3, blocks), place: column(4, blocks), meta: column(5, blocks),
    op: new Uint8Array(steps), block: new Int32Array(steps), value: new Float64Array(steps),
    born: new Int32Array(blocks), died: new Int32Array(blocks).fill(recorded), limits: [],
  };
  let now = json.offset, place = 0, newest = -1, figure = 0;
  const scale = 2 ** json.shift;
  for (let i = 0; i < recorded; i++) {
    times[i] = now += times[i];
    const code = codes[i];
    if (code === OP_ALLOC) {
      const coded = track.place[++newest], half = Math.floor(coded / 2);
      place += coded % 2 ? -half - 1 : half;
      track.place[newest] = place * scale;
      track.born[newest] = i;
      track.block[i] = newest;
      track.value[i] = track.size[newest];
    } else if (code >= FIRST_FREE) {
      const block = newest - (code - FIRST_FREE);
      track.op[i] = OP_FREE;
      track.block[i] = block;
      track.died[block] = i;
      track.value[i] = track.size[block];
    } else {
      track.op[i] = code;
      track.value[i] = figures[figure++];
      if (code === OP_LIMIT) track.limits.push({ time: now, bytes: track.value[i] ? track.value[i] - 1 : Infinity });
    }
  }
  if (!track.limits.some(limit => limit.bytes !== Infinity) && json.cardBytes) { // then the card is the limit
    track.limits = [{ time: json.offset, bytes: json.cardBytes }];
    track.limitIsCard = true;
  }
  if (several) {
    times[recorded] = Math.max(now, json.offset + json.end) + 1; // what it held is still there at its last moment
    track.op[recorded] = OP_OVER;
  }
  track.marks = json.marks.map(m => ({
    type: m[0], time: m[1] + json.offset, bytes: m[2], other: m[3], owner: m[4], tag: m[5], limit: m[6], thread: m[7], stack: m[8], jobLimit: m[9] || 0, idle: m[10] || '', others: m[11] || 0, track,
  }));
  sumUp(track);
  return buildIndex(track);
}

/* As timeline.c does. */
function sumUp(track) {
  const { steps, op, block, value, meta, json } = track;
  const kinds = Uint8Array.from(json.metas, m => m[2]);
  track.named = new Float64Array(steps);
  track.used = new Float64Array(steps);
  let live = 0, pooled = 0, held = 0, context = 0, unnamed = 0, driver = 0;
  track.driver = new Float64Array(steps);
  for (let i = 0; i < steps; i++) {
    const bytes = value[i];
    switch (op[i]) {
      case OP_ALLOC: case OP_FREE: {
        const kind = kinds[meta[block[i]]], change = op[i] === OP_FREE ? -bytes : bytes;
        if (kind === KIND_IMPORT) break;
        live += change;
        if (kind === KIND_MALLOC) pooled += change;
        break;
      }
      case OP_HELD: held = bytes; break;
      case OP_CONTEXT: context = bytes; track.hasContext ||= bytes > 0; break;
      case OP_UNNAMED: unnamed = bytes; track.hasUnnamed ||= bytes > 0; break;
      case OP_DRIVER: driver = bytes; break;
      case OP_OVER: live = pooled = held = context = unnamed = driver = 0; break;
    }
    const named = live + context + unnamed;
    track.named[i] = named;
    track.driver[i] = driver;
    track.used[i] = named + driver + Math.max(0, held - pooled);
  }
}

/* For each chunk the step where most is named, the most that is used, and the least that is named. */
function buildIndex(series) {
  const steps = series.times.length, chunks = Math.ceil(steps / CHUNK);
  series.highest = new Int32Array(chunks);
  series.mostUsed = new Float64Array(chunks);
  series.lowest = new Float64Array(chunks);
  series.peakUsed = 0;
  for (let c = 0, i = 0; c < chunks; c++) {
    let best = i, used = 0, least = Infinity;
    for (const end = Math.min(i + CHUNK, steps); i < end; i++) {
      if (series.named[i] > series.named[best]) best = i;
      if (series.named[i] < least) least = series.named[i];
      if (series.used[i] > used) used = series.used[i];
    }
    series.highest[c] = best;
    series.lowest[c] = least;
    series.mostUsed[c] = used;
    series.peakUsed = Math.max(series.peakUsed, used);
  }
  return series;
}

/* Of the state before step `from` and the states after steps [from, to): the step after which most is named, -1
 * before the first one, the most that is used, and the least that is named. */
const found = { step: -1, used: 0, least: 0 };
function highestOf(series, from, to) {
  let step = from - 1, used = step >= 0 ? series.used[step] : 0, most = step >= 0 ? series.named[step] : -1, least = Math.max(0, most);
  for (let i = from; i < to;) {
    if (i % CHUNK === 0 && i + CHUNK <= to) {
      const c = i / CHUNK, best = series.highest[c];
      if (series.named[best] > most) most = series.named[step = best];
      if (series.mostUsed[c] > used) used = series.mostUsed[c];
      if (series.lowest[c] < least) least = series.lowest[c];
      i += CHUNK;
    } else {
      if (series.named[i] > most) most = series.named[step = i];
      if (series.used[i] > used) used = series.used[i];
      if (series.named[i] < least) least = series.named[i];
      i++;
    }
  }
  found.step = step;
  found.used = used;
  found.least = least;
  return found;
}

/* Tracks of one card as one. The limit is that of the one that began first: it is the job's, or it is drawn in each lane. */
function joinTracks(tracks) {
  const began = track => track.limits.length ? track.limits[0].time : Infinity;
  const steps = tracks.reduce((sum, track) => sum + track.steps, 0);
  const joined = {
    tracks, card: cardOf(tracks[0]), times: new Float64Array(steps), named: new Float64Array(steps), used: new Float64Array(steps),
    limits: [...tracks].sort((a, b) => began(a) - began(b))[0].limits,
    marks: tracks.flatMap(track => track.marks.filter(mark => mark.type === REFUSAL)).sort((a, b) => a.time - b.time), // as drawRefusals needs them
  };
  const at = tracks.map(() => 0);
  joined.from = new Uint16Array(steps);                                                // which track a step is of
  joined.before = new Int32Array((Math.floor(steps / CHUNK) + 1) * tracks.length); // steps of each track before a chunk
  let named = 0, used = 0;
  for (let i = 0; i < steps; i++) {
    let next = -1;
    if (i % CHUNK === 0) joined.before.set(at, i / CHUNK * tracks.length);
    for (let k = 0; k < tracks.length; k++)
      if (at[k] < tracks[k].steps && (next < 0 || tracks[k].times[at[k]] < tracks[next].times[at[next]])) next = k;
    const track = tracks[next], j = at[next]++;
    joined.from[i] = next;
    named += track.named[j] - (j ? track.named[j - 1] : 0);
    used += track.used[j] - (j ? track.used[j - 1] : 0);
    joined.times[i] = track.times[j];
    joined.named[i] = named;
    joined.used[i] = used;
  }
  return buildIndex(joined);
}

/* Runs are the jobs, and the processes without one. If no two of them were there at the same time, they are runs to be
 * compared, and each begins at 0; else all have the common axis and count as one run. Sets run and offset of each. */
function alignRuns(jsons) {
  const runs = new Map();
  for (const json of jsons) {
    const name = json.job ? 'job ' + json.job : 'process ' + json.host + ' ' + json.pid + ' ' + json.offset;
    const run = runs.get(name) || { jsons: [], from: Infinity, to: 0 };
    run.jsons.push(json);
    run.from = Math.min(run.from, json.offset);
    run.to = Math.max(run.to, json.offset + json.end);
    runs.set(name, run);
  }
  const inOrder = [...runs.values()].sort((a, b) => a.from - b.from), apart = inOrder.every((run, i) => !i || run.from > inOrder[i - 1].to);
  for (const [i, run] of inOrder.entries()) {
    for (const json of run.jsons) {
      json.run = apart ? i : 0;
      json.offset -= apart ? run.from : 0;
    }
  }
}

function readPage() {
  const jsons = [...document.querySelectorAll('script.track')].map(element => JSON.parse(element.textContent)), columns = [...document.querySelectorAll('script.columns')];
  alignRuns(jsons);
  const tracks = jsons.map((json, i) => readTrack(json, fromBase64(columns[i].textContent), i, jsons.length > 1));
  for (const element of columns) element.remove(); // the text is as large as the arrays
  return tracks;
}

/* ---- words ---- */

/* Which card a track is of: a limit holds for each, so what several cards hold is never one sum. */
function cardOf(track) {
  return track.json.uuid || track.json.host + ' ' + track.json.device;
}

/* Text of the recording in letters from right to left must not turn the figures behind it around. */
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc](?:[^\x00-\x7f]|[ -](?=[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]))*/g;
function isolate(text) {
  return String(text).replace(RIGHT_TO_LEFT, '\u2068$&\u2069');
}

/* A name in a sentence: the beginning and the end of a long one. */
const LONG_NAME = 48;
function nameText(name) {
  return name.length <= LONG_NAME ? name : name.slice(0, LONG_NAME - 16) + '\u2026' + name.slice(-15);
}

/* Rounded half up, as recording_words.c does. */
function bytesText(bytes) {
  if (bytes === Infinity) return 'none';
  for (const [unit, size, places] of [['TiB', 2 ** 40, 2], ['GiB', 2 ** 30, 2], ['MiB', 2 ** 20, 0], ['KiB', 2 ** 10, 0]]) {
    if (bytes < size) continue;
    const digits = places || (bytes < 10 * size && bytes % size ? 1 : 0), parts = 10 ** digits;
    return (Math.floor(bytes * parts / size + 0.5) / parts).toFixed(digits) + ' ' + unit;
  }
  return bytes ? bytes + ' B' : '0';
}

/* "58 of 62 MiB" */
function ofText(bytes, limit) {
  const part = bytesText(bytes), whole = bytesText(limit), unit = whole.replace(/^[^ ]*/, '');
  return limit === Infinity ? part : (part.endsWith(unit) ? part.slice(0, part.length - unit.length) : part) + ' of ' + whole;
}

function spanText(ns) {
  if (ns < 1e3) return Math.round(ns) + ' ns';
  if (ns < 1e6) return (ns / 1e3).toFixed(ns < 1e4 ? 2 : ns < 1e5 ? 1 : 0) + ' \u00b5s';
  if (ns < 1e9) return (ns / 1e6).toFixed(ns < 1e7 ? 2 : ns < 1e8 ? 1 : 0) + ' ms';
  if (ns < 6e10) return (ns / 1e9).toFixed(2) + ' s';
  const s = Math.floor(ns / 1e9);
  if (s >= 86400) return Math.floor(s / 86400) + ' d ' + String(Math.floor(s % 86400 / 3600)).padStart(2, '0') + ' h';
  return s < 3600 ? Math.floor(s / 60) + ' m ' + String(s % 60).padStart(2, '0') + ' s'
    : Math.floor(s / 3600) + ' h ' + String(Math.floor(s % 3600 / 60)).padStart(2, '0') + ' m';
}

/* A moment, with as many digits as a view of `span` can tell apart, in a unit that fits the length of all; an early one
 * with up to three digits behind the point. */
function momentText(ns, span) {
  if (page.end >= LONG) return clockText(ns, span < 500e9 ? Math.min(9, Math.max(0, Math.ceil(-Math.log10(Math.max(span, 1) / 1e9 / 500)))) : 0);
  const [unit, name, most] = page.end < 1e5 ? [1, ' ns', 0] : page.end < 1e6 ? [1e3, ' \u00b5s', 3] : page.end < 1e9 ? [1e6, ' ms', 6] : [1e9, ' s', 9];
  const early = ns > 0 ? Math.min(3, Math.ceil(2 - Math.log10(ns / unit))) : 0;
  const digits = Math.min(most, Math.max(1, early, Math.ceil(-Math.log10(Math.max(span, 1) / unit / 500))));
  return (ns / unit).toFixed(digits) + name;
}

/* "1:02:03", "9 d 23:59:59.5": in recordings of LONG and more. */
const LONG = 600e9;
function clockText(ns, digits) {
  const s = Math.floor(ns / 1e9 * 10 ** digits + 1e-6) / 10 ** digits, two = (number, places) => number.toFixed(places).padStart(places ? 3 + places : 2, '0');
  const days = Math.floor(s / 86400), hours = Math.floor(s / 3600) % 24;
  return (days ? days + ' d ' : '') + (days ? two(hours, 0) : hours) + ':' + two(Math.floor(s / 60) % 60, 0) + ':' + two(s % 60, digits);
}

function ownerText(track, id) {
  return track.json.owners[id] || (id ? 'unknown library' : 'program');
}
function tagText(track, id) {
  return track.json.tags[id] || (id ? 'unknown tag' : 'no tag');
}
