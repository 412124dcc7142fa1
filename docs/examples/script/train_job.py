"""Trains a network on a folder of images, FOLDER/{train,test}/SITE/CLASS/NAME.npy: `python train.py FOLDER`."""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, Dataset

EPOCHS = 6


class Images(Dataset):
    """The images of a folder, with noise where they are trained on."""

    def __init__(self, folder, noise=0.0):
        self.files, self.noise = sorted(Path(folder).rglob("*.npy")), noise

    def __len__(self):
        return len(self.files)

    def __getitem__(self, number):
        image = torch.from_numpy(np.load(self.files[number])).float()[None]
        return image + self.noise * torch.randn_like(image), int(self.files[number].parent.name)


def collate(samples):
    """A mini-batch: images, how dark they are, and their classes."""
    images, labels = zip(*samples, strict=True)
    images = torch.stack(images)
    return {"image": images, "ink": images.mean(dim=(2, 3)), "label": torch.tensor(labels)}


class Net(nn.Module):
    """A network of two inputs."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(257, 10))

    def forward(self, image, ink):
        return self.head(torch.cat([self.body(image).flatten(1), ink], dim=1))


def step(model, batch):
    """Leave clipped gradients in the model."""
    loss = cross_entropy(model(batch["image"], batch["ink"]), batch["label"], label_smoothing=0.05)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return loss.item()


@torch.no_grad()
def worst_recall(model, batches):
    """Recall of the class that is recognised worst."""
    model.eval()
    right, all_of = torch.zeros(10), torch.zeros(10)
    for batch in batches:
        guess, label = model(batch["image"], batch["ink"]).argmax(dim=1), batch["label"]
        all_of += torch.bincount(label, minlength=10)
        right += torch.bincount(label[guess == label], minlength=10)
    return float((right / all_of).min())


make_optimizer = partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-4)


def batches_of(folder, noise=0.0):
    """Mini-batches of all images below a folder."""
    return DataLoader(Images(folder, noise), batch_size=32, shuffle=True, collate_fn=collate)


def job(folder, steps):
    """What skedge trains: chunk d is read from FOLDER/train/d, on the server that trains it."""
    from skedge.live.training import Training

    schedule, test = partial(CosineAnnealingLR, T_max=steps), partial(batches_of, f"{folder}/test")
    loader = lambda site: batches_of(f"{folder}/train/{site}", noise=0.05)
    return Training(Net, make_optimizer, loader=loader, step=step, scheduler=schedule, test=test, metric=worst_recall)


def main(folder):
    """Train, print what came out, and keep the parameters."""
    torch.manual_seed(0)
    model, batches = Net(), batches_of(f"{folder}/train", noise=0.05)
    optimizer = make_optimizer(model.parameters())
    schedule = CosineAnnealingLR(optimizer, EPOCHS * len(batches))
    for _ in range(EPOCHS):
        model.train()
        for batch in batches:
            optimizer.zero_grad()
            step(model, batch)
            optimizer.step()
            schedule.step()
    print(f"worst recall {worst_recall(model, batches_of(f'{folder}/test')):.3f}")
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main(sys.argv[1])
