"""vLLM's load format "culvert", on a stand-in with the parameters of vLLM 0.33.0."""

import inspect
import os
import pathlib
import sys
import tempfile
import types
import unittest

os.environ.update(CULVERT_MACHINE="soft", CULVERT_SOFT="gpus=2,memory=64M")
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "standin"))

import safetensors.torch
import torch
import vllm.distributed
import vllm.platforms
from vllm.model_executor import model_loader
from vllm.model_executor.model_loader import default_loader, ep_weight_filter

import culvert
import culvert.vllm
from culvert import _receipt, _software
from culvert._lazy import Lazy

# The parameters of what culvert.vllm calls or overrides, from the source of vLLM 0.33.0.
RECORDED = {
    model_loader.register_model_loader: ["load_format"],
    model_loader.get_model_loader: ["load_config"],
    default_loader.safetensors_weights_iterator: [
        "hf_weights_files", "use_tqdm_on_load", "safetensors_load_strategy", "local_expert_ids",
        "safetensors_prefetch_num_threads", "safetensors_prefetch_block_size",
    ],
    default_loader.DefaultModelLoader.__init__: ["self", "load_config"],
    default_loader.DefaultModelLoader._prepare_weights: [
        "self", "model_name_or_path", "subfolder", "revision", "fall_back_to_pt", "allow_patterns_overrides",
    ],
    default_loader.DefaultModelLoader._get_weights_iterator: ["self", "source"],
    default_loader.DefaultModelLoader.get_all_weights: ["self", "model_config", "model"],
    default_loader.DefaultModelLoader.Source: [
        "model_or_path", "revision", "subfolder", "prefix", "fall_back_to_pt", "allow_patterns_overrides", "is_unused_weight",
    ],
    ep_weight_filter.should_skip_weight: ["weight_name", "local_expert_ids"],
    vllm.distributed.get_tensor_model_parallel_world_size: [],
    vllm.platforms.Platform.is_cuda: ["self"],
}


class Linear(torch.nn.Module):
    """A layer whose weight loader cuts as vLLM's do: with narrow, then copy_."""

    def __init__(self, rank, ranks, shape, dim):
        super().__init__()
        self.rank, self.dim = rank, dim
        shape = list(shape)
        if dim is not None:
            shape[dim] //= ranks
        self.weight = torch.nn.Parameter(torch.empty(shape), requires_grad=False)

    def load(self, loaded):
        if self.dim is not None:
            size = self.weight.shape[self.dim]
            loaded = loaded.narrow(self.dim, self.rank * size, size)
        assert self.weight.shape == loaded.shape, (self.weight.shape, loaded.shape)
        self.weight.data.copy_(loaded)


