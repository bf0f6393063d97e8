// Lines over the last ten minutes, one unit of x a second, drawn as SVG.

const SVG = "http://www.w3.org/2000/svg";
export const SPAN_SECONDS = 600;
const HEIGHT = 100;
const GAP_SECONDS = 5; // Points farther apart are not joined.

function make(name, className, parent, namespace) {
  const element = namespace ? document.createElementNS(namespace, name) : document.createElement(name);
  if (className) element.setAttribute("class", className);
  parent.append(element);
  return element;
}

/** The least of 1, 2, 5, 10, 20, ... that is not below a value. */
export function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((step) => step * power >= value * (1 - 1e-9)) * power;
}

/** What a path draws for one series; nulls and gaps interrupt it. */
export function trace(times, values, start, top) {
  let path = "";
  let last = null;
  for (const [place, value] of values.entries()) {
    if (value === null || times[place] < start) continue;
    const x = (times[place] - start).toFixed(2);
    const y = (HEIGHT * (1 - Math.min(value / top, 1))).toFixed(2);
    const joined = last === place - 1 && times[place] - times[last] < GAP_SECONDS;
    path += joined ? `L${x} ${y}` : `M${x} ${y}h0`;
    last = place;
  }
  return path;
}

export class Chart {
  /** series: [{key, name}]; show: a number as text; least: the top is never below this. */
  constructor(parent, { title, note = "", series, show, least = 0, most = Infinity }) {
    Object.assign(this, { series, show, least, most });
    this.figure = make("figure", "", parent);
    const caption = make("figcaption", "", this.figure);
    const heading = make("h2", "", caption);
    heading.append(`${title} `);
    make("small", "", heading).append(note);
    const legend = make("ul", "legend", caption);
    const plot = make("div", "plot", this.figure);
    this.svg = make("svg", "", plot, SVG);
    this.svg.setAttribute("viewBox", `0 0 ${SPAN_SECONDS} ${HEIGHT}`);
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.svg.setAttribute("role", "img");
    this.svg.setAttribute("aria-label", `${title}, the last ten minutes`);
    for (const y of [0, HEIGHT / 2, HEIGHT]) this.line("grid", 0, y, SPAN_SECONDS, y);
    this.cursor = this.line("cursor", 0, 0, 0, HEIGHT);
    [this.top, this.middle] = ["top", "middle"].map((name) => make("span", name, plot));
    const axis = make("div", "axis", this.figure);
    for (const text of ["−10 min", "−5 min", "now"]) make("span", "", axis).append(text);
    this.lines = series.map(({ key, name }, place) => {
      const item = make("li", "", legend);
      make("i", `s${place}`, item);
      item.append(`${name} `);
      const figure = make("b", "", item);
      figure.dataset.series = key;
      return { key, figure, path: make("path", `trace s${place}`, this.svg, SVG) };
    });
  }

  line(className, x1, y1, x2, y2) {
    const line = make("line", className, this.svg, SVG);
    Object.entries({ x1, y1, x2, y2 }).forEach(([name, value]) => line.setAttribute(name, value));
    return line;
  }

  /** samples: columns of equal length by key, unix_seconds among them; at: the sample pointed at. */
  draw(samples, end, at) {
    const times = samples.unix_seconds;
    const start = end - SPAN_SECONDS;
    const seen = this.series.flatMap(({ key }) => samples[key].filter((_, place) => times[place] >= start));
    const top = Math.min(ceiling(Math.max(this.least, ...seen)), Math.max(this.most, this.least));
    this.top.textContent = this.show(top);
    this.middle.textContent = this.show(top / 2);
    for (const { key, figure, path } of this.lines) {
      path.setAttribute("d", trace(times, samples[key], start, top));
      figure.textContent = this.show(samples[key].at(at ?? -1));
    }
    this.figure.classList.toggle("pointed", at !== null);
    if (at === null) return;
    for (const name of ["x1", "x2"]) this.cursor.setAttribute(name, times[at] - start);
  }
}
