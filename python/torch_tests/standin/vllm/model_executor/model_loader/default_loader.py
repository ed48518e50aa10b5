import dataclasses
import glob
import os


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
        raise NotImplementedError

    def get_all_weights(self, model_config, model):
        source = self.Source(model_config.model, model_config.revision)
        yield from self._get_weights_iterator(source)
