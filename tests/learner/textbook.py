"""The decoder by the formulas, one sequence and one token at a time; and decoders and tokens to compare with it."""

import math

import torch

from learner.models.sequence.decoder import Decoder

WIDTH, HEADS = 24, 3


def build(cross_attention=False, layers=2, **parts):
    """A decoder whose weights are large enough for every part to matter."""
    torch.manual_seed(0)
    decoder = Decoder(WIDTH, layers, HEADS, cross_attention=cross_attention, **parts).eval()
    for weight in decoder.parameters():
        weight.data = torch.randn_like(weight) * (0.3 if weight.ndim > 1 else 1.0)
    return decoder


def tokens(n, seed=1):
    return torch.randn(n, WIDTH, generator=torch.Generator().manual_seed(seed))


def textbook(decoder, x, looks=None):
    """One sequence [L, width], by the formulas. looks: the chunk [., width] that each token looks at, or None."""

    def norm(layer, x):
        return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt() * layer.weight

    def attention(query, keys, values, added):
        """Of one token [width] to several; added: to the scores of each head."""
        size, found = WIDTH // HEADS, []
        for head in range(HEADS):
            part = slice(head * size, (head + 1) * size)
            score = keys[:, part] @ query[part] / math.sqrt(size) + added[head]
            found.append(score.softmax(-1) @ values[:, part])
        return torch.cat(found, -1)

    for layer, block in enumerate(decoder.blocks):
        q, k, v = (norm(block.norm, x) @ block.qkv.weight.T).chunk(3, -1)
        seen = []
        for t in range(len(x)):
            first = max(0, t + 1 - decoder.band) if decoder.band else 0
            added = torch.zeros(HEADS, t + 1 - first)
            if decoder.band:
                added = decoder.offsets[layer][:, : t + 1 - first].flip(-1)  # the nearest is the last
            seen.append(attention(q[t], k[first : t + 1], v[first : t + 1], added))
        x = x + torch.stack(seen) @ block.out.weight.T
        if looks is not None:
            q, seen = norm(block.cross_norm, x) @ block.query.weight.T, []
            for query, chunk in zip(q, looks, strict=True):
                if chunk is None or not len(chunk):
                    seen.append(decoder.nothing[layer] if decoder.null_chunk else torch.zeros(WIDTH))
                else:
                    k, v = (chunk @ block.memory.weight.T).chunk(2, -1)
                    seen.append(attention(query, k, v, torch.zeros(HEADS, len(chunk))))
            x = x + torch.stack(seen) @ block.cross_out.weight.T
        inner = norm(block.wide_norm, x) @ block.up.weight.T
        inner = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
        x = x + inner @ block.down.weight.T
    return norm(decoder.norm, x)


def close(found, expected, atol=1e-5):
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, atol=atol, rtol=atol)
