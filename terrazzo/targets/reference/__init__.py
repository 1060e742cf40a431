"""The reference target: interprets tile IR with NumPy; slow, plain, the oracle of the others."""

from terrazzo.targets.reference.interpret import run

__all__ = ["run"]
