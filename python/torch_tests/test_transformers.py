"""transformers loads through Culvert, unchanged."""

import io
import os
import pathlib
import tempfile
import unittest

os.environ.update(CULVERT_MACHINE="soft", CULVERT_SOFT="gpus=2,memory=64M", HF_HUB_OFFLINE="1")

import torch
import transformers

import culvert
from culvert import _software


def tiny():
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        tie_word_embeddings=False,
    ))


class FromPretrained(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="culvert-")
        cls.addClassCleanup(cls.directory.cleanup)
        cls.path = pathlib.Path(cls.directory.name)
        cls.model = tiny()
        cls.model.save_pretrained(cls.path, max_shard_size="40KB")
        cls.shards = len(list(cls.path.glob("*.safetensors")))

    def setUp(self):
        self.addCleanup(culvert.unpatch)
        self.addCleanup(setattr, _software, "_chosen", None)
        culvert.software(tensors="cpu")
        self.out = io.StringIO()

    def load(self, **options):
        model = transformers.LlamaForCausalLM.from_pretrained(self.path, **options)
        culvert.unpatch()
        return model.state_dict(), self.out.getvalue().splitlines()

    def same(self, state):
        want = self.model.state_dict()
        self.assertEqual(set(state), set(want))
        for name, tensor in want.items():
            self.assertTrue(torch.equal(state[name], tensor), name)

    def test_slices(self):
        """Each tensor is read when transformers asks for it."""
        culvert.patch(log=self.out)
        state, receipts = self.load()
        self.same(state)
        self.assertEqual(len(receipts), self.shards)
        self.assertEqual(sum(int(r.split("tensors=")[1].split()[0]) for r in receipts), len(state))

    def test_device(self):
        """Each file goes to the GPU as a whole, in one load."""
        self.assertGreater(self.shards, 1)
        culvert.patch("cuda:1", log=self.out)
        state, receipts = self.load(dtype=torch.float32)
        self.same(state)
        self.assertEqual(len(receipts), self.shards)
        for receipt in receipts:
            self.assertIn(" calls=1 ", receipt)
            self.assertIn("SOFTWARE-MACHINE", receipt)

    def test_unpatch(self):
        theirs = transformers.modeling_utils.safe_open
        culvert.patch()
        self.assertIsNot(transformers.modeling_utils.safe_open, theirs)
        culvert.unpatch()
        self.assertIs(transformers.modeling_utils.safe_open, theirs)


if __name__ == "__main__":
    unittest.main()
