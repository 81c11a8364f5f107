"""Steps of one program under several environments, in turns, and what each costs against the first.

usage: overhead_turns.py [--each=N] [--turns=N] [--seconds=N] [--steps=N] [--skip=N] [--warm=N] [--cpus=N]
                         PROGRAM NAME[,VARIABLE=VALUE...]...

Starts overhead.py PROGRAM for each NAME with its variables, --each times, all on the same few processors; then each does
a few steps while the others wait, turn by turn, until there were so many turns or so many seconds have passed. All do the
same work in the same turn. The order changes from turn to turn, and no process goes twice in a row: it would find its
caches warm and be several percent faster. The first --skip steps of a turn do not count: the others have used the
processors' caches meanwhile. The first turn does not count: who goes first may compile a kernel that the others then find
on disk (1.5 s in gpt_varlen, whichever process was first).

Prints a line of key=value for each NAME: the median step; the ratio of its processes to the first NAME's, and the
standard error of that (a process counts with the median of its turns, each divided by the median of all processes in that
turn: machines are shared, and what disturbs a turn disturbs all alike); the ratio of all its time to the first's, and the
same with the fastest of its processes in each turn (quiet), as a disturbance seldom hits two in the same turn; the mean step of its fastest and of its slowest process; its longest step, with the turn (from 0) that contained it; and the
turns in which its first process lost most against the first NAME's, as TURN:MS,...
"""
import argparse
import math
import os
import random
import statistics
import subprocess
import sys
import time

TURNS_MIN = 4  # a spread of fewer says nothing
DEAREST = 8


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

    def turn(self, steps, skip):
        self.ask(steps)
        self.turns.append(self.answer()[skip:])

    def end(self):
        """Bytes held at the peak."""
        self.process.stdin.close()
        words = self.process.stdout.read().split()
        self.process.wait()
        return int(words[1]) if len(words) > 1 else 0


def in_any_order(runners, turns, seconds):
    """The runners of each turn. The first of a turn is not the last of the one before it."""
    shuffled, last = random.Random(0), None
    until = time.monotonic() + seconds
    for turn in range(turns):
        if turn >= TURNS_MIN and time.monotonic() > until:
            return
        order = shuffled.sample(runners, len(runners))
        if order[0] is last:
            order.append(order.pop(0))
        last = order[-1]
        yield order


def against_all(runners):
    """For each process, what its turns took in terms of the median of all processes in the same turn."""
    medians = {runner: [statistics.median(turn) for turn in runner.turns] for runner in runners}
    usual = [statistics.median(turn) for turn in zip(*medians.values())]
    return {runner: [ms / of for ms, of in zip(turns, usual)] for runner, turns in medians.items()}


def median_error(values):
    """Its standard error, if they are spread normally; from their middle half, as single ones are far out."""
    low, _, high = statistics.quantiles(values, n=4)
    return 1.25 * (high - low) / 1.35 / math.sqrt(len(values))


class Figure:
    """What one process costs, or several of one name: a value and its standard error."""

    def __init__(self, turns_of_each):
        each = [statistics.median(turns) for turns in turns_of_each]
        of_median = [median_error(turns) for turns in turns_of_each]
        self.value = statistics.mean(each)
        self.error = math.hypot(*of_median) / len(each)
        if len(each) > 1:
            self.error = max(self.error, statistics.stdev(each) / math.sqrt(len(each)))


def quiet_ms(group):
    """All turns, each as its fastest process did it."""
    return sum(min(sum(steps) for steps in same_turn) for same_turn in zip(*(runner.turns for runner in group)))


def dearest_turns(runner, first):
    """The turns that cost most more than the first NAME's, in ms."""
    extra = [sum(mine) - sum(theirs) for mine, theirs in zip(runner.turns, first.turns)]
    dearest = sorted(range(len(extra)), key=extra.__getitem__, reverse=True)[:DEAREST]
    return ",".join(f"{turn}:{extra[turn]:.1f}" for turn in dearest)


def report(program, group, first, relative, held):
    mine, theirs = (Figure([relative[runner] for runner in runners]) for runners in (group, first))
    ratio = mine.value / theirs.value
    error = ratio * math.hypot(mine.error / mine.value, theirs.error / theirs.value) if group is not first else 0
    steps, steps_first = ([ms for runner in runners for turn in runner.turns for ms in turn] for runners in (group, first))
    alone = sorted(statistics.mean(ms for turn in runner.turns for ms in turn) for runner in group)
    longest, turn = max((ms, turn) for runner in group for turn, steps_of in enumerate(runner.turns) for ms in steps_of)
    print(f"program={program} run={group[0].name} processes={len(group)} steps={len(steps)} "
          f"median_ms={statistics.median(steps):.4f} ratio={ratio:.4f} error={error:.4f} "
          f"total={sum(steps) / sum(steps_first):.4f} quiet={quiet_ms(group) / quiet_ms(first):.4f} "
          f"fastest_ms={alone[0]:.4f} slowest_ms={alone[-1]:.4f} longest_ms={longest:.1f} turn={turn} "
          f"dearest={dearest_turns(group[0], first[0])} held={held}", flush=True)


def main():
    parser = argparse.ArgumentParser(add_help=True)
    parser.add_argument("--each", type=int, default=1)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--warm", type=int, default=30)
    parser.add_argument("--cpus", type=int, default=4)
    parser.add_argument("--errors", help="beginning of the names of files for what they say on stderr")
    parser.add_argument("program")
    parser.add_argument("variants", nargs="+")
    options = parser.parse_args()
    if options.turns < TURNS_MIN:
        parser.error(f"--turns={options.turns}: at least {TURNS_MIN} are needed")
    if not 0 <= options.skip < options.steps:
        parser.error(f"--skip={options.skip}: less than --steps={options.steps} are needed")
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
    for order in in_any_order(runners, options.turns + 1, options.seconds):
        for runner in order:
            runner.turn(options.steps, options.skip)
    for runner in runners:
        del runner.turns[0]
    held = [max(runner.end() for runner in group) for group in groups]
    relative = against_all(runners)
    for group, most in zip(groups, held):
        report(options.program, group, groups[0], relative, most)


if __name__ == "__main__":
    main()
