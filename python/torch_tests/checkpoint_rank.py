"""A rank of test_checkpoint: python checkpoint_rank.py ACTION DIRECTORY RANK STEP [WHERE]

save writes the state of a step. die does so, but the process is killed: at "file"
after it has written its file, at "finish" before the metadata is renamed.
load prints the step it has found, after checking every value.
"""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.distributed import checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from culvert import _save
from culvert.checkpoint import Reader, Stager, Writer


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


def main(action, directory, rank, step, where=""):
    dist.init_process_group("gloo", init_method=f"file://{directory}/store-{action}-{step}{where}", rank=int(rank), world_size=2)
    path, step = os.path.join(directory, "checkpoint"), int(step)
    if action == "load":
        got = state(0)
        checkpoint.load(got, storage_reader=Reader(path))
        want = state(got["step"])
        for name, tensor in want["model"].items():
            assert torch.equal(torch.as_tensor(got["model"][name].full_tensor() if hasattr(tensor, "full_tensor") else got["model"][name]),
                               tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor), name
        assert got["text"] == f"step {got['step']}", got
        print(got["step"])
    elif action == "async":
        stager, value = Stager(), state(step)
        saving = checkpoint.async_save(value, storage_writer=Writer(path), async_stager=stager)
        value["model"]["plain"].zero_()  # training goes on
        value["model"]["rows"].to_local().zero_()
        saving.result()
        stager.close()
    else:
        mine = action == "die" and int(rank) == (0 if where == "finish" else 1)
        if mine and where == "file":
            write = _save.write
            _save.write = lambda *arguments: (write(*arguments), kill())
        if mine and where == "finish":
            os.replace = kill
        checkpoint.save(state(step), storage_writer=Writer(path))
    dist.destroy_process_group()


main(*sys.argv[1:])
