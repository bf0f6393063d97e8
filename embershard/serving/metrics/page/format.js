// Formats numbers with about three digits and a suitable unit.

const NOTHING = "–";

function digits(value) {
  const size = Math.abs(value);
  const places = size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return value.toLocaleString("en-US", { maximumFractionDigits: places });
}

function scaled(value, steps) {
  const [size, unit] = steps.find(([least]) => Math.abs(value) >= least) ?? steps.at(-1);
  return `${digits(value / size)} ${unit}`;
}

const known = (show) => (value) => (value === null || value === undefined ? NOTHING : show(value));

/** A whole number in full: 1,234,567. */
export const count = known((value) => Math.round(value).toLocaleString("en-US"));

/** A rate or a mean: 12.3 or 4,567. */
export const number = known(digits);

/** 0.0123 as 12.3 ms. */
export const seconds = known((value) =>
  value === 0 ? "0 ms" : scaled(value, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]));

/** 0.123 as 12.3 %. */
export const percent = known((value) => `${digits(value * 100)} %`);

/** 12345 as 12.3 kB. */
export const bytes = known((value) =>
  scaled(value, [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]));

/** 3723 as 1 h 2 min. */
export function duration(value) {
  const whole = Math.max(0, Math.floor(value));
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min` : `${whole} s`;
}

/** Time of day in the browser's time zone. */
export const clock = (unixSeconds) => new Date(unixSeconds * 1000).toLocaleTimeString("en-GB");
