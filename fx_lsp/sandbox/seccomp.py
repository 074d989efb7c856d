"""Forbid system calls to this process and all that it starts, by a seccomp filter (Linux on x86-64 and arm64).

What files may be written is for Landlock to say; here are the calls that it knows nothing of.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fx_lsp.sandbox.system_calls import drop_capabilities, gain_no_privileges, prctl

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_ABOVE, _RETURN, _AND = 0x20, 0x15, 0x25, 0x06, 0x54
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_CLONE_THREAD = 0x00010000
_NAMESPACES = 0x7E020080
"""The flags of `clone` that make namespaces."""
_STREAM = 0xF, socket.SOCK_STREAM if hasattr(socket, "SOCK_STREAM") else 1

_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""The kernel's name of an architecture, and the column of its numbers below."""

_NETWORK = {
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242),
}  # fmt: skip
_WITH_NEW_PRIVILEGES = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97), "setns": (308, 268), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsmount": (432, 432), "mount_setattr": (442, 442),
    "bpf": (321, 280), "perf_event_open": (298, 241), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "reboot": (169, 142), "kexec_load": (246, 104), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "swapon": (167, 224), "swapoff": (168, 225),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "sethostname": (170, 161), "setdomainname": (171, 162), "open_by_handle_at": (304, 265),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "semctl": (66, 191),
    "semop": (65, 193), "semtimedop": (220, 192), "msgget": (68, 186), "msgctl": (71, 187), "msgsnd": (69, 189),
    "msgrcv": (70, 188), "inotify_init": (253, -1), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27),
    "mq_open": (240, 180), "mq_unlink": (241, 181), "userfaultfd": (323, 282), "fanotify_init": (300, 262),
    "vhangup": (153, 58), "acct": (163, 89), "quotactl": (179, 60), "syslog": (103, 116), "personality": (135, 92),
}  # fmt: skip
_PROGRAMS = {"execve": (59, 221), "execveat": (322, 281)}
_OLD_FORKS = {"fork": (57, -1), "vfork": (58, -1)}
_METADATA = {
    "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, -1),
    "fchown": (93, 55), "lchown": (94, -1), "fchownat": (260, 54), "utime": (132, -1), "utimes": (235, -1),
    "futimesat": (261, -1), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "setxattrat": (463, 463),
    "removexattrat": (466, 466), "file_setattr": (469, 469),
}  # fmt: skip
_OF_A_PROCESS = {
    "sched_setparam": (142, 118), "sched_setscheduler": (144, 119), "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274), "migrate_pages": (256, 238), "move_pages": (279, 239),
}  # fmt: skip
"""Calls that change the process, or thread, that their first argument names: 0 is the one that calls."""
_PRIORITIES = {"setpriority": ((141, 140), 0), "ioprio_set": ((251, 30), 1)}
"""Calls whose first argument says what their second names, with its value for a process."""
_FLOCK, _FCNTL = (73, 32), (72, 25)
_NOTIFIED = {"F_SETLEASE": 1024, "F_NOTIFY": 1026}
"""Requests to a descriptor to hear of what others do with the file."""
_LOCKS = {"F_SETLK": 6, "F_SETLKW": 7, "F_OFD_SETLK": 37, "F_OFD_SETLKW": 38}
_PRCTL, _PR_SET_DUMPABLE, _FALLOCATE = (157, 167), 4, (285, 47)
_SOCKETPAIR, _SENDTO, _CLONE, _CLONE3, _PRLIMIT = (53, 199), (44, 206), (56, 220), (435, 435), (302, 261)
_X32 = 0x40000000
_IOCTL = (16, 29)
_IOCTLS = {
    "FS_IOC_SETFLAGS": 0x40086602, "FS_IOC32_SETFLAGS": 0x40046602, "FS_IOC_FSSETXATTR": 0x401C5820,
    "FS_IOC_SETFSLABEL": 0x41009432, "FIFREEZE": 0xC0045877, "TIOCSTI": 0x5412, "TIOCLINUX": 0x541C,
}  # fmt: skip
"""Requests to a descriptor that change a file's flags or a terminal's input, whatever the descriptor is open for."""


@dataclass(frozen=True)
class _ArgumentTest:
    """Hold if the low 32 bits of an argument, under a mask, are a value; if not, for a condition that is `negated`."""

    argument: int
    mask: int
    value: int
    negated: bool = False
    upper: bool = False


@dataclass(frozen=True)
class _Rule:
    """Answer a system call with an error (0: with success, and nothing done), if all `conditions` hold."""

    number: int
    error: int = errno.EPERM
    conditions: tuple[_ArgumentTest, ...] = ()


class _Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction))]


def supported() -> bool:
    """Return True on an architecture whose numbers are known here."""
    return hasattr(os, "uname") and os.uname().sysname == "Linux" and os.uname().machine in _MACHINES


def forbid_network_and_privileges() -> None:
    """Forbid sockets but pairs of this process's own, other processes' memory and limits, namespaces, what System V
    shares, news of files, and the like.

    Modes, owners, times and attributes of files, their locks, and the scheduling of a process by its number cannot be
    changed: such calls succeed and do nothing. Nor can a process keep the server from counting what it uses, or
    reserve space on a disk faster than it writes. Raises OSError.
    """
    drop_capabilities()
    _install([*_network(), *_privileges()])


def forbid_programs() -> None:
    """Forbid to start other programs. Raises OSError."""
    _install(_all(_PROGRAMS))


