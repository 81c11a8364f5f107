/* page_main: the page's state, and what people do with it: modes, zoom, pointer, keys, the address bar. */
const LIMIT_PROCESS = 1, LIMIT_JOB = 2;
const LEAST_SPAN = 1000, ZOOM = 1.35, EVENTS_SHOWN = 50;

const page = {
  tracks: [], joins: [], cards: 1, runs: 1, lanes: [], grouping: null, groupings: {}, view: { from: 0, to: 1 }, end: 1, hidden: new Set(), pointer: null,
  select: null, moment: null, allRows: false, mode: 'owner', targets: [],
  chart: document.getElementById('chart'), picture: document.getElementById('picture'), over: document.getElementById('over'),
  tip: document.getElementById('tip'),
};

/* ---- text around the picture ---- */

function addFact(name, text) {
  if (!text) return;
  const pair = element('div');
  pair.append(element('dt', name), element('dd', text));
  document.getElementById('facts').append(pair);
}

/* "process 4711", and on which card if there are several. */
function whichText(track) {
  return 'process ' + track.json.pid + (page.cards > 1 ? ' on ' + track.json.gpu : '');
}

/* The processes of its card together, if there are several. */
function joinOf(track) {
  return page.joins.find(join => join.tracks.includes(track));
}

function jobSentence(joined) {
  const peak = joined.used.reduce((best, used, i) => used > joined.used[best] ? i : best, 0), limit = limitAt(joined, joined.times[peak]);
  const parts = joined.tracks.map(track => [track, usedAt(track, joined.times[peak])]).filter(part => part[1] > 0).sort((a, b) => b[1] - a[1]).slice(0, 4);
  return (page.cards > 1 ? joined.tracks[0].json.gpu + ': peak ' : 'Peak ') + ofText(joined.used[peak], limit) + ' at ' + momentText(joined.times[peak], page.end) + ': ' +
    parts.map(([track, bytes]) => 'process ' + track.json.pid + ' ' + bytesText(bytes)).join(', ') + '.';
}

/* Why a request was refused, in words: what was asked for, what was in use of which limit, and by whom. Of a job that
 * shares its limit the parts are its processes. */
function refusalSentence(mark, count) {
  const join = joinOf(mark.track), series = join && (join.sharedLimit || mark.jobLimit) ? join : mark.track, { groups } = groupingOf(page.mode);
  const limit = mark.jobLimit || limitAt(series, mark.time), used = usedAt(series, mark.time) + (series.tracks ? 0 : mark.others);
  let parts, now = new Float64Array(groups.length);
  if (series.tracks) {
    parts = series.tracks.map(track => ['process ' + track.json.pid, usedAt(track, mark.time), track]);
    const [, , most] = parts.reduce((best, part) => part[1] > best[1] ? part : best), tags = groupingOf(page.tags);
    compose(most, tags, stepAfter(most, mark.time), now = new Float64Array(tags.groups.length));
    const largest = now.indexOf(Math.max(...now));
    if (now[largest] > 0) parts[series.tracks.indexOf(most)].push(' (' + nameText(tags.groups[largest].name) + ' ' + bytesText(now[largest]) + ')');
  } else {
    const step = stepAfter(series, mark.time);
    compose(series, groupingOf(page.mode), step, now);
    parts = groups.map((group, g) => [nameText(group.name), now[g]]);
    if (step >= 0) parts.push(['idle in the pool', series.used[step] - series.named[step] - series.driver[step]], ['idle in the driver\'s pools', series.driver[step]]);
    parts.push(['other processes of the job', mark.others]);
  }
  parts = parts.filter(part => part[1] > 0).sort((a, b) => b[1] - a[1]).slice(0, 4).map(([name, bytes, , more]) => name + ' ' + bytesText(bytes) + (more || ''));
  const who = nameText(mark.tag ? tagText(mark.track, mark.tag) : ownerText(mark.track, mark.owner));
  const which = LIMITS[mark.limit < LIMITS.length ? mark.limit : 0];
  const words = 'Out of memory at ' + momentText(mark.time, page.end) + ': ' + (page.tracks.length > 1 ? whichText(mark.track) + ' asked for ' : 'asked for ') + bytesText(mark.bytes) +
    ' (' + who + '), and ' + fitText(mark) + '. ' + 'In use: ' + (mark.limit === LIMIT_CARD || mark.limit === LIMIT_KEPT ? bytesText(used) + (series.tracks ? '' : ' by this process') : ofText(used, limit) + ' (' + which + ')') + (parts.length ? ': ' + parts.join(', ') : '') + '.' +
    (mark.idle ? ' ' + mark.idle + '.' : '') +
    (count > 1 ? ' ' + count + ' requests were refused; this is the last.' : '');
  return words.replace(/ ([KMGT]iB|B|[mn\u00b5]?s)\b/g, '\u00a0$1'); // a figure and its unit stay in one line
}

