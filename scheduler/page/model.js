// What the run did, as it stands in the element #trace: JSON by scheduler/trace_html.c, whose header says
// what each column is. This only unpacks it.
const byId = id => document.getElementById(id);
const trace = JSON.parse(byId('trace').textContent);
const kinds = trace.kinds;
const kindId = Object.fromEntries(kinds.map((name, index) => [name, index]));
const COMPUTE = new Set(['F', 'I', 'W', 'B'].map(name => kindId[name]));
const LABELS = { F: 'forward', I: 'input gradient', W: 'weight gradient', B: 'backward', send: 'copy',
  recv: 'receive', sync: 'embedding sync', reduce: 'reduction', gather: 'gathering', evaluate: 'evaluation' };
const LEFT = 104, RIGHT = 12, AXIS = 26, ROW = 30, TRACK = 13, CURVE = 34, GAP = 10;

// From deltas to times; each rank keeps its columns and, by track, the places of its spans.
function unpack(rank) {
  const spans = rank.spans, count = spans.begin.length;
  rank.count = count;
  rank.begin = new Float64Array(count);
  rank.end = new Float64Array(count);
  let at = 0, step = 0;
  rank.tracks = trace.tracks.map(() => []);
  rank.main = [];
  for (let i = 0; i < count; i++) {
    at += spans.begin[i];
    step += spans.step[i];
    spans.step[i] = step;
    rank.begin[i] = at;
    rank.end[i] = at + spans.duration[i];
    rank.tracks[spans.track[i]].push(i);
    const name = kinds[spans.kind[i]];
    if (name !== 'send' && name !== 'recv' && name !== 'wait' && !spans.evaluation[i]) rank.main.push(i);
  }
  rank.lists = rank.tracks.map(list => index(rank, list));
  rank.mainList = index(rank, rank.main);
  rank.chunks = [...new Set(rank.main.filter(i => COMPUTE.has(spans.kind[i])).map(i => spans.stage[i]))]
    .sort((a, b) => a - b);
  let t = 0;
  rank.curve = rank.memory.time.map(delta => (t += delta));
  rank.unfolded = false;
}

// The largest end so far grows with the place, so that what lies over a moment is found by halving.
function index(rank, list) {
  const reach = new Float64Array(list.length);
  let most = -Infinity;
  list.forEach((i, place) => { reach[place] = most = Math.max(most, rank.end[i]); });
  return { list, reach };
}

function firstVisible(reach, time) {
  let low = 0, high = reach.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (reach[middle] < time) low = middle + 1; else high = middle;
  }
  return low;
}

trace.ranks.forEach(unpack);
const path = trace.path;
{ let at = 0; for (let i = 0; i < path.begin.length; i++) path.begin[i] = (at += path.begin[i]); }

// Begin and end of every step, over all ranks.
const steps = new Map();
let first = Infinity, last = -Infinity;
for (const rank of trace.ranks) {
  for (let i = 0; i < rank.count; i++) {
    const number = rank.spans.step[i];
    const old = steps.get(number) || { begin: Infinity, end: -Infinity };
    if (kinds[rank.spans.kind[i]] !== 'recv' && kinds[rank.spans.kind[i]] !== 'wait') {
      old.begin = Math.min(old.begin, rank.begin[i]);
      old.end = Math.max(old.end, rank.end[i]);
    }
    steps.set(number, old);
    first = Math.min(first, rank.begin[i]);
    last = Math.max(last, rank.end[i]);
  }
}
if (!(first < last)) { first = 0; last = 1; }
const stepNumbers = [...steps.keys()].filter(n => steps.get(n).begin < Infinity).sort((a, b) => a - b);

const canvas = byId('canvas'), view = byId('view'), room = byId('room'), tip = byId('tip');
const pen = canvas.getContext('2d');
const state = { from: first, to: last, width: 0, height: 0, replica: 0, colours: {}, due: false };

const milliseconds = ns => {
  const size = Math.abs(ns);
  return size < 1e3 ? `${ns} ns` : size < 1e6 ? `${(ns / 1e3).toPrecision(4)} µs`
    : size < 1e9 ? `${(ns / 1e6).toPrecision(4)} ms` : `${(ns / 1e9).toPrecision(4)} s`;
};
const x = time => LEFT + (time - state.from) / (state.to - state.from) * (state.width - LEFT - RIGHT);
const timeAt = px => state.from + (px - LEFT) / (state.width - LEFT - RIGHT) * (state.to - state.from);
const shown = () => trace.ranks.filter(rank => rank.replica === state.replica);

// "3", or with slices "3.1", as plans are written: the micro-batch and the slice of its sequences.
function piece(spans, i) {
  const number = spans.microbatch[i], k = spans.slices ? spans.slices[i] : -1;
  return k > 0 ? `${Math.floor(number / k)}.${number % k}` : String(number);
}

function name(rank, i) {
  const spans = rank.spans, kind = kinds[spans.kind[i]];
  if (spans.stage[i] < 0 || spans.microbatch[i] < 0 || kind === 'wait') return LABELS[kind] || kind;
  if (COMPUTE.has(spans.kind[i])) return `${spans.stage[i]}${kind}${piece(spans, i)}`;
  const direction = spans.direction[i] === 1 ? 'B' : 'F';
  return `${spans.stage[i]}${kind.toUpperCase()}_${direction}${piece(spans, i)}`;
}
