"""`python -m tfbisect`: hands over to the command line."""

from tfbisect.cli import run

if __name__ == "__main__":
    run()
