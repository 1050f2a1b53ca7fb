//! The RuntimeDefault profile: which system calls a container may make. Everything else is refused with EPERM.
//!
//! Container engines agree on the idea, not on every name. This list is the stricter reading: what changes mounts,
//! namespaces, modules, keys, clocks or other processes is refused whatever capabilities a container has.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use seccompiler::{BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter};
use seccompiler::{SeccompRule, TargetArch, apply_filter};

/// The flags of `clone` that make a namespace. (Its lowest byte is a signal.)
const NAMESPACES: u64 = 0x7e02_0000;

macro_rules! calls {
    ($($name:ident)*) => { &[$(libc::$name),*] };
}

/// On every architecture.
const ALLOWED: &[i64] = calls![
    SYS_accept SYS_accept4 SYS_bind SYS_brk SYS_capget SYS_capset SYS_chdir SYS_clock_getres SYS_clock_gettime
    SYS_clock_nanosleep SYS_close SYS_close_range SYS_connect SYS_copy_file_range SYS_dup SYS_dup3 SYS_epoll_create1
    SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2 SYS_execve SYS_execveat SYS_exit SYS_exit_group
    SYS_faccessat SYS_faccessat2 SYS_fadvise64 SYS_fallocate SYS_fanotify_mark SYS_fchdir SYS_fchmod SYS_fchmodat
    SYS_fchown SYS_fchownat SYS_fcntl SYS_fdatasync SYS_fgetxattr SYS_flistxattr SYS_flock SYS_fremovexattr
    SYS_fsetxattr SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate SYS_futex SYS_futex_waitv SYS_get_robust_list
    SYS_getcpu SYS_getcwd SYS_getdents64 SYS_getegid SYS_geteuid SYS_getgid SYS_getgroups SYS_getitimer
    SYS_getpeername SYS_getpgid SYS_getpid SYS_getppid SYS_getpriority SYS_getrandom SYS_getresgid SYS_getresuid
    SYS_getrusage SYS_getsid SYS_getsockname SYS_getsockopt SYS_gettid SYS_gettimeofday SYS_getuid SYS_getxattr
    SYS_inotify_add_watch SYS_inotify_init1 SYS_inotify_rm_watch SYS_io_cancel SYS_io_destroy SYS_io_getevents
    SYS_io_setup SYS_io_submit SYS_ioctl SYS_ioprio_get SYS_ioprio_set SYS_kill SYS_landlock_add_rule
    SYS_landlock_create_ruleset SYS_landlock_restrict_self SYS_lgetxattr SYS_linkat SYS_listen SYS_listxattr
    SYS_llistxattr SYS_lremovexattr SYS_lseek SYS_lsetxattr SYS_madvise SYS_membarrier SYS_memfd_create
    SYS_memfd_secret SYS_mincore SYS_mkdirat SYS_mknodat SYS_mlock SYS_mlock2 SYS_mlockall SYS_mmap SYS_mprotect
    SYS_mq_getsetattr SYS_mq_notify SYS_mq_open SYS_mq_timedreceive SYS_mq_timedsend SYS_mq_unlink SYS_mremap
    SYS_mseal SYS_msgctl SYS_msgget SYS_msgrcv SYS_msgsnd SYS_msync SYS_munlock SYS_munlockall SYS_munmap
    SYS_nanosleep SYS_newfstatat SYS_openat SYS_openat2 SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe2 SYS_pkey_alloc
    SYS_pkey_free SYS_pkey_mprotect SYS_ppoll SYS_prctl SYS_pread64 SYS_preadv SYS_preadv2 SYS_prlimit64
    SYS_process_mrelease SYS_pselect6 SYS_pwrite64 SYS_pwritev SYS_pwritev2 SYS_read SYS_readahead SYS_readlinkat
    SYS_readv SYS_recvfrom SYS_recvmmsg SYS_recvmsg SYS_remap_file_pages SYS_removexattr SYS_renameat2
    SYS_restart_syscall SYS_rseq SYS_rt_sigaction SYS_rt_sigpending SYS_rt_sigprocmask SYS_rt_sigqueueinfo
    SYS_rt_sigreturn SYS_rt_sigsuspend SYS_rt_sigtimedwait SYS_rt_tgsigqueueinfo SYS_sched_get_priority_max
    SYS_sched_get_priority_min SYS_sched_getaffinity SYS_sched_getattr SYS_sched_getparam SYS_sched_getscheduler
    SYS_sched_rr_get_interval SYS_sched_setaffinity SYS_sched_setattr SYS_sched_setparam SYS_sched_setscheduler
    SYS_sched_yield SYS_seccomp SYS_semctl SYS_semget SYS_semop SYS_semtimedop SYS_sendfile SYS_sendmmsg SYS_sendmsg
    SYS_sendto SYS_set_robust_list SYS_set_tid_address SYS_setfsgid SYS_setfsuid SYS_setgid SYS_setgroups
    SYS_setitimer SYS_setpgid SYS_setpriority SYS_setregid SYS_setresgid SYS_setresuid SYS_setreuid SYS_setsid
    SYS_setsockopt SYS_setuid SYS_setxattr SYS_shmat SYS_shmctl SYS_shmdt SYS_shmget SYS_shutdown SYS_sigaltstack
    SYS_signalfd4 SYS_socket SYS_socketpair SYS_splice SYS_statfs SYS_statx SYS_symlinkat SYS_sync SYS_syncfs
    SYS_sysinfo SYS_tee SYS_tgkill SYS_timer_create SYS_timer_delete SYS_timer_getoverrun SYS_timer_gettime
    SYS_timer_settime SYS_timerfd_create SYS_timerfd_gettime SYS_timerfd_settime SYS_times SYS_tkill SYS_truncate
    SYS_umask SYS_uname SYS_unlinkat SYS_utimensat SYS_vmsplice SYS_wait4 SYS_waitid SYS_write SYS_writev
];

