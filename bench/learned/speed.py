"""The time of learning, ours and the same in PyTorch, taking turns."""

from __future__ import annotations

import time

import torch
from form import Form, learn
from kinds import Setting
from subject import Subject

import favor_sharp as fs


def speed(subject: Subject, train: list[dict], setting: Setting, steps: int, rounds: int) -> dict:
    """Seconds for all heads with so many steps: ours in full, PyTorch's from a twentieth of the steps of each
    layer."""
    layers = [calls for _, calls in subject.calls(train)]
    best = {"ours": float("inf"), "torch": float("inf")}
    fewer = max(steps // 20, 1)
    for _ in range(rounds):
        start = time.perf_counter()
        for q, k, v, _ in layers:
            fs.learn_maps(q.numpy(), k.numpy(), v.numpy(), **setting.arguments(), steps=steps)
        best["ours"] = min(best["ours"], time.perf_counter() - start)
        start = time.perf_counter()
        for q, k, _, _ in layers:
            form = Form(q.shape[1], q.shape[3], setting.features, hedgehog=False, seed=0)
            learn(form, q, k, None, near=setting.keys.near, steps=fewer, rate=0.02)
        best["torch"] = min(best["torch"], (time.perf_counter() - start) * steps / fewer)
    return {**best, "threads": torch.get_num_threads()}
