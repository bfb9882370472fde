//! Core tokens and the queue for them: byte-range locks on one file, which the kernel releases if a process
//! is killed.
//!
//! ```text
//! locked bytes, which the file need not contain
//! 0 … 1023                a token per core
//! 2^20 …                  waiters of priority high,   at 2^20 + the microsecond their wait began
//! 2^60 + 2^20 …           … normal
//! 2^61 + 2^20 …           … low
//!
//! written bytes
//! 4 i … 4 i + 3           heartbeat counter of the holder of token i, updated while other runs wait
//! ```
//!
//! One call ("is any byte before this one locked?") therefore tells whether another run goes first, because
//! of a higher priority or an earlier start of its wait. The locks belong to an open file description
//! (`F_OFD_SETLK`): two runs of one process exclude each other as those of two processes do, and closing the
//! file elsewhere in the process releases none of them. `flock` would need an open file per token, and can
//! only be tested by taking it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::RunPriority;

/// Maximum number of tokens; further cores of a larger machine are not shared out.
pub(super) const TOKENS_MAX: usize = 1024;

/// Offset of the queue's first byte within its priority.
const QUEUE_START: u64 = 1 << 20;

/// The file with a run's locks.
#[derive(Debug)]
pub(super) struct TokenLocks {
    file: File,
}

/// A place in the queue: the byte that the waiting run locks. Lower bytes go first.
pub(super) type QueueTicket = u64;

impl TokenLocks {
    /// Opens the lock file in a folder, and creates both if missing.
    ///
    /// # Errors
    /// Returns the system's error, and [`io::ErrorKind::Unsupported`] on a file system that other machines
    /// may lock too.
    pub(super) fn open(folder: &Path) -> io::Result<TokenLocks> {
        crate::state_folder::create_private_folders(folder)?;
        let path = folder.join("tokens");
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = file.open(path)?;
        if is_network_file_system(&file)? {
            let why = "it is on a network file system, whose locks other machines share";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let locks = TokenLocks { file };
        // Fails if the system has no such locks.
        locks.first_locked_byte(0..1)?;
        Ok(locks)
    }

    /// Locks a token, if no other run has it.
    pub(super) fn try_lock_token(&self, token: usize) -> bool {
        matches!(self.try_lock_byte(token as u64), Ok(true))
    }

    /// Returns true if another run has locked a token.
    pub(super) fn is_token_locked(&self, token: usize) -> bool {
        let token = token as u64;
        !matches!(self.first_locked_byte(token..token + 1), Ok(None))
    }

    /// Releases a token.
    pub(super) fn unlock_token(&self, token: usize) {
        self.unlock_byte(token as u64);
    }

    /// Joins the queue behind all waiting runs of the same priority.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn join_queue(&self, priority: RunPriority) -> io::Result<QueueTicket> {
        let mut ticket = queue_range(priority).start + monotonic_us();
        while !self.try_lock_byte(ticket)? {
            ticket += 1;
        }
        Ok(ticket)
    }

    /// Leaves the queue.
    pub(super) fn leave_queue(&self, ticket: QueueTicket) {
        self.unlock_byte(ticket);
    }

    /// Returns another run that waits in a part of the queue, except for those in `passed_over`. An error
    /// counts as no waiter.
    pub(super) fn first_waiter(
        &self,
        queue: Range<QueueTicket>,
        passed_over: &[QueueTicket],
    ) -> Option<QueueTicket> {
        let mut from = queue.start;
        let mut inside: Vec<_> =
            passed_over.iter().copied().filter(|ticket| queue.contains(ticket)).collect();
        inside.sort_unstable();
        for end in inside.into_iter().chain([queue.end]) {
            if from < end
                && let Ok(Some(found)) = self.first_locked_byte(from..end)
            {
                return Some(found);
            }
            from = end + 1;
        }
        None
    }

    /// Writes the heartbeat counter for tokens, which shows that their holder lives.
    pub(super) fn write_heartbeats(&self, tokens: impl Iterator<Item = usize>, beat: u32) {
        for token in tokens {
            // Without it, on a full disk, the tokens count as those of a stopped process.
            let _ = self.file.write_all_at(&beat.to_le_bytes(), 4 * token as u64);
        }
    }

