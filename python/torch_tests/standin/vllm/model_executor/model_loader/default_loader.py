import dataclasses
import glob
import os
import time


def safetensors_weights_iterator(
    hf_weights_files, use_tqdm_on_load, safetensors_load_strategy=None, local_expert_ids=None, *,
    safetensors_prefetch_num_threads=8, safetensors_prefetch_block_size=1 << 24,
):
    raise NotImplementedError


def filter_safetensors_files_by_weight_name(hf_weights_files, is_unused_weight):
    return [file for file in hf_weights_files if not is_unused_weight(os.path.basename(file))]


class DefaultModelLoader:
    @dataclasses.dataclass
    class Source:
        model_or_path: str
        revision: str | None
        subfolder: str | None = None
        prefix: str = ""
        fall_back_to_pt: bool = True
        allow_patterns_overrides: list | None = None
        is_unused_weight: object = None

    counter_before_loading_weights = 0.0

    def __init__(self, load_config):
        self.load_config = load_config
        self.local_expert_ids = None

    def _prepare_weights(self, model_name_or_path, subfolder, revision, fall_back_to_pt, allow_patterns_overrides):
        if self.load_config.load_format != "safetensors":
            raise ValueError(f"Unknown load_format: {self.load_config.load_format}")
        files = glob.glob(os.path.join(model_name_or_path, "*.safetensors"))
        return model_name_or_path, files, True, "model.safetensors.index.json"

    def _get_weights_iterator(self, source):
        _, files, _, _ = self._prepare_weights(
            source.model_or_path, source.subfolder, source.revision, source.fall_back_to_pt, source.allow_patterns_overrides
        )
        if source.is_unused_weight is not None:
            files = filter_safetensors_files_by_weight_name(files, source.is_unused_weight)
        iterator = safetensors_weights_iterator(
            files, True, self.load_config.safetensors_load_strategy, local_expert_ids=self.local_expert_ids,
            safetensors_prefetch_num_threads=8, safetensors_prefetch_block_size=1 << 24,
        )
        if self.counter_before_loading_weights == 0.0:
            self.counter_before_loading_weights = time.perf_counter()
        return ((source.prefix + name, tensor) for (name, tensor) in iterator)

    def get_all_weights(self, model_config, model):
        unused = getattr(model, "is_unused_checkpoint_weight", None)
        yield from self._get_weights_iterator(self.Source(model_config.model, model_config.revision, is_unused_weight=unused))
