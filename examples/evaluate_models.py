"""A notebook in a plain file: evaluate models on shared items, first local ones, then endpoints that cost.

Editors and Jupytext open it as a notebook: a line that begins with "# %%" begins a cell. It also runs as a
script: python examples/evaluate_models.py
"""

# %% [markdown]
# # Four scikit-learn models, by slices
#
# The handwritten digits that come with scikit-learn: 1,797 images. The slices are images with little and with
# much ink. A model must recognise at least 85% of the digits in *both* slices.

# %%
from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

import evenhand as eh

HERE = Path(__file__).parent

digits = load_digits(as_frame=True)
frame = digits.frame.assign(ink=digits.data.mean(axis=1))
frame["slice"] = pd.cut(
    frame["ink"], [0, frame["ink"].median(), 16], labels=["little ink", "much ink"]
).astype(str)
pixels = list(digits.feature_names)
train, pool = train_test_split(frame, train_size=0.4, random_state=1)

models = {
    "neighbours": KNeighborsClassifier(3).fit(train[pixels], train["target"]),
    "logistic": LogisticRegression(max_iter=300).fit(train[pixels] / 16, train["target"]),
    "tree": DecisionTreeClassifier(max_depth=6, random_state=0).fit(train[pixels], train["target"]),
    "naive Bayes": GaussianNB(var_smoothing=1e-3).fit(train[pixels], train["target"]),
}

# %% [markdown]
# `predict` gets up to 32 images at once. The run stops when the answer is certified; the verdict is about the
# images of the pool. Labels are what costs here: one label serves all four models.

# %%
slices = eh.evaluate(
    models, pool.reset_index(drop=True), groups="slice", target="target", features=pixels, at_least=0.85,
    batch=32, seed=5,
)  # fmt: skip
print("\n".join(slices.words()))

# %% [markdown]
# # Four endpoints with delays, failures and prices
#
# `endpoints.py` serves four stand-ins for language models on this machine. One call in twelve is refused,
# every call costs. The study names the endpoints; `evenhand evaluate` calls eight at once.

# %%
found = importlib.util.spec_from_file_location("endpoints", HERE / "endpoints.py")
assert found is not None
assert found.loader is not None
endpoints = importlib.util.module_from_spec(found)
found.loader.exec_module(endpoints)

folder = Path(tempfile.mkdtemp())
server = endpoints.serve()
study = endpoints.write_study(folder, server.server_address[1])
journal = study.with_suffix(".calls.jsonl")
command = [sys.executable, "-m", "evenhand", "evaluate", str(study), "--json"]

# %% [markdown]
# The evaluation is killed in the middle by `kill -9`. Every call that had ended is in the journal.

# %%
child = subprocess.Popen(command)
while not journal.exists() or journal.read_bytes().count(b"\n") < 150:
    time.sleep(0.02)
child.send_signal(signal.SIGKILL)
child.wait()
calls_before = journal.read_bytes().count(b"\n") - 1
print(f"{calls_before} calls were paid for when the process was killed")

# %% [markdown]
# The same command continues. No call of the journal is made again.

# %%
resumed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
server.shutdown()
server.server_close()
print("\n".join(resumed["words"]))
lines = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()[1:]]
paid_twice = len(lines) - len({(line["policy"], line["item"]) for line in lines})
print(f"{len(lines)} calls in all, {paid_twice} paid twice, {resumed['attempts']} attempts")
