"""Steps of one program under several environments, in turns, and what each costs against the first.

usage: overhead_turns.py [--turns=N] [--steps=N] [--warm=N] [--cpus=N] PROGRAM NAME[,VARIABLE=VALUE...]...

Starts overhead.py PROGRAM once for each NAME with its variables, all on the same few processors; then each does a few
steps while the others wait, turn by turn. Step i of one is compared with step i of the first, which does the same work.
Prints a line of key=value for each: the median step, the median of the ratios of its turns to the first one's turns
(a turn counts with its median step), the smallest and largest quarter of these ratios, an interval that holds the true
median with 95 % (sign test), and the ratio of the quietest tenth of the turns. Machines are shared: ratios of turns that
follow one another are all that can be compared, and two runners with the same variables show what they are worth.
"""
import argparse
import math
import os
import re
import statistics
import subprocess
import sys


MEDIAN_FROM = 5


class Runner:
    def __init__(self, program, variant, errors):
        self.name, *variables = variant.split(",")
        environment = dict(os.environ, PYTHONUNBUFFERED="1")
        environment.update(v.split("=", 1) for v in variables)
        self.errors = open(f"{errors}.{program}.{self.name}.err", "w+") if errors else None
        here = os.path.dirname(os.path.abspath(__file__))
        self.process = subprocess.Popen([sys.executable, os.path.join(here, "overhead.py"), program], text=True,
                                        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors or subprocess.DEVNULL)
        self.turns = []

    def stay_on(self, processors):
        for thread in os.listdir(f"/proc/{self.process.pid}/task"):
            try:
                os.sched_setaffinity(int(thread), processors)
            except OSError:  # it has ended
                pass

    def ask(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} broke off (status {self.process.wait()})")
        return [float(word) for word in line.split()]

    def turn(self, steps):
        self.ask(steps)
        self.turns.append(self.answer())

    def end(self):
        """Bytes held at the peak: by PyTorch's cache as it says, or by the pool as it says when the process ends."""
        self.process.stdin.close()
        words = self.process.stdout.read().split()
        self.process.wait()
        if self.errors:
            self.errors.seek(0)
            held = re.search(r"peak held ([0-9.]+)([KMG])", self.errors.read())
            if held:
                return int(float(held[1]) * {"K": 2**10, "M": 2**20, "G": 2**30}[held[2]])
        return int(words[1]) if len(words) > 1 else 0


def ratios(runner, first, steps):
    """Of turns: with few steps each step is compared with its twin, with many the medians are."""
    pairs = zip(runner.turns, first.turns)
    if steps >= MEDIAN_FROM:
        return [statistics.median(a) / statistics.median(b) for a, b in pairs]
    return [x / y for a, b in pairs for x, y in zip(a, b)]


def interval(ordered):
    """Ranks around the median that hold the true one with 95 %: the binomial distribution, by its normal approximation."""
    reach = 0.98 * math.sqrt(len(ordered))
    middle = (len(ordered) - 1) / 2
    return ordered[max(0, math.floor(middle - reach))], ordered[min(len(ordered) - 1, math.ceil(middle + reach))]


def quiet(runner):
    """The turn that a tenth of all turns undercut."""
    return sorted(statistics.median(turn) for turn in runner.turns)[len(runner.turns) // 10]


def main():
    parser = argparse.ArgumentParser(add_help=True)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warm", type=int, default=30)
    parser.add_argument("--cpus", type=int, default=4)
    parser.add_argument("--errors", help="beginning of the names of files for what they say on stderr")
    parser.add_argument("program")
    parser.add_argument("variants", nargs="+")
    options = parser.parse_args()
    runners = [Runner(options.program, variant, options.errors) for variant in options.variants]
    for runner in runners:  # all start at the same time
        runner.ask(options.warm)
    for runner in runners:
        runner.answer()
    few = sorted(os.sched_getaffinity(0))[-options.cpus:]
    for runner in runners:  # not before: starting is a matter of many processors
        runner.stay_on(few)
    for turn in range(options.turns):
        for runner in (runners if turn % 2 else reversed(runners)):
            runner.turn(options.steps)
    for runner in runners:
        of_turns = sorted(ratios(runner, runners[0], options.steps))
        quarter = len(of_turns) // 4
        least, most = interval(of_turns)
        steps = [ms for turn in runner.turns for ms in turn]
        print(f"program={options.program} run={runner.name} steps={len(steps)} median_ms={statistics.median(steps):.4f} "
              f"ratio={statistics.median(of_turns):.4f} low={of_turns[quarter]:.4f} high={of_turns[-1 - quarter]:.4f} "
              f"from={least:.4f} to={most:.4f} quiet={quiet(runner) / quiet(runners[0]):.4f} "
              f"total={sum(steps) / sum(ms for turn in runners[0].turns for ms in turn):.4f} held={runner.end()}",
              flush=True)


if __name__ == "__main__":
    main()
