/* page_draw: the picture. Each column of pixels shows the moment in it when most was live, and above it what idled,
 * up to the most that was in use in it: peaks stay, however far one zooms out. */
const AXIS = 26, LANE_GAP = 44, LEAST_LANE = 56;

function theme() {
  const style = getComputedStyle(document.documentElement);
  const colour = name => style.getPropertyValue('--' + name).trim();
  return { paper: colour('paper'), ink: colour('ink'), soft: colour('soft'), faint: colour('faint'), line: colour('line'),
    bad: colour('bad'), wait: colour('wait'), hatch: colour('hatch'), accent: colour('accent') };
}

function fitCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = height + 'px';
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/* Diagonal lines: what idles, and waits, look different from blocks also without colour. */
function hatching(context, colour, gap) {
  const tile = document.createElement('canvas');
  tile.width = tile.height = gap;
  const draw = tile.getContext('2d');
  draw.strokeStyle = colour;
  draw.lineWidth = 1;
  draw.beginPath();
  for (const shift of [-gap, 0, gap]) { draw.moveTo(shift - 1, gap + 1); draw.lineTo(shift + gap + 1, -1); }
  draw.stroke();
  return context.createPattern(tile, 'repeat');
}

/* Where everything goes. A lane is {series, title, y, height}; x of a time and back. */
function layOut(page) {
  const width = page.chart.clientWidth, left = width < 600 ? 54 : 64, right = 8;
  const lanes = page.lanes, tops = lanes.map(lane => topOf(page, lane));
  const room = lanes.length === 1 ? Math.max(240, Math.min(420, window.innerHeight * 0.46)) : Math.min(900, 380 + 60 * lanes.length);
  page.scale = room / tops.reduce((sum, top) => sum + top, 0);
  let y = lanes.length === 1 ? 30 : 36;
  lanes.forEach((lane, i) => {
    lane.y = y;
    lane.height = Math.max(LEAST_LANE, tops[i] * page.scale);
    lane.most = lane.height / page.scale;
    y += lane.height + LANE_GAP;
  });
  const layout = { width, left, right, plot: width - left - right, height: y - LANE_GAP + AXIS };
  layout.x = time => left + (time - page.view.from) / (page.view.to - page.view.from) * layout.plot;
  layout.time = x => page.view.from + (x - left) / layout.plot * (page.view.to - page.view.from);
  return layout;
}

/* One scale for all lanes, so that heights compare. A limit far above everything is not worth the room. */
function topOf(page, lane) {
  let most = Math.max(1, lane.series.peakUsed);
  for (const mark of lane.series.marks) // what was asked for is drawn above what was in use, if it is not far above
    if (mark.type === REFUSAL && !page.hidden.size) most = Math.max(most, Math.min(usedAt(lane.full, mark.time) + mark.bytes, 1.5 * lane.full.peakUsed));
  if (hasLimit(page, lane)) for (const limit of lane.series.limits) if (limit.bytes < most * 1.7) most = Math.max(most, limit.bytes);
  return most * 1.06;
}

/* A limit of the job is drawn where all processes are, and none where not all is shown. */
function hasLimit(page, lane) {
  return !page.hidden.size && (Boolean(lane.full.tracks) || !joinOf(lane.full)?.sharedLimit);
}

function sizeTicks(most, count) {
  const unit = [2 ** 40, 2 ** 30, 2 ** 20, 2 ** 10, 1].find(size => most / size >= 1) || 1;
  const rough = most / unit / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(k => k * power).find(k => k >= rough) * unit, ticks = [];
  for (let at = 0; at <= most; at += step) ticks.push(at);
  const digits = step / unit < 1 ? 1 : 0, name = { [2 ** 40]: 'TiB', [2 ** 30]: 'GiB', [2 ** 20]: 'MiB', [2 ** 10]: 'KiB', 1: 'B' }[unit];
  return ticks.map(bytes => ({ bytes, text: bytes ? (bytes / unit).toFixed(digits) + ' ' + name : '0' }));
}

const CLOCK_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 864000]; // seconds

/* "3 d", "5:30", "1 d 05:30", "5:30:10": no more than the step needs. */
function clockTick(at, step, digits) {
  if (step >= 86400e9) return Math.round(at / 86400e9) + ' d';
  return step >= 60e9 ? clockText(at, 0).slice(0, -3) : clockText(at, digits);
}

