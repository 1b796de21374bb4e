// Zoom, keys, tooltip, and the parts of the page around the picture.

function redraw() {
  if (!state.due) { state.due = true; requestAnimationFrame(draw); }
}

function show(from, to) {
  const least = 100, most = (last - first) * 1.04;
  let span = Math.min(Math.max(to - from, least), most);
  let begin = from + (to - from - span) / 2;
  begin = Math.min(Math.max(begin, first - span * 0.5), last - span * 0.5);
  state.from = begin;
  state.to = begin + span;
  redraw();
}

const zoom = (factor, at) => show(at - (at - state.from) * factor, at + (state.to - at) * factor);
const move = part => show(state.from + part * (state.to - state.from), state.to + part * (state.to - state.from));

function showStep() {
  const chosen = byId('step').value;
  if (chosen === '') { show(first, last); return; }
  const { begin, end } = steps.get(Number(chosen)), edge = (end - begin) * 0.01;
  show(begin - edge, end + edge);
}

function stepBy(count) {
  const select = byId('step'), next = select.selectedIndex + count;
  if (next >= 0 && next < select.length) { select.selectedIndex = next; showStep(); }
}

// What lies at a point: a span of a row, or a gap of a stage's line.
function find(px, py) {
  const y = py + view.scrollTop, time = timeAt(px);
  const rank = shown().find(one => y >= one.y && y < one.bottom);
  if (!rank || px < LEFT) return { rank };
  const row = rank.rows.find(one => y >= one.y && y < one.y + TRACK);
  const indexed = row ? row.list : y < rank.y + ROW ? rank.mainList : null;
  if (!indexed) return { rank, time };
  return { rank, time, hit: findIn(rank, indexed, time), main: !row };
}

function findIn(rank, { list, reach }, time) {
  const slack = 1.5 * (state.to - state.from) / state.width;
  let best = -1;
  for (let place = firstVisible(reach, time - slack); place < list.length; place++) {
    const i = list[place];
    if (rank.begin[i] > time + slack) break;
    if (rank.end[i] >= time - slack) best = i;
  }
  return best;
}

function describe(rank, i) {
  const spans = rank.spans, kind = kinds[spans.kind[i]], peer = spans.peer[i];
  const lines = [`${name(rank, i)}  ${milliseconds(spans.duration[i])}`,
    `stage ${rank.stage}, rank ${rank.rank}, step ${spans.step[i]}` +
    (spans.microbatch[i] >= 0 ? `, micro-batch ${piece(spans, i).replace('.', ', slice ')}` : '')];
  const begin = steps.get(spans.step[i]).begin;
  lines.push(`from ${milliseconds(rank.begin[i] - begin)} to ${milliseconds(rank.end[i] - begin)} of the step`);
  if (peer >= 0) lines.push(kind === 'send' ? `to stage ${peer}` : kind === 'recv' ? `from stage ${peer}` : `waits for stage ${peer}`);
  if (spans.bytes[i] > 0) lines.push(`${(spans.bytes[i] / 1048576).toPrecision(3)} MiB`);
  if (path.span.some((span, at) => span === i && trace.ranks[path.rank[at]] === rank && path.from[at] < 0)) {
    lines.push('on the critical path');
  }
  return lines.join('\n');
}

// Idle time of a stage: how long, for whom, and what ended it.
function describeGap(rank, time) {
  let before = -Infinity, next = -1;
  for (const i of rank.main) {
    if (rank.end[i] <= time) before = Math.max(before, rank.end[i]);
    if (rank.begin[i] > time) { next = i; break; }
  }
  if (before === -Infinity || next < 0) return '';
  const wait = findIn(rank, rank.lists[trace.tracks.indexOf('wait')], time);
  const lines = [`idle  ${milliseconds(rank.begin[next] - before)}`];
  if (wait >= 0 && rank.spans.peer[wait] >= 0) {
    const direction = rank.spans.direction[wait] === 1 ? 'B' : 'F';
    const received = ['recv F', 'recv B'].some(track => findIn(rank, rank.lists[trace.tracks.indexOf(track)], time) >= 0);
    lines.push(received ? `waits for stage ${rank.spans.peer[wait]}: its message ${direction}${piece(rank.spans, wait)}`
      : `waits for a landing buffer of stage ${rank.spans.peer[wait]}`);
  } else {
    lines.push('nothing is waited for');
  }
  lines.push(`ended by ${name(rank, next)}`);
  return lines.join('\n');
}

