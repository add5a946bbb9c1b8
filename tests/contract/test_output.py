"""What execs write: every byte, in order, at its place."""

from __future__ import annotations

import asyncio
import hashlib

from paddock.sandboxes.execlog import Chunk, Gap
from tests.contract.stage import scenario
from tests.contract.world import OUTPUT_KEPT, World

# As many bytes as asked for, not all alike, made without any tool that a small system may lack.
NUMBERS = "seq 1 100000000 2>/dev/null | head -c"


def numbers(size: int) -> bytes:
    parts, have, n = [], 0, 1
    while have < size:
        block = b"".join(b"%d\n" % k for k in range(n, n + 10_000))
        parts.append(block)
        have, n = have + len(block), n + 10_000
    return b"".join(parts)[:size]


def check_places(pieces: list[Chunk | Gap], start: int) -> None:
    """Positions follow each other; each stream's offsets do too."""
    at, offsets = start, {"stdout": None, "stderr": None}
    for piece in pieces:
        if isinstance(piece, Gap):
            assert piece.start == at
            at = piece.end
            offsets = {"stdout": None, "stderr": None}
            continue
        assert piece.data
        assert piece.position == at
        assert piece.seq == at + len(piece.data)
        assert offsets[piece.stream] in (None, piece.offset)
        offsets[piece.stream] = piece.offset + len(piece.data)  # type: ignore[assignment]
        at = piece.seq


@scenario
async def test_bytes_are_exact(world: World) -> None:
    box = await world.shared()
    octal = "".join(f"\\{n:03o}" for n in range(256))
    started = await world.start_exec(box, "printf", octal)
    assert await world.text(box, started.id) == bytes(range(256))


@scenario
async def test_order_and_offsets_of_both_streams(world: World) -> None:
    box = await world.shared()
    script = "for n in 1 2 3; do echo out$n; sleep 0.05; echo err$n >&2; sleep 0.05; done"
    started = await world.start_sh(box, script)
    pieces = await world.output(box, started.id)
    check_places(pieces, 0)
    assert b"".join(p.data for p in pieces if isinstance(p, Chunk)) == b"out1\nerr1\nout2\nerr2\nout3\nerr3\n"
    done = await world.wait(box, started.id)
    assert (done.stdout_bytes, done.stderr_bytes, done.dropped_bytes) == (15, 15, 0)


@scenario
async def test_replay_from_every_position(world: World) -> None:
    box = await world.shared()
    done = await world.sh(box, "for n in 1 2 3; do echo out$n; echo err$n >&2; done")
    whole = b"".join(p.data for p in await world.output(box, done.id) if isinstance(p, Chunk))
    assert len(whole) == 30
    for after in range(31):
        pieces = await world.output(box, done.id, after=after)
        check_places(pieces, after)
        assert b"".join(p.data for p in pieces if isinstance(p, Chunk)) == whole[after:]
    assert await world.output(box, done.id, after=1000) == []


@scenario
async def test_replay_of_a_log_in_files(world: World) -> None:
    box = await world.shared()
    size = 1_000_000
    started = await world.start_sh(box, f"{NUMBERS} {size}")
    await world.wait(box, started.id)
    expected = numbers(size)
    for after in (0, 1, 32_767, 32_768, 500_001, size - 1, size):
        pieces = await world.output(box, started.id, after=after)
        check_places(pieces, after)
        assert b"".join(p.data for p in pieces if isinstance(p, Chunk)) == expected[after:]


@scenario
async def test_a_stream_is_exact_however_long(world: World) -> None:
    """Far more than is kept: whoever follows it holds the process back, and loses nothing."""
    box = await world.shared()
    size = 20_000_000
    started = await world.start_sh(box, f"{NUMBERS} {size}")
    digest, seen = hashlib.sha256(), 0
    async with asyncio.timeout(90):
        async for piece in world.service.output(box, started.id):
            assert isinstance(piece, Chunk), piece
            assert piece.position == piece.offset == seen
            seen += len(piece.data)
            digest.update(piece.data)
    assert seen == size
    assert digest.hexdigest() == hashlib.sha256(numbers(size)).hexdigest()
    done = await world.wait(box, started.id)
    assert (done.exit_code, done.stdout_bytes) == (0, size)


@scenario
async def test_what_is_too_much_is_dropped_and_told(world: World) -> None:
    box = await world.shared()
    size = 3 * OUTPUT_KEPT
    started = await world.start_sh(box, f"{NUMBERS} {size}; echo end >&2")
    done = await world.wait(box, started.id)
    assert (done.stdout_bytes, done.stderr_bytes) == (size, 4)
    assert size - OUTPUT_KEPT <= done.dropped_bytes < size
    pieces = await world.output(box, started.id)
    assert pieces[0] == Gap(0, done.dropped_bytes)
    check_places(pieces, 0)
    kept = b"".join(p.data for p in pieces if isinstance(p, Chunk))
    assert kept == numbers(size)[done.dropped_bytes :] + b"end\n"
    last = pieces[-1]
    assert isinstance(last, Chunk)
    assert (last.stream, last.offset, last.seq) == ("stderr", 0, size + 4)


@scenario
async def test_a_result_is_cut_at_its_limit(world: World) -> None:
    from paddock.sandboxes.requests import ExecRequest

    box = await world.shared()
    request = ExecRequest(command=["sh", "-c", f"{NUMBERS} 500000"])
    whole = await world.service.run_exec(box, request)
    assert (whole.truncated, whole.stdout) == (False, numbers(500_000).decode())
    cut = await world.service.run_exec(box, request, limit=1000)
    assert (cut.truncated, cut.stdout) == (True, numbers(1000).decode())


@scenario
async def test_many_follow_one(world: World) -> None:
    box = await world.shared()
    script = "for n in 1 2 3 4 5 6 7 8 9 10; do echo line $n; sleep 0.03; done"
    started = await world.start_sh(box, script)
    texts = await asyncio.gather(*(world.text(box, started.id) for _ in range(10)))
    assert set(texts) == {b"".join(b"line %d\n" % n for n in range(1, 11))}


@scenario
async def test_without_following(world: World) -> None:
    box = await world.shared()
    started = await world.start_sh(box, "echo now; sleep 1000")
    await world.until_output(box, started.id, b"now\n")
    [piece] = await world.output(box, started.id, follow=False)
    assert isinstance(piece, Chunk)
    assert piece.data == b"now\n"
    await world.service.cancel_exec(box, started.id, grace=0)
    await world.wait(box, started.id)
