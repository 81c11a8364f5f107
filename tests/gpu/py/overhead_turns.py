"""Steps of one program under several environments, in turns, and what each costs against the first.

usage: overhead_turns.py [--each=N] [--turns=N] [--steps=N] [--warm=N] [--cpus=N] PROGRAM NAME[,VARIABLE=VALUE...]...

Starts overhead.py PROGRAM for each NAME with its variables, --each times, all on the same few processors; then each does
a few steps while the others wait, turn by turn. Step i of one is compared with step i of the first, which does the same
work. Two processes of the same program differ by some percent over a whole run, natively too, so one
of each says little about small differences.

Prints a line of key=value for each NAME: the median step; the median of the ratios of its turns to the first NAME's (a
turn counts with its median step, the mean of all its processes); the smallest and largest quarter of these ratios; the
quietest tenth of its turns against the first's; and the mean step of its fastest and of its slowest process. Machines are
shared: ratios of turns that follow one another are all that can be compared.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys


MEDIAN_FROM = 5


class Runner:
    def __init__(self, program, variant, number, errors):
        self.name, *variables = variant.split(",")
        environment = dict(os.environ, PYTHONUNBUFFERED="1")
        environment.update(v.split("=", 1) for v in variables)
        self.errors = open(f"{errors}.{program}.{self.name}.{number}.err", "w+") if errors else None
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


def mean_turns(runners, steps):
    """The turns of all processes of one name as one: of few steps each step counts, of many their median."""
    def times(turn):
        return [statistics.median(turn)] if steps >= MEDIAN_FROM else turn

    return [statistics.mean(same) for turns in zip(*(r.turns for r in runners)) for same in zip(*map(times, turns))]


def report(program, name, runners, turns, first, held):
    of_turns = sorted(a / b for a, b in zip(turns, first))
    quarter = len(of_turns) // 4
    tenth = len(turns) // 10
    alone = sorted(sum(ms for turn in r.turns for ms in turn) / len(r.turns) / len(r.turns[0]) for r in runners)
    steps = [ms for runner in runners for turn in runner.turns for ms in turn]
    print(f"program={program} run={name} processes={len(runners)} steps={len(steps)} "
          f"median_ms={statistics.median(steps):.4f} ratio={statistics.median(of_turns):.4f} "
          f"low={of_turns[quarter]:.4f} high={of_turns[-1 - quarter]:.4f} "
          f"quiet={sorted(turns)[tenth] / sorted(first)[tenth]:.4f} total={sum(turns) / sum(first):.4f} "
          f"fastest_ms={alone[0]:.4f} slowest_ms={alone[-1]:.4f} held={held}", flush=True)


def main():
    parser = argparse.ArgumentParser(add_help=True)
    parser.add_argument("--each", type=int, default=1)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warm", type=int, default=30)
    parser.add_argument("--cpus", type=int, default=4)
    parser.add_argument("--errors", help="beginning of the names of files for what they say on stderr")
    parser.add_argument("program")
    parser.add_argument("variants", nargs="+")
    options = parser.parse_args()
    groups = [[Runner(options.program, variant, number, options.errors) for number in range(options.each)]
              for variant in options.variants]
    runners = [runner for same in zip(*groups) for runner in same]
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
    first = mean_turns(groups[0], options.steps)
    for group in groups:
        report(options.program, group[0].name, group, mean_turns(group, options.steps), first,
               max(runner.end() for runner in group))


if __name__ == "__main__":
    main()
