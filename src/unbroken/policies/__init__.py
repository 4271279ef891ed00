"""How fragments are protected, and what their consumers may see after a failure: pure answers."""

from unbroken.policies.active import Active
from unbroken.policies.gap import Gap
from unbroken.policies.passive import Passive
from unbroken.policies.policy import Policy, Restart
from unbroken.policies.upstream import Upstream

__all__ = ["Active", "Gap", "Passive", "Policy", "Restart", "Upstream"]
