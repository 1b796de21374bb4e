// The picture: a row a stage, its tracks and its memory below, drawn anew whenever what is shown changes.

// Where each rank and track lies; called before drawing, because tracks fold.
function layOut() {
  let y = AXIS + 6;
  const withMemory = byId('memory').checked;
  for (const rank of shown()) {
    rank.y = y;
    y += ROW;
    rank.rows = [];
    if (rank.unfolded) {
      rank.lists.forEach((list, track) => {
        if (list.list.length > 0) { rank.rows.push({ track, list, y }); y += TRACK; }
      });
    }
    rank.curveY = withMemory && rank.curve.length > 0 ? y + 2 : null;
    if (rank.curveY !== null) y += CURVE;
    rank.bottom = y;
    y += GAP;
  }
  room.style.height = `${y}px`;
  view.style.height = `${y + 8}px`; // the style sheet says how much at most
}

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const key of ['back', 'text', 'soft', 'line', 'row', 'path', 'arrow', 'memory', 'ink', ...kinds]) {
    state.colours[key] = style.getPropertyValue(`--${key}`).trim() || '#888888';
  }
}

// Spans narrower than a pixel are drawn once a pixel.
function drawList(rank, indexed, top, height, numbers) {
  const { list, reach } = indexed, spans = rank.spans;
  let drawnTo = -1, colour = null;
  for (let place = firstVisible(reach, state.from); place < list.length; place++) {
    const i = list[place];
    if (rank.begin[i] > state.to) break;
    const left = Math.max(x(rank.begin[i]), LEFT), right = Math.min(x(rank.end[i]), state.width - RIGHT);
    if (right < drawnTo + 0.5 && right - left < 0.5 && spans.kind[i] === colour) continue;
    colour = spans.kind[i];
    const width = Math.max(right - left - (right - left > 3 ? 0.6 : 0), 0.5);
    const chunk = COMPUTE.has(colour) ? rank.chunks.indexOf(spans.stage[i]) : 0;
    pen.globalAlpha = chunk > 0 ? 1 - 0.6 * chunk / rank.chunks.length : 1;
    pen.fillStyle = state.colours[kinds[colour]];
    pen.fillRect(left, top, width, height);
    pen.globalAlpha = 1;
    drawnTo = Math.max(right, left + 0.5);
    if (numbers && COMPUTE.has(colour) && spans.microbatch[i] >= 0) {
      const text = width > 34 ? name(rank, i) : piece(spans, i);
      if (width > 6.5 * text.length + 3) {
        pen.fillStyle = state.colours.ink;
        pen.textAlign = 'center';
        pen.fillText(text, left + width / 2, top + height / 2 + 4);
      }
    }
  }
}

function drawCurve(rank) {
  const peak = rank.memory.together.reduce((most, bytes) => Math.max(most, bytes), 0);
  if (peak <= 0) return;
  const base = rank.curveY + CURVE - 6, tall = CURVE - 10;
  let lastX = LEFT, bytes = 0, begun = false;
  pen.beginPath();
  pen.moveTo(LEFT, base);
  for (let i = 0; i < rank.curve.length; i++) {
    const px = x(rank.curve[i]);
    if (px > state.width - RIGHT) break;
    if (px >= LEFT) {
      if (!begun) { pen.lineTo(LEFT, base - tall * bytes / peak); begun = true; }
      pen.lineTo(px, base - tall * bytes / peak);
      pen.lineTo(px, base - tall * rank.memory.together[i] / peak);
      lastX = px;
    }
    bytes = rank.memory.together[i];
  }
  const end = Math.max(lastX, Math.min(x(last), state.width - RIGHT));
  pen.lineTo(end, base - tall * bytes / peak);
  pen.lineTo(end, base);
  pen.closePath();
  pen.globalAlpha = 0.35;
  pen.fillStyle = state.colours.memory;
  pen.fill();
  pen.globalAlpha = 1;
  pen.fillStyle = state.colours.soft;
  pen.textAlign = 'left';
  pen.fillText(`${(peak / 1048576).toFixed(1)} MiB`, 8, rank.curveY + 14);
}

function drawRank(rank) {
  pen.fillStyle = state.colours.row;
  pen.fillRect(LEFT, rank.y, state.width - LEFT - RIGHT, ROW);
  const waits = trace.tracks.indexOf('wait');
  drawList(rank, rank.lists[waits], rank.y, ROW, false);
  drawList(rank, rank.mainList, rank.y, ROW, true);
  pen.textAlign = 'left';
  pen.fillStyle = state.colours.text;
  pen.fillText(`${rank.unfolded ? '▾' : '▸'} stage ${rank.stage}`, 8, rank.y + 13);
  pen.fillStyle = state.colours.soft;
  pen.fillText(`rank ${rank.rank}, ${(100 * rank.bubble).toFixed(1)}%`, 8, rank.y + 26);
  for (const row of rank.rows) {
    pen.fillStyle = state.colours.soft;
    pen.textAlign = 'left';
    pen.fillText(trace.tracks[row.track], 20, row.y + 10);
    drawList(rank, row.list, row.y + 1, TRACK - 2, false);
  }
  if (rank.curveY !== null) drawCurve(rank);
}