/* The limits at the end: one if all are the same, else those of the cards or of the processes. Where processes have
 * limits of their own, the job's is known if it refused a request. */
function limitsText() {
  const texts = page.tracks.map(track => (track.limitIsCard ? 'the card, ' : '') + bytesText(limitAt(track, Infinity)));
  const own = page.tracks.length > 1 && page.tracks.every(track => track.json.limit === LIMIT_PROCESS && !track.limitIsCard);
  const job = Math.max(0, ...page.refusals.map(mark => mark.jobLimit));
  if (new Set(texts).size === 1) return texts[0] + (own ? ' each' + (job ? ', job ' + bytesText(job) : '') : '');
  return [...new Set(texts.map((text, i) => page.cards > 1 ? page.tracks[i].json.gpu + ' ' + text : text))].join(', ');
}

function showFacts() {
  const first = page.tracks[0].json, refusals = page.refusals;
  const several = page.tracks.length > 1, box = document.getElementById('sentences');
  const processes = new Set(page.tracks.map(track => track.json.host + ' ' + track.json.pid)).size;
  const sameJob = first.job && page.tracks.every(track => track.json.job === first.job);
  const title = processes < 2 ? first.title : sameJob ? 'Job ' + first.job : page.runs > 1 ? page.runs + ' runs, each from its beginning' : processes + ' processes';
  document.getElementById('title').textContent = isolate(title);
  document.getElementById('title').title = title;
  if (refusals.length) box.append(element('p', refusalSentence(refusals[refusals.length - 1], refusals.length), 'bad'));
  for (const join of page.joins) box.append(element('p', jobSentence(join)));
  const lines = page.tracks.map(track => {
    const line = element('p', track.json.sentence + '.');
    if (processes > 1) line.prepend(element('span', track.json.pid + ' ' + track.json.title + (page.cards > 1 ? ', ' + track.json.gpu : '') + ': ', 'who'));
    else if (several) line.prepend(element('span', track.json.gpu + ': ', 'who'));
    return line;
  });
  if (page.joins.length || page.tracks.length > 4) { // the picture comes first: it has a lane for each
    const each = element('details');
    each.append(element('summary', 'Each of the ' + page.tracks.length), ...lines);
    box.append(each);
  } else box.append(...lines);
  const peak = Math.max(...page.tracks.map(track => track.peakUsed));
  addFact('card', [...new Set(page.tracks.map(track => track.json.card))].join(', '));
  addFact('limit', limitsText());
  if (!several) addFact('peak', bytesText(peak));
  addFact('refusals', String(refusals.length));
  addFact('length', spanText(page.end));
  addFact('host', first.host);
  if (processes < 2) addFact('process', String(first.pid));
  const events = new Map(page.tracks.map(track => [track.json.host + ' ' + track.json.pid, track.json.events])); // of all its cards
  addFact('events', [...events.values()].reduce((sum, count) => sum + count, 0).toLocaleString('en'));
  const notes = page.tracks.map(track => track.json.remark && track.json.pid + ': ' + track.json.remark + '.').filter(Boolean);
  document.getElementById('notes').textContent = [...new Set(notes)].join(' ');
}

