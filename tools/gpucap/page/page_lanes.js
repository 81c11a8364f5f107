/* page_lanes: by what memory is stacked: the groups of a mode with their colours, and the composition of any step.
 * Groups are the same in all lanes, so that a colour means one thing. */
const COLOURS = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#b5a800', '#7a5195'];
const OTHERS = '#8d99a6', CONTEXT = '#6b7785', UNNAMED = '#b9c1c9';
const NOT_COUNTED = 255;
const MODES = [['owner', 'Owner'], ['tag', 'Tag'], ['kind', 'Kind'], ['process', 'Process']];

function groupName(track, meta, mode) {
  if (mode === 'owner') return ownerText(track, meta[0]);
  if (mode === 'tag') return tagText(track, meta[1]);
  if (mode === 'kind') return KINDS[meta[2]] || 'of a later version';
  return processName(track);
}

function processName(track) {
  return track.json.pid + ' ' + track.json.title + (page.cards > 1 ? ', ' + track.json.gpu : '');
}

/* The most that each name has at once, over all tracks. */
function greatest(tracks, mode) {
  const most = new Map();
  for (const track of tracks) {
    const names = mode === 'process' ? [processName(track)] : [...new Set(track.json.metas.map(meta => groupName(track, meta, mode)))];
    const of = Uint32Array.from(track.json.metas, meta => names.indexOf(groupName(track, meta, mode)));
    const now = new Float64Array(names.length), peak = new Float64Array(names.length);
    const { op, block, value, meta } = track;
    for (let i = 0; i < track.steps; i++) {
      if (op[i] !== OP_ALLOC && op[i] !== OP_FREE) continue;
      const g = of[meta[block[i]]];
      now[g] += op[i] === OP_FREE ? -value[i] : value[i];
      if (now[g] > peak[g]) peak[g] = now[g];
    }
    names.forEach((name, g) => most.set(name, (most.get(name) || 0) + peak[g]));
  }
  return [...most].sort((a, b) => b[1] - a[1]);
}

/* { groups: [{name, colour}], of: per track an array by meta, states: per track the composition before each chunk } */
function makeGrouping(tracks, mode) {
  const names = greatest(tracks, mode).map(([name]) => name);
  const shown = names.slice(0, names.length > COLOURS.length ? COLOURS.length - 1 : COLOURS.length);
  const groups = [{ name: 'CUDA context', colour: CONTEXT }];
  let colour = 0;
  for (const name of shown) groups.push({ name, colour: name === 'no tag' ? OTHERS : COLOURS[colour++] });
  const others = groups.length;
  groups.push({ name: 'others', colour: OTHERS }, { name: 'not named', colour: UNNAMED });
  const grouping = { mode, groups, unnamed: groups.length - 1, of: [], states: [], ofProcess: [] };
  const groupOf = name => shown.includes(name) ? shown.indexOf(name) + 1 : others;
  for (const track of tracks) grouping.ofProcess.push(groupOf(processName(track)));
  for (const track of tracks) {
    grouping.of.push(Uint8Array.from(track.json.metas, meta => meta[2] === KIND_IMPORT ? NOT_COUNTED : groupOf(groupName(track, meta, mode))));
    grouping.states.push(chunkStates(track, grouping));
  }
  const has = { 0: tracks.some(track => track.hasContext), [others]: names.length > shown.length, [grouping.unnamed]: tracks.some(track => track.hasUnnamed) };
  groups.forEach((group, g) => group.seen = has[g] ?? true);
  return grouping;
}

/* The composition before each chunk of steps, and behind the last one. */
function chunkStates(track, grouping) {
  const width = grouping.groups.length, chunks = Math.ceil(track.steps / CHUNK) + 1;
  const states = new Float64Array(chunks * width), now = new Float64Array(width);
  for (let c = 1; c < chunks; c++) {
    replay(track, grouping, now, (c - 1) * CHUNK, Math.min(c * CHUNK, track.steps));
    states.set(now, c * width);
  }
  return states;
}

