/* The page: the calculator's form and answer, the lit drawing, the matrices' read-out. */

(function () {
  const byId = (id) => document.getElementById(id);
  const machine = JSON.parse(byId('machine-data').textContent);
  const names = machine.endpoints.map(shown);
  let flowsShown = [];

  /* Text without characters that turn others around or that nobody sees. */
  function shown(text) {
    return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, '?');
  }

  /* The same with arrows that no line breaks in two. */
  function pretty(text) {
    return shown(text).replaceAll('<->', '↔').replaceAll('->', '→').replaceAll('<-', '←')
      .replace(/(\d) (?=([kMGT]?B\/s|[mun]?s|%)(?![\p{L}\p{N}]))/gu, '$1\u00a0');
  }

  function make(tag, text, parent) {
    const element = document.createElement(tag);
    if (text !== undefined) { element.textContent = text; }
    if (parent) { parent.append(element); }
    return element;
  }

  function options(select, chosen) {
    names.forEach((name, k) => {
      const option = make('option', name, select);
      option.value = String(k);
      option.selected = k === chosen;
    });
    return select;
  }

  /* The form. */

  const mode = () => document.querySelector('input[name=mode]:checked').value;
  const checked = () => [...document.querySelectorAll('#peers input:checked')].map((b) => Number(b.value));

  function offerPeers() {
    const root = Number(byId('root').value);
    const before = new Set(checked());
    const fresh = before.size === 0;
    const peers = byId('peers');
    peers.replaceChildren();
    const hosts = names.map((n) => n.slice(0, n.lastIndexOf('/') + 1));
    const hosted = hosts.every(Boolean) && new Set(hosts).size < names.length;
    const own = (k) => (hosted ? names[k].slice(hosts[k].length).replace(/^gpu(?=\d)/, '') : names[k]);
    const longest = Math.max(...names.map((_, k) => own(k).length));
    peers.className = longest > 14 ? 'longest' : longest > 7 ? 'wide' : longest < 4 ? 'numbers' : '';
    let offered = 0;
    names.forEach((name, k) => {
      if (hosted && (k === 0 || hosts[k] !== hosts[k - 1])) {
        make('span', hosts[k].slice(0, -1), peers).className = 'host';
      }
      if (k === root) { return; }
      offered += 1;
      const label = make('label', undefined, peers);
      const box = make('input', undefined, label);
      box.type = 'checkbox';
      box.value = String(k);
      box.checked = fresh ? offered <= 3 : before.has(k);
      box.setAttribute('aria-label', name);
      make('bdi', own(k), label);
      label.title = name;
    });
  }

  function nameSides() {
    const inward = mode() === 'in';
    byId('fan').hidden = mode() === 'any';
    byId('any').hidden = mode() !== 'any';
    byId('root-label').textContent = inward ? 'Receiver' : 'Sender';
    byId('peers-legend').textContent = inward ? 'Senders' : 'Receivers';
  }

  function addFlow(source, destination) {
    const item = make('li', undefined, byId('flows'));
    const number = byId('flows').children.length;
    const from = options(make('select', undefined, item), source);
    from.setAttribute('aria-label', `flow ${number} from`);
    make('span', '→', item);
    const to = options(make('select', undefined, item), destination);
    to.setAttribute('aria-label', `flow ${number} to`);
    const remove = make('button', '×', item);
    remove.type = 'button';
    remove.setAttribute('aria-label', `remove flow ${number}`);
    remove.addEventListener('click', () => { item.remove(); update(); });
  }

  function chosenFlows() {
    if (mode() === 'any') {
      return [...byId('flows').children].map((item) => [...item.querySelectorAll('select')].map((s) => Number(s.value)));
    }
    const root = Number(byId('root').value);
    return checked().map((p) => (mode() === 'in' ? [p, root] : [root, p]));
  }

  function problemWith(flows, size) {
    if (Number.isNaN(size)) { return `“${shown(byId('size').value)}” is not a size; write it as 256MiB or 1.5GB`; }
    if (flows.length === 0) { return mode() === 'any' ? 'no flows; add one' : 'nobody to send; choose at least one'; }
    const itself = flows.find(([a, b]) => a === b);
    if (itself) { return `a flow leads from ${names[itself[0]]} to itself; choose two different ends`; }
    const seen = new Set();
    for (const [a, b] of flows) {
      if (seen.has(`${a} ${b}`)) { return `the flow ${names[a]} to ${names[b]} stands twice; give it once`; }
      seen.add(`${a} ${b}`);
    }
    return '';
  }

  /* The answer. */

  function update() {
    const flows = chosenFlows();
    const size = topocal.parseBytes(byId('size').value, machine.most_bytes);
    let problem = problemWith(flows, size);
    const found = problem ? null : topocal.predict(machine, flows, size);
    if (!problem && found === null) { problem = 'nothing connects one of these flows'; }
    byId('size-error').textContent = problem;
    byId('answer').hidden = Boolean(problem);
    flowsShown = problem ? [] : flows;
    light(found);
    if (found) { tell(found, flows, size); }
  }

  function tell(found, flows, size) {
    const table = machine.resources;
    const least = found.exact ? '' : 'at least ';
    const time = byId('time');
    time.textContent = least + (found.seconds > 0 ? topocal.formatSeconds(found.seconds) : '0 s');
    time.dataset.seconds = String(found.seconds);
    time.dataset.low = String(found.low);
    time.dataset.high = String(found.high);
    time.dataset.narrow = String(found.narrow);
    time.dataset.exact = String(found.exact);
    time.dataset.binding = found.named.length ? table.id[found.named[0].resource] : '';
    time.dataset.ties = JSON.stringify(found.named.slice(1).map((b) => table.id[b.resource]));
    time.dataset.wouldNarrow = JSON.stringify(found.wouldNarrow);
    const total = size * flows.length;
    byId('rate').textContent = found.seconds > 0
      ? `${found.exact ? '' : 'at most '}${topocal.formatRate(total / found.seconds)} in all`
      : 'nothing to move';
    byId('why').textContent = reason(found, flows);
    const list = byId('busiest');
    list.replaceChildren();
    const bound = new Set(found.named.map((b) => b.resource));
    const most = found.ranked.length ? found.ranked[0].seconds : 0;
    for (const b of inOrder(found).slice(0, 5)) {
      const item = make('li', undefined, list);
      const row = make('span', undefined, item);
      row.className = 'row';
      make('bdi', pretty(table.label[b.resource]), row);
      make('span', topocal.formatSeconds(b.seconds), row);
      const bar = make('span', undefined, item);
      bar.className = 'bar';
      bar.style.width = `${(100 * b.seconds) / most}%`;
      if (bound.has(b.resource)) {
        item.classList.add('binds');
        row.firstChild.prepend('◆ ');
      }
    }
    const doubts = byId('doubts');
    doubts.replaceChildren();
    for (const text of doubtsOf(found)) { make('li', pretty(text), doubts); }
    byId('command').textContent = command(flows);
  }

  /* Of what stands in series only the one that is named is listed. */
  function inOrder(found) {
    const hidden = new Set(found.named.flatMap((b) => b.inSeries));
    const named = new Set(found.named.map((b) => b.resource));
    return [...found.named, ...found.ranked.filter((b) => !named.has(b.resource) && !hidden.has(b.resource))];
  }

  function reason(found, flows) {
    if (!found.named.length) { return ''; }
    const table = machine.resources;
    const texts = found.named.map((b) => {
      const parts = [];
      if (b.inSeries.length) {
        const others = b.inSeries.slice(0, 4).map((r) => table.id[r]).join(', ');
        const more = b.inSeries.length - 4;
        parts.push(`or in series with it ${others}${more > 0 ? ` and ${more} more` : ''}`);
      }
      if (table.engine[b.resource]) { parts.push('time-shared'); }
      const most = topocal.dominant(machine, flows, b);
      if (most) { parts.push(most); }
      return table.label[b.resource] + (parts.length ? ` (${parts.join(', ')})` : '');
    });
    const sure = found.named.every((b) => table.pinned[b.resource]);
    const tail = texts.length === 1 ? ''
      : sure ? ', which are equally busy as far as the data tells' : ': the data cannot tell these apart';
    return pretty(`Bottleneck: ${texts.slice(0, 4).join(' or ')}${texts.length > 4 ? ` or ${texts.length - 4} more` : ''}${tail}.`);
  }

  function doubtsOf(found) {
    const texts = [];
    if (!found.exact) {
      texts.push('Several endpoints serve their flows by turns here, and wait for each other: only the simulation knows how long. The command below runs it.');
    } else if (found.high > found.low) {
      const span = `${topocal.formatSeconds(found.low)} to ${topocal.formatSeconds(found.high)}`;
      const more = found.wouldNarrow.length - 6;
      texts.push(found.narrow ? `95 % interval ${span}.`
        : `The data allows ${span}; not known well: ${found.wouldNarrow.slice(0, 6).join(', ')}${more > 0 ? ` and ${more} more` : ''}.`);
    }
    if (found.unmeasured.length) {
      texts.push(`Never measured, so that it may take longer than said: ${found.unmeasured.slice(0, 6).join(', ')}${found.unmeasured.length > 6 ? ' …' : ''}.`);
    }
    return texts;
  }

  function command(flows) {
    const name = (k) => machine.endpoints[k];
    const kind = topocal.kindOf(flows);
    let pattern = flows.map(([a, b]) => `${name(a)}->${name(b)}`).join(' + ');
    if (kind === 'fan-in') { pattern = `${name(flows[0][1])}<-${flows.map((f) => name(f[0])).join(',')}`; }
    if (kind === 'fan-out') { pattern = `${name(flows[0][0])}->${flows.map((f) => name(f[1])).join(',')}`; }
    const quote = (text) => `'${shown(text).replaceAll("'", "'\\''")}'`;
    return `topocal predict model.json --pattern ${quote(pattern)} --size ${quote(byId('size').value.replace(/\s/g, ''))}`;
  }

  /* The drawing: how busy each resource is beside the busiest, and which one binds. */

  function light(found) {
    const seconds = new Map(found ? found.ranked.map((b) => [b.resource, b.seconds]) : []);
    const most = found && found.ranked.length ? found.ranked[0].seconds : 0;
    const binds = new Set(found && found.named.length ? [found.named[0].resource] : []);
    const ties = new Set(found ? found.named.flatMap((b, k) => [...(k ? [b.resource] : []), ...b.inSeries]) : []);
    for (const cell of document.querySelectorAll('.cell')) {
      const own = cell.dataset.r ? cell.dataset.r.split(' ').map(Number) : [];
      const share = most ? Math.max(0, ...own.map((r) => (seconds.get(r) || 0) / most)) : 0;
      cell.classList.toggle('on', share > 0);
      cell.classList.toggle('binds', own.some((r) => binds.has(r)));
      cell.classList.toggle('ties', own.some((r) => ties.has(r)));
      const bar = cell.querySelector('.load');
      if (bar) { bar.setAttribute('x2', String(Number(bar.getAttribute('x1')) + 62 * share)); }
    }
    const from = new Set(flowsShown.map((f) => f[0]));
    const to = new Set(flowsShown.map((f) => f[1]));
    for (const end of document.querySelectorAll('.end')) {
      const k = end.dataset.e === undefined ? -1 : Number(end.dataset.e);
      end.classList.toggle('sends', from.has(k));
      end.classList.toggle('receives', to.has(k));
    }
  }

  /* The matrices: what a cell says in words, by pointer or arrow keys. */

  function readOut() {
    const tables = [...document.querySelectorAll('.heat')];
    const line = byId('readout');
    const hint = 'Point at a cell, or walk through the first matrix with the arrow keys.';
    const cells = tables.map((t) => [...t.tBodies[0].rows].map((row) => [...row.querySelectorAll('td')]));
    let at = [0, 0];
    let lit = [];
    line.hidden = tables.length === 0;
    line.textContent = hint;
    function say(i, j) {
      lit.forEach((c) => c.classList.remove('at'));
      at = [i, j];
      lit = cells.map((rows) => rows[i][j]);
      lit.forEach((c) => c.classList.add('at'));
      const parts = tables.map((t, k) => {
        const title = t.closest('figure').querySelector('figcaption').textContent;
        const text = lit[k].textContent;
        return text === '·' ? '' : `${title.split(',')[0].toLowerCase()} ${text}${k === 2 ? ' %' : ''}`;
      });
      line.textContent = i === j ? `${names[i]} itself` : `${names[i]} → ${names[j]}: ${parts.filter(Boolean).join(', ') || 'nothing connects them'}`;
    }
    tables.forEach((t, k) => {
      t.addEventListener('pointerover', (event) => {
        const td = event.target.closest('tbody td');
        if (!td) { return; }
        const i = td.parentElement.sectionRowIndex;
        say(i, cells[k][i].indexOf(td));
      });
      t.tabIndex = k === 0 ? 0 : -1;
      t.addEventListener('keydown', (event) => {
        const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
        if (!step) { return; }
        event.preventDefault();
        const n = names.length;
        say((at[0] + step[0] + n) % n, (at[1] + step[1] + n) % n);
      });
    });
  }

  function begin() {
    readOut();
    window.addEventListener('beforeprint', () => {
      document.querySelectorAll('details').forEach((d) => { d.open = true; });
    });
    if (names.length < 2) { return; }
    options(byId('root'), 0);
    offerPeers();
    nameSides();
    addFlow(0, 1);
    addFlow(1, 0);
    byId('root').addEventListener('change', () => { offerPeers(); update(); });
    document.querySelectorAll('input[name=mode]').forEach((b) => b.addEventListener('change', () => { nameSides(); update(); }));
    byId('all').addEventListener('click', () => { tick(true); });
    byId('none').addEventListener('click', () => { tick(false); });
    byId('add').addEventListener('click', () => { addFlow(0, 1); update(); });
    byId('calc').addEventListener('input', update);
    byId('calc').addEventListener('submit', (event) => { event.preventDefault(); });
    byId('calc').hidden = false;
    update();
  }

  function tick(on) {
    document.querySelectorAll('#peers input').forEach((b) => { b.checked = on; });
    update();
  }

  begin();
}());
