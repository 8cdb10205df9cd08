"""Runs a command and writes its wall and processor time and its peak memory, as JSON, to a descriptor.

    python -S measure.py DESCRIPTOR COMMAND…

On Linux the peak of a process counts that of the process that started it, up to the start of the program.
This one is small and starts nothing else, so the peak is the command's own.
"""

import json
import os
import sys
import time


def main() -> None:
    descriptor, command = int(sys.argv[1]), sys.argv[2:]
    os.set_inheritable(descriptor, False)
    start = time.perf_counter()
    # Not posix_spawn: a child that shares our memory until its program starts would have all that we
    # inherited.
    process = os.fork()
    if process == 0:
        try:
            os.execvp(command[0], command)
        except OSError as error:
            print(f"{command[0]}: {error.strerror}", file=sys.stderr)
            os._exit(127)
    _, status, usage = os.wait4(process, 0)
    found = {
        "seconds": time.perf_counter() - start,
        "cpu": usage.ru_utime + usage.ru_stime,
        "peak_mib": usage.ru_maxrss / 1024,
    }
    os.write(descriptor, json.dumps(found).encode())
    code = os.waitstatus_to_exitcode(status)
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
