// What the preview draws. A panel that asks for anything else is refused, so that this page and Grafana cannot part silently.

const stacking = ['none', 'normal'];
const known = {
  row: { top: ['collapsed', 'panels'] },
  stat: {
    options: ['colorMode', 'graphMode', 'reduceOptions', 'textMode'],
    defaults: ['color', 'decimals', 'thresholds', 'unit'],
  },
  table: {
    top: ['transformations'],
    options: ['footer', 'showHeader'],
    defaults: ['color', 'thresholds', 'unit'],
  },
  heatmap: {
    options: ['calculate', 'color', 'tooltip', 'yAxis'],
    defaults: ['color', 'thresholds', 'unit'],
  },
  timeseries: {
    options: ['legend', 'tooltip'],
    defaults: ['color', 'custom', 'thresholds', 'unit'],
    custom: ['drawStyle', 'fillOpacity', 'lineWidth', 'showPoints', 'spanNulls', 'stacking', 'thresholdsStyle'],
  },
};
const everywhere = ['datasource', 'description', 'fieldConfig', 'gridPos', 'id', 'options', 'targets', 'title', 'type'];

/** Throws if the panel asks for something that is not drawn here. */
export function check(panel) {
  const rules = known[panel.type];
  if (!rules) {
    throw new Error(`the preview does not know panels of type ${panel.type}`);
  }
  const only = (what, given, allowed) => {
    const unknown = Object.keys(given ?? {}).filter((key) => !allowed.includes(key));
    if (unknown.length) {
      throw new Error(`the preview does not know ${what} ${unknown.join(', ')} of a ${panel.type}`);
    }
  };
  const defaults = panel.fieldConfig?.defaults;
  only('', panel, [...everywhere, ...(rules.top ?? [])]);
  only('options', panel.options, rules.options ?? []);
  only('defaults', defaults, rules.defaults ?? []);
  only('custom', defaults?.custom, rules.custom ?? []);
  const mode = defaults?.custom?.stacking?.mode ?? 'none';
  if (!stacking.includes(mode) || panel.fieldConfig?.overrides?.length) {
    throw new Error(`the preview does not know stacking ${mode}, nor overrides`);
  }
  const transformations = (panel.transformations ?? []).map(({ id }) => id).filter((id) => !['merge', 'organize'].includes(id));
  if (transformations.length) {
    throw new Error(`the preview does not know transformations ${transformations.join(', ')}`);
  }
}
