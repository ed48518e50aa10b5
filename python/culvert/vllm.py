"""A loader for vLLM: --load-format culvert. Experimental: written against vLLM 0.33.0,
whose loaders are not a stable interface. Tests use a stand-in for it.

vLLM finds it by the entry point in its group vllm.general_plugins. Weights that one
GPU gets whole are loaded file by file, and yielded as they arrive. With tensor
parallelism a rank reads its slices and nothing else: vLLM's own weight loaders cut
each tensor by views, and what is left is read when they copy it.
"""

import copy

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
        yield from stream(file, device, only=[] if wanted == names else [_load.literal(name) for name in wanted])


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
    from vllm.model_executor.model_loader import default_loader
    from vllm.model_executor.model_loader.ep_weight_filter import should_skip_weight

    class Loader(default_loader.DefaultModelLoader):
        """DefaultModelLoader, which finds the files and leaves out those that the model
        does not need, with Culvert in place of its reader of safetensors files."""

        def __init__(self, load_config):
            load_config = copy.copy(load_config)
            load_config.load_format = "safetensors"  # it rejects formats that it does not know
            super().__init__(load_config)
            if load_config.model_loader_extra_config.get("enable_multithread_load"):
                raise ValueError("load format culvert: enable_multithread_load is another reader of files (fix: leave it out)")

        def _get_weights_iterator(self, source):
            reader = default_loader.safetensors_weights_iterator
            default_loader.safetensors_weights_iterator = self._read
            try:
                return super()._get_weights_iterator(source)
            finally:
                default_loader.safetensors_weights_iterator = reader

        def _read(self, files, use_tqdm_on_load, strategy=None, local_expert_ids=None, **prefetch):
            if strategy == "torchao":
                raise ValueError("load format culvert: torchao's tensors need load format safetensors")
            skip = lambda name: should_skip_weight(name, local_expert_ids)
            return weights(sorted(files), _device(self.load_config), get_tensor_model_parallel_world_size(), skip)

    return Loader


def _device(config):
    """Where vLLM wants the weights: its GPU, or what --load-format's device says."""
    import torch
    from vllm.platforms import current_platform

    if config.device is not None and torch.device(config.device).type != "cuda":
        return "cpu"
    return f"cuda:{torch.cuda.current_device()}" if current_platform.is_cuda() else "cpu"
