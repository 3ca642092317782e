"""`python -m services.engine --model DIR --sockets DIR`: loads the model and runs the rounds."""

from services.engine.process import main
from shared import lifecycle

if __name__ == "__main__":
    lifecycle.run(main)