def forbid_processes() -> None:
    """Forbid to start other programs and processes; threads may be started. Raises OSError."""
    not_a_thread = (_ArgumentTest(0, _CLONE_THREAD, _CLONE_THREAD, negated=True),)
    flags_unknown = _Rule(_number(_CLONE3), errno.ENOSYS)  # the C library then calls `clone`
    _install([*_all(_PROGRAMS), *_all(_OLD_FORKS), _Rule(_number(_CLONE), errno.EPERM, not_a_thread), flags_unknown])


def _network() -> list[_Rule]:
    not_local = (_ArgumentTest(0, 0xFFFFFFFF, 1, negated=True),)
    not_stream = (_ArgumentTest(1, *_STREAM, negated=True),)
    pair, send = _number(_SOCKETPAIR), _number(_SENDTO)
    return [
        *_all(_NETWORK),
        _Rule(pair, errno.EPERM, not_local),
        _Rule(pair, errno.EPERM, not_stream),
        _Rule(send, errno.EPERM, (_ArgumentTest(4, 0xFFFFFFFF, 0, negated=True),)),
        _Rule(send, errno.EPERM, (_ArgumentTest(4, 0xFFFFFFFF, 0, negated=True, upper=True),)),
    ]


def _privileges() -> list[_Rule]:
    of_another = (_ArgumentTest(0, 0xFFFFFFFF, 0, negated=True),)
    who_is_named = (_ArgumentTest(1, 0xFFFFFFFF, 0, negated=True),)
    namespaces = [
        _Rule(_number(_CLONE), errno.EPERM, (_ArgumentTest(0, 1 << bit, 1 << bit),))
        for bit in range(32)
        if _NAMESPACES >> bit & 1
    ]
    return [
        *_all(_WITH_NEW_PRIVILEGES),
        *_all(_METADATA, 0),
        *(_Rule(_number(_IOCTL), errno.EPERM, (_ArgumentTest(1, 0xFFFFFFFF, ask),)) for ask in _IOCTLS.values()),
        _Rule(_number(_PRLIMIT), errno.EPERM, of_another),
        *(_Rule(_number(numbers), 0, of_another) for numbers in _OF_A_PROCESS.values()),
        *(
            _Rule(_number(numbers), errno.EPERM, (_ArgumentTest(0, 0xFFFFFFFF, process, negated=True),))
            for numbers, process in _PRIORITIES.values()
        ),
        *(_Rule(_number(numbers), 0, who_is_named) for numbers, _ in _PRIORITIES.values()),
        _Rule(_number(_PRCTL), 0, (_ArgumentTest(0, 0xFFFFFFFF, _PR_SET_DUMPABLE),)),
        _Rule(_number(_FALLOCATE), errno.EOPNOTSUPP),
        _Rule(_number(_FLOCK), 0),
        *(_Rule(_number(_FCNTL), 0, (_ArgumentTest(1, 0xFFFFFFFF, lock),)) for lock in _LOCKS.values()),
        *(_Rule(_number(_FCNTL), errno.EPERM, (_ArgumentTest(1, 0xFFFFFFFF, ask),)) for ask in _NOTIFIED.values()),
        *namespaces,
        _Rule(_number(_CLONE3), errno.ENOSYS),
    ]


def _all(calls: dict[str, tuple[int, int]], error: int = errno.EPERM) -> list[_Rule]:
    return [_Rule(number, error) for number in map(_number, calls.values()) if number >= 0]


def _number(of_machines: tuple[int, int]) -> int:
    return of_machines[_MACHINES[os.uname().machine][1]]


def _install(rules: Sequence[_Rule]) -> None:
    gain_no_privileges()
    instructions = [*_instructions(rules)]
    array = (_Instruction * len(instructions))(*instructions)
    program = _Program(len(instructions), array)
    prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program))


def _instructions(rules: Sequence[_Rule]) -> Iterator[_Instruction]:
    """Yield a filter: calls for another architecture fail, then each rule in order, and all else is allowed."""
    architecture, column = _MACHINES[os.uname().machine]
    yield _load(_ARCHITECTURE)
    yield _Instruction(_JUMP_IF_EQUAL, 1, 0, architecture)
    yield _return(errno.ENOSYS)
    yield _load(_NUMBER)
    if column == 0:
        yield _Instruction(_JUMP_IF_ABOVE, 0, 1, _X32 - 1)
        yield _return(errno.ENOSYS)
    for rule in rules:
        block = [*_block(rule)]
        yield _Instruction(_JUMP_IF_EQUAL, 0, len(block), rule.number)
        yield from block
    yield _Instruction(_RETURN, 0, 0, _ALLOW)


def _block(rule: _Rule) -> Iterator[_Instruction]:
    """Yield the instructions of a rule. They end with the number of the call loaded, as the next rule expects it."""
    left = 3 * len(rule.conditions)
    for condition in rule.conditions:
        left -= 3
        yield _load(_ARGUMENTS + 8 * condition.argument + 4 * condition.upper)
        yield _Instruction(_AND, 0, 0, condition.mask)
        miss = left + 1
        yes, no = (miss, 0) if condition.negated else (0, miss)
        yield _Instruction(_JUMP_IF_EQUAL, yes, no, condition.value)
    yield _return(rule.error)
    if rule.conditions:
        yield _load(_NUMBER)


def _load(offset: int) -> _Instruction:
    return _Instruction(_LOAD, 0, 0, offset)


def _return(error: int) -> _Instruction:
    return _Instruction(_RETURN, 0, 0, _ERROR | error)
