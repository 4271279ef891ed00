"""The manifest: what a shipment consists of, and what a taker believes of it, which is nothing.

    shipment 7f…  epoch 103  term 4
      spark/commits/103                 32 bytes   checksum
      spark/state/0/0/SSTs/4.sst   1000000 bytes   checksum

* Only the shapes that Spark's layers have: a name from outside becomes a path here.
* Names, numbers and sizes are checked before anything is written, and bounded.
* Every checksum is compared with bytes that were read here.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbroken.streams import disk
from unbroken.streams.refuse import refused, refusing

LAYERS_MAX = 100_000
SHIPMENT_BYTES_MAX = 1 << 40
#: Bytes of layers in one answer.
CHUNK_BYTES_MAX = 4 << 20

#: What every checkpoint makes for itself.
OWN = {"boot", "spark/metadata"}
_NAME = re.compile(
    r"(?:spark/offsets|spark/commits|watermarks)/[0-9]{1,18}"
    r"|spark/state(?:/[A-Za-z0-9_][A-Za-z0-9_.-]{0,150}){2,8}"
)
_CHECKSUM = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Layer:
    """One file of a shipment."""

    name: str
    bytes: int
    checksum: str


@dataclass(frozen=True)
class Manifest:
    """What a shipment consists of, sorted by name.

    >>> Manifest("ab", 7, 1, "f", (Layer("../x", 1, "0" * 32),)).checked()
    Traceback (most recent call last):
    ...
    unbroken.errors.UnbrokenError: shipment refused: '../x' is not the name of a layer
      → all processes of a cluster must run one version of Unbroken; take from another replica
    """

    shipment: str
    epoch: int
    term: int
    fingerprint: str
    layers: tuple[Layer, ...]

    @classmethod
    def of(cls, answer: Any) -> Manifest:
        """Reads what `to_dict` made, and believes none of it."""
        with refusing("its manifest cannot be read"):
            layers = tuple(Layer(*entry) for entry in answer["layers"])
            return cls(**{**answer, "layers": layers}).checked()

    def to_dict(self) -> dict[str, Any]:
        """The manifest for the wire and the disk."""
        entries = [[layer.name, layer.bytes, layer.checksum] for layer in self.layers]
        return {**vars(self), "layers": entries}

    def checked(self) -> Manifest:
        """This manifest, if nothing in it leaves its folder or its limits."""
        if not all(isinstance(text, str) for text in (self.shipment, self.fingerprint)):
            raise refused("its id and fingerprint are not text")
        if not all(type(number) is int and number >= 0 for number in (self.epoch, self.term)):
            raise refused(f"epoch {self.epoch!r}, term {self.term!r}")
        if len(self.layers) > LAYERS_MAX:
            raise refused(f"{len(self.layers):,} layers, {LAYERS_MAX:,} is the limit")
        before, total = "", 0
        for layer in self.layers:
            name = layer.name
            if not isinstance(name, str) or not _NAME.fullmatch(name) or disk.TEMPORARY in name:
                raise refused(f"{name!r} is not the name of a layer")
            if name <= before:
                raise refused(f"{name!r} comes after {before!r}")
            if type(layer.bytes) is not int or layer.bytes < 0:
                raise refused(f"{name} has {layer.bytes!r} bytes")
            if not isinstance(layer.checksum, str) or not _CHECKSUM.fullmatch(layer.checksum):
                raise refused(f"{name} has the checksum {layer.checksum!r}")
            before, total = name, total + layer.bytes
        if total > SHIPMENT_BYTES_MAX:
            raise refused(f"{total:,} bytes, {SHIPMENT_BYTES_MAX:,} is the limit")
        return self


def checksum(path: Path) -> str:
    """The checksum of a file's bytes.

    >>> import os
    >>> checksum(Path(os.devnull)) == new_checksum().hexdigest()
    True
    """
    with open(path, "rb") as file:
        return hashlib.file_digest(file, new_checksum).hexdigest()


def new_checksum() -> hashlib.blake2b:
    """A checksum of no bytes yet, for those that come in parts.

    >>> len(new_checksum().hexdigest())
    32
    """
    return hashlib.blake2b(digest_size=16)