/// Older names that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const LEGACY: &[i64] = calls![
    SYS_access SYS_alarm SYS_arch_prctl SYS_chmod SYS_chown SYS_creat SYS_dup2 SYS_epoll_create SYS_epoll_wait
    SYS_eventfd SYS_fchmodat2 SYS_fork SYS_futimesat SYS_get_thread_area SYS_getdents SYS_getpgrp SYS_getrlimit
    SYS_inotify_init SYS_lchown SYS_link SYS_lstat SYS_mkdir SYS_mknod SYS_modify_ldt SYS_open SYS_pause SYS_pipe
    SYS_poll SYS_readlink SYS_rename SYS_renameat SYS_rmdir SYS_select SYS_set_thread_area SYS_setrlimit SYS_signalfd
    SYS_stat SYS_symlink SYS_sync_file_range SYS_time SYS_unlink SYS_utime SYS_utimes SYS_vfork
];
#[cfg(not(target_arch = "x86_64"))]
const LEGACY: &[i64] = &[];

/// Puts the calling thread, and what it becomes, under the filter. It also forbids new privileges, which an unprivileged
/// thread must do before it may have a filter.
///
/// # Errors
/// When the kernel has no seccomp.
pub fn confine() -> Result<()> {
    // `clone3` hides its flags in memory, where no filter can look. C libraries fall back to `clone` on ENOSYS only.
    let hidden = filter(rules(&[libc::SYS_clone3]), SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))?;
    apply_filter(&hidden).context("the kernel took no seccomp filter")?;
    let main = filter(allowed()?, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)?;
    apply_filter(&main).context("the kernel took no seccomp filter")
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn rules(calls: &[i64]) -> Rules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

fn allowed() -> Result<Rules> {
    let mut all = rules(ALLOWED);
    all.append(&mut rules(LEGACY));
    // What the first filter refuses must not be refused differently here.
    all.append(&mut rules(&[libc::SYS_clone3]));
    let no_namespace = SeccompCmpOp::MaskedEq(NAMESPACES);
    let plain = SeccompCondition::new(0, SeccompCmpArgLen::Qword, no_namespace, 0)?;
    all.insert(libc::SYS_clone, vec![SeccompRule::new(vec![plain])?]);
    // Asking for the personality, and choosing the usual one.
    let (usual, ask) = (persona(0)?, persona(0xffff_ffff)?);
    all.insert(libc::SYS_personality, vec![usual, ask]);
    Ok(all)
}

fn persona(value: u64) -> Result<SeccompRule> {
    let same = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?;
    Ok(SeccompRule::new(vec![same])?)
}

fn filter(rules: Rules, others: SeccompAction, these: SeccompAction) -> Result<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    Ok(SeccompFilter::new(rules, others, these, arch)?.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reaches_out_of_a_container_is_not_on_the_list() {
        let allowed = allowed().unwrap();
        for call in [libc::SYS_mount, libc::SYS_unshare, libc::SYS_setns, libc::SYS_bpf, libc::SYS_ptrace] {
            assert!(!allowed.contains_key(&call));
        }
    }
}