function showEvents() {
  const list = document.querySelector('#events ol'), order = { [REFUSAL]: 0 };
  const marks = page.tracks.flatMap(track => track.marks).filter(mark => mark.type !== STITCH)
    .sort((a, b) => (order[a.type] ?? 1) - (order[b.type] ?? 1) || a.time - b.time);
  document.getElementById('events').hidden = !marks.length;
  for (const mark of marks.slice(0, EVENTS_SHOWN)) {
    const item = element('li'), go = element('button', momentText(mark.time, page.end));
    go.type = 'button';
    go.addEventListener('click', () => chooseTime(mark.track, mark.time, true));
    item.append(go, element('span', (page.tracks.length > 1 ? mark.track.json.pid + (page.cards > 1 ? ' ' + mark.track.json.gpu : '') + ' ' : '') + markText(mark), mark.type === REFUSAL ? 'bad' : ''));
    list.append(item);
  }
  if (marks.length > EVENTS_SHOWN) list.append(element('li', 'and ' + (marks.length - EVENTS_SHOWN) + ' more'));
}

function showLegend() {
  const legend = document.getElementById('legend'), items = [];
  const entries = page.grouping.groups.filter(group => group.seen).map(group => [group.name, group.colour]);
  if (page.mode === 'process') entries.splice(0, entries.length, ...page.tracks.map(processName).map(name => [name, (page.grouping.groups.find(g => g.name === name) || {}).colour || OTHERS]));
  for (const [name, colour] of page.hidden.size ? entries : [...entries, ['idle in pools', null]]) {
    const item = element('li'), swatch = element('i'), button = element('button');
    swatch.style.background = colour || 'repeating-linear-gradient(135deg, transparent 0 2px, var(--hatch) 2px 3px)';
    button.type = 'button';
    button.append(swatch, element('span', nameText(name)));
    button.disabled = !colour;
    button.setAttribute('aria-pressed', !page.hidden.has(name));
    button.title = (colour ? (page.hidden.has(name) ? 'Show' : 'Leave out') : '') + (nameText(name) === name ? '' : ' ' + name);
    button.addEventListener('click', () => { toggleGroup(name); document.querySelectorAll('#legend button')[items.indexOf(item)].focus(); });
    item.append(button);
    items.push(item);
  }
  legend.replaceChildren(...items);
}

/* ---- state ---- */

function groupingOf(mode) {
  return page.groupings[mode] ||= makeGrouping(page.tracks, mode);
}

function setMode(mode) {
  page.mode = mode;
  page.grouping = groupingOf(mode);
  const gpu = track => page.cards > 1 || track.json.device ? track.json.gpu + '  ' : '';
  page.lanes = page.tracks.map(track => ({ series: track, title: gpu(track) + track.json.pid + '  ' + track.json.title }));
  for (const join of page.joins) // above the first of its card; cards are in one piece
    page.lanes.splice(page.lanes.findIndex(lane => lane.series === join.tracks[0]), 0, { series: join, title: gpu(join.tracks[0]) + 'All processes' });
  for (const lane of page.lanes) lane.full = lane.series;
  document.documentElement.classList.toggle('several', page.lanes.length > 1); // prints upright
  if (mode !== page.filteredFor) page.hidden.clear();
  page.filteredFor = mode;
  filterLanes();
  for (const button of document.querySelectorAll('#modes button')) {
    const chosen = button.dataset.mode === mode;
    button.setAttribute('aria-checked', chosen);
    button.tabIndex = chosen ? 0 : -1;
  }
  showLegend();
  redraw();
  showMoment(page);
}

