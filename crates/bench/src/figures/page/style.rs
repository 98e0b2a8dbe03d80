//! The style of the page.

/// Charts keep at least 24 rem, a phone's width, and share a row where the window is wider.
pub(super) const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#57606a;--paper:#fff;--line:#d0d7de;--faint:#eaeef2;--link:#0550ae}\
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9198a1;--paper:#0d1117;--line:#3d444d;--faint:#21262d;--link:#79c0ff}\
figure svg{filter:invert(.92) hue-rotate(180deg)}}\
body{margin:0 auto;max-width:84rem;padding:1rem;font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper)}\
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2.5rem;border-top:1px solid var(--line);padding-top:1rem}\
h3{font-size:1rem;margin:1.5rem 0 .25rem}p,li,dd{max-width:60rem;overflow-wrap:anywhere}a{color:var(--link)}\
.claims li{margin:.5rem 0;font-weight:600}dl{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1rem}\
dt{color:var(--soft)}dd{margin:0}nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;padding:0;list-style:none}\
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:1.5rem}\
figure{margin:0;max-width:34rem;display:flex;flex-direction:column;justify-content:space-between}\
figure svg{width:100%;height:auto;display:block}.hover{stroke:transparent;stroke-width:2}.hover:hover{stroke:#000}\
figcaption{color:var(--soft);font-size:.9rem}figcaption b{color:var(--ink)}\
.wide{overflow-x:auto;margin:1rem 0}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}\
th,td{padding:.3rem 1.25rem .3rem 0;text-align:right;white-space:nowrap}th:first-child,td:first-child{text-align:left;white-space:normal;min-width:6rem}\
th{border-bottom:1px solid var(--line);font-weight:600}td{border-bottom:1px solid var(--faint)}\
code{display:block;white-space:pre-wrap;overflow-wrap:anywhere;font-size:.85rem;padding:.5rem;border:1px solid var(--line);border-radius:6px}\
.doubt{border-left:4px solid #d55e00;padding-left:.75rem}";
