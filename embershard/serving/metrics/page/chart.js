// Charts of the last minutes, drawn as SVG.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 600;
const HEIGHT = 100;
const GAP_SECONDS = 5; // Points farther apart are not joined.
const SPANS = [60, 120, 300, 600];

function make(name, className, parent, namespace) {
  const element = namespace ? document.createElementNS(namespace, name) : document.createElement(name);
  if (className) element.setAttribute("class", className);
  parent.append(element);
  return element;
}

/** The smallest of 1, 2, 5, 10, 20, ... that is at least the value. */
export function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((step) => step * power >= value * (1 - 1e-9)) * power;
}

/** Number of seconds to show: the shortest span that contains all times. */
export function spanOf(times) {
  const age = times.length ? times.at(-1) - times[0] : 0;
  return SPANS.find((span) => span >= age) ?? SPANS.at(-1);
}

/** A scale from 0 to a round number of at least `least`. Values above `most` are drawn at the top. */
export function linear(values, least = 0, most = Infinity) {
  const top = Math.min(ceiling(Math.max(least, ...values)), most);
  return { top, marks: [top / 2, top], share: (value) => value / top };
}

/** A logarithmic scale with a mark at each power of ten, for times. */
export function logarithmic(values) {
  const seen = values.filter((value) => value > 0);
  const low = seen.length ? Math.floor(Math.log10(Math.min(...seen))) : -4;
  const high = seen.length ? Math.max(low + 1, Math.ceil(Math.log10(Math.max(...seen)))) : -2;
  return {
    top: Number(`1e${high}`), // Exact, unlike 10 ** high.
    marks: Array.from({ length: high - low + 1 }, (_, place) => Number(`1e${low + place}`)),
    share: (value) => (value > 0 ? (Math.log10(value) - low) / (high - low) : 0),
  };
}

/** The SVG path of one series, which nulls and gaps interrupt. */
export function trace(times, values, start, span, share) {
  let path = "";
  let last = null;
  for (const [place, value] of values.entries()) {
    if (value === null || times[place] < start) continue;
    const x = (((times[place] - start) / span) * WIDTH).toFixed(1);
    const y = (HEIGHT * (1 - Math.min(Math.max(share(value), 0), 1))).toFixed(1);
    const joined = last === place - 1 && times[place] - times[last] < GAP_SECONDS;
    path += joined ? `L${x} ${y}` : `M${x} ${y}h0`;
    last = place;
  }
  return path;
}

/** The points of a trace without a line to another point. They are drawn as dots. */
export function isolated(path) {
  return path.split(/(?=M)/).filter((run) => !run.includes("L")).join("");
}

export class Chart {
  /** series: [{key, name}]; show: formats a number; scale: makes the scale of the shown values. */
  constructor(parent, { title, note = "", series, show, scale = linear }) {
    Object.assign(this, { series, show, scale });
    this.figure = make("figure", "", parent);
    const caption = make("figcaption", "", this.figure);
    const heading = make("h2", "", caption);
    heading.append(`${title} `);
    make("small", "", heading).append(note);
    const legend = make("ul", "legend", caption);
    const plot = make("div", "plot", this.figure);
    this.svg = make("svg", "", plot, SVG);
    this.svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.svg.setAttribute("role", "img");
    this.svg.setAttribute("aria-label", `${title}, the last minutes`);
    this.line("grid", 0, HEIGHT, WIDTH, HEIGHT);
    this.marks = make("g", "", this.svg, SVG);
    this.cursor = this.line("cursor", 0, 0, 0, HEIGHT);
    this.labels = make("div", "labels", plot);
    const axis = make("div", "axis", this.figure);
    this.ends = [make("span", "", axis), make("span", "", axis)];
    make("span", "", axis).append("now");
    this.lines = series.map(({ key, name }, place) => {
      const item = make("li", "", legend);
      make("i", `s${place}`, item);
      item.append(`${name} `);
      const figure = make("b", "", item);
      figure.dataset.series = key;
      const [path, dots] = ["trace", "dots"].map((kind) => make("path", `${kind} s${place}`, this.svg, SVG));
      return { key, figure, path, dots };
    });
  }

  line(className, x1, y1, x2, y2, parent = this.svg) {
    const line = make("line", className, parent, SVG);
    Object.entries({ x1, y1, x2, y2 }).forEach(([name, value]) => line.setAttribute(name, value));
    return line;
  }

  /** Draws a grid line and a label for each value. `share` maps a value to 0..1. */
  mark(values, share) {
    this.marks.replaceChildren();
    this.labels.replaceChildren();
    for (const value of values) {
      const y = HEIGHT * (1 - share(value));
      this.line("grid", 0, y, WIDTH, y, this.marks);
      if (y === HEIGHT && values.length > 3) continue; // Would cover the label above.
      const label = make("span", "", this.labels);
      label.append(this.show(value));
      label.style.top = `min(${y}%, 100% - 1.2em)`;
    }
  }

  /** samples: columns of equal length by key, with unix_seconds; at: index under the pointer. */
  draw(samples, span, at) {
    const times = samples.unix_seconds;
    const start = times.at(-1) - span;
    const seen = this.series.flatMap(({ key }) =>
      samples[key].filter((value, place) => value !== null && times[place] >= start));
    const { marks, share } = this.scale(seen);
    this.mark(marks, share);
    this.ends[0].textContent = `−${span / 60} min`;
    this.ends[1].textContent = span > 60 ? `−${span / 120} min` : "−30 s";
    for (const { key, figure, path, dots } of this.lines) {
      const drawn = trace(times, samples[key], start, span, share);
      path.setAttribute("d", drawn);
      dots.setAttribute("d", isolated(drawn));
      figure.textContent = this.show(samples[key].at(at ?? -1));
    }
    this.figure.classList.toggle("pointed", at !== null);
    if (at === null) return;
    for (const name of ["x1", "x2"]) {
      this.cursor.setAttribute(name, ((times[at] - start) / span) * WIDTH);
    }
  }
}
