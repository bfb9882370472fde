//! The memory account of a run: one byte counter for all of its live tables.
//!
//! A budget divided by the number of threads at the start of a run is exceeded as soon as there are more
//! tables than threads. A thread that stalls keeps its table while another thread takes its place, a job may
//! fill several tables in one pass, and a continuous run keeps its tables between two answers. All of them
//! charge one account:
//!
//! ```text
//!   worker's table ──┐                    ┌── register: a holder that can spill
//!   waiting rows   ──┤ MemoryCharge       │
//!   merged table   ──┼──► MemoryAccount ──┴── make_room: while `used` is over 7/8 of the limit,
//!   finished part  ──┘    used / limit                   the holder with the fullest table spills it
//! ```
//!
//! The account reserves nothing in advance: a charge follows the memory that a table holds already. The
//! account is therefore over its limit while [`MemoryAccount::make_room`] runs. The thread whose table has
//! grown calls it and does the spilling, so that a run cannot grow faster than it spills. Few threads spill
//! at a time, and others wait if memory is short by more than an eighth: each spill copies a table on its
//! way, and threads that had stalled come back all at once. A spill need not free memory itself: a worker's
//! table spills into the table that merges the groups of all workers, which is the next to spill to disk.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex};

use crate::error::Result;
use crate::memory_budget::release_freed_memory;

/// A holder of tables that an account can ask to spill.
pub trait MemoryHolder: Send + Sync {
    /// Returns the bytes of the table that [`spill`](Self::spill) would spill, 0 if there is none.
    fn spillable_bytes(&self) -> usize;

    /// Spills the fullest table. Returns false if that table is empty, or in use by another thread, which
    /// makes room itself when it is done. Never waits for a lock that a thread may hold while it calls
    /// [`MemoryAccount::make_room`].
    ///
    /// # Errors
    /// Returns an error if a table cannot be merged or written.
    fn spill(&self) -> Result<bool>;
}

/// A byte counter with a limit, shared by all tables of a run. A clone is the same account.
#[derive(Clone)]
pub struct MemoryAccount {
    shared: Arc<AccountState>,
}

struct AccountState {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
    holders: Mutex<Vec<Weak<dyn MemoryHolder>>>,
    /// Number of threads that are spilling.
    spilling_threads: Mutex<usize>,
    spill_finished: Condvar,
}

/// Maximum number of threads that spill at a time.
const SPILLING_THREADS_MAX: usize = 2;

impl fmt::Debug for MemoryAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryAccount")
            .field("limit_bytes", &self.limit_bytes())
            .field("used_bytes", &self.used_bytes())
            .finish_non_exhaustive()
    }
}

impl MemoryAccount {
    /// Creates an empty account.
    pub fn new(limit_bytes: usize) -> Self {
        let shared = AccountState {
            limit_bytes,
            used_bytes: AtomicUsize::new(0),
            holders: Mutex::new(Vec::new()),
            spilling_threads: Mutex::new(0),
            spill_finished: Condvar::new(),
        };
        MemoryAccount { shared: Arc::new(shared) }
    }

    /// Returns the maximum sum of all charges, in bytes.
    pub fn limit_bytes(&self) -> usize {
        self.shared.limit_bytes
    }

    /// Returns the sum of all charges, in bytes.
    pub fn used_bytes(&self) -> usize {
        self.shared.used_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes left below the limit.
    pub fn free_bytes(&self) -> usize {
        self.limit_bytes().saturating_sub(self.used_bytes())
    }

    /// Returns true if the charges exceed the limit.
    pub fn is_full(&self) -> bool {
        self.used_bytes() > self.limit_bytes()
    }

    /// Charges `bytes` for as long as the returned value lives.
    pub fn charge(&self, bytes: usize) -> MemoryCharge {
        self.shared.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        MemoryCharge { account: self.clone(), bytes }
    }

    /// Adds a holder, which the account asks to spill until the holder is dropped.
    pub fn register(&self, holder: Weak<dyn MemoryHolder>) {
        let mut holders = self.shared.holders.lock();
        holders.retain(|holder| holder.strong_count() > 0);
        holders.push(holder);
    }

    /// Makes holders spill their fullest tables until an eighth of the limit is free, if the account is over
    /// its limit.
    ///
    /// # Errors
    /// Returns the errors of [`MemoryHolder::spill`].
    pub fn make_room(&self) -> Result<()> {
        if !self.is_full() {
            return Ok(());
        }
        let mut spilling = self.shared.spilling_threads.lock();
        while *spilling >= SPILLING_THREADS_MAX {
            if self.used_bytes() <= self.limit_bytes() / 8 * 9 {
                return Ok(());
            }
            self.shared.spill_finished.wait(&mut spilling);
        }
        *spilling += 1;
        drop(spilling);
        // Ends the turn even if a holder panics.
        let _turn = SpillTurn { shared: &self.shared };
        match self.is_full() {
            true => self.spill_down_to(self.limit_bytes() / 8 * 7),
            false => Ok(()),
        }
    }

    /// Makes holders spill their fullest tables until the charges sum to at most `bytes`, or nothing is left
    /// to spill. Then returns the freed memory to the system.
    ///
    /// # Errors
    /// Returns the errors of [`MemoryHolder::spill`].
    pub fn spill_down_to(&self, bytes: usize) -> Result<()> {
        if self.used_bytes() <= bytes {
            return Ok(());
        }
        // Collected without holding the lock: spilling may take long, and charges come and go meanwhile.
        let mut holders: Vec<Arc<dyn MemoryHolder>> =
            self.shared.holders.lock().iter().filter_map(Weak::upgrade).collect();
        let mut has_spilled = false;
        while self.used_bytes() > bytes {
            let sizes = holders.iter().map(|holder| holder.spillable_bytes()).enumerate();
            let Some((fullest, size)) = sizes.max_by_key(|(_, size)| *size) else { break };
            if size == 0 {
                break;
            }
            if holders[fullest].spill()? {
                has_spilled = true;
            } else {
                holders.swap_remove(fullest);
            }
        }
        if has_spilled {
            release_freed_memory();
        }
        Ok(())
    }
}

/// The turn of a thread that spills.
struct SpillTurn<'a> {
    shared: &'a AccountState,
}