/* Shows only what is not hidden. */
function filterLanes() {
  const filtered = page.hidden.size ? page.tracks.map(track => filterTrack(track, page.grouping, page.hidden)) : page.tracks;
  for (const lane of page.lanes)
    lane.series = !lane.full.tracks ? filtered[lane.full.index] : page.hidden.size ? filterJoined(lane.full, lane.full.tracks.map(track => filtered[track.index])) : lane.full;
}

function toggleGroup(name) {
  if (!page.hidden.delete(name)) page.hidden.add(name);
  filterLanes();
  showLegend();
  redraw();
}

function setView(from, to) {
  let span = Math.min(Math.max(to - from, LEAST_SPAN), page.end);
  if (!(span > 0)) span = page.end;
  page.view.from = Math.min(Math.max(0, from), page.end - span);
  page.view.to = page.view.from + span;
  redraw();
}

let waiting = false;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    drawPicture(page);
    drawOver(page);
    const all = page.view.from <= 0 && page.view.to >= page.end, span = page.view.to - page.view.from;
    document.getElementById('range').textContent = all ? 'all of ' + spanText(page.end) : momentText(page.view.from, span) + ' to ' + momentText(page.view.to, span);
    page.picture.setAttribute('aria-label', 'Memory over time, ' + document.getElementById('range').textContent + '. ' + page.tracks.map(track => track.json.sentence).join('. '));
    keepAddress();
    if (!page.drawn) {
      page.drawn = performance.now();
      document.documentElement.dataset.drawn = Math.round(page.drawn);
    }
  });
}

function zoomAt(time, factor) {
  const { from, to } = page.view;
  setView(time - (time - from) / factor, time + (to - time) / factor);
}
const middle = () => (page.view.from + page.view.to) / 2;
const pan = share => setView(page.view.from + share * (page.view.to - page.view.from), page.view.to + share * (page.view.to - page.view.from));

/* The moment of a step: what is live after it. */
function chooseStep(track, step, time) {
  page.moment = { track, step, time: time ?? (step < 0 ? 0 : track.times[step]) };
  showMoment(page);
  drawOver(page);
  keepAddress();
}

function chooseTime(track, time, show) {
  chooseStep(track, stepAfter(track, time), time);
  if (show && (time < page.view.from || time > page.view.to)) setView(time - (page.view.to - page.view.from) / 2, time + (page.view.to - page.view.from) / 2);
  if (show) document.getElementById('moment-title').focus({ preventScroll: false });
}

/* The highest moment of a column of pixels, as drawn. */
function stepAt(lane, x) {
  const { layout } = page, column = Math.floor(x - layout.left), span = (page.view.to - page.view.from) / Math.max(1, Math.floor(layout.plot));
  const from = lowerBound(lane.series.times, page.view.from + column * span), to = lowerBound(lane.series.times, page.view.from + (column + 1) * span);
  return { ...highestOf(lane.series, from, to), empty: from === to };
}

function chooseAt(x, y) {
  const lane = laneAt(y);
  const target = nearTarget(x, y);
  if (target) return chooseTime(target.mark.track, target.mark.time);
  const { step, empty } = stepAt(lane, x), time = empty ? page.layout.time(x) : lane.series.times[Math.max(0, step)];
  if (!lane.full.tracks) return chooseStep(lane.full, step, time);
  const largest = [...lane.full.tracks].sort((a, b) => usedAt(b, time) - usedAt(a, time))[0];
  chooseTime(largest, time);
}

/* The last step at a moment; -1: none yet. */
function stepAfter(series, time) {
  return lowerBound(series.times, time + 0.5) - 1;
}

function usedAt(series, time) {
  const step = stepAfter(series, time);
  return step < 0 ? 0 : series.used[step];
}

function choosePeak() {
  let best = null;
  for (const track of page.tracks) {
    const { step } = highestOf(track, lowerBound(track.times, page.view.from), lowerBound(track.times, page.view.to + 1));
    if (step >= 0 && (!best || track.named[step] > best.track.named[best.step])) best = { track, step };
  }
  if (best) chooseStep(best.track, best.step);
}