function drawAxis() {
  const span = state.to - state.from;
  let tick = Math.pow(10, Math.floor(Math.log10(span / 8)));
  if (span / tick > 28) tick *= 5; else if (span / tick > 14) tick *= 2;
  const origin = originOf();
  pen.textAlign = 'center';
  for (let n = Math.ceil((state.from - origin) / tick); origin + n * tick <= state.to; n++) {
    const px = x(origin + n * tick);
    pen.fillStyle = state.colours.line;
    pen.fillRect(px, AXIS - 6, 1, state.height);
    pen.fillStyle = state.colours.soft;
    pen.fillText(n === 0 ? '0' : milliseconds(n * tick).replace(/\.?0+ /, ' '), px, 14);
  }
}

// Times count from the begin of the chosen step, or of all.
function originOf() {
  const chosen = byId('step').value;
  return chosen !== '' && steps.has(Number(chosen)) ? steps.get(Number(chosen)).begin : first;
}

function drawSteps() {
  pen.strokeStyle = state.colours.soft;
  pen.setLineDash([3, 3]);
  for (const number of stepNumbers) {
    const px = x(steps.get(number).begin);
    if (px < LEFT || px > state.width - RIGHT) continue;
    pen.beginPath();
    pen.moveTo(px, AXIS - 6);
    pen.lineTo(px, state.height);
    pen.stroke();
    if (stepNumbers.length * 60 * (state.to - state.from) < state.width * (last - first) * 3 || state.to - state.from <
        10 * (steps.get(number).end - steps.get(number).begin)) {
      pen.textAlign = 'left';
      pen.fillStyle = state.colours.soft;
      pen.fillText(`step ${number}`, px + 4, AXIS);
    }
  }
  pen.setLineDash([]);
}

function drawMessages() {
  const flat = trace.messages, seen = [];
  for (let at = 0; at < flat.length; at += 4) {
    const sender = trace.ranks[flat[at]], receiver = trace.ranks[flat[at + 2]];
    if (sender.replica !== state.replica) continue;
    const from = sender.begin[flat[at + 1]], to = receiver.end[flat[at + 3]];
    if (to >= state.from && from <= state.to && !sender.spans.evaluation[flat[at + 1]]) {
      seen.push([sender, from, receiver, to]);
    }
    if (seen.length > 3000) return; // they would hide the picture
  }
  pen.strokeStyle = state.colours.arrow;
  pen.globalAlpha = Math.max(0.15, Math.min(0.8, 120 / (seen.length + 1)));
  for (const [sender, from, receiver, to] of seen) {
    const down = receiver.y > sender.y;
    const y0 = down ? sender.y + ROW : sender.y, y1 = down ? receiver.y : receiver.y + ROW;
    pen.beginPath();
    pen.moveTo(x(from), y0);
    pen.lineTo(x(to), y1);
    pen.moveTo(x(to) - 3, y1 + (down ? -5 : 5));
    pen.lineTo(x(to), y1);
    pen.lineTo(x(to) + 1, y1 + (down ? -6 : 6));
    pen.stroke();
  }
  pen.globalAlpha = 1;
}

function drawPath() {
  pen.strokeStyle = state.colours.path;
  pen.lineWidth = 2;
  for (let i = 0; i < path.begin.length; i++) {
    const rank = trace.ranks[path.rank[i]], end = path.begin[i] + path.duration[i];
    if (end < state.from || path.begin[i] > state.to || rank.replica !== state.replica) continue;
    const left = x(path.begin[i]), right = x(end);
    if (path.from[i] >= 0) {
      const other = trace.ranks[path.from[i]];
      if (other.replica !== state.replica) continue;
      const down = rank.y > other.y;
      pen.beginPath();
      pen.moveTo(left, down ? other.y + ROW : other.y);
      pen.lineTo(right, down ? rank.y : rank.y + ROW);
      pen.stroke();
    } else if (right - left < 4) {
      pen.fillStyle = state.colours.path;
      pen.fillRect(left, rank.y - 2, Math.max(right - left, 0.7), 2);
    } else {
      pen.strokeRect(left + 1, rank.y + 1, right - left - 2, ROW - 2);
    }
  }
  pen.lineWidth = 1;
}

function draw() {
  state.due = false;
  layOut();
  const scale = window.devicePixelRatio || 1;
  state.width = Math.max(view.clientWidth, 300);
  state.height = Math.max(view.clientHeight, 100);
  canvas.width = Math.round(state.width * scale);
  canvas.height = Math.round(state.height * scale);
  canvas.style.width = `${state.width}px`;
  canvas.style.height = `${state.height}px`;
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.fillStyle = state.colours.back;
  pen.fillRect(0, 0, state.width, state.height);
  pen.font = '11px sans-serif';
  drawAxis();
  pen.save();
  pen.beginPath();
  pen.rect(0, AXIS, state.width, state.height - AXIS);
  pen.clip();
  pen.translate(0, -view.scrollTop);
  const top = view.scrollTop, bottom = top + state.height;
  for (const rank of shown()) if (rank.bottom >= top && rank.y <= bottom) drawRank(rank);
  pen.beginPath();
  pen.rect(LEFT, top, state.width - LEFT - RIGHT, state.height);
  pen.clip();
  if (byId('messages').checked) drawMessages();
  if (byId('path').checked) drawPath();
  pen.restore();
  drawSteps();
}
