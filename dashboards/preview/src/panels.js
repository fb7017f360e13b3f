// Draws one panel into its frame.
import { formattedValueToString, getValueFormat } from '@grafana/data';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { check } from './known.js';

const palette = ['#73bf69', '#f2cc0c', '#8ab8ff', '#ff780a', '#f2495c', '#5794f2', '#b877d9', '#705da0', '#37872d', '#fade2a',
  '#447ebc', '#c15c17', '#890f02', '#0a437c', '#6d1f62', '#584477'];
const named = { green: '#2f7d3a', red: '#b52b37' };

/** Draws the answers of a panel's targets. */
export function draw(panel, answers, time, frame, body) {
  check(panel);
  const drawers = { row: () => {}, stat, table, heatmap, timeseries };
  drawers[panel.type](panel, answers, time, frame, body);
}

function text(panel, value) {
  const { unit, decimals } = panel.fieldConfig.defaults;
  return Number.isFinite(value) ? formattedValueToString(getValueFormat(unit)(value, decimals)) : '–';
}

/** `{{label}}` in a legend is the value of that label. */
function legend({ legendFormat }, { labels }) {
  return legendFormat.replace(/\{\{ *(\w+) *\}\}/g, (_, name) => labels[name] ?? '');
}

function entries(answers) {
  return answers.flatMap(({ target, series }) => series.map((one) => ({ name: legend(target, one), ...one })));
}

function say(body, words) {
  const note = document.createElement('div');
  note.className = 'empty';
  note.textContent = words;
  body.replaceChildren(note);
}

function threshold(panel, value) {
  const steps = panel.fieldConfig.defaults.thresholds.steps.filter((step) => step.value === null || value >= step.value);
  return named[steps.at(-1)?.color] ?? steps.at(-1)?.color;
}

function stat(panel, answers, _time, _frame, body) {
  const all = entries(answers);
  if (!all.length) {
    return say(body, 'No data');
  }
  const box = document.createElement('div');
  box.className = 'figures';
  for (const { name, points } of all) {
    const value = points.at(-1)[1];
    const cell = document.createElement('div');
    const number = document.createElement('b');
    number.textContent = text(panel, value);
    cell.append(name, number);
    if (panel.options.colorMode === 'background') {
      cell.style.background = threshold(panel, value);
    }
    box.append(cell);
  }
  body.replaceChildren(box);
}

function table(panel, answers, _time, _frame, body) {
  // Grafana's "merge": rows of several targets that agree in their common labels become one.
  const rows = [];
  for (const { target, series } of answers) {
    for (const { labels, points } of series) {
      const { __name__: _, ...shown } = labels;
      const column = answers.length > 1 ? `Value #${target.refId}` : 'Value';
      const fits = (row) => Object.entries(shown).every(([key, value]) => !(key in row) || row[key] === value);
      const row = rows.find((row) => !(column in row) && Object.keys(shown).some((key) => key in row) && fits(row));
      Object.assign(row ?? rows[rows.push({}) - 1], shown, { [column]: text(panel, points.at(-1)[1]) });
    }
  }
  if (!rows.length) {
    return say(body, 'No data');
  }
  const columns = [...new Set(rows.flatMap(Object.keys))].sort((a, b) => a.startsWith('Value') - b.startsWith('Value'));
  const made = document.createElement('table');
  const line = (cells, name) => {
    const tr = made.insertRow();
    for (const cell of cells) {
      const td = document.createElement(name);
      td.textContent = cell;
      tr.append(td);
    }
  };
  line(columns, 'th');
  rows.forEach((row) => line(columns.map((column) => row[column] ?? ''), 'td'));
  body.replaceChildren(made);
}

/** All times of the range, and for each series a value or null at each of them. */
function aligned(all, { start, end, step }) {
  const times = [];
  for (let at = start; at <= end; at += step) {
    times.push(at);
  }
  const columns = all.map(({ points }) => {
    const values = new Map(points.map(([at, value]) => [Math.round((at - start) / step), value]));
    return times.map((_, index) => (Number.isFinite(values.get(index)) ? values.get(index) : null));
  });
  return [times, ...columns];
}

