"""Two ranks for test_checkpoint: python checkpoint_ranks.py DIRECTORY

Each line of the input is a run of both: ACTION STEP [WHERE]. save writes the state of
a step. die does so, but a rank is killed: rank 1 at "file", after it has written its
file; rank 0 at "finish", before the metadata is renamed. load returns the step it has
found, after checking every value. For each run a line is printed: how the ranks ended,
and what they found.

The ranks are forked from this process, because importing torch takes seconds. It does
not use Culvert itself.
"""

import json
import os
import signal
import sys

import torch
import torch._dynamo  # distribute_tensor imports it, in each rank if it is not here
import torch.distributed as dist
from torch.distributed import checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from culvert import _save
from culvert.checkpoint import Reader, Stager, Writer

LIMIT = 300  # seconds of a rank that hangs


def state(step):
    mesh = init_device_mesh("cpu", (2,))
    whole = torch.arange(64.0).reshape(8, 8) + step
    return {
        "model": {"rows": distribute_tensor(whole, mesh, [Shard(0)]), "columns": distribute_tensor(whole * 2, mesh, [Shard(1)]),
                  "same": distribute_tensor(whole * 3, mesh, [Replicate()]), "plain": whole.to(torch.bfloat16)},
        "step": step, "text": f"step {step}", "empty": torch.empty(0),
    }


def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def rank(number, directory, action, step, where=""):
    """Does what one rank does, and returns the step that it found."""
    dist.init_process_group("gloo", init_method=f"file://{directory}/store-{action}-{step}{where}", rank=number, world_size=2)
    path, step, found = os.path.join(directory, "checkpoint"), int(step), None
    if action == "load":
        got = state(0)
        checkpoint.load(got, storage_reader=Reader(path))
        want = state(got["step"])
        for name, tensor in want["model"].items():
            assert torch.equal(torch.as_tensor(got["model"][name].full_tensor() if hasattr(tensor, "full_tensor") else got["model"][name]),
                               tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor), name
        assert got["text"] == f"step {got['step']}", got
        found = got["step"]
    elif action == "async":
        stager, value = Stager(), state(step)
        saving = checkpoint.async_save(value, storage_writer=Writer(path), async_stager=stager)
        value["model"]["plain"].zero_()  # training goes on
        value["model"]["rows"].to_local().zero_()
        saving.result()
        stager.close()
    else:
        mine = action == "die" and number == (0 if where == "finish" else 1)
        if mine and where == "file":
            write = _save.write
            _save.write = lambda *arguments: (write(*arguments), kill())
        if mine and where == "finish":
            os.replace = kill
        checkpoint.save(state(step), storage_writer=Writer(path))
    dist.destroy_process_group()
    return found


def forked(number, *arguments):
    """Starts a rank, and returns its process and the end of a pipe with what it found."""
    reader, writer = os.pipe()
    process = os.fork()
    if process:
        os.close(writer)
        return process, reader
    signal.alarm(LIMIT)
    os.write(writer, json.dumps(rank(number, *arguments)).encode())
    sys.exit()


def both(*arguments):
    """Runs two ranks. If one fails, the other is killed, as a scheduler does."""
    ranks = dict(forked(number, *arguments) for number in range(2))
    ended = {}
    while len(ended) < len(ranks):
        process, status = os.wait()
        ended[process] = os.waitstatus_to_exitcode(status)
        if status and len(ended) < len(ranks):
            os.kill(next(p for p in ranks if p != process), signal.SIGKILL)
    found = []
    for reader in ranks.values():
        with os.fdopen(reader) as pipe:
            found.append(json.loads(pipe.read() or "null"))
    return [ended[process] for process in ranks], found


for line in sys.stdin:
    print(json.dumps(both(sys.argv[1], *line.split())), flush=True)
