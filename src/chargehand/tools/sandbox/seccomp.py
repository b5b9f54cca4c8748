"""Which system calls a sandboxed program may make, as a seccomp filter.

The filter lists the refused calls, not the allowed ones, because nobody can list all calls that a
language runtime needs. A call that is newer than the list fails with ENOSYS.
"""

import errno
import platform
import struct
from collections.abc import Iterator

from chargehand.errors import ToolError

#: futex_requeue, the newest call that was reviewed; numbers from 424 on are the same on all architectures
NEWEST = 456

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
#: bit of the x32 calls: on x86_64, the same calls under other numbers
_X32 = 0x40000000

_REFUSED = """
    mount            165  40    umount2          166  39    pivot_root       155  41
    chroot           161  51    unshare          272  97    setns            308 268
    ptrace           101 117    process_vm_readv 310 270    process_vm_writev 311 271
    kcmp             312 272    kexec_load       246 104    kexec_file_load  320 294
    init_module      175 105    finit_module     313 273    delete_module    176 106
    bpf              321 280    perf_event_open  298 241    userfaultfd      323 282
    add_key          248 217    request_key      249 218    keyctl           250 219
    open_by_handle_at 304 265   name_to_handle_at 303 264   fanotify_init    300 262
    reboot           169 142    swapon           167 224    swapoff          168 225
    acct             163  89    quotactl         179  60    syslog           103 116
    settimeofday     164 170    clock_settime    227 112    clock_adjtime    305 266
    adjtimex         159 171    sethostname      170 161    setdomainname    171 162
    vhangup          153  58    nfsservctl       180  42    lookup_dcookie   212  18
    mbind            237 235    set_mempolicy    238 237    migrate_pages    256 238
    move_pages       279 239    personality      135  92
    socket            41 198
    shmget            29 194    shmat             30 196    semget            64 190
    msgget            68 186    mq_open          240 180    memfd_create     319 279
    io_uring_setup   425 425    io_uring_enter   426 426    io_uring_register 427 427
    open_tree        428 428    move_mount       429 429    fsopen           430 430
    fsconfig         431 431    fsmount          432 432    fspick           433 433
    pidfd_getfd      438 438    mount_setattr    442 442    quotactl_fd      443 443
    memfd_secret     447 447
    iopl             172   -    ioperm           173   -    modify_ldt       154   -
    uselib           134   -    ustat            136   -    sysfs            139   -
    create_module    174   -    get_kernel_syms  177   -    query_module     178   -
    _sysctl          156   -
"""
# Columns: name, number on x86_64, number on aarch64. The row of `socket` blocks all networks, also those
# without namespaces. The two rows after it block memory that outlives its process or escapes all limits.

_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
_NEW_NAMESPACES = 0x7E020080
_IOCTL = {"x86_64": 16, "aarch64": 29}
#: TIOCSTI and TIOCLINUX, which inject input into a terminal
_TYPES_FOR_OTHERS = (0x5412, 0x541C)

_LOAD, _EQUAL, _ABOVE, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24


def call_filter(machine: str | None = None) -> bytes:
    """The filter for this processor, as the BPF program that the kernel takes."""
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        known = " and ".join(_ARCHITECTURES)
        raise ToolError(
            f"the sandbox has no system call filter for {machine}, only for {known}", kind="denied"
        )
    return b"".join(struct.pack("=HBBI", *line) for line in _lines(machine))


def refused_calls(machine: str) -> dict[str, int]:
    """The refused calls: name and number."""
    words = _REFUSED.split()
    column = list(_ARCHITECTURES).index(machine)
    rows = zip(words[::3], words[1 + column :: 3], strict=True)
    return {name: int(number) for name, number in rows if number != "-"}


def _lines(machine: str) -> Iterator[tuple[int, int, int, int]]:
    yield _LOAD, 0, 0, _ARCHITECTURE
    yield _EQUAL, 1, 0, _ARCHITECTURES[machine]
    yield _RETURN, 0, 0, _KILL
    yield _LOAD, 0, 0, _NUMBER
    yield from _unless(_AT_LEAST, _X32, _KILL)
    yield from _unless(_ABOVE, NEWEST, _error(errno.ENOSYS))
    # A filter cannot read the flags of clone3, which are in memory; programs fall back to `clone`.
    yield from _unless(_EQUAL, _CLONE3, _error(errno.ENOSYS))
    for number in refused_calls(machine).values():
        yield from _unless(_EQUAL, number, _error(errno.EPERM))
    yield from _argument(_CLONE[machine], _FIRST, _ANY_BIT, (_NEW_NAMESPACES,))
    yield from _argument(_IOCTL[machine], _SECOND, _EQUAL, _TYPES_FOR_OTHERS)
    yield _RETURN, 0, 0, _ALLOW


def _unless(test: int, value: int, verdict: int) -> Iterator[tuple[int, int, int, int]]:
    yield test, 0, 1, value
    yield _RETURN, 0, 0, verdict


def _argument(
    call: int, place: int, test: int, values: tuple[int, ...]
) -> Iterator[tuple[int, int, int, int]]:
    """Refuse `call` if the argument at `place` matches one of the values."""
    yield _EQUAL, 0, 2 + 2 * len(values), call
    yield _LOAD, 0, 0, place
    for value in values:
        yield from _unless(test, value, _error(errno.EPERM))
    yield _LOAD, 0, 0, _NUMBER


def _error(number: int) -> int:
    return 0x00050000 | number
