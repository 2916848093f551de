// The page: it listens to /live, and asks /ask/... about what was opened. Rules:
// 1. What comes from the grid goes into the page as text, never as HTML.
// 2. Only rows that can be seen are drawn again, so a thousand PCs cost as much as a screenful.
"use strict";

const $ = (id) => document.getElementById(id);
const state = {
  grid: null, workers: [], bags: [], absent: [], at: 0, heard: 0,
  past: new Map(), binS: 20, pastAt: 0, plan: new Map(), planAt: 0, shares: [], events: [], last: 0, all: null,
};

// --- texts ----------------------------------------------------------------------------------------------------------

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === false) continue;
    if (name === "style") for (const [key, to] of Object.entries(value)) made.style.setProperty(key, to);
    else made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== ""));
  return made;
}
// A text that somebody chose: it may be written from right to left, which must not turn what is around it.
const given = (text) => text === "" ? "" : el("span", { class: "given" }, clean(text));
const link = (to, text) => el("a", { href: to, class: "given" }, clean(text));
// Bytes that are no text come as lone halves of characters; signs that are not seen are shown.
const clean = (text) => String(text).replace(/\p{Surrogate}/gu, "\ufffd")
  .replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069]/g, "\u00b7");
const pcLink = (name) => link("#pc/" + encodeURIComponent(name), name);
const bagLink = (bag) => link("#bag/" + encodeURIComponent(bag.bag), bag.name || bag.bag);
const taskLink = (bag, item) => link(`#task/${encodeURIComponent(bag)}/${item}`, "#" + item);
const count = (many, word) => `${many.toLocaleString("en")} ${word}${many === 1 ? "" : "s"}`;

