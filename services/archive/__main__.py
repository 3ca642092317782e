"""`python -m services.archive --sockets DIR --ngram-archive-mib N`: keeps sessions in memory."""

from services.archive.process import main
from shared import lifecycle

if __name__ == "__main__":
    lifecycle.run(main)