/* ---- the address bar ---- */

let later = 0;
function keepAddress() {
  clearTimeout(later);
  later = setTimeout(() => {
    const parts = ['by=' + page.mode];
    if (page.view.from > 0 || page.view.to < page.end) parts.push('t=' + Math.round(page.view.from) + ',' + Math.round(page.view.to));
    if (page.moment) parts.push('at=' + page.moment.track.index + ',' + page.moment.step);
    const hash = '#' + parts.join('&');
    if (hash !== location.hash) history.replaceState(null, '', hash);
  }, 120);
}

function followAddress() {
  const words = new URLSearchParams(location.hash.slice(1));
  const mode = MODES.some(([name]) => name === words.get('by')) ? words.get('by') : page.mode;
  const [from, to] = (words.get('t') || '').split(',').map(Number), [index, step] = (words.get('at') || '').split(',').map(Number);
  const track = page.tracks[index];
  page.view = { from: 0, to: page.end };
  page.moment = null;
  setMode(mode);
  setView(to > from ? from : 0, to > from ? to : page.end);
  if (track && step >= 0 && step < track.steps) requestAnimationFrame(() => chooseStep(track, step));
  else if (page.refusals.length && !location.hash) { // who held the memory when it ran out
    const mark = page.refusals[page.refusals.length - 1];
    requestAnimationFrame(() => chooseTime(mark.track, mark.time));
  }
}

/* ---- pointer ---- */

function laneAt(y) {
  return page.lanes.find(lane => y < lane.y + lane.height + LANE_GAP / 2) || page.lanes[page.lanes.length - 1];
}

function nearTarget(x, y) {
  const lane = laneAt(y);
  return page.targets.filter(target => target.lane === lane && Math.abs(target.x - x) <= target.reach)
    .sort((a, b) => (a.mark.type === REFUSAL ? 0 : 1) - (b.mark.type === REFUSAL ? 0 : 1) || Math.abs(a.x - x) - Math.abs(b.x - x))[0];
}

function showTip(x, y, clientX, clientY) {
  const lane = laneAt(y), target = nearTarget(x, y), { step, used, empty } = stepAt(lane, x), { groups } = page.grouping;
  const now = new Float64Array(groups.length), table = element('table');
  compose(lane.series, page.grouping, step, now);
  const row = (name, bytes, colour, className) => {
    const line = element('tr', undefined, className), cell = element('td', name);
    if (colour) { const swatch = element('i'); swatch.style.background = colour; cell.prepend(swatch); }
    line.append(cell, element('td', bytesText(bytes), 'number'));
    table.append(line);
  };
  groups.map((group, g) => [group, now[g]]).filter(entry => entry[1] > 0 && !page.hidden.has(entry[0].name)).sort((a, b) => b[1] - a[1]).forEach(([group, bytes]) => row(group.name, bytes, group.colour));
  const named = step < 0 ? 0 : lane.series.named[step];
  if (used > named) row('idle in pools', used - named, 'repeating-linear-gradient(135deg, transparent 0 2px, var(--hatch) 2px 3px)');
  row(page.hidden.size ? 'shown' : 'in use', Math.max(used, named), null, 'sum');
  const limit = limitAt(lane.series, page.layout.time(x));
  if (limit !== Infinity && !page.hidden.size) row('limit', limit);
  const time = empty || step < 0 ? page.layout.time(x) : lane.series.times[step];
  const head = [element('div', momentText(time, page.view.to - page.view.from))];
  if (target) head.push(element('div', markText(target.mark), target.mark.type === REFUSAL ? 'bad' : ''));
  page.tip.replaceChildren(...head, table);
  page.tip.hidden = false;
  const box = page.tip.getBoundingClientRect();
  page.tip.style.left = Math.max(4, clientX + 16 + box.width > innerWidth ? clientX - box.width - 16 : clientX + 16) + 'px';
  page.tip.style.top = Math.max(4, Math.min(clientY + 12, innerHeight - box.height - 8)) + 'px';
}

