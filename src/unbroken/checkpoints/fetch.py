"""Fetching: the bytes of layers come over in as few answers as possible, each checked.

    commits/103, offsets/103, watermarks/103, 104.changelog ─ one answer ─▶ four bodies
    SSTs/4.sst, 9 MB                                        ─ three answers ─▶ one body

* A delta is a handful of small layers: asked for one by one, each would cost more than its bytes.
* An answer is bounded, so memory is, on both sides, whatever the size of the state.
* A body has as many bytes as were announced, and that checksum, or reading it ends in a refusal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from unbroken.checkpoints.manifest import CHUNK_BYTES_MAX, Layer, new_checksum
from unbroken.streams.flight import Peer
from unbroken.streams.refuse import refused, refusing, valid

#: Layers in one answer: a command has a limit too, and names are long.
LAYERS_AT_ONCE = 32


def fetched(
    peer: Peer, shipment: str, layers: Iterable[Layer], timeout_s: float
) -> Iterator[tuple[Layer, Iterator[bytes]]]:
    """Every layer with its body, to be read before the next one is asked for.

    >>> list(fetched(None, "7f", [], timeout_s=1.0))
    []
    """

    def get(parts: list[tuple[Layer, int, int]]) -> list[bytes]:
        command = {
            "do": "layers", "shipment": shipment,
            "parts": [[layer.name, offset, size] for layer, offset, size in parts],
        }  # fmt: skip
        names = ", ".join(layer.name for layer, _, _ in parts)
        with refusing(f"{names[:200]} does not have the bytes that were announced"):
            table = valid(peer.get(command, timeout_s=timeout_s))
            chunks: list[bytes] = table.column("bytes").cast(pa.binary()).to_pylist()
            for (layer, offset, size), chunk in zip(parts, chunks, strict=True):
                if len(chunk) != size:
                    raise ValueError(f"{len(chunk)} of {layer.name} came at {offset}")
        return chunks

    def in_chunks(layer: Layer) -> Iterator[bytes]:
        for offset in range(0, layer.bytes, CHUNK_BYTES_MAX):
            yield from get([(layer, offset, min(CHUNK_BYTES_MAX, layer.bytes - offset))])

    for group in together(layers):
        if len(group) == 1:
            yield group[0], _checked(group[0], in_chunks(group[0]))
        else:
            bodies = get([(layer, 0, layer.bytes) for layer in group])
            for layer, body in zip(group, bodies, strict=True):
                yield layer, _checked(layer, [body])


def together(layers: Iterable[Layer]) -> Iterator[list[Layer]]:
    """Groups that fit into one answer; what is too large for one, or empty, is alone.

    >>> sizes = (10, 0, 20, CHUNK_BYTES_MAX + 1, CHUNK_BYTES_MAX - 1, 2)
    >>> [[layer.bytes for layer in group] for group in together(Layer("", n, "") for n in sizes)]
    [[0], [4194305], [10, 20], [4194303], [2]]
    """
    group: list[Layer] = []
    rest: list[list[Layer]] = []
    for layer in layers:
        if not 0 < layer.bytes <= CHUNK_BYTES_MAX:
            yield [layer]
            continue
        size = sum(other.bytes for other in group)
        if len(group) >= LAYERS_AT_ONCE or size + layer.bytes > CHUNK_BYTES_MAX:
            rest.append(group)
            group = []
        group.append(layer)
    yield from (group for group in [*rest, group] if group)


def _checked(layer: Layer, chunks: Iterable[bytes]) -> Iterator[bytes]:
    state = new_checksum()
    for chunk in chunks:
        state.update(chunk)
        yield chunk
    if state.hexdigest() != layer.checksum:
        raise refused(f"{layer.name} does not have the checksum {layer.checksum}")
