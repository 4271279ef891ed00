"""Lives that were found to go wrong, and are not mended yet: docs/simulator.md tells them."""

from __future__ import annotations

#: By seed: what happens.
KNOWN = {
    398071038: "an ack of a life that was rebuilt over comes late, and under the same term",
}