function timeTicks(from, to, count) {
  const rough = (to - from) / count, power = 10 ** Math.floor(Math.log10(rough));
  const round = page.end >= LONG && CLOCK_STEPS.find(seconds => seconds * 1e9 >= rough && rough >= 1e9);
  const step = round ? round * 1e9 : [1, 2, 5, 10].map(k => k * power).find(k => k >= rough), ticks = [];
  const unit = to >= 1e9 ? [1e9, 's'] : to >= 1e6 ? [1e6, 'ms'] : to >= 1e3 ? [1e3, '\u00b5s'] : [1, 'ns'];
  const digits = Math.max(0, Math.min(9, -Math.floor(Math.log10(step / unit[0]) + 1e-9)));
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) ticks.push({ time: at, text: page.end >= LONG ? clockTick(at, step, unit[0] === 1e9 ? digits : 9) : (at / unit[0]).toFixed(digits) + ' ' + unit[1] });
  return ticks;
}

/* ---- one lane ---- */

/* For each column of the plot: the tops of all groups, and of what is in use. */
function stackColumns(lane, page, layout, scale) {
  const { series } = lane, { grouping } = page, width = grouping.groups.length;
  const columns = Math.max(1, Math.floor(layout.plot)), now = new Float64Array(width);
  const tops = Array.from({ length: width + 1 }, () => new Float32Array(columns));
  const lows = tops.lows = new Float32Array(columns);
  const span = (page.view.to - page.view.from) / columns;
  let to = lowerBound(series.times, page.view.from), last = -2;
  for (let c = 0; c < columns; c++) {
    const from = to;
    to = lowerBound(series.times, page.view.from + (c + 1) * span);
    const { step, used, least } = highestOf(series, from, to);
    lows[c] = lane.y + lane.height - least * scale;
    if (step !== last) compose(series, grouping, step, now);
    last = step;
    let sum = 0;
    for (let g = 0; g < width; g++) {
      if (!page.hidden.has(grouping.groups[g].name)) sum += now[g];
      tops[g][c] = lane.y + lane.height - sum * scale;
    }
    tops[width][c] = lane.y + lane.height - Math.max(sum, used) * scale;
  }
  return tops;
}

function fillBetween(context, left, upper, lower) {
  context.beginPath();
  context.moveTo(left, upper[0]);
  for (let c = 0; c < upper.length; c++) { context.lineTo(left + c, upper[c]); context.lineTo(left + c + 1, upper[c]); }
  for (let c = upper.length - 1; c >= 0; c--) { context.lineTo(left + c + 1, lower[c]); context.lineTo(left + c, lower[c]); }
  context.closePath();
  context.fill();
}

/* Without `whole` only what lies flat: upright lines, one beside the other, would wash the colours out. */
function strokeTop(context, left, upper, whole) {
  context.beginPath();
  for (let c = 0; c < upper.length; c++) {
    if (!whole && c && Math.abs(upper[c] - upper[c - 1]) > 1) context.moveTo(left + c, upper[c]);
    context.lineTo(left + c, upper[c]);
    context.lineTo(left + c + 1, upper[c]);
  }
  context.stroke();
}

function drawStack(context, lane, page, layout, scale, colours) {
  const { groups } = page.grouping, tops = stackColumns(lane, page, layout, scale);
  const floor = new Float32Array(tops[0].length).fill(lane.y + lane.height);
  let lower = floor;
  groups.forEach((group, g) => {
    context.fillStyle = group.colour;
    fillBetween(context, layout.left, tops[g], lower);
    lower = tops[g];
  });
  context.strokeStyle = colours.paper; // a thin gap between neighbours, for those who see colours differently
  context.lineWidth = 0.6;
  for (let g = 0; g < groups.length - 1; g++) if (groups[g].seen) strokeTop(context, layout.left, tops[g], false);
  drawLowest(context, layout, tops[groups.length - 1], tops.lows);
  context.fillStyle = hatching(context, colours.hatch, 6);
  fillBetween(context, layout.left, tops[groups.length], tops[groups.length - 1]);
  context.strokeStyle = colours.soft;
  context.lineWidth = 1;
  strokeTop(context, layout.left, tops[groups.length], true);
}

/* Where a column holds highs and lows, the part above its lowest moment is paler: it is not there all the time. */
function drawLowest(context, layout, upper, lows) {
  context.save();
  context.fillStyle = 'rgb(255 255 255 / 26%)';
  fillBetween(context, layout.left, upper, lows.map((low, c) => Math.max(low, upper[c])));
  context.restore();
}

function drawScale(context, lane, page, layout, scale, most, colours) {
  context.font = page.font;
  context.textBaseline = 'middle';
  context.textAlign = 'right';
  for (const tick of sizeTicks(most, Math.max(1.5, lane.height / 44))) {
    const y = Math.round(lane.y + lane.height - tick.bytes * scale) + 0.5;
    context.strokeStyle = colours.line;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(layout.left, y);
    context.lineTo(layout.width - layout.right, y);
    context.stroke();
    context.fillStyle = colours.soft;
    context.fillText(tick.text, layout.left - 6, y);
  }
}

