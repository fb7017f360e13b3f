// Prometheus' HTTP API, as far as dashboards need it.

export class Prometheus {
  /** @param {string} address empty for the one that serves this page */
  constructor(address) {
    this.address = address.replace(/\/$/, '');
  }

  async ask(path, parameters) {
    const answer = await fetch(`${this.address}/api/v1/${path}?${new URLSearchParams(parameters)}`);
    const { status, data, error, warnings } = await answer.json();
    if (status !== 'success') {
      throw new Error(`${parameters.query ?? path}: ${error}`);
    }
    if (warnings?.length) {
      console.warn(`${parameters.query ?? path}: ${warnings.join('; ')}`);
    }
    return data;
  }

  /** Series as {labels, points: [[time, value], …]}, one point each. */
  async instant(query, time) {
    const { result } = await this.ask('query', { query, time });
    return result.map(({ metric, value }) => ({ labels: metric, points: [point(value)] }));
  }

  /** Series as {labels, points: [[time, value], …]}. */
  async range(query, { start, end, step }) {
    const { result } = await this.ask('query_range', { query, start, end, step });
    return result.map(({ metric, values }) => ({ labels: metric, points: values.map(point) }));
  }

  /** The values of a variable: `label_values(SELECTOR, LABEL)`. */
  async labelValues(query, start, end) {
    const found = /^label_values\((.+), *(\w+)\)$/s.exec(query);
    if (!found) {
      throw new Error(`the preview does not know the variable ${query}`);
    }
    return this.ask(`label/${found[2]}/values`, { 'match[]': found[1], start, end });
  }
}

function point([time, value]) {
  return [time, Number(value.replace('+Inf', 'Infinity').replace('-Inf', '-Infinity'))];
}
