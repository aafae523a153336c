"""The style of the page, in light and dark mode, and the script of its only button."""

from lformer.drawing import themes

STYLE = f"""
{themes()}
*{{box-sizing:border-box}}
html{{scroll-behavior:smooth;scroll-padding-top:64px}}
@media (prefers-reduced-motion:reduce){{html{{scroll-behavior:auto}}}}
body{{margin:0;background:var(--page);color:var(--ink);
font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}}
.skip{{position:absolute;left:-999px}}
.skip:focus{{left:12px;top:12px;background:var(--card);padding:8px 12px;z-index:2}}
:focus-visible{{outline:3px solid var(--fill);outline-offset:2px;border-radius:3px}}
nav{{position:sticky;top:0;z-index:1;background:var(--page);border-bottom:1px solid var(--edge)}}
nav ul{{display:flex;flex-wrap:wrap;gap:4px 20px;align-items:center;list-style:none;margin:0 auto;padding:10px 24px;
max-width:1000px}}
nav a{{color:var(--soft);text-decoration:none;font-size:14px}} nav a:hover{{color:var(--ink);text-decoration:underline}}
nav li:last-child{{margin-left:auto}}
button{{font:inherit;font-size:13px;color:var(--ink);background:var(--card);border:1px solid var(--edge);
border-radius:6px;padding:3px 12px;cursor:pointer}}
main{{max-width:1000px;margin:0 auto;padding:28px 24px 72px}}
h1{{font-size:27px;line-height:1.2;margin:0 0 6px;overflow-wrap:anywhere}} h2{{font-size:19px;margin:0 0 4px}}
h3{{font-size:15px;margin:12px 0 2px}} article h3{{margin-top:0}} article svg+p{{margin-top:10px}}
p{{margin:0 0 8px;max-width:74ch}} .soft{{color:var(--soft)}} .lead{{font-size:17px;margin-bottom:14px}}
.good{{color:var(--good)}} .bad{{color:var(--bad)}}
.tiles{{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:14px;margin:18px 0 8px}}
.tile,section,article{{background:var(--card);border:1px solid var(--edge);border-radius:10px}}
.tile{{padding:14px 18px}} .tile b{{display:block;font-size:26px;line-height:1.25;font-variant-numeric:tabular-nums}}
.tile span{{color:var(--soft);font-size:13px;display:block}}
.tile .good{{color:var(--good)}} .tile .bad{{color:var(--bad)}}
section{{padding:22px 24px;margin-top:22px}} article{{padding:16px 18px;margin-top:14px;background:var(--page)}}
.pair{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(380px,100%),1fr));gap:8px 28px;margin-top:14px}}
figure{{margin:10px 0 0;min-width:0}} figcaption{{font-weight:600;font-size:14px}}
dl{{display:grid;grid-template-columns:max-content 1fr;gap:3px 18px;margin:10px 0 0}}
dt{{color:var(--soft)}} dd{{margin:0;overflow-wrap:anywhere}}
svg{{width:100%;height:auto;display:block;margin-top:6px;font-size:12.5px;fill:var(--ink);overflow:visible}}
svg .small{{font-size:11.5px;fill:var(--soft)}} svg .strong{{font-weight:600;fill:var(--ink)}}
svg path{{fill:none}} .grid{{stroke:var(--grid)}} .axis{{stroke:var(--soft)}} .faint{{stroke:var(--edge)}}
.mark{{stroke:var(--mark);stroke-width:1.5;stroke-dasharray:5 4}}
.whisker{{stroke:var(--ink);stroke-width:1.4;opacity:.75}}
.curve{{stroke-width:2;stroke-linejoin:round}} .thread{{stroke:var(--thread);stroke-width:1.3}}
.fill,.point,.best{{fill:var(--fill)}} .band{{fill:var(--fill);opacity:.32}} svg .arrow{{fill:var(--fill)}}
.cloud{{fill:var(--fill);opacity:.45}} .best{{fill:var(--ink)}} .idle{{fill:var(--soft)}}
svg .raise{{fill:var(--raise)}} svg .lower{{fill:var(--lower)}}
svg .raise,svg .lower{{stroke:var(--page);stroke-width:.8}}
{"".join(f".c{k}{{stroke:var(--c{k})}} .dot{k}{{fill:var(--c{k})}}" for k in range(6))}
.up{{color:var(--raise)}} .down{{color:var(--lower)}}
details{{margin-top:8px}} summary{{cursor:pointer;color:var(--soft);font-size:13px;width:max-content;max-width:100%}}
.wide{{overflow-x:auto;max-height:420px;overflow-y:auto}}
table{{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13.5px;margin-top:8px}}
th,td{{text-align:right;padding:4px 14px 4px 0;border-bottom:1px solid var(--grid);white-space:nowrap}}
th{{color:var(--soft);font-weight:500}} th:first-child,td:first-child{{text-align:left}}
tr th[scope=row]{{color:var(--ink);font-weight:400}} td.best-of{{font-weight:700}}
.matrix td{{text-align:center;min-width:64px;padding:8px 10px;border:3px solid var(--card);
background:color-mix(in srgb,var(--fill) calc(var(--share)*42%),var(--page))}}
.matrix th{{padding:4px 10px}} .matrix thead th+th{{text-align:center}}
.role{{display:inline-block;font-size:12px;font-weight:600;border:1px solid var(--edge);border-radius:99px;
padding:0 10px;margin-right:8px}}
footer{{color:var(--soft);font-size:13px;margin-top:24px}}
@media print{{nav{{display:none}} section,article,figure{{break-inside:avoid}} details{{display:none}}}}
"""

SCRIPT = """
(function(){var root=document.documentElement,button=document.getElementById('theme');
var dark=window.matchMedia('(prefers-color-scheme: dark)');
function now(){return root.dataset.theme||(dark.matches?'dark':'light')}
function show(){button.textContent=now()==='dark'?'Light page':'Dark page'}
button.hidden=false;
button.addEventListener('click',function(){root.dataset.theme=now()==='dark'?'light':'dark';show()});
dark.addEventListener('change',show);show()})();
"""
