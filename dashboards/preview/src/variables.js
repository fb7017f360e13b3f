// Variables of a dashboard, and Grafana's own, put into a query.

/** The choice that stands for every value. */
export const ALL = '$__all';

/** The variables that a person chooses. */
export function variables(dashboard) {
  return dashboard.templating.list.filter(({ type }) => type !== 'datasource').map((variable) => {
    if (variable.type !== 'query') {
      throw new Error(`the preview does not know variables of type ${variable.type}`);
    }
    return { name: variable.name, label: variable.label, query: variable.query.query };
  });
}

/** A query with everything put in. A name that is left is an error. */
export function substitute(expression, chosen, { start, end, step, scrapeInterval }) {
  const own = {
    __rate_interval: `${Math.max(4 * scrapeInterval, step + scrapeInterval)}s`,
    __range: `${end - start}s`,
    __interval: `${step}s`,
  };
  return expression.replace(/\$(\w+)/g, (_, name) => {
    if (name in own) {
      return own[name];
    }
    const value = chosen[name] ?? ALL;
    return value === ALL ? '.*' : value.replace(/[\\^$.*+?()[\]{}|]/g, '\\\\$&');
  });
}