function duration(seconds) {
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min` + (s < 600 && s % 60 ? ` ${s % 60} s` : "");
  if (s < 86400) return `${Math.floor(s / 3600)} h` + (Math.floor(s / 60) % 60 ? ` ${Math.floor(s / 60) % 60} min` : "");
  return `${Math.floor(s / 86400)} d` + (Math.floor(s / 3600) % 24 ? ` ${Math.floor(s / 3600) % 24} h` : "");
}
function clock(inSeconds, far, fine) {
  const when = new Date(Date.now() + inSeconds * 1000);
  const time = when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: fine ? "2-digit" : undefined, hour12: false });
  const day = far && when.toDateString() !== new Date().toDateString();
  return day ? when.toLocaleDateString([], { weekday: "short", day: "numeric", month: "short" }) + " " + time : time;
}
const since = () => (performance.now() - state.at) / 1000; // the age of the last rows

// --- rows that stay -------------------------------------------------------------------------------------------------

// Put rows into a container: each keeps its element by its key, so that scrolling, focus and selection stay.
function sync(container, rows, key, make) {
  const known = container.known || (container.known = new Map());
  const wanted = new Set();
  let place = container.firstChild;
  for (const row of rows) {
    const name = key(row);
    if (wanted.has(name)) continue;
    wanted.add(name);
    let found = known.get(name);
    if (!found) known.set(name, (found = make(row)));
    found.row = row;
    if (found === place) place = place.nextSibling;
    else container.insertBefore(found, place);
  }
  for (const [name, found] of known) if (!wanted.has(name)) { found.remove(); known.delete(name); }
}
// Replace what is in an element, unless it would be the same.
function put(element, ...children) {
  const made = el("div", null, ...children);
  if (element.innerHTML !== made.innerHTML) element.replaceChildren(...made.childNodes);
}
const seen = new Set();
const eyes = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) { seen.add(target); target.draw(); } else seen.delete(target);
  }
}, { rootMargin: "150px" });
function drawn(element, draw) {
  element.draw = () => draw(element, element.row);
  eyes.observe(element);
  return element;
}
function redraw() {
  for (const element of seen) if (element.isConnected) element.draw(); else { seen.delete(element); eyes.unobserve(element); }
}

// --- the grid as a whole ----------------------------------------------------------------------------------------------

function drawFacts() {
  const { broker, totals, queues, throughput, counters } = state.grid;
  $("address").textContent = clean(broker.address);
  document.title = `${totals.busy} of ${totals.slots} busy - deskgrid`;
  const facts = [
    [`${totals.workers_up.toLocaleString("en")}`, "PCs up"],
    [`${totals.busy.toLocaleString("en")} of ${totals.slots.toLocaleString("en")}`, "slots busy"],
    [totals.bags_under_way.toLocaleString("en"), "bags under way"],
    [(queues.regular + queues.priority).toLocaleString("en"), "tasks waiting"],
    [throughput.per_s.toFixed(1), "tasks/s"],
    [counters.planned_kills.toLocaleString("en"), "killed by planned ends"],
    [duration(counters.wasted_s), "wasted"],
  ];
  put($("facts"), facts.map(([value, words]) => el("li", null, el("b", null, value), " " + words)));
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  put($("footer"), clean(`policy ${broker.policy}, up for ${duration(broker.age_s)}, version ${broker.version}, `
    + `${broker.encrypted ? "encrypted" : "not encrypted"}. Times are ${zone}. `
    + "The past is known since this web server was started. This page changes nothing."));
}

const trouble = (worker) => worker.state === "lost" || worker.quarantine_s !== null || worker.note !== "";
function problems() {
  const { broker, absent } = state.grid;
  const rows = broker.problems.map((text) => ["file", [given(text)]]);
  if (broker.disk !== "ok") rows.unshift(["disk", [given(broker.disk_note || `the broker's disk is ${broker.disk}`)]]);
  for (const pc of absent) {
    const last = pc.seen_s === null ? "never seen" : `last seen ${duration(pc.seen_s)} ago`;
    rows.push(["absent", [given(pc.pc), ` should be there for ${duration(pc.since_s)}, and is not (${last})`]]);
  }
  for (const worker of state.workers.filter(trouble)) {
    const what = worker.state === "lost" ? `lost, silent for ${duration(worker.silent_s)}`
      : worker.quarantine_s !== null ? `put aside for ${duration(worker.quarantine_s)}` : "";
    rows.push([worker.state === "lost" ? "lost" : "PC", [pcLink(worker.name), `: ${[what, clean(worker.note)].filter(Boolean).join("; ")}`]]);
  }
  for (const bag of state.bags.filter((bag) => !ended(bag) && (bag.failed || bag.note))) {
    const what = [bag.failed ? `${bag.failed.toLocaleString("en")} failed` : "", clean(bag.note)].filter(Boolean).join("; ");
    rows.push(["bag", [bagLink(bag), " of ", given(bag.owner), `: ${what}`]]);
  }
  return rows;
}
const few = () => (innerWidth > 1000 ? 12 : 4);
function drawProblems() {
  const rows = problems();
  $("problems").className = rows.length ? "" : "none";
  $("problems-title").textContent = rows.length ? `! ${count(rows.length, "problem")}` : "✓ No problems";
  const most = state.allProblems ? rows.length : few();
  const more = rows.length > few() ? [el("li", null, el("button", { id: "more" }, state.allProblems ? "Show fewer" : `Show ${rows.length - few()} more`))] : [];
  put($("problem-rows"), rows.slice(0, most).map(([kind, text]) => el("li", null, el("b", { class: "bad" }, kind), " ", text)), more);
}

// --- PCs ------------------------------------------------------------------------------------------------------------

