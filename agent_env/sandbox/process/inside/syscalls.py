"""Numbers of the system calls that the filter knows: x86_64 (syscall_64.tbl), aarch64 (asm-generic/unistd.h)."""

from __future__ import annotations

__all__ = ["NUMBERS"]

NUMBERS: dict[str, tuple[int, int]] = {
    "acct": (163, 89), "add_key": (248, 217), "bind": (49, 200), "bpf": (321, 280), "chmod": (90, -1),
    "chown": (92, -1), "chroot": (161, 51), "clone": (56, 220), "connect": (42, 203), "delete_module": (176, 106),
    "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "fchown": (93, 55), "fchownat": (260, 54),
    "file_setattr": (469, 469), "finit_module": (313, 273), "fork": (57, -1), "fremovexattr": (199, 16),
    "fsetxattr": (190, 7), "fsmount": (432, 432), "fsopen": (430, 430), "futimesat": (261, -1),
    "init_module": (175, 105), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425), "ioctl": (16, 29), "ioprio_set": (251, 30), "kcmp": (312, 272),
    "kexec_load": (246, 104), "keyctl": (250, 219), "kill": (62, 129), "lchown": (94, -1), "listen": (50, 201),
    "lremovexattr": (198, 15), "lsetxattr": (189, 6), "memfd_create": (319, 279), "memfd_secret": (447, 447),
    "migrate_pages": (256, 238), "mount": (165, 40), "mount_setattr": (442, 442), "move_mount": (429, 429),
    "move_pages": (279, 239), "mq_open": (240, 180), "mq_unlink": (241, 181), "msgctl": (71, 187), "msgget": (68, 186),
    "msgrcv": (70, 188), "msgsnd": (69, 189), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "open_tree": (428, 428), "perf_event_open": (298, 241), "pidfd_getfd": (438, 438), "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424), "pivot_root": (155, 41), "prctl": (157, 167), "prlimit64": (302, 261),
    "process_madvise": (440, 440), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "ptrace": (101, 117), "reboot": (169, 142), "removexattr": (197, 14), "removexattrat": (466, 466),
    "request_key": (249, 218), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "sched_setaffinity": (203, 122), "sched_setattr": (314, 274), "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119), "semctl": (66, 191), "semget": (64, 190), "semop": (65, 193),
    "semtimedop": (220, 192), "sendmmsg": (307, 269), "sendmsg": (46, 211), "sendto": (44, 206), "setns": (308, 268),
    "setpriority": (141, 140), "setxattr": (188, 5), "setxattrat": (463, 463), "shmat": (30, 196), "shmctl": (31, 195),
    "shmget": (29, 194), "socket": (41, 198), "socketpair": (53, 199), "swapon": (167, 224), "tgkill": (234, 131),
    "tkill": (200, 130), "umount2": (166, 39), "unshare": (272, 97), "userfaultfd": (323, 282), "utime": (132, -1),
    "utimensat": (280, 88), "utimes": (235, -1), "vfork": (58, -1),
}  # fmt: skip
"""By name; -1: that architecture has no such call."""
