"""The comparison as Markdown."""

import math

PERFORMER = "performer-pytorch"
WITHOUT = "performer-pytorch, eps = 0"
BEST = "ours, balanced"


def document(results: dict, setting: dict, summary: str, machine: str, versions: str) -> str:
    """The page docs/peers.md."""
    d, length, features, draws = (setting[name] for name in ["d", "L", "M", "draws"])
    parts = [
        f"""# Public implementations, measured

Written by `cargo xtask peers`; do not edit by hand. The programs are in `bench/peers`.

- Versions: {versions}.
- Machine: {machine}.
- Unless a table says otherwise: heads of dimension {d}, {length} tokens, {features} features, means
  over {draws} draws, 32-bit floats in and out, everything else at the package's defaults.
- *Spread* is the standard deviation of the logits `q·k/√d` over the keys of a query.
- *Uneven* tokens have coordinates of decreasing spread and nonzero means, like trained heads.
  *Even* tokens have identically distributed coordinates of mean zero, the worst case for every family.
- Ours is the library's `attend` example. *Pos* uses the same features as the packages (FAVOR+), so
  it isolates the effect of the numerics. *Balanced* is the default family.

## In short

{summary}
## Padding

How far the outputs of 192 valid tokens move, relative to their norm, when 64 masked tokens are
appended. Uneven tokens, spread 1.

{plain_table(results["padding"], "contents of the padding")}
`performer-pytorch` sets the values of masked tokens to zero, but their keys stay in the denominator
and in the maximum that is subtracted from all keys. `fast-transformers` removes masked keys from both
sums. In ours, masked keys enter no sum, no maximum and no fit.

## The future

How far the causal outputs of the first {length // 2} tokens move when later tokens change, in the same
unit as the errors below. Uneven tokens.

{plain_table(results["future"], "what changes")}
`performer-pytorch` subtracts one maximum over all keys, later ones included, and then adds ε to each
feature, so the maximum does not cancel. With `stabilize=True` the feature map of `fast-transformers`
also takes a maximum over the whole sequence; that is not its default. Our causal maps are fitted on
other tokens beforehand.

## Accuracy

Error and distance from the plain mean of the values. The unit of both is the distance between exact
attention and the plain mean: **an error of 1 is no better than ignoring the queries**, and at a
distance of 0 from the mean the output *is* the mean.
""",
        accuracy_table("Uneven tokens", results["uneven"]),
        accuracy_table("Even tokens", results["even"]),
    ]
    for name, table in results["heads"].items():
        caption = f"Heads of a trained model, median of them all: `{name}`, first {length} tokens"
        parts.append(accuracy_table(caption, {"": table}))
    parts.append(
        f"""The ε of `performer-pytorch` (1e-4 per feature) outweighs the features from a spread of about 1
upwards: its output is then the plain mean of the values, whatever the queries are. Its error stays
near 1, lower than noise would give, which hides the failure. Without the ε (`eps = 0` in its own
functions) it is plain FAVOR+ again, until its features underflow (below).

On even tokens at a spread of 0.5 or more, nothing works with {features} features, ours included.
This is a limit of random features, not of an implementation. `favor::diagnose` predicts it.

## Large logits

The same for absurdly large logits, or the fraction of outputs that are NaN. Uneven tokens.
"""
    )
    parts.append(accuracy_table("", results["large"], share=True))
    parts.append(
        """With its defaults, no package returns NaN or infinity. `performer-pytorch` returns the plain mean, and
`fast-transformers` zeros, because its features fall below the 1e-6 of its denominator. Without the ε,
`performer-pytorch` divides zero by zero. Ours stays finite without an ε; at these spreads attention
picks single keys, and no practical number of features can follow it.

## How it was installed

From the Python package index, with `bench/peers/requirements.txt`. `pytorch-fast-transformers` is
compiled from source. It calls `torch.qr`, which torch has since removed, so the comparison
substitutes `torch.linalg.qr`; otherwise its `Favor` feature map would not run with this torch.
"""
    )
    return "\n".join(parts)


def summary(results: dict, setting: dict) -> str:
    """The most important figures."""
    who = [name for name in results["padding"] if name != "ours, Pos (FAVOR+)"]
    rows = [
        ("valid outputs move when padding is appended", worst(results["padding"], who)),
        ("past outputs move when the future changes", worst(results["future"], who)),
    ]
    for spread in [0.5, 1.0, 2.0]:
        table = results["uneven"][spread]
        rows.append((f"error at logit spread {spread:g}", [table[n]["error"] for n in who]))
    for name, table in results["heads"].items():
        layer = name.split("_layer")[1].split("_")[0] if "_layer" in name else name
        rows.append(
            (f"error on MiniLM heads, layer {layer}", [table[n]["error"] for n in who]),
        )
    lines = [line(["", *who]), line(["---"] * (len(who) + 1))]
    lines += [line([title, *map(number, values)]) for title, values in rows]
    return "\n".join(lines) + "\n"


def plain_table(table: dict, corner: str) -> str:
    columns = list(next(iter(table.values())))
    lines = [line([corner, *columns]), line(["---"] * (len(columns) + 1))]
    lines += [line([name, *(number(row[c]) for c in columns)]) for name, row in table.items()]
    return "\n".join(lines) + "\n"


def accuracy_table(caption: str, tables: dict, share: bool = False) -> str:
    spreads = list(tables)
    names = list(tables[spreads[0]])
    head = ["error / distance from the mean", *(f"spread {s:g}" if s else "" for s in spreads)]
    lines = [line(head), line(["---"] * len(head))]
    for name in names:
        cells = []
        for spread in spreads:
            row = tables[spread][name]
            if share and row["non-finite"] > 0:
                cells.append(f"{100 * row['non-finite']:.0f}% NaN")
            else:
                cells.append(f"{number(row['error'])} / {number(row['from mean'])}")
        lines.append(line([name, *cells]))
    title = f"{caption}:\n\n" if caption else ""
    return title + "\n".join(lines) + "\n"


def worst(table: dict, names: list[str]) -> list[float]:
    return [max(table[name].values()) for name in names]


def line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if value == 0:
        return "0"
    return f"{value:.2f}" if value >= 0.005 else f"{value:.0e}".replace("e-0", "e-")
