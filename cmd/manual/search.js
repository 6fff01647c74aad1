// The index and the ranking of search.go, over the text of this page.
const inHeading = 12, inTitle = 3, developers = 0.5;
const noise = "a an and can do for how i in is it much my of on or the to what which with".split(" ");
const words = text => text.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase().match(/[a-z0-9]+/g) || [];
const wanted = query => [...new Set(words(query).map(w => w.length > 3 && /[^s]s$/.test(w) ? w.slice(0, -1) : w).filter(w => !noise.includes(w)))];
const matches = (text, want) => text === want || want.length >= 3 && text.startsWith(want);

let index;
function sections() {
  if (index) return index;
  index = [];
  for (const article of document.querySelectorAll("article")) {
    const page = article.parentElement;
    let s;
    for (const e of article.children) {
      if (/^H[1-4]$/.test(e.tagName)) {
        s = {anchor: e.id, page: page.dataset.short, heading: e.textContent, developers: "developers" in page.dataset, lines: [], counts: new Map(), length: 0};
        words(s.heading).forEach((w, _, all) => count(s, w, inHeading / Math.sqrt(all.length)));
        words(page.dataset.short + " " + page.dataset.title).forEach(w => count(s, w, inTitle));
        index.push(s);
        continue;
      }
      const rows = e.className === "table" ? [...e.querySelectorAll("tr")].map(r => [...r.children].map(c => c.textContent).join("  ")) : [e.textContent];
      for (const line of rows.join("\n").split("\n")) {
        if (line.trim()) s.lines.push(line.trim());
        for (const w of words(line)) { count(s, w, 1); s.length++; }
      }
    }
  }
  return index;
}
function count(s, w, n) { s.counts.set(w, (s.counts.get(w) || 0) + n); }

function search(query) {
  const all = sections(), total = all.reduce((n, s) => n + s.length, 0), want = wanted(query);
  const score = all.map(() => 0), found = all.map(() => 0);
  for (const w of want) {
    const counts = all.map(s => { let n = 0; for (const [text, c] of s.counts) if (matches(text, w)) n += c; return n; });
    const sectionsWith = counts.filter(n => n > 0).length;
    counts.forEach((n, i) => {
      if (!n) return;
      found[i]++;
      score[i] += Math.log(1 + all.length / sectionsWith) * n / (n + 0.8 + 0.7 * (all[i].length * all.length / total));
    });
  }
  return all.map((s, i) => ({section: s, score: score[i] * found[i] * found[i] * (s.developers ? developers : 1)}))
    .filter(r => r.score > 0)
    .sort((a, b) => Math.abs(b.score - a.score) > 1e-9 ? b.score - a.score : 0)
    .map(r => ({...r, line: best(r.section.lines, want)}));
}
function best(lines, want) {
  let line = "", most = -1;
  for (const l of lines) {
    const n = want.filter(w => words(l).some(text => matches(text, w))).length;
    if (n > most) { line = l; most = n; }
  }
  return line;
}

// One page at a time: that of the address.
const input = document.getElementById("search"), results = document.getElementById("results");
function show() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1))) || document.querySelector(".page");
  const page = target.closest(".page") || document.querySelector(".page");
  for (const p of document.querySelectorAll(".page")) p.classList.toggle("on", p === page);
  for (const a of document.querySelectorAll("nav a")) {
    const here = a.hash === "#" + page.id;
    a.classList.toggle("on", here);
    if (here) a.scrollIntoView({block: "nearest"});
  }
  for (const list of page.querySelectorAll("details")) list.open = innerWidth > 1200; // beside the text
  document.title = page.dataset.short + " – Airlift";
  document.body.classList.remove("menu", "searching");
  if (target === page) scrollTo(0, 0); else target.scrollIntoView();
}
function find() {
  const found = search(input.value).slice(0, 20);
  document.body.classList.toggle("searching", input.value.trim() !== "");
  results.replaceChildren(...found.map(r => {
    const a = document.createElement("a"), small = document.createElement("small"), line = document.createElement("p");
    a.href = "#" + r.section.anchor;
    a.append(r.section.heading);
    small.textContent = r.section.page;
    line.textContent = r.line;
    a.append(small, line);
    return a;
  }));
  if (!found.length) results.textContent = "Nothing found.";
}
addEventListener("hashchange", show);
input.addEventListener("input", find);
results.addEventListener("click", e => { if (e.target.closest("a")) { input.value = ""; document.body.classList.remove("searching"); } });
input.addEventListener("keydown", e => {
  const first = results.querySelector("a");
  if (e.key === "Enter" && first) { first.click(); input.blur(); }
  if (e.key === "Escape") { input.value = ""; find(); input.blur(); }
});
addEventListener("keydown", e => { if (e.key === "/" && document.activeElement !== input) { e.preventDefault(); input.focus(); } });
document.getElementById("menu").addEventListener("click", () => document.body.classList.toggle("menu"));
show();
