"""Which values share a scale: every axis is one six-axis view of ``(B, H, T, D)``.

The view is ``(B, H, Tn, tg, Dn, dg)``: ``Tn`` groups of ``tg`` tokens by ``Dn`` groups of ``dg`` channels.
Knows no codes and no cache; a block is only a number of tokens here.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kvviz.quant_config import Axis, QuantConfig


@dataclass(frozen=True, slots=True)
class Grouping:
    """Group extents; ``shared_heads`` is True when all heads of a block share one scale."""

    tokens: int
    channels: int
    shared_heads: bool

    @classmethod
    def of(cls, config: QuantConfig, *, head_dim: int, block_size: int) -> Grouping:
        """The grouping of one side. Raises ConfigError when a group does not divide."""
        config.check_shape("", head_dim, block_size)
        match config.axis:
            case Axis.TOKEN:
                return cls(1, config.group_size or head_dim, False)
            case Axis.CHANNEL:
                return cls(config.group_size or block_size, 1, False)
            case Axis.HEAD:
                return cls(block_size, head_dim, False)
            case Axis.TENSOR:
                return cls(block_size, head_dim, True)

    def split(self, x: Tensor) -> Tensor:
        """``(B, H, T, D)`` -> ``(B, H, Tn, tg, Dn, dg)``, a view."""
        batch, heads, tokens, channels = x.shape
        return x.reshape(
            batch, heads, tokens // self.tokens, self.tokens, channels // self.channels, self.channels
        )

    def join(self, x: Tensor) -> Tensor:
        """Inverse of :meth:`split`."""
        return x.flatten(4, 5).flatten(2, 3)

    def flat(self, x: Tensor) -> Tensor:
        """``(B, H, T, D)`` -> ``(B, H or 1, Tn, Dn, n)``: the ``n`` values of a scale side by side."""
        groups = self.split(x)
        batch, heads, n_tokens, _, n_channels, _ = groups.shape
        if self.shared_heads:
            return groups.permute(0, 2, 4, 1, 3, 5).reshape(batch, 1, n_tokens, n_channels, -1)
        return groups.transpose(3, 4).reshape(batch, heads, n_tokens, n_channels, -1)

    def unflat(self, x: Tensor, heads: int) -> Tensor:
        """Inverse of :meth:`flat` for ``heads`` heads."""
        batch, _, n_tokens, n_channels, _ = x.shape
        if self.shared_heads:
            groups = x.view(batch, n_tokens, n_channels, heads, self.tokens, self.channels)
            return self.join(groups.permute(0, 3, 1, 4, 2, 5))
        groups = x.view(batch, heads, n_tokens, n_channels, self.tokens, self.channels)
        return self.join(groups.transpose(3, 4))

    @property
    def reduced_axes(self) -> tuple[int, ...]:
        """Axes of the split view over which one scale is shared."""
        return (1, 3, 5) if self.shared_heads else (3, 5)

    def store(self, metadata: Tensor) -> Tensor:
        """``(B, H or 1, Tn, 1, Dn, 1)`` -> ``(B, H or 1, Tn, Dn)``: tokens stay on axis 2."""
        return metadata.squeeze(5).squeeze(3)

    def load(self, metadata: Tensor) -> Tensor:
        """Inverse of :meth:`store`."""
        return metadata.unsqueeze(3).unsqueeze(5)