function said(worker) {
  if (worker.state === "lost") return ["bad", "× lost"];
  if (worker.state === "away") return ["dim", "– away"];
  if (worker.quarantine_s !== null) return ["warn", "! put aside"];
  if (worker.paused) return ["dim", "‖ owner first"];
  const busy = worker.busy ? `● ${worker.busy}/${worker.slot_count} busy` : "○ free";
  if (worker.drained_by !== null) return ["warn", `${busy}, drained`];
  return ["", busy + (worker.uptime_s === null ? "" : `, ${duration(worker.uptime_s)} left`)];
}
const SHOWN = {
  all: () => true,
  problem: trouble,
  busy: (worker) => worker.busy > 0,
  free: (worker) => worker.state === "up" && worker.busy < worker.slot_count,
  up: (worker) => worker.state === "up",
  away: (worker) => worker.state === "away",
  lost: (worker) => worker.state === "lost",
};
const order = new Intl.Collator("en", { numeric: true });
const matches = (...texts) => texts.join("\n").toLowerCase().includes($("search").value.trim().toLowerCase());
const rangeS = () => Number($("range").value);
const pastS = () => rangeS() / 2;

function drawPcs() {
  const shown = state.workers.filter(SHOWN[$("show").value]).filter((worker) =>
    matches(worker.name, worker.host, worker.site, worker.state, worker.plan, worker.note, worker.paused, ...worker.labels, ...worker.resources));
  shown.sort((a, b) => trouble(b) - trouble(a) || order.compare(a.name, b.name));
  const totals = state.grid.totals, all = totals.workers_up + totals.workers_away + totals.workers_lost;
  $("pcs-title").textContent = shown.length === all ? `${count(all, "PC")}` : `${shown.length.toLocaleString("en")} of ${count(all, "PC")}`;
  sync($("pc-rows"), shown, (worker) => worker.name, () =>
    drawn(el("div", { class: "pc", role: "listitem" }, el("a"), el("span"), el("div", { class: "bar" })), drawPc));
  drawScale();
}
function drawScale() {
  const all = rangeS() + pastS(), marks = [];
  for (let s = -pastS(); s < rangeS(); s += all / 6) if (s > -pastS()) marks.push([s, clock(s, false, rangeS() < 600)]);
  put($("scale"), marks.filter(([s]) => Math.abs(s) > all / 20).map(([s, text]) => at(s, el("span", null, text))), at(0, el("span", { class: "now" }, "now " + clock(0))));
}
const share = (seconds) => `${(100 * seconds / (rangeS() + pastS())).toFixed(3)}%`;
function at(from, element) { element.style.left = share(from + pastS()); return element; }
function segment(kind, from, to, title, text) {
  const start = Math.max(from, -pastS()), end = Math.min(to, rangeS());
  if (end <= start) return null;
  return at(start, el("i", { class: "seg " + kind, title, style: { width: share(end - start) } }, text || ""));
}
const PAST = { x: ["lost", "lost", "×"], q: ["put", "put aside", "!"], p: ["owner", "its owner came first", "‖"] };
function pastOf(name) {
  const letters = state.past.get(name) || "", bin = state.binS, made = [];
  const end = -(performance.now() - state.pastAt) / 1000;
  for (let to = letters.length; to > 0;) {
    let from = to - 1;
    while (from > 0 && letters[from - 1] === letters[to - 1]) from--;
    const letter = letters[to - 1], start = end - (letters.length - from) * bin, stop = to === letters.length ? 0 : end - (letters.length - to) * bin;
    if (stop < -pastS()) break;
    if (PAST[letter]) made.push(segment(PAST[letter][0], start, stop, PAST[letter][1], stop - start > rangeS() / 30 ? PAST[letter][2] : ""));
    else if (letter >= "0") {
      const busy = Math.round(100 * Number(letter) / 9), piece = segment("past", start, stop, `was there, ${busy}% busy`);
      if (piece) { piece.style.setProperty("--full", busy + "%"); made.push(piece); }
    }
    to = from;
  }
  return made;
}
function futureOf(worker) {
  const made = [], age = since(), up = worker.state === "up";
  if (up) made.push(segment("window", 0, worker.uptime_s === null ? Infinity : worker.uptime_s - age, worker.uptime_s === null ? "there, with no planned end" : `there until ${clock(worker.uptime_s, true)}`));
  for (const [starts, lasts] of worker.windows) made.push(segment("window", starts - age, starts + lasts - age, `will be there from ${clock(starts, true)} for ${duration(lasts)}`));
  const lanes = worker.slots.slice(0, 8);
  lanes.forEach((slot, lane) => {
    const pieces = [], task = slot.running, left = task ? task.runtime_s - task.elapsed_s - age : 0;
    if (task) {
      const bag = state.bags.find((bag) => bag.bag === task.bag), name = bag ? bag.name : task.bag;
      pieces.push(left > 0 ? segment("task", 0, left, `task ${task.item} of ${name}, until about ${clock(left)}`)
        : segment("task late", 0, rangeS() / 40, `task ${task.item} of ${name}, late by ${duration(-left)}`));
    }
    const then = slot.ahead_s + slot.queued_s, begin = Math.max(0, left);
    if (then) pieces.push(segment("queue", begin, begin + then, `then ${count(slot.ahead + slot.queued, "more task")}, ${duration(then)}`));
    for (const piece of pieces.filter(Boolean)) {
      piece.style.top = `${100 * lane / lanes.length}%`;
      piece.style.bottom = `${100 - 100 * (lane + 1) / lanes.length}%`;
      made.push(piece);
    }
  });
  const old = (performance.now() - state.planAt) / 1000;
  for (const [starts, lasts] of state.plan.get(worker.name) || []) made.push(segment("queue planned", starts - old, starts + lasts - old, `planned: ${duration(lasts)} of work`));
  return made;
}
function drawPc(element, worker) {
  const [name, what, bar] = element.children, [style, words] = said(worker);
  name.textContent = clean(worker.name);
  name.href = "#pc/" + encodeURIComponent(worker.name);
  name.title = `${worker.plan}`;
  what.className = style;
  what.textContent = what.title = words;
  const line = at(0, el("i", { class: "nowline" }));
  bar.replaceChildren(...[...pastOf(worker.name), ...futureOf(worker), line].filter(Boolean));
}