function drawLimit(context, lane, page, layout, scale, most, colours) {
  const limits = lane.series.limits, end = page.view.to;
  lane.beside = 0; // what the line of the title has at its right end
  if (!hasLimit(page, lane)) return;
  context.save();
  context.beginPath();
  context.rect(layout.left, lane.y - 14, layout.plot, lane.height + 14);
  context.clip();
  context.strokeStyle = colours.ink;
  context.lineWidth = 1.5;
  context.setLineDash([7, 4]);
  limits.forEach((limit, i) => {
    if (limit.bytes > most) return;
    const from = layout.x(limit.time), to = layout.x(i + 1 < limits.length ? limits[i + 1].time : end);
    const y = lane.y + lane.height - limit.bytes * scale;
    context.beginPath();
    context.moveTo(from, y);
    context.lineTo(to, y);
    context.stroke();
  });
  context.restore();
  const now = limitAt(lane.series, end);
  if (now === Infinity) return;
  const y = lane.y + lane.height - now * scale;
  context.fillStyle = colours.ink;
  const text = (lane.series.limitIsCard ? 'card ' : 'limit ') + bytesText(now);
  context.textBaseline = 'bottom';
  if (now > most) {
    lane.beside = context.measureText(text + ', far above').width + 12;
    context.textAlign = 'right';
    context.fillText(text + ', far above', layout.width - layout.right, lane.y - 13); // above the labels of refusals
  } else {
    context.textAlign = 'left'; // refused requests are mostly at the right end
    context.fillText(text, layout.left + 6, y - 3);
  }
}

/* ---- what happened ---- */

/* What a refused request was up against. */
function fitText(mark) {
  if (mark.limit === LIMIT_CARD && mark.other >= mark.bytes) return 'the driver refused, though enough was left';
  const fitted = mark.other ? 'at most ' + bytesText(mark.other) + ' would have fitted' : 'nothing was left';
  return (mark.limit === LIMIT_CARD ? 'the card itself was full: ' : mark.limit === LIMIT_KEPT ? 'what is free on the card is kept for other jobs: ' : '') + fitted;
}

function markText(mark) {
  const track = mark.track, tag = mark.tag ? ' (' + tagText(track, mark.tag) + ')' : '', who = ownerText(track, mark.owner) + tag;
  const pid = mark.other && mark.other < 2 ** 31 ? 'process ' + mark.other : mark.type === LEND ? 'a process or command that is not known' : 'another process';
  switch (mark.type) {
    case REFUSAL: return 'refused: ' + bytesText(mark.bytes) + ' for ' + who + ', ' + fitText(mark) + ' (' + LIMITS[mark.limit < LIMITS.length ? mark.limit : 0] + ')' + (mark.idle ? '; ' + mark.idle : '');
    case WAIT: return 'waited ' + spanText(mark.other) + ' for ' + bytesText(mark.bytes) + ' for ' + who;
    case LEND: return 'lent ' + bytesText(mark.bytes) + ' to ' + pid;
    case BORROW: return 'borrowed ' + bytesText(mark.bytes) + ' from ' + pid;
    default: return 'joined ' + mark.other + ' free chunks, ' + bytesText(mark.bytes);
  }
}

function drawWaits(context, lane, page, layout, colours) {
  for (const mark of lane.series.marks) {
    if (mark.type !== WAIT) continue;
    const from = Math.max(layout.left, layout.x(mark.time - mark.other)), to = Math.min(layout.width - layout.right, layout.x(mark.time));
    if (to < layout.left || from > layout.width - layout.right) continue;
    const width = Math.max(2, to - from);
    context.fillStyle = hatching(context, colours.wait, 5);
    context.globalAlpha = 0.55;
    context.fillRect(from, lane.y, width, lane.height);
    context.globalAlpha = 1;
    context.fillStyle = colours.wait;
    context.fillRect(from, lane.y - 3, width, 3);
    page.targets.push({ x: from + width / 2, y: lane.y, reach: width / 2 + 4, lane, mark });
  }
}

