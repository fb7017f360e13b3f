// The page: which dashboard, which values of its variables, which time; then all panels, again and again.
import './page.css';
import admission from '../../grafana/appwrapper-admission.json';
import missing from '../../grafana/appwrapper-missing.json';
import overview from '../../grafana/appwrapper-overview.json';
import runtime from '../../grafana/appwrapper-runtime.json';
import shards from '../../grafana/appwrapper-shards.json';
import { draw } from './panels.js';
import { Prometheus } from './prometheus.js';
import { ALL, substitute, variables } from './variables.js';

const dashboards = [overview, missing, shards, admission, runtime];
const ranges = { '5 minutes': 300, '15 minutes': 900, '1 hour': 3600, '6 hours': 21600 };
const parameters = new URLSearchParams(location.search);
const prometheus = new Prometheus(parameters.get('prometheus') ?? '');
const scrapeInterval = Number(parameters.get('interval') ?? 15);
const state = { range: Number(parameters.get('range') ?? 900), chosen: {} };

function element(name, attributes = {}, ...children) {
  const made = Object.assign(document.createElement(name), attributes);
  made.append(...children);
  return made;
}

function current() {
  return dashboards.find(({ uid }) => `#${uid}` === location.hash) ?? overview;
}

function choice(label, options, value, chosen) {
  const select = element('select', { onchange: () => chosen(select.value) });
  for (const [text, key] of options) {
    select.append(element('option', { value: key, selected: String(key) === String(value) }, text));
  }
  return element('label', {}, `${label} `, select);
}

async function header(dashboard, end) {
  const bar = document.querySelector('header');
  const links = dashboards.map(({ uid, title }) => {
    const link = element('a', { href: `#${uid}` }, title);
    if (uid === dashboard.uid) {
      link.setAttribute('aria-current', 'page');
    }
    return link;
  });
  const choices = [];
  for (const { name, label, query } of variables(dashboard)) {
    const values = await prometheus.labelValues(query, end - state.range, end);
    const options = [['All', ALL], ...values.map((value) => [value, value])];
    choices.push(choice(label, options, state.chosen[name] ?? ALL, (value) => {
      state.chosen[name] = value;
      show();
    }));
  }
  const time = choice('Last', Object.entries(ranges), state.range, (value) => {
    state.range = Number(value);
    show();
  });
  bar.replaceChildren(...links, ...choices, time);
}

/** One panel: its frame, its queries, its picture. What goes wrong is shown in it and logged. */
async function panel(definition, end) {
  const { x, y, w, h } = definition.gridPos;
  const body = element('div', { className: 'body' });
  const frame = element('section', { className: definition.type, title: definition.description ?? '' },
    element('h2', {}, definition.title), body);
  frame.style.gridArea = `${y + 1} / ${x + 1} / span ${h} / span ${w}`;
  frame.dataset.panel = definition.id;
  const picture = async () => {
    try {
      const step = Math.max(scrapeInterval, Math.ceil(state.range / 300));
      const time = { start: end - state.range, end, step, scrapeInterval };
      const answers = await Promise.all((definition.targets ?? []).map(async (target) => {
        const query = substitute(target.expr, state.chosen, time);
        const series = target.instant ? await prometheus.instant(query, end) : await prometheus.range(query, time);
        return { target, series };
      }));
      draw(definition, answers, time, frame, body);
      frame.dataset.state = 'drawn';
    } catch (error) {
      console.error(`panel ${definition.title}: ${error.message}`);
      body.replaceChildren(element('div', { className: 'fault' }, error.message));
      frame.dataset.state = 'failed';
    }
  };
  return { frame, picture };
}

let round = 0;

async function show() {
  const mine = ++round;
  const dashboard = current();
  const end = Math.floor(Date.now() / 1000);
  document.title = dashboard.title;
  try {
    await header(dashboard, end);
    const panels = await Promise.all(dashboard.panels.map((definition) => panel(definition, end)));
    if (mine !== round) {
      return;
    }
    document.querySelector('main').replaceChildren(...panels.map(({ frame }) => frame));
    // After they are in the page: a chart is as large as its frame.
    await Promise.all(panels.map(({ picture }) => picture()));
    document.body.dataset.drawn = dashboard.uid;
  } catch (error) {
    console.error(error.message);
    document.querySelector('main').replaceChildren(element('div', { className: 'fault' }, error.message));
  }
}

addEventListener('hashchange', show);
setInterval(show, 1000 * Number(parameters.get('refresh') ?? 15));
show();
