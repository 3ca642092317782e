"""`python -m services.indexer --model DIR --sockets DIR`: indexes prompts beside the prefill."""

from services.indexer.process import main
from shared import lifecycle

if __name__ == "__main__":
    lifecycle.run(main)
