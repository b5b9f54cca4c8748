"""Plant every bug in turn and say which were caught; exits with 1 if any was not."""

import sys

from tests.mutants import mutants, stale, survivors, unfit


def main() -> int:
    chosen = [each for each in mutants() if all(word in str(each) for word in sys.argv[1:])]
    outdated = stale(chosen)
    if outdated:
        print("\n".join(outdated))
        return 1
    checks = sorted({mutant.caught for mutant in chosen})
    failing = unfit(checks)
    for check in failing:
        print(f"{check} fails without any bug planted, so it proves nothing")
    alive = list(survivors(chosen))
    print(f"{len(chosen) - len(alive)}/{len(chosen)} caught")
    for mutant in alive:
        print(f"survived: {mutant.what} ({mutant.file}; should be caught by {mutant.caught})")
    return 1 if alive or failing or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
