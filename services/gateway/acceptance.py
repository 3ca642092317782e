"""One request's drafting in a few figures, under the names that vLLM's users know."""

from typing import Any

from shared.messages import SpeculativeStats


def acceptance(stats: SpeculativeStats) -> dict[str, Any]:
    """A mean or a rate of nothing is null. `mean_acceptance_length` counts the model's own token,
    so it is the tokens of a pass that verified drafts."""
    rounds, drafted, accepted = stats.rounds, stats.drafted_tokens, stats.accepted_tokens
    per_position = [n for n in stats.accepted_per_position if n]
    return {
        "num_drafts": rounds,
        "num_draft_tokens": drafted,
        "num_accepted_tokens": accepted,
        "mean_acceptance_length": 1 + accepted / rounds if rounds else None,
        "draft_acceptance_rate": accepted / drafted if drafted else None,
        "per_position_acceptance_rate": [n / rounds for n in per_position],
        "sources": {
            source.kind: {
                "rounds": source.rounds,
                "drafted_tokens": source.drafted_tokens,
                "accepted_tokens": source.accepted_tokens,
            }
            for source in stats.sources
        },
    }