class Load(unittest.TestCase):
    CUTS = {"up.weight": 0, "down.weight": 1, "norm.weight": None}

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="culvert-")
        self.addCleanup(directory.cleanup)
        self.addCleanup(setattr, _software, "_chosen", None)
        self.addCleanup(setattr, vllm.distributed, "ranks", 1)
        self.addCleanup(setattr, torch.cuda, "current_device", torch.cuda.current_device)
        torch.cuda.current_device = lambda: 1
        culvert.software(tensors="cpu")
        torch.manual_seed(1)
        self.want = {"up.weight": torch.randn(64, 32), "down.weight": torch.randn(32, 64), "norm.weight": torch.randn(32)}
        files = {"a": ["up.weight", "norm.weight"], "b": ["down.weight"]}
        for file, names in files.items():
            safetensors.torch.save_file({n: self.want[n] for n in names}, os.path.join(directory.name, file + ".safetensors"))
        self.model = types.SimpleNamespace(model=directory.name, revision=None)
        self.receipts = []
        _receipt.observers.append(self.receipts.append)
        self.addCleanup(_receipt.observers.clear)
        culvert.vllm.register()

    def loader(self, strategy=None, **extra):
        self.config = types.SimpleNamespace(
            load_format="culvert", device=None, model_loader_extra_config=extra, safetensors_load_strategy=strategy
        )
        return model_loader.get_model_loader(self.config)

    def read(self):
        return sum(receipt["read_bytes"] for receipt in self.receipts)

    def test_recorded(self):
        for function, parameters in RECORDED.items():
            self.assertEqual(list(inspect.signature(function).parameters), parameters, function)

    def test_one_gpu(self):
        loader = self.loader()
        got = dict(loader.get_all_weights(self.model, None))
        self.assertEqual(set(got), set(self.want))
        for name, tensor in got.items():
            self.assertNotIsInstance(tensor, Lazy)
            torch.testing.assert_close(tensor, self.want[name], rtol=0, atol=0)
        self.assertEqual([receipt["gpus"] for receipt in self.receipts], [[1], [1]])
        self.assertEqual(self.config.load_format, "culvert")
        self.assertGreater(loader.counter_before_loading_weights, 0)

    def test_vllm_leaves_files_out(self):
        model = types.SimpleNamespace(is_unused_checkpoint_weight=lambda name: name == "a.safetensors")
        got = dict(self.loader().get_all_weights(self.model, model))
        self.assertEqual(set(got), {"down.weight"})
        self.assertEqual(self.read(), 4 * 32 * 64)

    def test_other_readers_are_refused(self):
        with self.assertRaisesRegex(ValueError, "enable_multithread_load"):
            self.loader(enable_multithread_load=True)
        with self.assertRaisesRegex(ValueError, "torchao"):
            dict(self.loader("torchao").get_all_weights(self.model, None))
        with self.assertRaises(NotImplementedError):  # vLLM's reader is in its place again
            default_loader.safetensors_weights_iterator([], True)

    def test_ranks_read_their_slices(self):
        vllm.distributed.ranks = 4
        for rank in range(4):
            self.receipts.clear()
            layers = {name: Linear(rank, 4, self.want[name].shape, dim) for name, dim in self.CUTS.items()}
            for name, tensor in self.loader().get_all_weights(self.model, None):
                layers[name].load(tensor)
            for name, dim in self.CUTS.items():
                want = self.want[name] if dim is None else self.want[name].chunk(4, dim)[rank]
                torch.testing.assert_close(layers[name].weight.data, want, rtol=0, atol=0)
            self.assertEqual(self.read(), 4 * (64 * 32 // 4 * 2 + 32))

    def test_experts_of_others_are_not_read(self):
        path = os.path.join(self.model.model, "a.safetensors")
        experts = {f"l.experts.{i}.w[{i}]": torch.full((4,), float(i)) for i in range(3)}
        safetensors.torch.save_file(experts, path)
        os.unlink(os.path.join(self.model.model, "b.safetensors"))
        for ranks in (1, 2):
            self.receipts.clear()
            vllm.distributed.ranks = ranks
            loader = self.loader()
            loader.local_expert_ids = {1}
            got = {name: tensor + 0 for name, tensor in loader.get_all_weights(self.model, None)}
            self.assertEqual({name: list(t) for name, t in got.items()}, {"l.experts.1.w[1]": [1.0] * 4})
            self.assertEqual(self.read(), 16)

    def test_lazy(self):
        vllm.distributed.ranks = 2
        tensors = dict(self.loader().get_all_weights(self.model, None))
        up, want = tensors["up.weight"], self.want["up.weight"]
        part = up.narrow(0, 8, 32).narrow(-1, 4, 8)
        shape = (part.shape, part.size(0), part.dim(), part.ndim, part.numel(), part.dtype, part.element_size(), len(part))
        self.assertEqual(shape, ((32, 8), 32, 2, 2, 256, torch.float32, 4, 32))
        self.assertEqual(self.read(), 0)
        self.assertTrue(torch.equal(part, want[8:40, 4:12]))
        self.assertTrue(torch.equal(part.t() + 1, want[8:40, 4:12].t() + 1))
        self.assertEqual(self.read(), 4 * 256)
        self.assertTrue(torch.equal(torch.cat([part, part]), want[8:40, 4:12].repeat(2, 1)))
        self.assertTrue(torch.equal(part.narrow(0, 1, 2), want[9:11, 4:12]))
        self.assertEqual(self.read(), 4 * 256)
        for wrong in ((2, 0, 1), (0, 60, 8), (0, -65, 1), (0, 0, -1)):
            with self.assertRaises(IndexError):
                up.narrow(*wrong)

    def test_views(self):
        """Views read nothing, have the shapes and elements that torch's have, and read
        no other element when they are used."""
        vllm.distributed.ranks = 2
        want = self.want["up.weight"].reshape(4, 16, 32)
        path = os.path.join(self.model.model, "a.safetensors")
        safetensors.torch.save_file({"experts": want}, path)
        views = {
            "chunk": lambda t: t.chunk(3, dim=1)[1],
            "last chunk": lambda t: torch.chunk(t, 3, 1)[-1],
            "more chunks than rows": lambda t: t.chunk(9)[3],
            "unsqueeze": lambda t: t.unsqueeze(0).unbind()[0].narrow(1, 2, 3),
            "unsqueeze last": lambda t: t.unsqueeze(-1).narrow(2, 4, 5).narrow(3, 0, 1),
            "nothing of one": lambda t: t.unsqueeze(0).narrow(0, 0, 0),
            "unbind": lambda t: torch.unbind(t)[2].narrow(0, 1, 4),
            "unbind last": lambda t: t.unbind(dim=-1)[5],
            "select": lambda t: t.select(1, -2).chunk(2, 1)[1],
            "item": lambda t: t[2],
            "items": lambda t: t[1:3, -1, 4:],
            "empty": lambda t: t[3:1],
            "step": lambda t: t[:, ::2],
            "list": lambda t: t[[0, 2]],
            "nothing": lambda t: t[..., None],
            "row": lambda t: t[0][0][0],
        }
        reads_all = {"step", "list", "nothing", "nothing of one"}
        for name, view in views.items():
            with self.subTest(name):
                self.receipts.clear()
                tensor = dict(culvert.vllm.weights([path], "cuda:0", 2))["experts"]
                got, expected = view(tensor), view(want)
                self.assertEqual(tuple(got.shape), tuple(expected.shape))
                self.assertTrue(name in reads_all or self.read() == 0)
                self.assertTrue(torch.equal(got, expected))
                self.assertEqual(self.read(), 4 * (want if name in reads_all else expected).numel())
        with self.assertRaises(IndexError):
            tensor.select(0, 4)


if __name__ == "__main__":
    unittest.main()