// --- bags -----------------------------------------------------------------------------------------------------------

const ended = (bag) => bag.closed && bag.done + bag.failed + bag.cancelled === bag.total;
const PARTS = ["done", "failed", "cancelled", "running", "waiting"];
const parts = (bag) => PARTS.filter((part) => bag[part] && !(part === "waiting" && ended(bag))).map((part) => `${bag[part].toLocaleString("en")} ${part}`).join(", ");
function progress(bag) {
  const pieces = PARTS.slice(0, 4).map((part) => el("i", { class: part, style: { width: `${100 * bag[part] / Math.max(1, bag.total)}%` } }));
  return el("div", { class: "progress", role: "img", "aria-label": parts(bag) }, pieces);
}
function whenDone(bag) {
  if (ended(bag)) return bag.failed ? "ended" : "done";
  if (bag.paused) return "paused";
  if (bag.eta_s === null) return "no estimate yet";
  const low = bag.eta_low_s === null ? null : duration(bag.eta_low_s), high = bag.eta_high_s === null ? "not known" : duration(bag.eta_high_s);
  const range = low === null || low === high ? "" : ` (90%: ${low} to ${high})`;
  return `done in ${duration(bag.eta_s)}, at ${clock(bag.eta_s, true)}${range}`;
}
function drawBags() {
  const kind = $("show-bags").value, rows = state.all || state.bags;
  const shown = rows.filter((bag) => ({ all: true, open: !ended(bag), failed: bag.failed > 0, ended: ended(bag) })[kind])
    .filter((bag) => matches(bag.name, bag.bag, bag.owner, bag.note));
  const totals = state.grid.totals, all = totals.bags_under_way + totals.bags_ended;
  $("bags-title").textContent = shown.length === all ? count(all, "bag") : `${shown.length.toLocaleString("en")} of ${count(all, "bag")}`;
  sync($("bag-rows"), shown, (bag) => bag.bag, () => drawn(el("div", { class: "bag", role: "listitem" }), drawBag));
  put($("bag-rest"), all > rows.length ? [el("button", { id: "all-bags" }, `Load all ${all.toLocaleString("en")}`)] : rows.length ? "" : el("span", { class: "dim" }, "There is no bag."));
}
function drawBag(element, bag) {
  put(element,
    el("div", null, bagLink(bag), el("span", { class: "dim" }, " of ", given(bag.owner), `, ${duration(bag.age_s)} ago`)),
    progress(bag),
    el("div", null, `${parts(bag) || "empty"} of ${bag.total.toLocaleString("en")}`, el("br"), el("b", null, whenDone(bag))),
    bag.note && el("div", { class: "note" }, "! ", given(bag.note)));
}
async function loadAllBags() {
  const rows = [];
  for (let after = null; rows.length < 10000;) {
    const page = await ask("bags", after === null ? {} : { after });
    rows.push(...page.bags);
    after = page.after;
    if (after === null) break;
  }
  state.all = rows.reverse();
  drawBags();
}

