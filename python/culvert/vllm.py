"""A loader for vLLM: --load-format culvert. Experimental: written against vLLM 0.32.0,
whose loaders are not a stable interface, and tried on a stand-in for it only.

vLLM finds it by the entry point in its group vllm.general_plugins. Weights that one
GPU gets whole are loaded file by file, and yielded as they arrive. With tensor
parallelism a rank reads its slices and nothing else: vLLM's own weight loaders cut
each tensor with narrow(), and only then is the rest of it read.
"""

import copy
import time

from . import _load

FORMAT = "culvert"


def register():
    """Makes the load format known to vLLM. It may be called more than once."""
    from vllm.model_executor.model_loader import register_model_loader

    register_model_loader(FORMAT)(_loader())


def weights(files, device, ranks=1, skip=lambda name: False):
    """Yields the names and tensors of files, for one of some tensor-parallel ranks."""
    for file in files:
        yield from (_whole if ranks == 1 else _slices)(file, device, skip)


def _whole(file, device, skip):
    from . import stream

    names = [info["name"] for info in _load.Model(file).tensors]
    wanted = [name for name in names if not skip(name)]
    if wanted:
        yield from stream(file, device, only=[] if wanted == names else [_literal(name) for name in wanted])


def _literal(name):
    """A pattern that matches one name."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _slices(file, device, skip):
    from ._lazy import lazy
    from ._open import safe_open

    opened = safe_open(file, framework="pt", device=device)  # until the last of its tensors is gone
    for name in opened.offset_keys():
        if not skip(name):
            yield name, lazy(opened, name)


def _loader():
    """The class is made late: vLLM is imported only when it asks for the plug-in."""
    from vllm.distributed import get_tensor_model_parallel_world_size
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
    from vllm.model_executor.model_loader.ep_weight_filter import should_skip_weight

    class Loader(DefaultModelLoader):
        """DefaultModelLoader, which finds the files, with Culvert to read them."""

        def _prepare_weights(self, *arguments, **named):
            config = self.load_config
            self.load_config = copy.copy(config)
            self.load_config.load_format = "safetensors"  # it rejects formats that it does not know
            try:
                return super()._prepare_weights(*arguments, **named)
            finally:
                self.load_config = config

        def _get_weights_iterator(self, source):
            _, files, _, _ = self._prepare_weights(
                source.model_or_path, source.subfolder, source.revision, source.fall_back_to_pt, source.allow_patterns_overrides
            )
            self.counter_before_loading_weights = self.counter_before_loading_weights or time.perf_counter()
            skip = lambda name: should_skip_weight(name, self.local_expert_ids)
            ranks = get_tensor_model_parallel_world_size()
            for name, tensor in weights(sorted(files), _device(self.load_config), ranks, skip):
                yield source.prefix + name, tensor

    return Loader


def _device(config):
    """Where vLLM wants the weights: its GPU, or what --load-format's device says."""
    import torch
    from vllm.platforms import current_platform

    if config.device is not None and torch.device(config.device).type != "cuda":
        return "cpu"
    return f"cuda:{torch.cuda.current_device()}" if current_platform.is_cuda() else "cpu"
