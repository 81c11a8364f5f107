/* page_moment: what was live at one moment: the address space as a strip, and the largest blocks. */
const ROWS = 15, MORE_ROWS = 500, BREAK = 14;

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = isolate(text); // never as HTML: the text is the recording's
  if (className) made.className = className;
  return made;
}

/* Blocks that are live after `step`, largest first. */
function liveBlocks(track, step) {
  const live = [];
  for (let b = 0; b < track.blocks && track.born[b] <= step; b++) if (track.died[b] > step) live.push(b);
  return live.sort((a, b) => track.size[b] - track.size[a] || a - b);
}

/* Runs of addresses without a gap larger than all that is live in them: a reservation is far larger than what is in
 * it. Each {from, to, blocks by address}. */
function segmentsOf(track, live) {
  const placed = live.filter(b => HAS_ADDRESS(track.json.metas[track.meta[b]][2])).sort((a, b) => track.place[a] - track.place[b]);
  const total = placed.reduce((sum, b) => sum + track.size[b], 0), segments = [];
  for (const b of placed) {
    const last = segments[segments.length - 1], from = track.place[b], to = from + track.size[b];
    if (last && from - last.to <= Math.max(total / 2, 64 * 2 ** 20)) {
      last.blocks.push(b);
      last.to = Math.max(last.to, to);
    } else segments.push({ from, to, blocks: [b] });
  }
  return segments;
}

function holesOf(track, segments) {
  const holes = [];
  for (const segment of segments) {
    let end = segment.from;
    for (const b of segment.blocks) {
      if (track.place[b] > end) holes.push({ from: end, to: track.place[b], segment });
      end = Math.max(end, track.place[b] + track.size[b]);
    }
  }
  return holes.sort((a, b) => (b.to - b.from) - (a.to - a.from));
}

function drawStrip(page, track, live) {
  const canvas = document.getElementById('strip'), width = canvas.clientWidth, colours = page.colours;
  const context = fitCanvas(canvas, width, 58), height = 34, of = page.grouping.of[track.index];
  const segments = segmentsOf(track, live), holes = holesOf(track, segments);
  const words = document.getElementById('strip-words');
  if (!segments.length) { words.textContent = 'No block with an address is live.'; return; }
  const span = segments.reduce((sum, s) => sum + s.to - s.from, 0), scale = Math.max(0.1, width - (segments.length - 1) * BREAK) / span;
  let x = 0;
  context.font = page.font;
  for (const segment of segments) {
    segment.x = x;
    const wide = (segment.to - segment.from) * scale;
    context.fillStyle = colours.line;
    context.fillRect(x, 0, Math.max(1, wide), height);
    for (const b of segment.blocks) {
      const at = x + (track.place[b] - segment.from) * scale, size = track.size[b] * scale;
      const g = of[track.meta[b]];
      context.fillStyle = g === NOT_COUNTED ? colours.faint : page.grouping.groups[g].colour;
      context.fillRect(at, 0, Math.max(0.5, size - (size > 3 ? 0.7 : 0)), height);
    }
    x += wide + BREAK;
    if (segment !== segments[segments.length - 1]) {
      context.fillStyle = colours.soft;
      context.textAlign = 'center';
      context.textBaseline = 'middle';
      context.fillText('\u22ef', x - BREAK / 2, height / 2);
    }
  }
  const free = holes.reduce((sum, hole) => sum + hole.to - hole.from, 0);
  if (holes.length) markHole(context, holes[0], scale, height, width, colours);
  words.textContent = holes.length
    ? holes.length + (holes.length === 1 ? ' hole' : ' holes') + ' between blocks, ' + bytesText(free) + ' in all; the largest is ' + bytesText(holes[0].to - holes[0].from) + '.'
    : 'No holes between blocks.';
  canvas.setAttribute('aria-label', 'Address space: ' + live.length + ' blocks. ' + words.textContent);
}

