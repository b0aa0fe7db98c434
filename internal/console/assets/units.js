// Numbers in words.

function scaled(v, units, base) {
  if (v === null || v === undefined || Number.isNaN(v)) return '–';
  let unit = 0;
  while (Math.abs(v) >= base && unit < units.length - 1) { v /= base; unit++; }
  const digits = Math.abs(v) >= 100 || Number.isInteger(v) ? 0 : Math.abs(v) >= 10 ? 1 : 2;
  return v.toFixed(digits) + units[unit];
}

export const count = v => scaled(v, ['', ' k', ' M', ' G'], 1000);
export const bytes = v => scaled(v, [' B', ' KiB', ' MiB', ' GiB', ' TiB'], 1024);
export const percent = v => v === null || v === undefined ? '–' : (100 * v).toFixed(v < 0.1 ? 1 : 0) + ' %';

export function seconds(v) {
  if (v === null || v === undefined) return '–';
  if (v < 1e-3) return count(v * 1e6) + ' µs';
  if (v < 1) return count(v * 1e3) + ' ms';
  return count(v) + ' s';
}

export function span(s) {
  const parts = [[86400, 'd'], [3600, 'h'], [60, 'min']].find(([n]) => s >= n);
  return parts ? Math.floor(s / parts[0]) + ' ' + parts[1] : Math.floor(s) + ' s';
}
