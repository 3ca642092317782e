"""`python -m services.gateway --model DIR --sockets DIR`: HTTP in front of the engine."""

from services.gateway.loop import main
from shared import lifecycle

if __name__ == "__main__":
    lifecycle.run(main)
