'use strict';
/* What a pattern of equal sizes takes: the same computation as topocal.solve.occupancy,
   topocal.solve.fading and topocal.solve.predict, on the numbers that the page carries. No page is needed to run it. */

const topocal = (function () {
  const TWO_SIDED = 1.96;

  /* Flows are pairs of endpoint numbers; the result is null where nothing connects one. */
  function occupancy(machine, flows, size) {
    const table = machine.resources;
    const weights = new Map();
    for (let f = 0; f < flows.length; f += 1) {
      const route = machine.routes[flows[f][0]][flows[f][1]];
      if (route === null) { return null; }
      for (let k = 0; k < route.length; k += 2) {
        if (!weights.has(route[k])) { weights.set(route[k], new Array(flows.length).fill(0)); }
        weights.get(route[k])[f] = route[k + 1];
      }
    }
    const loaded = [...weights.keys()].sort((a, b) => a - b).filter((r) => {
      const other = table.instead[r];
      return other === r || !weights.has(other)
        || weights.get(r).some((w, f) => w !== weights.get(other)[f]);
    });
    const solo = new Array(flows.length).fill(0);
    const told = new Array(flows.length).fill(0);
    const tells = new Array(flows.length).fill(0);
    const soloSlowest = new Array(flows.length).fill(0);
    const binding = new Array(flows.length).fill(0);
    for (let f = 0; f < flows.length; f += 1) {
      loaded.forEach((r, k) => {
        const counts = table.engine[r] ? 0 : weights.get(r)[f];
        if (counts * table.best[r] > solo[f]) { solo[f] = counts * table.best[r]; binding[f] = k; }
        if (!table.open[r] && counts * table.best[r] > told[f]) {
          told[f] = counts * table.best[r];
          tells[f] = k;
        }
        soloSlowest[f] = Math.max(soloSlowest[f], counts * table.slowest[r]);
      });
    }
    const busy = loaded.map((r) => {
      const w = weights.get(r);
      let parts = w.map((x, f) => (table.engine[r]
        ? (x > 0 ? solo[f] * size * table.kappa[r] : 0)
        : x * size * table.best[r]));
      if (table.engine[r] && parts.filter((p) => p !== 0).length < 2) { parts = parts.map(() => 0); }
      const total = (list) => (table.fatpipe[r] ? Math.max(...list) : list.reduce((a, b) => a + b, 0));
      const seconds = total(parts);
      const pinned = Boolean(table.settled[r]);
      const slowest = table.untried[r] && oneWay(flows, w)
        ? 0 : total(w.map((x) => x * size * table.slowest[r]));
      const fastest = table.engine[r] ? 0 : total(w.map((x) => x * size * table.fastest[r]));
      return {
        resource: r,
        parts,
        seconds,
        pinned,
        low: pinned ? seconds * Math.exp(-TWO_SIDED * table.error[r]) : fastest,
        high: pinned ? seconds * Math.exp(TWO_SIDED * table.error[r]) : slowest,
      };
    });
    for (const b of busy) {
      if (!table.engine[b.resource] || b.seconds === 0) { continue; }
      let variance = 0;
      let known = true;
      let longest = 0;
      b.parts.forEach((part, f) => {
        const share = part / b.seconds;
        const other = loaded[binding[f]];
        variance += share * share * table.error[other] * table.error[other];
        known = known && (Boolean(table.settled[other]) || share === 0);
        if (part > 0) { longest += soloSlowest[f] * size; }
      });
      const own = table.pinned[b.resource] ? table.error[b.resource] : machine.noise;
      const whole = Math.sqrt(variance + own * own);
      b.pinned = known;
      b.low = b.seconds * Math.exp(-TWO_SIDED * (known ? whole : machine.noise));
      b.high = b.seconds * Math.exp(TWO_SIDED * whole);
      if (!known) { b.high = Math.max(b.high, longest); }
    }
    if (busy.some((b) => !b.pinned)) {
      let slow = 0;
      told.forEach((s, f) => { if (s > told[slow]) { slow = f; } });
      const first = busy[tells[slow]];
      first.low = Math.max(first.low, told[slow] * size * Math.exp(-TWO_SIDED * machine.noise));
    }
    busy.forEach((b) => { b.high = Math.max(b.high, b.seconds); });
    const engines = busy.filter((b) => table.engine[b.resource] && b.seconds > 0);
    const found = {
      busy,
      exact: engines.length < 2,
      byTurns: byTurns(machine, flows, soloSlowest.map((s) => s * size), loaded),
    };
    return machine.fading === null ? found : faded(machine, flows, found);
  }

  /* Whether the flows on a resource start, or end, together. */
  function oneWay(flows, weights) {
    return [0, 1].some((side) => new Set(
      flows.filter((_, f) => weights[f] > 0).map((flow) => flow[side]),
    ).size === 1);
  }

  /* The same where everything takes longer the more flows there are. */
  function faded(machine, flows, found) {
    const { loss, error, by_pattern: byPattern, most_flows: mostFlows } = machine.fading;
    let most = 1;
    const busy = found.busy.map((b) => {
      const count = byPattern ? flows.length : b.parts.filter((p) => p !== 0).length;
      const further = Math.max(0, count - 1);
      const factor = 1 + loss * further;
      const m = machine.resources.crowding[b.resource];
      most = Math.max(most, factor);
      const end = (value, scale, sign) => {
        const half = value > 0 ? Math.abs(Math.log(value / b.seconds)) / TWO_SIDED : NaN;
        if (b.pinned && Number.isFinite(half)) {
          const alone = Math.max(0, half ** 2 - (error * m) ** 2);
          const width = TWO_SIDED * Math.sqrt(alone + (error * (further - m)) ** 2);
          return b.seconds * scale * Math.exp(sign * width);
        }
        return value * scale * Math.exp(sign * TWO_SIDED * error * further);
      };
      const seconds = b.seconds * factor;
      return {
        ...b,
        seconds,
        parts: b.parts.map((p) => p * factor),
        low: end(b.low, Math.min(factor, 1 + loss * Math.max(0, mostFlows - 1)), -1),
        high: Math.max(end(b.high, factor, 1), seconds),
      };
    });
    return {
      ...found,
      busy,
      byTurns: found.byTurns.map((t) => ({ ...t, seconds: t.seconds * most })),
    };
  }

  /* Endpoints of several flows of which the data does not tell whether they serve by turns. */
  function byTurns(machine, flows, own, loaded) {
    const found = [];
    const names = new Set(loaded.filter((r) => machine.resources.engine[r])
      .map((r) => machine.resources.id[r]));
    for (const side of [0, 1]) {
      const word = side ? 'sender' : 'receiver';
      const open = new Set(machine.undecided[side]);
      const sums = new Map();
      flows.forEach((flow, f) => {
        const end = side ? flow[0] : flow[1];
        const sum = sums.get(end) || [0, 0];
        sums.set(end, [sum[0] + 1, sum[1] + own[f]]);
      });
      for (const [end, [count, seconds]] of sums) {
        const name = machine.endpoints[end];
        if (open.has(end) && count > 1 && !names.has(`${name}.${word}.engine`)) {
          found.push({ who: `${word} ${name}`, seconds });
        }
      }
    }
    return found;
  }

  function kindOf(flows) {
    const sources = new Set(flows.map((f) => f[0]));
    const destinations = new Set(flows.map((f) => f[1]));
    if (flows.length === 1) { return 'peer'; }
    if (flows.length === 2 && flows[0][0] === flows[1][1] && flows[0][1] === flows[1][0]) {
      return 'both-ways';
    }
    if (destinations.size === 1) { return 'fan-in'; }
    if (sources.size === 1) { return 'fan-out'; }
    const same = sources.size === destinations.size && [...sources].every((s) => destinations.has(s));
    if (same && sources.size === flows.length) {
      const next = new Map(flows);
      const start = flows[0][0];
      let here = next.get(start);
      let steps = 1;
      while (here !== start && steps <= next.size) { here = next.get(here); steps += 1; }
      if (steps === next.size) { return 'relay'; }
    }
    return 'bundle';
  }

  /* The prediction; null where nothing connects a flow. Where it is not exact, `seconds` is
     the least that the pattern takes, and only the simulation knows more. */
  function predict(machine, flows, size) {
    const table = machine.resources;
    const found = size > 0 ? occupancy(machine, flows, size) : { busy: [], exact: true, byTurns: [] };
    if (found === null) { return null; }
    const { busy } = found;
    const most = (key) => busy.reduce((a, b) => Math.max(a, b[key]), 0);
    const longest = most('seconds');
    const low = most('low');
    let high = most('high');
    const open = busy.filter((b) => !b.pinned && (table.unknown[b.resource] || b.high > low));
    const turns = found.byTurns.filter((t) => t.seconds > high);
    turns.forEach((t) => { high = Math.max(high, t.seconds); });
    const [offset, least] = machine.start_up[kindOf(flows)];
    const alpha = longest > 0 ? Math.max(offset, least - longest) : 0;
    const byName = (a, b) => (table.id[a.resource] < table.id[b.resource] ? -1 : 1);
    const ranked = busy.filter((b) => b.seconds > 0)
      .sort((a, b) => b.seconds - a.seconds || byName(a, b));
    const limit = longest * Math.exp(-machine.clear_sigmas * machine.noise);
    const close = ranked.filter((b) => b.seconds >= limit);
    const tied = [...close.filter((b) => !table.open[b.resource]),
      ...close.filter((b) => table.open[b.resource])];
    return {
      seconds: alpha + longest,
      alpha,
      low: Math.max(0, alpha + Math.min(low, longest)),
      high: alpha + Math.max(high, longest),
      exact: found.exact,
      narrow: open.length === 0 && turns.length === 0 && longest > 0,
      ranked,
      named: mergeSeries(table, tied, byName),
      next: ranked[close.length] || null,
      wouldNarrow: [...open.map((b) => table.label[b.resource]),
        ...turns.map((t) => `whether ${t.who} serves its flows at once or by turns`)],
      unmeasured: busy.filter((b) => table.unknown[b.resource]).map((b) => table.label[b.resource]),
    };
  }

  /* What is only bounded and loaded by the same flows becomes one, named by the most shared. */
  function mergeSeries(table, tied, byName) {
    const groups = new Map();
    for (const b of tied) {
      const key = table.open[b.resource] ? b.parts.map((p) => (p > 0 ? '1' : '0')).join('') : `=${b.resource}`;
      groups.set(key, [...(groups.get(key) || []), b]);
    }
    return [...groups.values()].map((members) => {
      const [first, ...others] = members
        .sort((a, b) => table.crowd[b.resource] - table.crowd[a.resource] || byName(a, b));
      return { ...first, inSeries: others.map((b) => b.resource) };
    });
  }

  /* The flow that takes most of a resource's time, in words, where it dominates it. */
  function dominant(machine, flows, b) {
    if (b.parts.filter((p) => p !== 0).length < 2) { return ''; }
    const total = b.parts.reduce((x, y) => x + y, 0);
    let top = 0;
    b.parts.forEach((p, f) => { if (p > b.parts[top]) { top = f; } });
    const share = b.parts[top] / total;
    if (share < machine.dominates) { return ''; }
    const [a, z] = flows[top].map((e) => machine.endpoints[e]);
    return `${Math.round(100 * share)}% of its time ${a}->${z}`;
  }

  /* Bytes from "256MiB", as topocal.topo.units reads them; NaN where it is not a size. */
  function parseBytes(text, most) {
    const powers = { '': 1, k: 1e3, m: 1e6, g: 1e9, t: 1e12, ki: 2 ** 10, mi: 2 ** 20, gi: 2 ** 30, ti: 2 ** 40 };
    const match = /^\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([kKmMgGtT]i?)?B?\s*$/.exec(text);
    if (match === null || /_(?!\d)/.test(match[1])) { return NaN; }
    const value = Number(match[1].replaceAll('_', '')) * powers[(match[2] || '').toLowerCase()];
    return value >= 0 && value <= most ? value : NaN;
  }

  function significant(value) {
    if (value >= 999.5) { return value.toFixed(0); }
    return String(Number(value.toPrecision(3)));
  }

  function formatSeconds(s) {
    for (const [unit, factor] of [['s', 1], ['ms', 1e-3], ['us', 1e-6]]) {
      if (s >= factor) { return `${significant(s / factor)} ${unit}`; }
    }
    return `${significant(s / 1e-9)} ns`;
  }

  function formatRate(rate) {
    for (const [unit, factor] of [['TB/s', 1e12], ['GB/s', 1e9], ['MB/s', 1e6], ['kB/s', 1e3]]) {
      if (rate >= factor) { return `${significant(rate / factor)} ${unit}`; }
    }
    return `${significant(rate)} B/s`;
  }

  return { predict, dominant, kindOf, parseBytes, formatSeconds, formatRate };
}());