    /// Reads the heartbeat counters of the first `tokens` tokens.
    pub(super) fn read_heartbeats(&self, tokens: usize) -> Vec<u32> {
        let mut bytes = vec![0; 4 * tokens];
        let mut filled = 0;
        while let Ok(count @ 1..) = self.file.read_at(&mut bytes[filled..], filled as u64) {
            filled += count;
        }
        let (beats, _) = bytes.as_chunks();
        beats.iter().map(|beat| u32::from_le_bytes(*beat)).collect()
    }

    fn try_lock_byte(&self, byte: u64) -> io::Result<bool> {
        match self.call_fcntl(LockCommand::Lock, byte..byte + 1) {
            Ok(_) => Ok(true),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EACCES) => Ok(false),
                _ => Err(error),
            },
        }
    }

    fn unlock_byte(&self, byte: u64) {
        // The same call has locked it, so it cannot fail.
        let _ = self.call_fcntl(LockCommand::Unlock, byte..byte + 1);
    }

    /// Returns the first byte of a range that another run has locked.
    fn first_locked_byte(&self, bytes: Range<u64>) -> io::Result<Option<u64>> {
        let from = bytes.start;
        Ok(self.call_fcntl(LockCommand::Query, bytes)?.map(|found| found.max(from)))
    }

    #[cfg(target_os = "linux")]
    fn call_fcntl(&self, call: LockCommand, bytes: Range<u64>) -> io::Result<Option<u64>> {
        let place = |byte: u64| libc::off_t::try_from(byte).map_err(io::Error::other);
        let (command, kind) = match call {
            LockCommand::Lock => (libc::F_OFD_SETLK, libc::F_WRLCK),
            LockCommand::Unlock => (libc::F_OFD_SETLK, libc::F_UNLCK),
            LockCommand::Query => (libc::F_OFD_GETLK, libc::F_WRLCK),
        };
        // SAFETY: all fields are numbers.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        lock.l_start = place(bytes.start)?;
        lock.l_len = place(bytes.end - bytes.start)?;
        // SAFETY: the descriptor is open as long as the file, and these commands take this structure.
        let status = unsafe { libc::fcntl(self.file.as_raw_fd(), command, &raw mut lock) };
        if status < 0 {
            return Err(io::Error::last_os_error());
        }
        let is_found =
            matches!(call, LockCommand::Query) && lock.l_type != libc::F_UNLCK as libc::c_short;
        Ok(is_found.then(|| u64::try_from(lock.l_start).unwrap_or(0)))
    }

    #[cfg(not(target_os = "linux"))]
    fn call(&self, _: LockCommand, _: Range<u64>) -> io::Result<Option<u64>> {
        let _ = self.file.as_raw_fd();
        Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no such locks"))
    }
}

#[derive(Clone, Copy)]
enum LockCommand {
    Lock,
    Unlock,
    Query,
}

/// Returns the bytes of the queue for a priority.
pub(super) fn queue_range(priority: RunPriority) -> Range<QueueTicket> {
    let rank: u64 = match priority {
        RunPriority::High => 0,
        RunPriority::Normal => 1,
        RunPriority::Low => 2,
    };
    let start = (rank << 60) + QUEUE_START;
    start..((rank + 1) << 60)
}

/// Returns the time of a clock that all processes of the machine share.
fn monotonic_us() -> u64 {
    super::read_clock_ns(libc::CLOCK_MONOTONIC).unwrap_or(0) / 1000
}

/// Returns true if other machines may see the same file, judged by the kernel's number of its file system.
#[cfg(target_os = "linux")]
fn is_network_file_system(file: &File) -> io::Result<bool> {
    let kind = rustix::fs::fstatfs(file)?.f_type;
    // NFS, SMB, CIFS, SMB2, Ceph, AFS, Coda, Lustre, GPFS, GFS2, OCFS2: linux/magic.h and their own sources.
    let known = [
        0x6969,
        0x517b,
        0xff53_4d42,
        0xfe53_4d42,
        0x00c3_6400,
        0x5346_414f,
        0x7375_7245,
        0x0bd0_0bd0,
        0x4750_4653,
        0x0116_1970,
        0x7461_636f_u64,
    ];
    // The upper half is only a sign extension.
    Ok(known.contains(&(kind as u64 & 0xffff_ffff)))
}

#[cfg(not(target_os = "linux"))]
fn is_shared_by_machines(_: &File) -> io::Result<bool> {
    Ok(false)
}