function hideTip() {
  page.tip.hidden = true;
  page.pointer = null;
  drawOver(page);
}

const pointers = new Map();
let pinch = null, moved = false;
const place = event => { const box = page.over.getBoundingClientRect(); return { x: event.clientX - box.left, y: event.clientY - box.top }; };
const inside = x => Math.min(Math.max(x, page.layout.left), page.layout.width - page.layout.right - 1);

function listenToPointer() {
  const over = page.over;
  over.addEventListener('pointerdown', event => {
    if (event.button) return;
    over.setPointerCapture(event.pointerId);
    const at = place(event);
    pointers.set(event.pointerId, { ...at, start: at, view: { ...page.view }, touch: event.pointerType === 'touch' });
    moved = false;
    if (pointers.size === 2) pinch = [...pointers.values()].map(p => ({ ...p, time: page.layout.time(p.x) }));
  });
  over.addEventListener('pointermove', event => {
    const at = place(event), down = pointers.get(event.pointerId);
    if (!down) {
      page.pointer = { x: inside(at.x) };
      drawOver(page);
      return showTip(page.pointer.x, at.y, event.clientX, event.clientY);
    }
    Object.assign(down, at);
    if (Math.abs(at.x - down.start.x) > 4) moved = true;
    if (pinch && pointers.size === 2) {
      const [a, b] = [...pointers.values()], span = (pinch[1].time - pinch[0].time) / ((b.x - a.x) || 1) * page.layout.plot;
      const from = pinch[0].time - (a.x - page.layout.left) / page.layout.plot * span;
      if (span > 0) setView(from, from + span);
    } else if (down.touch || event.shiftKey) {
      const shift = (down.start.x - at.x) / page.layout.plot * (down.view.to - down.view.from);
      setView(down.view.from + shift, down.view.to + shift);
    } else if (moved) {
      page.tip.hidden = true;
      page.select = { from: inside(down.start.x), to: inside(at.x) };
      drawOver(page);
    }
  });
  const up = event => {
    const down = pointers.get(event.pointerId), select = page.select;
    pointers.delete(event.pointerId);
    if (pointers.size < 2 && pinch) { if (!pointers.size) pinch = null; return; }
    page.select = null;
    if (!down || event.type === 'pointercancel') return;
    if (select) {
      const [a, b] = [page.layout.time(select.from), page.layout.time(select.to)].sort((p, q) => p - q);
      setView(a, b);
    } else if (!moved) chooseAt(inside(down.x), down.y);
  };
  over.addEventListener('pointerup', up);
  over.addEventListener('pointercancel', up);
  over.addEventListener('pointerleave', hideTip);
  over.addEventListener('dblclick', () => setView(0, page.end));
  over.addEventListener('wheel', event => {
    if (event.ctrlKey && event.deltaY === 0) return;
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / page.layout.plot);
    else zoomAt(page.layout.time(inside(place(event).x)), Math.exp(-event.deltaY / 400));
  }, { passive: false });
}

/* ---- keys and buttons ---- */

function listenToKeys() {
  const keys = {
    ArrowLeft: event => pan(event.shiftKey ? -0.5 : -0.1), ArrowRight: event => pan(event.shiftKey ? 0.5 : 0.1),
    '+': () => zoomAt(middle(), ZOOM), '=': () => zoomAt(middle(), ZOOM), '-': () => zoomAt(middle(), 1 / ZOOM), _: () => zoomAt(middle(), 1 / ZOOM),
    0: () => setView(0, page.end), m: choosePeak, Escape: () => closeMoment(),
    n: () => page.moment && chooseStep(page.moment.track, Math.min(page.moment.step + 1, page.moment.track.steps - 1)),
    p: () => page.moment && chooseStep(page.moment.track, Math.max(page.moment.step - 1, 0)),
  };
  document.addEventListener('keydown', event => {
    const inChoice = event.target.closest && event.target.closest('[role=radiogroup]');
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key] || (inChoice && event.key.startsWith('Arrow'))) return;
    event.preventDefault();
    keys[event.key](event);
  });
}

