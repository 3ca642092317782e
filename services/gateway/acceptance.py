"""One request's drafting in a few figures: under the names that vLLM's users know, and ours."""

from typing import Any

from shared.messages import SpeculativeStats

COUNTERS = (
    "rounds",
    "fallback_steps",
    "ngram_rounds",
    "ngram_drafted_tokens",
    "ngram_accepted_tokens",
    "ngram_handoffs",
    "ngram_resumes",
    "ngram_index_wait_rounds",
)


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
        **{name: getattr(stats, name) for name in COUNTERS},
        "sources": {
            source.kind: {
                "rounds": source.rounds,
                "drafted_tokens": source.drafted_tokens,
                "accepted_tokens": source.accepted_tokens,
            }
            for source in stats.sources
        },
    }
