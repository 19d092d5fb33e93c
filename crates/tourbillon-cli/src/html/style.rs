//! The style of a page: light or dark as the reader's system says, and one column on a phone.

/// Has no `<` and no `&`, which XML would read as markup.
pub(super) const STYLE: &str = "
:root {
  color-scheme: light dark;
  --page: #fbfbfa; --card: #ffffff; --line: #dcdcd8; --text: #1d1d1b; --faint: #63635e;
  --good: #1a7f45; --bad: #b3261e; --skip: #8a6100; --one: #1f6fd0; --two: #c2570c; --three: #4d7c0f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #161615; --card: #1f1f1e; --line: #3a3a37; --text: #ececea; --faint: #a3a39d;
    --good: #58c98a; --bad: #ff8a80; --skip: #e3b341; --one: #6cb0ff; --two: #ff9d5c; --three: #a7d155;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0; }
h2 { font-size: 1.15rem; margin: 0 0 .75rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 .5rem; }
p { margin: .5rem 0; }
section, header { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: 1rem 1.1rem; margin: 0 0 1rem; }
header { border-left: .4rem solid var(--good); }
header.broken { border-left-color: var(--bad); }
.faint { color: var(--faint); }
.good { color: var(--good); } .bad { color: var(--bad); } .skip { color: var(--skip); }
.verdict { font-weight: 600; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .6rem; margin: 1rem 0 0; padding: 0; list-style: none; }
.tiles li { border-top: 1px solid var(--line); padding-top: .4rem; }
.tiles b { display: block; font-size: 1.2rem; font-variant-numeric: tabular-nums; }
.promises { list-style: none; margin: 0; padding: 0; }
.promises li { display: grid; grid-template-columns: 3rem 11rem 4.5rem 1fr; gap: 0 .75rem; padding: .45rem 0; border-top: 1px solid var(--line); }
.promises li:first-child { border-top: 0; }
.promises p { margin: 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .5rem; border-top: 1px solid var(--line); white-space: nowrap; }
thead th { border-top: 0; color: var(--faint); font-weight: 600; }
th:first-child { text-align: left; }
tbody th { font-weight: 400; }
tfoot th, tfoot td { font-weight: 600; }
.bars td, .bars th { border-top: 0; padding: .1rem .5rem; }
.bars th:first-child { text-align: right; width: 6rem; }
.bars td:last-child { width: 7rem; }
.bar { display: block; height: 1rem; min-width: 2px; background: var(--one); border-radius: 0 .2rem .2rem 0; }
.none { visibility: hidden; }
svg { display: block; width: 100%; max-width: 36rem; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: var(--faint); }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.one { stroke: var(--one); } .two { stroke: var(--two); stroke-dasharray: 7 3; } .three { stroke: var(--three); stroke-dasharray: 2 3; }
.legend { list-style: none; margin: .5rem 0 0; padding: 0; }
.legend svg { display: inline-block; width: 2rem; height: .6rem; vertical-align: middle; margin-right: .4rem; }
.facts { margin: 0; }
.facts div { display: grid; grid-template-columns: 11rem 1fr; gap: 0 .75rem; padding: .25rem 0; border-top: 1px solid var(--line); }
.facts div:first-child { border-top: 0; }
.facts dt { color: var(--faint); } .facts dd { margin: 0; overflow-wrap: anywhere; }
pre { background: var(--page); border: 1px solid var(--line); border-radius: .4rem; padding: .7rem; margin: .5rem 0; white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  .promises li { grid-template-columns: 3rem 1fr auto; }
  .promises li > div { grid-column: 1 / -1; }
  .facts div { grid-template-columns: 1fr; }
  .bars th:first-child { width: 4.5rem; padding-left: 0; } .bars td:last-child { width: 5.5rem; padding-right: 0; }
  .ledger thead { display: none; }
  .ledger tr { display: grid; grid-template-columns: 1fr 1fr; gap: 0 1.5rem; padding: .4rem 0; border-top: 1px solid var(--line); }
  .ledger th { grid-column: 1 / -1; font-weight: 600; }
  .ledger th, .ledger td { border: 0; padding: .05rem 0; }
  .ledger td { display: flex; justify-content: space-between; }
  .ledger td::before { content: attr(data-name); color: var(--faint); font-weight: 400; }
}
@media print { section, header { break-inside: avoid; } }
";