function hover(event) {
  const box = canvas.getBoundingClientRect();
  const { rank, time, hit, main } = find(event.clientX - box.left, event.clientY - box.top);
  let text = '';
  if (rank && hit !== undefined && hit >= 0) text = describe(rank, hit);
  else if (rank && main) text = describeGap(rank, time);
  tip.hidden = text === '';
  tip.textContent = text;
  tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - 350)}px`;
  tip.style.top = `${Math.min(event.clientY + 16, window.innerHeight - 110)}px`;
}

function listen() {
  let drag = null, moved = false;
  canvas.addEventListener('wheel', event => {
    if (event.shiftKey) return;
    event.preventDefault();
    const at = timeAt(event.clientX - canvas.getBoundingClientRect().left);
    zoom(Math.pow(1.0015, Math.max(-300, Math.min(300, event.deltaY))), at);
  }, { passive: false });
  canvas.addEventListener('pointerdown', event => {
    drag = { x: event.clientX, from: state.from, to: state.to };
    moved = false;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', event => {
    if (drag === null) { hover(event); return; }
    const shift = (drag.x - event.clientX) / (state.width - LEFT - RIGHT) * (drag.to - drag.from);
    moved = moved || Math.abs(drag.x - event.clientX) > 3;
    show(drag.from + shift, drag.to + shift);
  });
  canvas.addEventListener('pointerup', event => {
    const box = canvas.getBoundingClientRect();
    const { rank } = find(event.clientX - box.left, event.clientY - box.top);
    if (!moved && rank && event.clientX - box.left < LEFT) { rank.unfolded = !rank.unfolded; redraw(); }
    drag = null;
  });
  canvas.addEventListener('pointerleave', () => { tip.hidden = true; });
  view.addEventListener('scroll', redraw);
  view.addEventListener('keydown', event => {
    const middle = (state.from + state.to) / 2, toggle = id => { byId(id).checked = !byId(id).checked; redraw(); };
    const keys = { '+': () => zoom(0.7, middle), '=': () => zoom(0.7, middle), '-': () => zoom(1 / 0.7, middle),
      '0': () => show(first, last), ArrowLeft: () => move(-0.15), ArrowRight: () => move(0.15),
      '[': () => stepBy(-1), ']': () => stepBy(1), m: () => toggle('messages'), p: () => toggle('path') };
    if (!event.ctrlKey && !event.metaKey && keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  byId('in').onclick = () => zoom(0.6, (state.from + state.to) / 2);
  byId('out').onclick = () => zoom(1 / 0.6, (state.from + state.to) / 2);
  byId('fit').onclick = () => { byId('step').value = ''; show(first, last); };
  byId('step').onchange = showStep;
  byId('replica').onchange = event => { state.replica = Number(event.target.value); redraw(); };
  for (const id of ['messages', 'path', 'memory']) byId(id).onchange = redraw;
  byId('unfold').onclick = () => {
    const fold = shown().every(rank => rank.unfolded);
    shown().forEach(rank => { rank.unfolded = !fold; });
    redraw();
  };
  window.addEventListener('resize', redraw);
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { readColours(); redraw(); });
}

function add(parent, tag, text) {
  const element = document.createElement(tag);
  element.textContent = text;
  parent.appendChild(element);
  return element;
}

function fill() {
  const replicas = [...new Set(trace.ranks.map(rank => rank.replica))].sort((a, b) => a - b);
  const used = new Set();
  trace.ranks.forEach(rank => rank.spans.kind.forEach(kind => used.add(kind)));
  add(byId('step'), 'option', 'all').value = '';
  for (const number of stepNumbers) add(byId('step'), 'option', String(number)).value = String(number);
  for (const replica of replicas) add(byId('replica'), 'option', String(replica)).value = String(replica);
  byId('replica-label').hidden = replicas.length < 2;
  byId('controls').hidden = false;
  for (const kind of [...used].sort((a, b) => a - b)) {
    const item = add(byId('legend'), 'li', LABELS[kinds[kind]] || kinds[kind]);
    item.insertAdjacentElement('afterbegin', document.createElement('i')).style.background = `var(--${kinds[kind]})`;
  }
  const head = add(byId('bubbles'), 'tr', '');
  for (const text of ['stage', 'rank', 'bubble', ...trace.causes]) add(head, 'th', text);
  for (const rank of trace.ranks) {
    const row = add(byId('bubbles'), 'tr', '');
    add(row, 'td', String(rank.stage));
    add(row, 'td', String(rank.rank));
    for (const share of [rank.bubble, ...rank.causes]) add(row, 'td', `${(100 * share).toFixed(1)}%`);
  }
  const spans = trace.ranks.reduce((sum, rank) => sum + rank.count, 0);
  byId('facts').textContent = `${stepNumbers.length} steps, ${trace.stages} stages, ${trace.ranks.length} ranks, ` +
    `${spans} spans, ${trace.messages.length / 4} messages; bubble ${(100 * trace.bubble).toFixed(1)}%`;
}

// What a test reads back: that all has come, and that something was painted.
function tell() {
  const pixels = pen.getImageData(0, 0, canvas.width, canvas.height).data;
  const colours = new Set();
  for (let i = 0; i < pixels.length; i += 4 * 7) colours.add((pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2]);
  Object.assign(document.body.dataset, {
    spans: trace.ranks.reduce((sum, rank) => sum + rank.count, 0),
    messages: trace.messages.length / 4, steps: stepNumbers.length, path: path.begin.length, colours: colours.size });
}

fill();
readColours();
listen();
if (stepNumbers.length > 2) { byId('step').value = String(stepNumbers[stepNumbers.length - 1]); showStep(); }
draw();
tell();