function chart(panel, body, data, options) {
  const axis = { stroke: '#a3a6ad', grid: { stroke: '#2a2d33', width: 1 }, ticks: { stroke: '#2a2d33', width: 1 } };
  body.replaceChildren();
  new uPlot({
    width: Math.max(60, body.clientWidth),
    height: Math.max(60, body.clientHeight - 4),
    legend: { show: false },
    axes: [axis, { ...axis, size: 70, values: (_, ticks) => ticks.map((tick) => text(panel, tick)) }],
    ...options,
  }, data, body);
}

function timeseries(panel, answers, time, frame, body) {
  const all = entries(answers);
  frame.querySelector('.legend')?.remove();
  if (!all.length) {
    return say(body, 'No data');
  }
  const custom = panel.fieldConfig.defaults.custom;
  const names = document.createElement('div');
  names.className = 'legend';
  all.forEach(({ name, points }, index) => {
    const entry = document.createElement('span');
    const mark = document.createElement('i');
    mark.style.background = palette[index % palette.length];
    entry.append(mark, `${name}: ${text(panel, points.at(-1)[1])}`);
    names.append(entry);
  });
  frame.append(names);
  const data = aligned(all, time);
  const stacked = custom.stacking.mode === 'normal';
  if (stacked) {
    for (let column = 2; column < data.length; column += 1) {
      data[column] = data[column].map((value, index) => (value ?? 0) + (data[column - 1][index] ?? 0));
    }
  }
  const lines = custom.thresholdsStyle.mode === 'line'
    ? panel.fieldConfig.defaults.thresholds.steps.filter(({ value }) => value !== null)
    : [];
  chart(panel, body, data, {
    scales: {
      y: {
        // A straight line at 0 needs room too, and a line of a threshold only if something comes near it.
        range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 0, 1e-9) * 1.1 || 1],
      },
    },
    series: [{}, ...all.map((_, index) => ({
      stroke: palette[index % palette.length],
      width: custom.lineWidth,
      fill: custom.fillOpacity ? `${palette[index % palette.length]}30` : undefined,
      spanGaps: custom.spanNulls,
      points: { show: (_, series) => data[series].filter((value) => value !== null).length === 1 },
    }))],
    hooks: {
      draw: [(plot) => {
        for (const { value, color } of lines) {
          const y = plot.valToPos(value, 'y', true);
          if (y >= plot.bbox.top) {
            plot.ctx.strokeStyle = named[color] ?? color;
            plot.ctx.strokeRect(plot.bbox.left, y, plot.bbox.width, 0);
          }
        }
      }],
    },
  });
}

function heatmap(panel, answers, time, _frame, body) {
  const bounds = ({ labels }) => Number(labels.le.replace('+Inf', 'Infinity'));
  const all = answers.flatMap(({ series }) => series).sort((a, b) => bounds(a) - bounds(b));
  if (!all.length) {
    return say(body, 'No data');
  }
  const [times, ...cumulative] = aligned(all, time);
  const counts = cumulative.map((row, index) => row.map((value, at) => (value ?? 0) - (cumulative[index - 1]?.[at] ?? 0)));
  const most = Math.max(...counts.flat(), 1e-9);
  const labels = all.map(({ labels }) => (labels.le === '+Inf' ? '∞' : text(panel, Number(labels.le))));
  chart(panel, body, [times, times.map(() => null)], {
    scales: { y: { range: () => [0, counts.length] } },
    axes: [
      { stroke: '#a3a6ad' },
      { stroke: '#a3a6ad', size: 70, splits: () => labels.map((_, index) => index + 1), values: () => labels },
    ],
    series: [{}, {}],
    hooks: {
      draw: [(plot) => {
        const width = plot.bbox.width / times.length;
        counts.forEach((row, index) => row.forEach((count, at) => {
          if (count > 0) {
            plot.ctx.fillStyle = `rgba(255, 152, 48, ${0.15 + (0.85 * count) / most})`;
            const top = plot.valToPos(index + 1, 'y', true);
            plot.ctx.fillRect(plot.bbox.left + at * width, top, width + 1, plot.valToPos(index, 'y', true) - top);
          }
        }));
      }],
    },
  });
}