function drawRefusals(context, lane, page, layout, colours) {
  const refusals = lane.series.marks.filter(mark => mark.type === REFUSAL && mark.time >= page.view.from && mark.time <= page.view.to);
  let first = -Infinity, last = -Infinity, count = 0, labelled = -Infinity;
  for (const [i, mark] of refusals.entries()) {
    const x = layout.x(mark.time), next = i + 1 < refusals.length ? layout.x(refusals[i + 1].time) : Infinity;
    page.targets.push({ x, y: lane.y, reach: 6, lane, mark });
    if (!count++) first = x;
    if (next - first < 2) continue; // of those in one place the last is drawn; hovering finds the others
    const more = count - 1, before = last;
    last = x;
    count = 0;
    if (!page.hidden.size) drawRequest(context, lane, page, layout, mark, x, colours);
    context.strokeStyle = context.fillStyle = colours.bad;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x, lane.y - 2);
    context.lineTo(x, lane.y + lane.height);
    context.stroke();
    context.beginPath();
    context.moveTo(x - 6, lane.y - 11);
    context.lineTo(x + 6, lane.y - 11);
    context.lineTo(x, lane.y);
    context.closePath();
    context.fill();
    const text = 'refused ' + bytesText(mark.bytes) + (more ? ' and ' + more + ' more' : ''), width = context.measureText(text).width + 12;
    const side = x + 10 + width > layout.width - layout.right && x - width > layout.left ? -1 : 1;
    const gap = side > 0 ? next - x : x - before; // to the neighbour on that side
    if (x - labelled < width + 20 || (gap < width + 10 && gap > 2)) continue;
    labelled = x;
    context.textAlign = side > 0 ? 'left' : 'right';
    context.textBaseline = 'middle';
    context.fillText(text, x + 10 * side, lane.y - 7);
  }
}

/* What was asked for, on top of what was in use: it passes the limit. */
function drawRequest(context, lane, page, layout, mark, x, colours) {
  const bottom = heightAt(page, lane, mark.time), top = Math.max(lane.y, bottom - mark.bytes * page.scale), width = 12;
  const left = Math.min(x, layout.width - layout.right - width);
  if (bottom - top < 2) return;
  context.save();
  context.fillStyle = colours.paper;
  context.fillRect(left, top, width, bottom - top);
  context.fillStyle = colours.bad;
  context.globalAlpha = 0.45;
  context.fillRect(left, top, width, bottom - top);
  context.globalAlpha = 1;
  context.strokeStyle = colours.bad;
  context.lineWidth = 1;
  context.setLineDash([3, 2]);
  context.strokeRect(left + 0.5, top + 0.5, width - 1, bottom - top - 1);
  context.restore();
}

/* From the lane that lent to the lane that got it; towards the edge if that one is not here. */
function drawLoans(context, page, layout, colours) {
  const laneOf = (pid, here) => page.lanes.find(lane => !lane.series.tracks && lane.series.json.pid === pid && lane.series.json.uuid === here.series.json.uuid);
  const names = (lane, pid) => lane.series.marks.some(mark => mark.type === LEND && mark.other === pid);
  let before = null, labelled = -Infinity;
  for (const lane of page.lanes) {
    if (lane.series.tracks) continue;
    for (const mark of lane.series.marks) {
      const x = layout.x(mark.time);
      if ((mark.type !== LEND && mark.type !== BORROW) || x < layout.left || x > layout.width - layout.right) continue;
      const other = laneOf(mark.other, lane);
      if (mark.type === BORROW && other && names(other, lane.series.json.pid)) continue; // the lender's mark draws it
      page.targets.push({ x, y: lane.y + lane.height, reach: 6, lane, mark });
      if (before && Math.abs(before.x - x) < 3 && before.lane === lane) continue;
      before = { x, lane };
      const inner = lane.y + lane.height - 26, edge = lane.y + lane.height + 12;
      const [lender, borrower] = mark.type === LEND ? [lane, other] : [other, lane];
      const from = other ? heightAt(page, lender, mark.time) : mark.type === LEND ? inner : edge;
      const to = other ? heightAt(page, borrower, mark.time) - 3 : mark.type === LEND ? edge : inner;
      const text = bytesText(mark.bytes) + (mark.type === LEND ? ' lent' : ' borrowed');
      const room = x - labelled > context.measureText(text).width + 24;
      if (room) labelled = x;
      drawArrow(context, x, from, to, colours, room ? text : '');
    }
  }
}

/* The top of what is in use. */
function heightAt(page, lane, time) {
  const step = lowerBound(lane.series.times, time + 0.5) - 1;
  return lane.y + lane.height - (step < 0 ? 0 : lane.series.used[step]) * page.scale;
}

