package overview

// style is for screens of all widths, light and dark, and for A4. A state is always a word, too.
const style = `:root{--bg:#f6f7f9;--panel:#fff;--text:#1b1f24;--soft:#59636e;--edge:#d5dae1;--good:#1a7f37;--odd:#9a6700;--bad:#c5221f;--goodbg:#e6f4ea;--oddbg:#fff4d6;--badbg:#fdecea;--blue:#0b57d0}
@media (prefers-color-scheme:dark){:root{--bg:#0f1318;--panel:#171c23;--text:#e6e9ee;--soft:#9aa5b1;--edge:#303843;--good:#4cc36a;--odd:#e0b03c;--bad:#ff7b72;--goodbg:#12301c;--oddbg:#352a0d;--badbg:#3b1716;--blue:#7cacf8}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1120px;padding:0 1.25rem 2rem;background:var(--bg);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;overflow-wrap:anywhere}
header{padding:1.75rem 0 1rem}
h1{margin:0;font-size:1.9rem;line-height:1.2}
h2{margin:0 0 .75rem;font-size:1.15rem}
h3{margin:0 0 .5rem;font-size:.8rem;letter-spacing:.06em;text-transform:uppercase;color:var(--soft)}
h4{margin:0;font-size:1rem}
p{margin:.25rem 0}
.kind,.time,footer,.empty,small,.why{color:var(--soft)}
.kind{margin:0;font-size:.8rem;letter-spacing:.06em;text-transform:uppercase}
.verdict{display:inline-block;margin:.6rem 0 0;padding:.25rem .75rem;border-radius:1rem;font-weight:600}
.verdict.good{background:var(--goodbg);color:var(--good)}.verdict.bad{background:var(--badbg);color:var(--bad)}
section,.tiles>div{background:var(--panel);border:1px solid var(--edge);border-radius:.6rem}
section{margin:1rem 0;padding:1.1rem 1.25rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(10.5rem,100%),1fr));gap:.75rem;margin:0}
.tiles>div{padding:.7rem .9rem;border-left:4px solid var(--edge)}.tiles>.bad{border-left-color:var(--bad)}
dt{font-size:.8rem;color:var(--soft)}dd{margin:0;font-weight:600}
.entry{margin:0 auto;width:fit-content;max-width:100%;padding:.5rem 1rem;border:2px solid var(--blue);border-radius:.5rem;text-align:center;font-weight:600}
.entry span{color:var(--blue)}.entry small{font-weight:400}
.line{width:2px;height:1.1rem;margin:0 auto;background:var(--edge)}
.group{padding:.8rem;border:1px dashed var(--edge);border-radius:.6rem}
.group+.group{margin-top:1rem}
.cards{display:grid;align-items:start;grid-template-columns:repeat(auto-fill,minmax(min(12rem,100%),1fr));gap:.7rem}
.card{padding:.6rem .8rem;border:1px solid var(--edge);border-top:4px solid var(--edge);border-radius:.5rem;font-size:.9rem}
.card .state{font-weight:600}
.card.good{border-top-color:var(--good)}.card.good .state{color:var(--good)}
.card.odd{border-top-color:var(--odd)}.card.odd .state{color:var(--odd)}
.card.bad{border-top-color:var(--bad);background:var(--badbg)}.card.bad .state{color:var(--bad)}
.serves b{display:inline-block;margin:.1rem .2rem 0 0;padding:0 .5rem;border:1px solid var(--blue);border-radius:1rem;color:var(--blue);font-size:.8rem;font-weight:500}
b.bad{color:var(--bad)}b.odd{color:var(--odd)}
table{width:100%;border-collapse:collapse;font-size:.9rem}
th{text-align:left;overflow-wrap:normal;white-space:nowrap;font-weight:600;color:var(--soft);font-size:.8rem}
th,td{padding:.4rem .6rem .4rem 0;border-bottom:1px solid var(--edge);vertical-align:top}
td:first-child{max-width:14rem}
tbody tr:last-child td{border-bottom:0}
ul,ol{margin:0;padding-left:1.2rem}ul:empty{display:none}
.findings li{margin:.5rem 0}
code,pre{font:.85em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{margin:.4rem 0;padding:.7rem;border:1px solid var(--edge);border-radius:.4rem;background:var(--bg);white-space:pre-wrap}
.row{display:grid;grid-template-columns:minmax(5rem,11rem) 1fr minmax(8rem,14rem);gap:.8rem;align-items:center;padding:.15rem 0;font-size:.85rem}
.who{font-weight:600}.what{color:var(--soft)}
.track{position:relative;height:.9rem;border-radius:.3rem;background:var(--bg)}
.track i{position:absolute;top:0;bottom:0;min-width:3px;max-width:100%;border-radius:.3rem;background:var(--good)}
.track i.bad{background:var(--bad)}.track i.odd{background:var(--odd)}
footer{padding:.5rem 0;font-size:.85rem}
@media screen and (max-width:700px){
body{padding:0 .75rem 1.5rem}
section{padding:.9rem}
thead{display:none}
table,tbody,tr,td{display:block;width:100%}
tr{padding:.4rem 0;border-bottom:1px solid var(--edge)}
td{display:grid;grid-template-columns:7.5rem 1fr;gap:.5rem;padding:.1rem 0;border:0}
td::before{content:attr(data-column);color:var(--soft)}
.row{grid-template-columns:1fr 1fr;gap:.1rem .8rem}
td:first-child{max-width:none;font-weight:600}td::before{font-weight:400}.track{grid-column:1/-1;order:3}.what{text-align:right}
}
@page{size:A4;margin:14mm}
@media print{
:root{--bg:#fff;--panel:#fff;--text:#000;--soft:#444;--edge:#bbb;--good:#1a7f37;--odd:#9a6700;--bad:#c5221f;--goodbg:#e6f4ea;--oddbg:#fff4d6;--badbg:#fdecea;--blue:#0b57d0}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}
body{max-width:none;padding:0;font-size:10pt}
header{padding-top:0}
section{padding:.6rem .8rem}
h2,h3,h4{break-after:avoid}
.card,.row,tr,li,.tiles>div,.entry{break-inside:avoid}
.track{border:1px solid var(--edge)}
}
`
