#!/usr/bin/env python3
"""Writes codec_vectors.json: the bytes of sparse2 and e3m0 as their headers define them, and what error feedback sends
and keeps with them, computed without the program. Usage: codec_vectors.py > codec_vectors.json
"""
import json
import math
import struct


def float32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def packed(numbers, bits):
    whole = sum(number << bits * i for i, number in enumerate(numbers))
    return whole.to_bytes((bits * len(numbers) + 7) // 8, "little")


def two_levels(magnitudes):
    """The cut with the least squared error, by trying all; the first of equal ones."""
    ordered = sorted(magnitudes)
    best = None
    for j in range(1, len(ordered) + 1):
        low, high = ordered[:j], ordered[j:]
        explained = sum(low) ** 2 / j + (sum(high) ** 2 / len(high) if high else 0)
        if best is None or explained > best[0]:
            level = float32(sum(low) / j)
            best = explained, level, float32(sum(high) / len(high)) if high else level
    return best[1:]


def sparse2(values):
    out = b""
    decoded = [0.0] * len(values)
    for begin in range(0, len(values), 4096):
        chunk = values[begin:begin + 4096]
        places = sorted(sorted(range(len(chunk)), key=lambda i: (-abs(chunk[i]), i))[:math.ceil(len(chunk) / 64)])
        low, high = two_levels([abs(chunk[i]) for i in places])
        nearer = [high - abs(chunk[i]) < abs(chunk[i]) - low for i in places]
        out += struct.pack("<ff", low, high) + packed(places, 12)
        out += packed([(chunk[i] < 0) + 2 * up for i, up in zip(places, nearer)], 2)
        for i, up in zip(places, nearer):
            decoded[begin + i] = math.copysign(high if up else low, chunk[i])
    return out, decoded


def e3m0(values):
    scales, codes, decoded = b"", [], []
    for begin in range(0, len(values), 256):
        block = values[begin:begin + 256]
        largest = max(map(abs, block))
        scales += struct.pack("<f", largest)
        entries = [0.0] + [largest * 2.0 ** (k - 7) for k in range(1, 8)]
        for x in block:
            k = min(range(8), key=lambda k: (abs(abs(x) - entries[k]), k))
            codes.append(k + 8 * (x < 0 < k))
            decoded.append(math.copysign(entries[k], x) if k else 0.0)
    return scales + packed(codes, 4), decoded


def values_of(n, seed):
    """With equal magnitudes and zeros among them; the test has the same ones."""
    return [((i * 7919 + seed * 131) % 2003 - 1001) ** 3 / 2.0 ** 20 for i in range(n)]


CODECS = {"sparse2": sparse2, "e3m0": e3m0}


def encoded(codec, n):
    values = [float32(x) for x in values_of(n, n)]
    data, decoded = CODECS[codec](values)
    return {"codec": codec, "n": n, "bytes": data.hex(), "decoded": {i: x for i, x in enumerate(decoded) if x and i % 16 < 2}}


def feedback(codec, decay, n=96, rounds=5):
    """sent = values + decay · residual, then residual = sent − decoded, each in float32."""
    residual = [0.0] * n
    for r in range(rounds):
        values = [float32(x) for x in values_of(n, r)]
        sent = [float32(x + float32(float32(decay) * e)) for x, e in zip(values, residual)]
        residual = [float32(s - d) for s, d in zip(sent, CODECS[codec](sent)[1])]
    return {"codec": codec, "n": n, "decay": decay, "rounds": rounds, "sent": sent, "residual": residual}


print(json.dumps({
    "encoded": [encoded(codec, n) for codec in CODECS for n in (3, 64, 65, 200, 257, 700)]
    + [encoded("sparse2", 4500)],
    "feedback": [feedback(codec, decay) for codec in CODECS for decay in (1, 0.95, 0.5)],
}))