function drawArrow(context, x, from, to, colours, text) {
  const way = to > from ? 1 : -1;
  for (const [colour, width] of [[colours.paper, 5], [colours.ink, 2]]) {
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(x, from);
    context.lineTo(x, to - 6 * way);
    context.stroke();
    const reach = width > 2 ? 8 : 6;
    context.beginPath();
    context.arc(x, from, width > 2 ? 5 : 3.5, 0, 7);
    context.moveTo(x - reach, to - (reach + 2) * way);
    context.lineTo(x + reach, to - (reach + 2) * way);
    context.lineTo(x, to + (width > 2 ? 2 : 0) * way);
    context.closePath();
    context.fill();
  }
  if (!text) return;
  context.textAlign = 'left';
  context.textBaseline = 'middle';
  const y = from + way * Math.min(26, Math.abs(to - from) / 3), wide = context.measureText(text).width;
  const left = x + 11 + wide > page.layout.width ? x - 11 - wide : x + 11;
  context.fillStyle = colours.paper;
  context.globalAlpha = 0.85;
  context.fillRect(left - 4, y - 8, wide + 8, 16);
  context.globalAlpha = 1;
  context.fillStyle = colours.ink;
  context.fillText(text, left, y);
}

/* ---- all of it ---- */

function drawTimes(context, page, layout, colours) {
  const bottom = layout.height - AXIS + 4;
  context.textBaseline = 'top';
  context.fillStyle = colours.soft;
  for (const tick of timeTicks(page.view.from, page.view.to, Math.max(2, layout.plot / 110))) {
    const x = layout.x(tick.time), half = context.measureText(tick.text).width / 2;
    context.strokeStyle = colours.faint;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(Math.round(x) + 0.5, bottom - 4);
    context.lineTo(Math.round(x) + 0.5, bottom);
    context.stroke();
    context.textAlign = 'center';
    context.fillText(tick.text, Math.max(layout.left, Math.min(x, layout.width - half - 1)), bottom + 3);
  }
}

function drawTitle(context, lane, page, layout, colours) {
  const most = layout.plot - 8 - lane.beside;
  let text = lane.title;
  context.font = '600 ' + page.font;
  while (text.length > 4 && context.measureText(text).width > most) text = text.slice(0, -2);
  if (text !== lane.title) text += '\u2026';
  context.fillStyle = colours.ink;
  context.textAlign = 'left';
  context.textBaseline = 'bottom';
  if (page.lanes.length > 1) context.fillText(text, layout.left, lane.y - 13);
  context.font = page.font;
}

function drawPicture(page) {
  const layout = page.layout = layOut(page), colours = page.colours = theme();
  const context = fitCanvas(page.picture, layout.width, layout.height);
  fitCanvas(page.over, layout.width, layout.height);
  page.font = (layout.width < 600 ? 11 : 12) + 'px ' + getComputedStyle(document.body).fontFamily;
  page.targets = [];
  context.fillStyle = colours.paper;
  context.fillRect(0, 0, layout.width, layout.height);
  for (const lane of page.lanes) {
    const { scale } = page, { most } = lane;
    drawScale(context, lane, page, layout, scale, most, colours);
    drawStack(context, lane, page, layout, scale, colours);
    drawWaits(context, lane, page, layout, colours);
    drawLimit(context, lane, page, layout, scale, most, colours);
    drawTitle(context, lane, page, layout, colours);
    drawRefusals(context, lane, page, layout, colours);
  }
  drawLoans(context, page, layout, colours);
  drawTimes(context, page, layout, colours);
}

/* Above the picture, and gone without drawing it again: pointer, selection, the chosen moment. */
function drawOver(page) {
  const { layout, colours } = page, context = fitCanvas(page.over, layout.width, layout.height);
  const bottom = layout.height - AXIS;
  const upright = (x, colour, dash) => {
    context.strokeStyle = colour;
    context.setLineDash(dash);
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(Math.round(x) + 0.5, 8);
    context.lineTo(Math.round(x) + 0.5, bottom);
    context.stroke();
  };
  if (page.moment) {
    const x = layout.x(page.moment.time), lane = page.lanes.find(one => one.full === page.moment.track) || page.lanes[0];
    if (x >= layout.left && x <= layout.width - layout.right) {
      upright(x, colours.accent, []);
      context.fillStyle = colours.accent;
      context.beginPath();
      context.arc(x, lane.y + lane.height, 5, 0, 7);
      context.fill();
    }
  }
  if (page.select) {
    const [a, b] = [page.select.from, page.select.to].sort((p, q) => p - q);
    context.fillStyle = colours.accent;
    context.globalAlpha = 0.18;
    context.fillRect(a, 8, b - a, bottom - 8);
    context.globalAlpha = 1;
    upright(a, colours.accent, []);
    upright(b, colours.accent, []);
  } else if (page.pointer) {
    upright(page.pointer.x, colours.soft, [3, 3]);
  }
}
