# /// script
# dependencies = ["torch"]
#
# [tool.skedge]
# epochs = 10
# chunks = 2
# minibatches = 4
# minibatch_s = 0.1
# upload_edge_s = [0.2, 0.4]
# upload_cloud_s = [60, 90]
# resources = {workers = 2, worker_type = "gpu", ps_type = "cpu"}
# ///
"""Fits a line through noisy points: `skedge submit docs/examples/script/line.py`."""

from functools import partial

import torch
from torch import nn
from torch.nn.functional import mse_loss


def points(part):
    """64 points of the line y = 3 x - 1; each part has its own."""
    draw = torch.Generator().manual_seed(part)
    x = torch.rand(64, 1, generator=draw)
    return x, 3 * x - 1 + 0.01 * torch.randn(64, 1, generator=draw)


def error(model, batch):
    """The mean squared error."""
    x, y = batch
    return float(mse_loss(model(x), y))


def job():
    """What skedge trains."""
    from skedge.live.training import Training

    optimizer = partial(torch.optim.SGD, lr=0.5, momentum=0.5)
    return Training(partial(nn.Linear, 1, 1), optimizer, mse_loss, points, partial(points, -1), metric=error)