function replay(track, grouping, now, from, to) {
  const { op, block, value, meta } = track, of = grouping.of[track.index];
  for (let i = from; i < to; i++) {
    switch (op[i]) {
      case OP_ALLOC: case OP_FREE: {
        const g = of[meta[block[i]]];
        if (g !== NOT_COUNTED) now[g] += op[i] === OP_FREE ? -value[i] : value[i];
        break;
      }
      case OP_CONTEXT: now[0] = value[i]; break;
      case OP_UNNAMED: now[grouping.unnamed] = value[i]; break;
      case OP_OVER: now.fill(0); break;
    }
  }
}

/* Writes the bytes of each group after `step` (-1: before all) to `now`. */
function compose(series, grouping, step, now) {
  now.fill(0);
  if (step < 0) return;
  if (!series.tracks) return composeTrack(series, grouping, step, now);
  const one = new Float64Array(now.length), count = series.tracks.length, chunk = Math.floor(step / CHUNK);
  const taken = series.before.slice(chunk * count, chunk * count + count);
  for (let i = chunk * CHUNK; i <= step; i++) taken[series.from[i]]++;
  series.tracks.forEach((track, k) => {
    if (!taken[k]) return;
    composeTrack(track, grouping, taken[k] - 1, one);
    for (let g = 0; g < now.length; g++) now[g] += one[g];
  });
}

function composeTrack(track, grouping, step, now) {
  const width = grouping.groups.length, chunk = Math.floor((step + 1) / CHUNK);
  now.set(grouping.states[track.index].subarray(chunk * width, chunk * width + width));
  replay(track, grouping, now, chunk * CHUNK, step + 1);
  if (grouping.mode !== 'process') return;
  const g = grouping.ofProcess[track.index]; // contexts belong to their processes
  now[g] += now[0] + now[grouping.unnamed];
  now[0] = now[grouping.unnamed] = 0;
  if (page.hidden.size && page.hidden.has(processName(track))) now.fill(0); // it may be one of the others
}

/* The limit at a moment, and the highest one that there ever was. */
function limitAt(series, time) {
  let limit = Infinity;
  for (const entry of series.limits) if (entry.time <= time) limit = entry.bytes;
  return limit;
}

/* ---- without some groups ---- */

/* The same series with only the groups that are shown: its peaks are theirs. */
function filterTrack(track, grouping, hidden) {
  const { op, block, value, meta, steps } = track, of = grouping.of[track.index];
  const shown = grouping.groups.map(group => !hidden.has(grouping.mode === 'process' ? processName(track) : group.name));
  const series = Object.create(track), named = new Float64Array(steps);
  let live = 0, context = 0, unnamed = 0;
  for (let i = 0; i < steps; i++) {
    switch (op[i]) {
      case OP_ALLOC: case OP_FREE: {
        const g = of[meta[block[i]]];
        if (g !== NOT_COUNTED && shown[g]) live += op[i] === OP_FREE ? -value[i] : value[i];
        break;
      }
      case OP_CONTEXT: if (shown[0]) context = value[i]; break;
      case OP_UNNAMED: if (shown[grouping.unnamed]) unnamed = value[i]; break;
      case OP_OVER: live = context = unnamed = 0; break;
    }
    named[i] = live + context + unnamed;
  }
  series.named = series.used = named;
  return buildIndex(series);
}

function filterJoined(joined, tracks) {
  const series = Object.create(joined), named = new Float64Array(joined.times.length), at = tracks.map(() => 0);
  let sum = 0;
  for (let i = 0; i < named.length; i++) {
    const track = tracks[joined.from[i]], j = at[joined.from[i]]++;
    sum += track.named[j] - (j ? track.named[j - 1] : 0);
    named[i] = sum;
  }
  series.named = series.used = named;
  return buildIndex(series);
}
