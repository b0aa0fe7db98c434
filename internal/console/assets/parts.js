// The parts of a page: each has an element, and an update that shows the newest sample.

import * as samples from './samples.js';

export function element(name, properties = {}, ...children) {
  const e = Object.assign(document.createElement(name), properties);
  e.append(...children);
  return e;
}

// facts is a list of names and values. rows returns [name, text, class] for each.
export function facts(title, rows, wide = false) {
  const list = element('dl');
  const section = element('section', {className: wide ? 'wide' : ''}, element('h2', {textContent: title}), list);
  return {
    element: section,
    update() {
      list.replaceChildren(...rows().flatMap(([name, text, kind = '']) =>
        [element('dt', {textContent: name}), element('dd', {textContent: text, className: kind})]));
    },
  };
}

// bar is a row of parts of a whole, in order. parts returns {name, value} for each.
export function bar(title, parts, format, note) {
  const picture = element('div', {className: 'bar', role: 'img'});
  const legend = element('ul', {className: 'legend'});
  const text = element('p', {className: 'faint'});
  return {
    element: element('section', {className: 'wide'}, element('h2', {textContent: title}), picture, legend, text),
    update() {
      const all = parts();
      const whole = all.reduce((sum, p) => sum + p.value, 0);
      picture.setAttribute('aria-label', all.map(p => p.name + ' ' + format(p.value)).join(', '));
      picture.replaceChildren(...all.map((p, i) => {
        const piece = element('span', {className: 'c' + i % 6});
        piece.style.flexGrow = whole > 0 ? p.value / whole : 0;
        return piece;
      }));
      legend.replaceChildren(...all.map((p, i) => element('li', {}, element('span', {className: 'swatch c' + i % 6}), p.name + ' ' + format(p.value))));
      text.textContent = note();
    },
  };
}

// most is the number of rows that a table shows: more are found by their texts.
const most = 100;

// table has a head, and the rows that rows returns, as lists of texts, of [text, class], or of
// elements. It is drawn again only if they have changed.
export function table(title, head, rows) {
  const body = element('tbody'), more = element('p', {className: 'faint', hidden: true});
  const filter = element('input', {type: 'search', ariaLabel: 'rows of ' + title + ' with this text', placeholder: 'only rows with …', hidden: true});
  const section = element('section', {className: 'wide'}, element('h2', {textContent: title}), filter,
    element('div', {className: 'scroll', tabIndex: 0, role: 'region', ariaLabel: title}, element('table', {},
      element('thead', {}, element('tr', {}, ...head.map(name => element('th', {textContent: name, scope: 'col'})))), body)), more);
  const textOf = cell => cell instanceof Node ? cell.textContent : Array.isArray(cell) ? cell[0] : cell;
  let drawn;
  const update = () => {
    const all = rows();
    const found = all.filter(row => row.some(cell => textOf(cell).includes(filter.value)));
    const shown = found.slice(0, most);
    section.hidden = all.length === 0;
    filter.hidden = all.length <= 10;
    more.hidden = found.length <= most;
    more.textContent = `and ${found.length - most} more`;
    const texts = JSON.stringify(shown.map(row => row.map(textOf)));
    if (texts === drawn) return;
    drawn = texts;
    const focused = body.contains(document.activeElement) ? document.activeElement.textContent : null;
    body.replaceChildren(...shown.map(row => element('tr', {}, ...row.map(cell => {
      if (cell instanceof Node) return element('td', {}, cell);
      const [text, kind] = Array.isArray(cell) ? cell : [cell, ''];
      return element('td', {textContent: text, className: kind});
    }))));
    if (focused !== null) [...body.querySelectorAll('button')].find(b => b.textContent === focused)?.focus();
  };
  filter.addEventListener('input', update);
  return {element: section, update};
}

const dashes = [[], [8, 4], [2, 3], [12, 3, 2, 3], [5, 5], [1, 2]];
const styles = ['', 'dashed', 'dotted', 'dashed', 'dashed', 'dotted'];

// chart shows courses over time. series has {label, of, optional} for each: of returns a value for
// each of times, by default those of the samples. A chart that is stacked shows them on top of each
// other. What the lines show is in words below them, with the newest values, or with a series' value. With
// across, the values of times are not times: across writes them, and their scale is logarithmic.
export function chart(title, format, series, {stacked = false, top, times = samples.times, across} = {}) {
  const box = element('div');
  box.setAttribute('aria-hidden', 'true');
  const legend = element('ul', {className: 'legend'});
  const figure = element('figure', {}, element('h2', {textContent: title}), box, legend);
  let plot, drawn;
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const build = (shown, data) => {
    plot?.destroy();
    const ink = colour('--faint'), grid = {stroke: colour('--grid'), width: 1};
    const lines = shown.map((s, i) => ({
      label: s.label, stroke: colour('--s' + i % 6), width: 2, dash: stacked ? [] : dashes[i % 6],
      points: {show: s.points ?? false, size: 12}, spanGaps: across !== undefined,
      fill: stacked ? colour('--s' + i % 6) : undefined,
    }));
    plot = new uPlot({
      width: box.clientWidth || 300, height: 170, legend: {show: false}, cursor: {show: false},
      series: [{}, ...(stacked ? lines.reverse() : lines)],
      axes: [{stroke: ink, grid, ticks: grid, ...(across && {values: (_, all) => all.map(v => v === null ? '' : across(v))})}, {stroke: ink, grid, ticks: grid, size: 70, values: (_, all) => all.map(format)}],
      scales: {x: across ? {time: false, distr: 3, log: 2} : {}, y: {range: (_, least, greatest) => [0, top ?? Math.max((greatest ?? 0) * 1.05, 1e-9)]}},
    }, data, box);
  };
  new ResizeObserver(() => {
    if (box.clientWidth > 0) plot?.setSize({width: box.clientWidth, height: 170});
  }).observe(box);
  return {
    element: figure,
    restyle() { drawn = undefined; },
    update() {
      const courses = series().map(s => ({...s, course: s.of()})).filter(s => !s.optional || s.course.some(v => v));
      figure.hidden = courses.length === 0;
      if (figure.hidden) return;
      legend.replaceChildren(...courses.map((s, i) => element('li', {},
        element('span', {className: 'swatch c' + i % 6 + ' ' + (stacked ? '' : styles[i % 6])}),
        s.label + ' ' + format(s.value ?? s.course[s.course.length - 1]))));
      let data = courses.map(s => s.course);
      if (stacked) {
        for (let i = 1; i < data.length; i++) data[i] = data[i].map((v, j) => v === null ? null : v + (data[i - 1][j] ?? 0));
        data.reverse();
      }
      data = [times(), ...data];
      const names = courses.map(s => s.label).join();
      if (drawn !== names) {
        drawn = names;
        build(courses, data);
      } else {
        plot.setData(data);
      }
    },
  };
}
