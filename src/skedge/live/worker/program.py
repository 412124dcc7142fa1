"""The :class:`Program` of a job: the source of its ``Training``, and its division into mini-batches.

Importable without PyTorch, which takes seconds to import and which only the jobs' own processes need.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from skedge.core.errors import TrainingError
from skedge.core.model.kinds import kind_of

from .code_archive import digest, install, installed
from .code_errors import told
from .pip_packages import add_packages

if TYPE_CHECKING:
    from skedge.core.model.cluster import Cluster
    from skedge.live.training import Training
    from skedge.scenario.schema import TrainForm


@dataclass(frozen=True)
class Program:
    """The source of a job's :class:`skedge.live.training.Training`, and how its data are divided into mini-batches.

    Attributes
    ----------
    factory
        ``package.module:function``.
    args
        Keyword arguments of the factory.
    chunks, epochs, minibatches
        D_j, E_j, B_j.
    seed
        Seed of the order of samples and of the forward passes' random numbers.
    watch
        True if accuracy is also measured after each epoch, not only at the end.
    shuffle
        True if the samples are shuffled across all chunks, by `seed`: chunks are then alike, and the order in which
        they are trained does not bias the model.
    lr_by_batch
        Samples per round for which the optimizer's learning rate is given: in a round of n samples it is scaled by
        n / `lr_by_batch` (linear scaling, Goyal et al. 2017). None: the same rate in every round.
    local_steps
        Mini-batches that a worker trains by itself in a round, H (local SGD, Stich 2019); 1 is synchronous SGD.
    code
        The archive with the factory's module (:mod:`.code_archive`); empty: the module is installed.
    pip
        Requirements that the code imports, installed where they are missing (:mod:`.pip_packages`).
    connect
        Addresses ``HOST:PORT`` that the code connects to; where jobs are confined it has no other network.
    """

    factory: str
    args: Mapping[str, Any]
    chunks: int
    epochs: int
    minibatches: int
    seed: int = 0
    watch: bool = False
    shuffle: bool = False
    lr_by_batch: int | None = None
    local_steps: int = 1
    code: bytes = field(default=b"", repr=False)
    pip: tuple[str, ...] = ()
    connect: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """Mini-batches of one chunk over all epochs, E_j B_j."""
        return self.epochs * self.minibatches

    def local_minibatches(self, step: int) -> int:
        """Mini-batches of a chunk in the round that begins at `step`: `local_steps`, fewer at the end of an epoch."""
        return min(self.local_steps, self.minibatches - step % self.minibatches)

    def make(self) -> Training:
        """Call the factory.

        Raises
        ------
        TrainingError
            If its packages cannot be installed, the module does not import, has no such function, or the function
            fails; the message says which.
        """
        from skedge.live.training import Training  # noqa: PLC0415 - imports PyTorch

        module, _, name = self.factory.partition(":")
        if not name:
            raise TrainingError(f"factory {self.factory!r}: write it as package.module:function")
        self._packages()
        try:
            if self.code:
                install(self.code, module)
            self.module()  # its digest, taken before the import
            training = getattr(importlib.import_module(module), name)(**self.args)
        except (Exception, SystemExit) as error:
            raise TrainingError(f"factory {self.factory!r} fails: {told(error)}") from error
        if not isinstance(training, Training):
            raise TrainingError(f"factory {self.factory!r} makes a {type(training).__name__}; it must make a Training")
        return training

    def module(self) -> str:
        """SHA-256 of the factory's code, the shipped archive or the installed module, and of the packages of `pip`."""
        code = digest(self.code) if self.code else installed(self.factory.partition(":")[0])
        return digest(f"{code}\n{self._packages()}".encode()) if self.pip else code

    def _packages(self) -> str:
        return add_packages(self.pip) if self.pip else ""

    def check_same(self, module_digest: str) -> None:
        """Check that another process of the job has the same code.

        Raises
        ------
        TrainingError
            If its code differs.
        """
        self.check_same_as(self.module(), module_digest)

    def check_same_as(self, first: str, second: str) -> None:
        """Check that two processes of the job have the same code (:meth:`module`).

        Raises
        ------
        TrainingError
            If their code differs.
        """
        if first != second:
            raise TrainingError(
                f"the module of its factory {self.factory!r} differs between processes (SHA-256 {first[:12]} and "
                f"{second[:12]}); install the same everywhere, or ship it with the job: train.code"
                + ("; or a package of train.pip has another version there: state the version" if self.pip else "")
            )


def program_of(
    train: TrainForm, chunks: int, epochs: int, minibatches: int, cluster: Cluster, code: bytes = b""
) -> Program:
    """The program of a job.

    Parameters
    ----------
    train
        The job's ``train`` in the scenario.
    chunks, epochs, minibatches
        D_j, E_j, B_j.
    cluster
        Its kind decides on shuffling: data that originate at sites stay there and are not shuffled.
    code
        The archive with the factory's module; empty: the module is installed.
    """
    shuffle = kind_of(cluster).shuffles(train.shuffle)
    return Program(
        train.factory, dict(train.args), chunks, epochs, minibatches, train.seed, shuffle=shuffle,
        lr_by_batch=train.lr_by_batch, local_steps=min(train.local_steps, minibatches), code=code, pip=tuple(train.pip),
        connect=tuple(train.connect),
    )  # fmt: skip