// --- people, events -------------------------------------------------------------------------------------------------

function drawPeople() {
  const most = Math.max(1, ...state.shares.map((share) => share.used_s));
  const rows = state.shares.filter((share) => matches(share.share, ...share.keys)).map((share) => {
    const bags = state.bags.filter((bag) => share.keys.includes(bag.owner) && !ended(bag));
    const keys = share.keys.length === 1 && share.keys[0] === share.share ? "" : ` (${share.keys.join(", ")})`;
    return el("tr", null,
      el("td", null, given(share.share), el("span", { class: "dim" }, given(keys), share.weight === 1 ? "" : `, weight ${share.weight}`)),
      el("td", null, duration(share.used_s), el("div", { class: "progress" }, el("i", { class: "done", style: { width: `${100 * share.used_s / most}%` } }))),
      el("td", null, String(share.running), share.waits ? ", others wait" : ""),
      el("td", null, bags.slice(0, 5).map((bag, i) => [i ? ", " : "", bagLink(bag)]).flat(), bags.length > 5 ? ` and ${bags.length - 5} more` : ""));
  });
  put($("people-rows"), rows.length ? rows : el("tr", null, el("td", { colspan: 4, class: "dim" }, "Nobody has used the grid yet.")));
}
// A fact of an event in words; one that is seconds, as a duration.
function factOf([name, value]) {
  const seconds = name.endsWith("_s") || name === "uptime" ? parseFloat(value) : NaN;
  return `${name.replace(/_s$/, "").replaceAll("_", " ")} ${Number.isNaN(seconds) ? value : duration(seconds)}`;
}
function eventRow(event) {
  const when = new Date(event.at), facts = Object.entries(event.facts).filter(([name, value]) => name !== "name" && value).map(factOf).join(", ");
  const bad = /lost|crash|fail|silent|quarantin|missing|wrong|full|revoked|refused|cannot|no-room/.test(event.event);
  return el("li", null, el("time", { datetime: event.at }, clock((when - Date.now()) / 1000, true)), " ",
    el("b", { class: bad ? "bad" : "" }, (bad ? "! " : "") + clean(event.event.replaceAll("-", " "))), " ",
    event.facts.name ? pcLinkIfKnown(event.facts.name) : "", facts ? el("span", { class: "dim" }, " ", given(facts)) : "");
}
const pcLinkIfKnown = (name) => state.workers.some((worker) => worker.name === name) ? pcLink(name) : given(name);
function drawEvents() {
  const shown = state.events.filter((event) => matches(event.event, event.event.replaceAll("-", " "), ...Object.values(event.facts))).slice(-200).reverse();
  put($("event-rows"), shown.length ? shown.map(eventRow) : el("li", { class: "dim" }, "Nothing has happened yet."));
}

// --- asking ---------------------------------------------------------------------------------------------------------