function markHole(context, hole, scale, height, width, colours) {
  const from = hole.segment.x + (hole.from - hole.segment.from) * scale, to = from + (hole.to - hole.from) * scale;
  const text = 'largest hole ' + bytesText(hole.to - hole.from), wide = context.measureText(text).width;
  context.strokeStyle = context.fillStyle = colours.ink;
  context.lineWidth = 1.2;
  context.beginPath();
  context.moveTo(from, height + 2);
  context.lineTo(from, height + 6);
  context.lineTo(Math.max(to, from + 1), height + 6);
  context.lineTo(Math.max(to, from + 1), height + 2);
  context.stroke();
  context.textBaseline = 'top';
  context.textAlign = 'left';
  context.fillText(text, Math.max(0, Math.min((from + to) / 2 - wide / 2, width - wide)), height + 9);
}

/* ---- the table ---- */

function stackCell(track, id) {
  const cell = element('td'), frames = track.json.stacks[id];
  if (!frames || !frames.length) return cell;
  const details = element('details'), list = element('ol');
  details.append(element('summary', frames.find(frame => !/libcudart|libcuda\.so|libgpucap/.test(frame)) || frames[0])); // who asked
  for (const frame of frames) list.append(element('li', frame));
  details.append(list);
  cell.append(details);
  return cell;
}

function blockRow(page, track, b, time, largest) {
  const [owner, tag, kind, stack, thread, stream] = track.json.metas[track.meta[b]], row = element('tr');
  const g = page.grouping.of[track.index][track.meta[b]], swatch = element('i'), bar = element('span', '', 'bar');
  const colour = g === NOT_COUNTED ? page.colours.faint : page.grouping.groups[g].colour;
  swatch.style.background = bar.style.background = colour;
  bar.style.width = Math.max(1, 100 * track.size[b] / largest) + '%';
  const size = element('td', bytesText(track.size[b]), 'number'), who = element('td', ownerText(track, owner));
  size.append(bar);
  who.prepend(swatch);
  const died = track.died[b] < track.json.steps ? track.times[track.died[b]] : null;
  const thread_name = track.json.threads[thread];
  row.append(size, who, element('td', tag ? tagText(track, tag) : ''), element('td', KINDS[kind] || ''),
    element('td', spanText(time - track.times[track.born[b]]), 'number'),
    element('td', died === null ? 'to the end' : spanText(died - time), 'number'),
    element('td', '0x' + track.place[b].toString(16), 'code'), stackCell(track, stack));
  row.title = 'thread ' + thread + (thread_name ? ' ' + thread_name : '') + (stream !== '0' ? ', stream 0x' + stream : '');
  row.dataset.block = b;
  return row;
}

function showMoment(page) {
  const section = document.getElementById('moment');
  section.hidden = !page.moment;
  if (!page.moment) return;
  const { track, step, time } = page.moment, now = new Float64Array(page.grouping.groups.length);
  const live = step < 0 ? [] : liveBlocks(track, step), body = document.querySelector('#blocks tbody');
  document.getElementById('moment-title').textContent = 'At ' + momentText(time, page.end) + (page.tracks.length > 1 ? ', ' + whichText(track) : '');
  compose(track, page.grouping, step, now);
  const parts = page.grouping.groups.map((group, g) => [group.name, now[g]]).filter(part => part[1] > 0).sort((a, b) => b[1] - a[1]);
  const driver = step >= 0 ? track.driver[step] : 0, pool = step >= 0 ? track.used[step] - track.named[step] - driver : 0;
  if (pool > 0) parts.push(['idle in the pool', pool]);
  if (driver > 0) parts.push(['idle in the driver\'s pools', driver]);
  document.getElementById('moment-words').textContent = (step < 0 ? 'Nothing is in use.' : bytesText(track.used[step]) + ' in use: ' +
    parts.map(([name, bytes]) => name + ' ' + bytesText(bytes)).join(', ') + '.');
  const most = page.allRows ? MORE_ROWS : ROWS;
  document.getElementById('blocks-title').textContent = live.length + (live.length === 1 ? ' block' : ' blocks') + ' live, the largest first';
  body.replaceChildren(...live.slice(0, most).map(b => blockRow(page, track, b, time, track.size[live[0]])));
  document.getElementById('more-blocks').hidden = live.length <= most || page.allRows;
  drawStrip(page, track, live);
}
