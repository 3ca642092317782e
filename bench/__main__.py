"""`python -m bench NAME [--json] [--quick]`: runs one benchmark."""

import importlib
import sys

# name on the command line -> module in this package; each has main(argv) -> exit status
BENCHMARKS = {
    "archive": "archive",
    "engine": "engine",
    "exactness": "exactness",
    "first-light": "first_light",
    "gateway": "gateway.command",
    "matching": "matching",
    "model-pass": "model_pass",
    "mtp": "mtp",
    "replay": "replay.command",
    "serving": "serving.command",
    "weights": "weights",
}


def main(argv: list[str]) -> int:
    if not argv or argv[0] not in BENCHMARKS:
        print(f"usage: python -m bench {{{','.join(BENCHMARKS)}}} [--json] [--quick]")
        return 2
    module = importlib.import_module(f"bench.{BENCHMARKS[argv[0]]}")
    status: int = module.main(argv[1:])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