async function get(path) {
  const answer = await fetch(path, { credentials: "same-origin" });
  if (answer.status === 401) { location.reload(); throw new Error("the token has changed"); }
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}
const ask = (what, args) => get(`ask/${what}?${new URLSearchParams(args || {})}`);
async function lookForEvents() {
  if (state.looks) return;
  state.looks = true;
  const { events } = await get(`events?after=${state.last}`).finally(() => { state.looks = false; });
  if (!events.length) return;
  state.events = [...state.events, ...events].slice(-2000);
  state.last = events[events.length - 1].number;
  drawEvents();
}
async function lookAtTheRest() {
  const [past, plan, shares] = await Promise.all([get("history"), ask("plan"), ask("shares")]);
  state.past = new Map(Object.entries(past.pcs)); // a PC may be called "constructor", which every object has
  state.binS = past.bin_s;
  state.pastAt = performance.now();
  state.plan = new Map();
  state.planAt = performance.now();
  for (const row of plan.planned) {
    if (!state.plan.has(row.worker)) state.plan.set(row.worker, []);
    state.plan.get(row.worker).push([row.starts_in, row.lasts]);
  }
  state.shares = shares.shares;
  drawPeople();
  redraw();
}

// --- what was opened ------------------------------------------------------------------------------------------------

const facts = (pairs) => el("dl", null, pairs.filter(([, value]) => value !== null && value !== "").map(([name, value]) => [el("dt", null, name), el("dd", null, value)]).flat());
const list = (rows) => el("ul", null, rows.map((row) => el("li", null, row)));
const titled = (text, ...rows) => rows.flat().length ? [el("h3", null, text), ...rows] : [];
const bytes = (many) => many === null ? "" : many >= 2 ** 30 ? `${(many / 2 ** 30).toFixed(1)} GiB` : `${Math.round(many / 2 ** 20)} MiB`;

