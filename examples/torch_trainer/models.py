"""A ResNet and a small GPT, on data that is made up."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

WORDS = 512


class Block(nn.Module):
    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        self.short = nn.Conv2d(into, out, 1, stride, bias=False) if stride > 1 or into != out else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.path(x) + self.short(x))


def resnet(width: int, blocks: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    into = width
    for stage in range(4):
        for block in range(blocks):
            out = width << stage
            layers.append(Block(into, out, 2 if block == 0 and stage > 0 else 1))
            into = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, 10))


class Gpt(nn.Module):
    def __init__(self, width: int, blocks: int, length: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Parameter(0.02 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(width, width // 32, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, blocks, enable_nested_tensor=False)
        self.head = nn.Linear(width, WORDS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.words(x) + self.places, self.mask, is_causal=True)).flatten(0, 1)


def make(name: str, large: bool, batch: int, seed: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """The model, the same for any seed, and a batch of this seed."""
    torch.manual_seed(1)
    if name == "resnet":
        model, extent = (resnet(64, 3), 64) if large else (resnet(8, 1), 16)
        torch.manual_seed(seed)
        return model, torch.randn(batch, 3, extent, extent), torch.randint(10, (batch,))
    length = 256 if large else 16
    model = Gpt(768, 8, length) if large else Gpt(64, 2, length)
    torch.manual_seed(seed)
    x = torch.randint(WORDS, (batch, length))
    return model, x, x.roll(-1, 1).flatten()