impl Drop for SpillTurn<'_> {
    fn drop(&mut self) {
        *self.shared.spilling_threads.lock() -= 1;
        self.shared.spill_finished.notify_all();
    }
}

/// A number of bytes that an account counts until the charge is dropped.
#[derive(Debug)]
pub struct MemoryCharge {
    account: MemoryAccount,
    bytes: usize,
}

impl MemoryCharge {
    /// Returns the charged bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes the charge to `bytes`.
    pub fn set_bytes(&mut self, bytes: usize) {
        let used_bytes = &self.account.shared.used_bytes;
        used_bytes.fetch_add(bytes, Ordering::Relaxed);
        used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.set_bytes(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table that spills into another one, or to disk.
    struct TestHolder {
        charge: Mutex<MemoryCharge>,
        below: Option<Arc<TestHolder>>,
        spills: AtomicUsize,
    }

    impl TestHolder {
        fn new(
            account: &MemoryAccount,
            bytes: usize,
            below: Option<&Arc<TestHolder>>,
        ) -> Arc<Self> {
            let holder = Arc::new(TestHolder {
                charge: Mutex::new(account.charge(bytes)),
                below: below.cloned(),
                spills: AtomicUsize::new(0),
            });
            account.register(Arc::downgrade(&holder) as Weak<dyn MemoryHolder>);
            holder
        }

        fn spill_count(&self) -> usize {
            self.spills.load(Ordering::Relaxed)
        }
    }

    impl MemoryHolder for TestHolder {
        fn spillable_bytes(&self) -> usize {
            self.charge.try_lock().map_or(usize::MAX, |charge| charge.bytes())
        }

        fn spill(&self) -> Result<bool> {
            let Some(mut charge) = self.charge.try_lock() else { return Ok(false) };
            if let Some(below) = &self.below {
                let mut below = below.charge.lock();
                let bytes = below.bytes() + charge.bytes();
                below.set_bytes(bytes);
            }
            charge.set_bytes(0);
            self.spills.fetch_add(1, Ordering::Relaxed);
            Ok(true)
        }
    }

    #[test]
    fn the_fullest_table_spills_until_an_eighth_of_the_limit_is_free() {
        let account = MemoryAccount::new(80);
        let merged = TestHolder::new(&account, 5, None);
        let workers = [30, 40, 5].map(|bytes| TestHolder::new(&account, bytes, Some(&merged)));
        account.make_room().unwrap();
        assert_eq!(account.used_bytes(), 80, "80 bytes are no more than the limit");
        let extra = account.charge(1);
        account.make_room().unwrap();
        // The table of 40 goes into the merged one, which is then the fullest and goes to disk.
        assert_eq!(account.used_bytes(), 36);
        let spills = workers.each_ref().map(|worker| worker.spill_count());
        assert_eq!((merged.spill_count(), spills), (1, [0, 1, 0]));
        drop((extra, workers));
        assert_eq!((account.used_bytes(), account.free_bytes()), (0, 80));
    }

    #[test]
    fn a_table_in_use_and_a_charge_without_a_table_are_left_alone() {
        let account = MemoryAccount::new(10);
        let (used, idle) =
            (TestHolder::new(&account, 50, None), TestHolder::new(&account, 7, None));
        let _rows = account.charge(20);
        let guard = used.charge.lock();
        account.make_room().unwrap();
        assert_eq!((account.used_bytes(), idle.spill_count()), (70, 1));
        drop(guard);
        account.make_room().unwrap();
        assert_eq!((account.used_bytes(), used.spill_count()), (20, 1));
        assert!(account.is_full());
    }

    #[test]
    fn threads_that_grow_at_once_take_turns_and_end_below_the_limit() {
        let account = MemoryAccount::new(800);
        let merged = TestHolder::new(&account, 0, None);
        std::thread::scope(|scope| {
            for _ in 0..32 {
                scope.spawn(|| {
                    let own = TestHolder::new(&account, 0, Some(&merged));
                    for _ in 0..100 {
                        let mut charge = own.charge.lock();
                        let bytes = charge.bytes() + 10;
                        charge.set_bytes(bytes);
                        drop(charge);
                        account.make_room().unwrap();
                    }
                });
            }
        });
        account.make_room().unwrap();
        assert!(!account.is_full() && merged.spill_count() > 0);
        assert_eq!(*account.shared.spilling_threads.lock(), 0);
    }

    #[test]
    fn a_dropped_holder_leaves_the_account() {
        let account = MemoryAccount::new(10);
        for bytes in 0..100 {
            drop(TestHolder::new(&account, bytes, None));
        }
        assert_eq!(account.used_bytes(), 0);
        assert!(account.shared.holders.lock().len() <= 1);
        account.spill_down_to(0).unwrap();
    }
}