const VIEWS = {
  async pc(name) {
    const worker = await ask("worker", { name });
    const [style, words] = said(worker);
    const slots = worker.slots.map((slot) => {
      const task = slot.running, bag = task && (state.bags.find((row) => row.bag === task.bag) || { bag: task.bag, name: task.bag });
      const runs = task ? [bagLink(bag), " ", taskLink(task.bag, task.item), ` for ${duration(task.elapsed_s)} of ${duration(task.runtime_s)}`,
        task.elapsed_s > task.runtime_s ? el("b", { class: "warn" }, " late") : "", slot.copy ? " (a copy)" : "", task.rank === null ? "" : ` rank ${task.rank} of ${task.ranks}`] : ["free"];
      const then = slot.ahead + slot.queued ? `; then ${count(slot.ahead + slot.queued, "task")}, ${duration(slot.ahead_s + slot.queued_s)}` : "";
      return [`slot ${slot.slot}: `, ...runs, then];
    });
    const about = state.events.filter((event) => event.facts.name === name).slice(-20).reverse();
    return [name, [
      facts([
        ["state", el("span", { class: style }, words)],
        ["trouble", worker.note && el("span", { class: "bad" }, given(worker.note))],
        ["paused", given(worker.paused)], ["drained by", worker.drained_by === null ? "" : given(worker.drained_by)],
        ["plan", given(worker.plan)], ["host", given(worker.host)], ["site", given(worker.site)],
        ["processors", `${worker.processors}, speed ${worker.speed.toFixed(2)}, ${Math.round(100 * worker.load)}% used by others`],
        ["memory", bytes(worker.memory)], ["has", given([...worker.labels, ...worker.resources].join(", "))], ["Python", given(worker.pythons.join(", "))],
        ["last heard", `${duration(worker.silent_s)} ago`], ["tasks ended", worker.ended.toLocaleString("en")],
        ["keeps its hours", worker.hours && worker.hours.early_s !== null ? `goes ${duration(Math.abs(worker.hours.early_s))} ${worker.hours.early_s > 0 ? "before" : "after"} its plan, of ${count(worker.hours.seen, "window")}` : ""],
      ]),
      ...titled("Slots", list(slots)),
      ...(worker.windows.length ? titled("Next windows", list(worker.windows.map(([starts, lasts]) => `${clock(starts, true)} to ${clock(starts + lasts, true)}, ${duration(lasts)}`))) : []),
      ...(about.length ? titled("Events", el("ul", null, about.map(eventRow))) : []),
    ]];
  },
  async bag(id) {
    const bag = await ask("progress", { bag: id });
    const groups = ["failed", "running", "waiting", "cancelled", "done"].filter((group) => bag[group] || (group === "running" && bag.waiting));
    const [why, output, ...tasks] = await Promise.all([
      bag.waiting ? ask("explain", { bag: id }) : { text: [] }, ask("output", { bag: id }),
      ...groups.map((group) => ask("tasks", { bag: id, state: group })),
    ]);
    const rows = tasks.map((answer, i) => answer.tasks.slice(0, 50).map((task) => [task, groups[i]])).flat();
    const unique = [...new Map(rows.map((row) => [row[0].item, row])).values()];
    return [bag.name || id, [
      facts([
        ["owner", given(bag.owner)], ["id", given(bag.bag)], ["submitted", `${duration(bag.age_s)} ago`],
        ["tasks", `${parts(bag) || "none"} of ${bag.total.toLocaleString("en")}${bag.closed ? "" : ", more may come"}`],
        ["end", whenDone(bag)], ["work left", ended(bag) ? "" : duration(bag.left_s)], ["longest task", duration(bag.longest_s)],
        ["note", bag.note && el("span", { class: "warn" }, given(bag.note))],
      ]),
      progress(bag),
      ...(why.text.length ? titled("Why it waits", list(why.text.slice(0, 12).map(given)), why.text.length > 12 ? el("p", { class: "dim" }, `and ${why.text.length - 12} more lines`) : "") : []),
      ...(unique.length ? titled("Tasks", list(unique.map(([task]) => [taskLink(id, task.item), ` ${task.state}`,
        task.worker ? [" on ", pcLinkIfKnown(task.worker)] : "", task.elapsed_s === null ? "" : `, ${duration(task.elapsed_s)} of ${duration(task.runtime_s)}`].flat()))) : []),
      ...(unique.length < bag.total ? [el("p", { class: "dim" }, `${count(bag.total - unique.length, "more task")}: deskgrid explain ${id} ITEM`)] : []),
      ...(output.output.length ? titled("What its tasks printed last", output.output.slice(-10).reverse().map((row) => [
        el("p", { class: row.state === "done" ? "" : "bad" }, taskLink(id, row.item), ` ${row.state} on `, given(row.worker), ` after ${duration(row.elapsed_s)}`),
        ...[row.error, row.stderr, row.stdout].filter(Boolean).map(pre)])) : []),
    ]];
  },
  async task(id, item) {
    const [why, log] = await Promise.all([ask("explain", { bag: id, item }), ask("logs", { bag: id, item })]);
    const bag = state.bags.find((row) => row.bag === id) || { bag: id, name: id };
    const texts = (ranks) => ranks.map((rank) => [["error", rank.error], ["stderr", rank.stderr], ["stdout", rank.stdout]].filter(([, text]) => text)
      .map(([name, text]) => titled(rank.rank === undefined || rank.rank === null ? name : `${name} of rank ${rank.rank} on ${clean(rank.worker)}`, pre(text)))).flat(2);
    return [`task ${item}`, [
      facts([["bag", bagLink(bag)], ["state", el("span", { class: /error|crash|timeout|failed/.test(log.state) ? "bad" : "" }, log.state)],
        ["on", log.worker === null ? "" : pcLinkIfKnown(log.worker)], [log.state === "running" ? "for" : "took", log.worker === null ? "" : duration(log.elapsed_s)]]),
      list(why.text.map(given)),
      ...texts(log.ranks.length ? [{ error: log.error }, ...log.ranks] : [{ ...log, rank: null }]),
      log.stdout || log.stderr || log.error ? "" : el("p", { class: "dim" }, log.state === "running" ? "It has printed nothing so far." : "Nothing was printed."),
    ]];
  },
};
const pre = (text) => el("pre", { tabindex: 0 }, clean(text));

