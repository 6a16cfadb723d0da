"""The language model of the `moshi` package and ours on the same random weights; prints what differs as JSON."""

from __future__ import annotations

import json
import sys

import torch
from moshi.models.lm import LMGen, LMModel
from torch import Tensor

from codec.identity import CodecIdentity
from codec.mimi.weights import fill
from models.families.moshi.config import TINY, MoshiConfig
from models.families.moshi.language import MoshiLM
from models.families.moshi.names import translate
from models.families.moshi.slots import MoshiSlots, Sampling

torch.set_num_threads(1)
torch.set_grad_enabled(False)

BATCH = 4


class NoCodec:
    """Only codes are compared here."""

    identity = CodecIdentity("none", "1", 24_000, 1920, 8, int(TINY["card"]))  # type: ignore[call-overload]
    silence = torch.zeros(8, dtype=torch.int64)

    def reset(self, mask: Tensor) -> None:
        """It has no state."""


def main(case: str, frames: int) -> dict[str, object]:
    torch.manual_seed(0)
    fields = {**TINY, **CASES[case]}
    theirs = LMModel(**{key: value for key, value in fields.items() if key != "depformer_context"}).eval()
    for name, weight in theirs.named_parameters():
        if weight.dim() > 1 and not name.endswith("alpha"):
            weight.data.normal_(0, 1.0 if "emb" in name else weight.shape[-1] ** -0.5)
    weights = {**theirs.state_dict()}
    if case == "old names":
        weights = joined(weights)
    config = MoshiConfig.read(fields)
    ours = MoshiLM(config)
    fill(ours, translate(weights, config, case), case, torch.float32)
    slots = MoshiSlots(ours.eval(), NoCodec(), BATCH, sampling=Sampling(temperature=0, text_temperature=0))
    if theirs.dep_q == theirs.n_q:
        return guessing_the_user(theirs, slots, frames)
    return stepped(theirs, slots, frames)


CASES: dict[str, dict[str, object]] = {
    "moshi": {},
    "old names": {},
    "schedule": {"depformer_weights_per_step_schedule": [0, 1, 2, 2, 3, 3, 3, 3]},
    "one input": {"depformer_multi_linear": False, "bias_proj": True},
    "long delays": {"delays": [1, 0, 2, 2, 2, 2, 2, 2, 2, 0, 2, 2, 2, 2, 2, 2, 2]},
    "personaplex": {"dep_q": 16},
}


def stepped(theirs: LMModel, slots: MoshiSlots, frames: int) -> dict[str, object]:
    """Step by step with random users, pauses and new sessions."""
    generator = torch.Generator().manual_seed(7)
    generation = LMGen(theirs, use_sampling=False, support_out_of_sync=True)
    equal, said = [], []
    with generation.streaming(BATCH):
        for frame in range(frames):
            user = torch.randint(0, theirs.card, (BATCH, 8), generator=generator)
            run = torch.rand(BATCH, generator=generator) < 0.85
            mask = torch.rand(BATCH, generator=generator) < (0.02 if frame else 0)
            if mask.any():
                generation.reset_streaming(mask)
                slots.reset(mask, torch.zeros(BATCH, dtype=torch.int64))
            generation.set_exec_mask(run)
            wanted = generation.step(user[:, :, None])
            text, codes, begun, _ = slots.advance(user, run, torch.zeros(BATCH, dtype=torch.bool))
            ready = wanted[:, 0, 0] != theirs.ungenerated_token_id
            if not torch.equal(ready, begun):
                raise SystemExit(f"frame {frame}: {ready} of theirs have begun, {begun} of ours")
            found = torch.cat([text[:, None], codes], dim=1)
            equal.append((found == wanted[..., 0])[begun].float())
            said.append(found[begun])
    return summary(torch.cat(equal), torch.cat(said))


def guessing_the_user(theirs: LMModel, slots: MoshiSlots, frames: int) -> dict[str, object]:
    """A depth transformer that says both speakers: their whole sequence, given what ours said, says the same."""
    generator = torch.Generator().manual_seed(7)
    user = torch.randint(0, theirs.card, (frames, BATCH, 8), generator=generator)
    run, no = torch.ones(BATCH, dtype=torch.bool), torch.zeros(BATCH, dtype=torch.bool)
    frames_said = []
    for frame in user:
        text, codes, _, _ = slots.advance(frame, run, no)
        frames_said.append(torch.cat([text[:, None], codes], dim=1))
    # The user's first frame is never seen, and the agent's first is not there: both begin at 1.
    said = torch.stack(frames_said[1:], dim=2)
    everything = torch.cat([said, user[1:].permute(1, 2, 0)], dim=1)
    output = theirs(everything)
    # The last frame's delayed codes come in the next position.
    logits = torch.cat([output.text_logits.argmax(-1), output.logits[:, :8].argmax(-1)], dim=1)
    return summary((logits == said)[..., :-1].flatten(1).float(), said.transpose(1, 2).flatten(0, 1))


def summary(equal: Tensor, said: Tensor) -> dict[str, object]:
    return {
        "frames": len(said),
        "equal": equal.mean().item(),
        "distinct": [said[:, stream].unique().numel() for stream in range(said.shape[1])],
    }


def joined(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The names of the published file, where the weights of all codebooks lie below one another."""
    out = {}
    for name, tensor in weights.items():
        stem, found, _ = name.partition("_projs.0.weight")
        if not found:
            if "_projs." not in name:
                out[name] = tensor
            continue
        count = sum(other.startswith(f"{stem}_projs.") for other in weights)
        parts = [weights[f"{stem}_projs.{number}.weight"] for number in range(count)]
        out[f"{stem}_proj_weight" if stem.endswith("in") else f"{stem}_proj.weight"] = torch.cat(parts)
    return out


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
