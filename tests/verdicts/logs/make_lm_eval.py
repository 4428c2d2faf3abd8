"""Run lm-eval with stand-ins for two models: python make_lm_eval.py --model stand-in --model_args ..."""

from lm_eval.__main__ import cli_evaluate
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

WRONG = {"large": {3, 11}, "small": {1, 3, 5, 7, 11, 15, 19}}


@register_model("stand-in")
class StandIn(LM):
    def __init__(self, pretrained="large", **kw):
        super().__init__()
        self.name = pretrained

    @classmethod
    def create_from_arg_string(cls, arg_string, additional_config=None):
        return cls(pretrained=arg_string.split("=")[1])

    @classmethod
    def create_from_arg_obj(cls, arg_dict, additional_config=None):
        return cls(**arg_dict)

    def loglikelihood(self, requests, **kw):
        out = []
        for r in requests:
            question, choice = r.args
            n = int(question.split()[0])
            right = "yes" if n % 2 == 0 else "no"
            says = right if n not in WRONG[self.name.split("/")[-1]] else ("no" if right == "yes" else "yes")
            out.append((0.0 if choice.strip() == says else -5.0, False))
        return out

    def generate_until(self, requests, **kw):
        raise NotImplementedError

    def loglikelihood_rolling(self, requests, **kw):
        raise NotImplementedError


cli_evaluate()