function named(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}
let opening = 0;
async function open() {
  const [kind, ...names] = location.hash.slice(1).split("/").map(named), mine = ++opening;
  const view = Object.hasOwn(VIEWS, kind) ? VIEWS[kind] : null;
  if (!view || names.length < view.length) { $("detail").hidden = true; return; }
  let title, body;
  try { [title, body] = await view(...names); } catch (error) { [title, body] = [names.join(" "), [el("p", { class: "bad" }, clean(error.message))]]; }
  if (mine !== opening) return;
  const first = $("detail").hidden || $("detail").shown !== location.hash;
  $("detail").hidden = false;
  $("detail").shown = location.hash;
  $("detail-title").textContent = clean(`${kind === "pc" ? "PC" : kind === "bag" ? "Bag" : ""} ${title}`.trim());
  const ends = [...$("detail-body").querySelectorAll("pre")].map((each) => each.scrollTop + each.clientHeight >= each.scrollHeight - 4 ? null : each.scrollTop);
  put($("detail-body"), ...body);
  // The end of an output is shown as it grows, unless somebody reads further up.
  $("detail-body").querySelectorAll("pre").forEach((each, i) => { each.scrollTop = first || (ends[i] ?? null) === null ? each.scrollHeight : ends[i]; });
  if (first) { $("detail").scrollTop = 0; $("detail-title").focus({ preventScroll: true }); }
}
const close = () => { history.pushState(null, "", location.pathname); open(); };

// --- all of it ------------------------------------------------------------------------------------------------------

function drawAll() {
  drawFacts(); drawProblems(); drawPcs(); drawBags(); drawPeople();
  redraw();
}
function take(kind, data) {
  state.heard = performance.now();
  if (kind === "status") {
    Object.assign(state, { grid: data, workers: data.workers, bags: data.bags, at: performance.now() });
    const fresh = new Map(data.bags.map((bag) => [bag.bag, bag]));
    if (state.all) state.all = state.all.map((bag) => fresh.get(bag.bag) || bag);
    drawAll();
  } else if (state.grid) {
    state.grid = { ...state.grid, ...data };
    drawFacts();
  }
  if (data.events !== state.last) lookForEvents().catch(() => {});
}
const stream = new EventSource("live");
stream.addEventListener("status", (event) => take("status", JSON.parse(event.data)));
stream.addEventListener("grid", (event) => take("grid", JSON.parse(event.data)));
stream.addEventListener("error", () => { if (stream.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 5000); });

setInterval(() => {
  const silent = (performance.now() - state.heard) / 1000;
  $("away").hidden = silent < 5;
  $("away").textContent = `! ${stream.readyState === EventSource.OPEN ? "The broker does not answer" : "No connection"}: what you see is ${duration(silent)} old.`;
}, 1000);
setInterval(() => { if (!document.hidden) lookAtTheRest().catch(() => {}); }, 10000);
setInterval(() => { if (!document.hidden && !$("detail").hidden) open(); }, 1500);
lookAtTheRest().catch(() => {});

addEventListener("hashchange", open);
addEventListener("popstate", open);
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !$("detail").hidden) close();
  if (event.key === "/" && document.activeElement.tagName !== "INPUT") { event.preventDefault(); $("search").focus(); }
});
$("close").addEventListener("click", close);
$("search").addEventListener("input", () => { if (state.grid) { drawPcs(); drawBags(); drawPeople(); drawEvents(); redraw(); } });
for (const id of ["show", "range", "show-bags"]) $(id).addEventListener("change", () => { if (state.grid) { drawPcs(); drawBags(); redraw(); } });
document.addEventListener("click", (event) => {
  if (event.target.id === "more") { state.allProblems = !state.allProblems; drawProblems(); }
  if (event.target.id === "all-bags") loadAllBags().catch(() => {});
  if (event.target.dataset.tab && event.target.tagName === "BUTTON") {
    document.body.dataset.tab = event.target.dataset.tab;
    for (const button of document.querySelectorAll("nav button")) button.setAttribute("aria-pressed", button === event.target);
    redraw();
  }
});
if (location.hash) open();