function closeMoment() {
  page.moment = null;
  showMoment(page);
  drawOver(page);
  keepAddress();
}

function listenToButtons() {
  const modes = document.getElementById('modes');
  for (const [mode, name] of MODES) {
    if (mode === 'process' && page.tracks.length < 2) continue;
    const button = element('button', name);
    button.type = 'button';
    button.dataset.mode = mode;
    button.setAttribute('role', 'radio');
    button.addEventListener('click', () => setMode(mode));
    modes.append(button);
  }
  modes.addEventListener('keydown', event => {
    const buttons = [...modes.querySelectorAll('button')], at = buttons.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || at < 0) return;
    event.preventDefault();
    const next = buttons[(at + step + buttons.length) % buttons.length];
    setMode(next.dataset.mode);
    next.focus();
  });
  const on = (id, act) => document.getElementById(id).addEventListener('click', act);
  on('zoom-in', () => zoomAt(middle(), ZOOM));
  on('zoom-out', () => zoomAt(middle(), 1 / ZOOM));
  on('zoom-all', () => setView(0, page.end));
  on('to-peak', choosePeak);
  on('moment-close', closeMoment);
  on('more-blocks', () => { page.allRows = true; showMoment(page); });
}

/* Sorts tracks by card, in the order in which cards come first, and by run, and joins those of each. Processes of several
 * jobs share no limit but the card. */
function joinCards() {
  const cards = [...new Set(page.tracks.map(cardOf))], pieceOf = track => cards.indexOf(cardOf(track)) * page.tracks.length + track.json.run;
  page.cards = cards.length;
  page.runs = new Set(page.tracks.map(track => track.json.run)).size;
  page.tracks.sort((a, b) => pieceOf(a) - pieceOf(b) || a.index - b.index).forEach((track, i) => track.index = i);
  for (const piece of new Set(page.tracks.map(pieceOf))) {
    const tracks = page.tracks.filter(track => pieceOf(track) === piece);
    if (tracks.length < 2) continue;
    const join = joinTracks(tracks), sameJob = tracks.every(track => track.json.job === tracks[0].json.job);
    join.sharedLimit = (sameJob && tracks.every(track => track.json.limit === LIMIT_JOB)) || tracks.every(track => track.limitIsCard);
    join.limitIsCard = tracks[0].limitIsCard;
    if (!join.sharedLimit) join.limits = [];
    page.joins.push(join);
  }
}

function main() {
  page.tracks = readPage();
  page.end = Math.max(1, ...page.tracks.map(track => track.json.offset + track.json.end));
  joinCards();
  page.refusals = page.tracks.flatMap(track => track.marks.filter(mark => mark.type === REFUSAL)).sort((a, b) => a.time - b.time);
  page.tags = page.mode = page.tracks.some(track => track.json.by === 'tag') ? 'tag' : 'owner';
  if (page.tracks.length > 1 && new Set(page.tracks.flatMap(track => track.json.metas.map(meta => groupName(track, meta, page.tags)))).size < 2) page.mode = 'process';
  showFacts();
  showEvents();
  listenToButtons();
  listenToPointer();
  listenToKeys();
  followAddress();
  addEventListener('hashchange', followAddress);
  new ResizeObserver(() => { redraw(); showMoment(page); }).observe(page.chart);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { redraw(); showMoment(page); });
  addEventListener('beforeprint', () => { drawPicture(page); showMoment(page); });
  addEventListener('afterprint', redraw);
}
main();
